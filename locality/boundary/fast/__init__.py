"""`fast`, the default search: about a dozen gradients per image.

The nearest point across the boundary solves: minimise ‖δ‖ subject to margin(x + δ) = 0 and x + δ in [0, 1]. Each step
takes the gradient g of the margin at the current point, replaces the margin by its tangent there, and solves the simpler
problem exactly, pixel limits included: u = clip(x − λg) with the one λ that puts u on the tangent (sequential quadratic
programming with the identity as Hessian). The iterate moves towards u by a step size that decays as a cosine. On networks
this needs the following:

- Overshoot. The tangent aims beyond the boundary by a share of the first margin. The share grows while the iterate is inside
  and shrinks once it is across: robust models bend away from the tangent, and only points across count.
- A smooth margin. g is the gradient of f_y − logsumexp(β·others)/β. At first, with β = 1, no rival class hides another; β
  grows until only the nearest rival counts, which gives the true margin.
- Rounds. At a nearest point δ and u are parallel (`cosine_to_tangent` = 1). Images for which they nearly are stop; others
  get further rounds from their best point, as long as a round improves it (`tangent_steps.py`).
- Backtracking. A step that lands far across, where gradients carry no information, is shortened along its line.
- Rivals. Which class is nearest shows on the way rather than at the image: rivals are ranked and tried from there
  (`rivals.py`).
- A sphere walk. Where the boundary is much nearer than the first tangent predicts and the gradient has changed direction, as
  in transformers, tangents may have led to the wrong part of the boundary: a walk from outside looks for a nearer part
  (`sphere_walk.py`).
"""

from locality.boundary.fast.search import fast_search as fast_search
