"""Curvature of the loss: Hessian traces and the weight-curvature index."""
