"""Features in descending order of attribution, with ties shared fairly.

Equal attributions have no order of their own. Where a score asks for the largest k features and the k-th is one of several
equal ones, it gets the expectation over all ways to break the tie: the answer does not depend on where a feature lies in
memory, and a constant map scores chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Ranking:
    """N rows of D features, the largest attribution first."""

    values: Tensor  # N×D, descending
    inside: Tensor  # N×D bool, whether the feature at that rank lies inside the region
    hits: Tensor  # N×(D + 1) int64, the number of features inside among the first 0, 1, …, D

    def expected_hits(self, count: Tensor) -> Tensor:
        """N: how many of the `count` (N) largest features lie inside, in expectation over the order of equal ones."""
        edge = self.values.gather(1, (count - 1).clamp(min=0)[:, None])
        above, reached = (self.values > edge).sum(1), (self.values >= edge).sum(1)
        sure, most = (self.hits.gather(1, at[:, None])[:, 0] for at in (above, reached))
        return sure + (count - above).to(self.values.dtype) / (reached - above) * (most - sure)

    def tie_groups(self) -> tuple[Tensor, Tensor] | None:
        """N×D and N×D: the first and the last rank with the same attribution; None where no two are equal."""
        changes = self.values[:, 1:] != self.values[:, :-1]
        if bool(changes.all()):
            return None
        ranks = torch.arange(self.values.shape[1], device=self.values.device).expand(self.values.shape)
        # The first rank of a group is the last change seen so far; the last rank, the same from the other end.
        first = torch.where(F.pad(changes, (1, 0), value=True), ranks, 0).cummax(1).values
        ends = torch.where(F.pad(changes, (0, 1), value=True), ranks, ranks.shape[1])
        return first, ends.flip(1).cummin(1).values.flip(1)


def ranking(values: Tensor, inside: Tensor) -> Ranking:
    """N×D finite attributions and whether they lie inside (bool), sorted.

    >>> ranking(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[True, False, True]])).hits
    tensor([[0, 0, 1, 2]])
    """
    if values.device.type == "cpu" and values.dtype == torch.float32:
        ordered, kept = _sorted_on_cpu(values, inside)
    else:
        ordered, order = values.sort(dim=1, descending=True)
        kept = inside.gather(1, order)
    return Ranking(ordered, kept, F.pad(kept.cumsum(1), (1, 0)))


def _sorted_on_cpu(values: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The same, three times as fast: numpy sorts with vector instructions, but values alone and not their order.

    A float32 leaves the last 29 bits of a float64 free, so that the lowest can carry `inside` through the sort without
    changing the order of two different attributions.
    """
    packed = (-values).double()
    packed.view(torch.int64).bitwise_or_(inside)
    packed.numpy().sort(axis=1)
    return -packed.float(), (packed.view(torch.int64) & 1).bool()
