"""Curvature of the loss: Hessian traces of the last layer in closed form. `training` may import it."""
