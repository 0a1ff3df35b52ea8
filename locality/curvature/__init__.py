"""Curvature of the loss: Hessian traces and the weight-curvature index come here. Empty so far; `training` may import it."""
