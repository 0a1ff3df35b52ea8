"""RayS (Chen & Gu, KDD 2020): the ℓ∞ boundary by predicted classes alone, without logits or gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.boundary.search import SearchContext, limited_to
from locality.errors import ArgumentError
from locality.model_calls.checks import UNIT

# Of a radius, in pixels; the published one is 1e-3 in ℓ2, which is 1.8e-5 in ℓ∞ for 3×32×32 images.
TOLERANCE = 2e-5
OUTSIDE_QUERIES = 2  # that `find_boundary` needs: the prediction for the image, and that for the point


# Not targeted: in a direction that never meets the wanted class, predictions do not say which flips come closer to it.
@limited_to(norms=("linf",), bounds=UNIT, gradients=False, targeted=False)
def rays_search(context: SearchContext, queries: int = 10_000) -> Tensor:
    """Points clip(x + r·s) of another class, with signs s and the smallest r found; at most `queries` predictions per image.

    s starts at +1. Level k cuts the pixels, in the order of memory, into 2^k blocks and flips the signs of one after the
    other. A flip is kept if it is across at the best r so far, which takes one query; r is then bisected. The search ends
    once no flip of a single pixel helps. It is deterministic, and each image is searched by itself.
    Unlike the published code it tries s = +1 itself, and tries flips at the best r minus the tolerance of the bisection:
    flips that change nothing cost one query, not a bisection.
    """
    if isinstance(queries, bool) or not isinstance(queries, int) or queries <= OUTSIDE_QUERIES:
        raise ArgumentError("queries", f"a whole number of at least {OUTSIDE_QUERIES + 1}", queries)
    state = _Rays(context)
    for query in range(queries - OUTSIDE_QUERIES):
        active = state.active.nonzero()[:, 0]
        if len(active) == 0:
            break
        points = state.points(active)
        state.learn(active, context.calls.logits(points).argmax(dim=1) != context.labels[active])
        if query % 100 == 0:
            context.progress(len(context.images) - len(active), len(context.images))
    return state.best_points()


class _Rays:
    """What each image tries next: a flip at its best radius, or a radius between two others along the flipped signs."""

    def __init__(self, context: SearchContext) -> None:
        self.images, self.limits = context.images, context.calls.limits
        count, self.size = len(self.images), self.images[0].numel()
        self.signs = torch.ones(count, self.size, device=self.images.device)
        self.best = torch.full(
            (count,), torch.inf, device=self.images.device
        )  # radius of the nearest point of another class
        self.low, self.high = torch.zeros_like(self.best), torch.zeros_like(self.best)  # while a radius is bisected
        self.bisecting = torch.zeros(count, dtype=torch.bool, device=self.images.device)
        self.level = torch.zeros(count, dtype=torch.int64, device=self.images.device)
        self.block = torch.full_like(self.level, -1)  # the block before the first one is empty: s itself is tried first
        self.improved = torch.zeros_like(self.bisecting)  # during this level
        self.active = torch.ones_like(self.bisecting)

    def points(self, rows: Tensor) -> Tensor:
        """The points whose classes the images want to know."""
        middle = (self.low[rows] + self.high[rows]) / 2
        return self._at(rows, self._flipped(rows), torch.where(self.bisecting[rows], middle, self._shorter(rows)))

    def learn(self, rows: Tensor, across: Tensor) -> None:
        """Take the answers: which of those points are of another class."""
        searching = self.bisecting[rows]
        middle = (self.low[rows] + self.high[rows]) / 2
        self.high[rows] = torch.where(searching & across, middle, self.high[rows])
        self.low[rows] = torch.where(searching & ~across, middle, self.low[rows])
        begins = rows[~searching & across]
        self.low[begins], self.high[begins], self.bisecting[begins] = 0, self._shorter(begins), True
        ends = self.bisecting[rows] & (self.high[rows] - self.low[rows] <= TOLERANCE)
        self._keep(rows[ends])
        self._next_block(rows[ends | ~self.bisecting[rows]])

    def best_points(self) -> Tensor:
        """The nearest points found; the image itself where there is none. A radius that is being bisected counts too."""
        rows = torch.arange(len(self.images), device=self.images.device)
        self._keep(rows[self.bisecting])
        radius = torch.where(self.best.isfinite(), self.best, 0.0)
        return self._at(rows, self.signs, radius)

    def _shorter(self, rows: Tensor) -> Tensor:
        """The radius at which a flip must be across to be worth a bisection; from 1 on, a point is a corner of [0, 1]."""
        return (self.best[rows] - TOLERANCE).clamp(0, 1)

    def _at(self, rows: Tensor, signs: Tensor, radius: Tensor) -> Tensor:
        images = self.images[rows]
        return (images + (signs * radius[:, None]).view_as(images)).clamp(*self.limits)

    def _flipped(self, rows: Tensor) -> Tensor:
        """The best signs with those of the current block flipped."""
        length = self._block_length(rows)
        start = self.block[rows] * length
        pixels = torch.arange(self.size, device=self.images.device)
        inside = (pixels >= start[:, None]) & (pixels < (start + length)[:, None])
        return torch.where(inside, -self.signs[rows], self.signs[rows])

    def _block_length(self, rows: Tensor) -> Tensor:
        blocks = 2 ** self.level[rows]
        return (self.size + blocks - 1) // blocks

    def _keep(self, rows: Tensor) -> None:
        """End a bisection: its signs and its radius are the best so far."""
        nearer = rows[self.high[rows] < self.best[rows]]
        self.signs[nearer] = self._flipped(nearer)
        self.best[nearer] = self.high[nearer]
        self.improved[nearer] = True
        self.bisecting[rows] = False

    def _next_block(self, rows: Tensor) -> None:
        self.block[rows] += 1
        length = self._block_length(rows)
        over = self.block[rows] * length >= self.size
        done, single = rows[over], length[over] == 1
        # A pass over single pixels without progress would be repeated for ever.
        self.active[done[single & ~self.improved[done]]] = False
        self.level[done[~single]] += 1
        self.block[done] = 0
        self.improved[done] = False
