"""Features in descending order of attribution, with ties broken in expectation.

Equal attributions have no order. If a score needs the largest k features and the k-th is one of several equal ones, it gets
the expectation over all ways to break the tie: the result does not depend on where a feature lies in memory, and a constant
map scores chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Ties(NamedTuple):
    """The K features that share their attribution with another feature of their row."""

    rows: Tensor  # K
    ranks: Tensor  # K, from 0
    first: Tensor  # K, the first rank with this attribution
    last: Tensor  # K, the last


@dataclass(frozen=True, eq=False)
class Ranking:
    """N rows of D features, the largest attribution first."""

    keys: Tensor  # N×D, −A in ascending order, the only one that torch searches
    hits: Tensor  # N×(D + 1) int64, the number of features inside the region among the first 0, 1, …, D

    @property
    def inside(self) -> Tensor:
        """N×D bool: whether the feature at that rank lies inside the region."""
        return self.hits.diff(dim=1).bool()

    def above(self, threshold: Tensor) -> Tensor:
        """N×Q: how many features exceed each of N×Q thresholds."""
        return torch.searchsorted(self.keys, -threshold.contiguous())

    def expected_hits(self, count: Tensor) -> Tensor:
        """N: how many of the `count` (N) largest features lie inside, in expectation over the order of equal ones."""
        edge = self.keys.gather(1, (count - 1).clamp(min=0)[:, None])
        above, reached = (torch.searchsorted(self.keys, edge, right=right) for right in (False, True))
        sure, most = (self.hits.gather(1, at)[:, 0] for at in (above, reached))
        share = (count[:, None] - above).to(self.keys.dtype) / (reached - above)
        return sure + share[:, 0] * (most - sure)

    def ties(self) -> Ties:
        """The features that share an attribution; in most maps only a few."""
        equal = self.keys[:, 1:] == self.keys[:, :-1]
        before, after = F.pad(equal, (1, 0)), F.pad(equal, (0, 1))
        rows, ranks = (before | after).nonzero(as_tuple=True)
        begins = ~before[rows, ranks]
        group = begins.cumsum(0) - 1
        first = ranks[begins]
        last = first + torch.bincount(group) - 1
        return Ties(rows, ranks, first[group], last[group])


def ranking(values: Tensor, inside: Tensor) -> Ranking:
    """N×D attributions and whether they lie inside (bool), sorted.

    >>> ranking(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[True, False, True]])).hits
    tensor([[0, 0, 1, 2]])
    """
    if values.device.type == "cpu" and values.dtype == torch.float32:
        keys, ordered = _sorted_on_cpu(values, inside)
    else:
        keys, order = (-values).sort(dim=1)
        ordered = inside.gather(1, order)
    hits = ordered.new_zeros((len(keys), keys.shape[1] + 1), dtype=torch.int64)
    torch.cumsum(ordered, dim=1, out=hits[:, 1:])
    return Ranking(keys, hits)


def _sorted_on_cpu(values: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The same, three times as fast: numpy sorts values, but not their order, with vector instructions.

    A float32 leaves the last 29 bits of a float64 free, so the lowest bit can carry `inside` through the sort without
    changing the order of different attributions.
    """
    packed = values.double().neg_()
    bits = packed.view(torch.int64)
    bits.bitwise_or_(inside)
    packed.numpy().sort(axis=1)
    return packed.float(), bits.bitwise_and_(1)
