"""The scores of other papers beside locality, so that no second library is needed.

They run over all features (channel × pixel) like locality; `channels="sum"` adds the channels first, which most of these
papers do. Among equal attributions the order is random and the score its expectation, so a constant map scores chance.
`nan` where the map is not finite, the region is empty, or the score divides by 0. Quantus has six of them, for maps of one
channel; where it differs from the papers, the docstring says how.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from locality.errors import ArgumentError
from locality.scores.map_features import Features, Score


@dataclass(frozen=True)
class PointingGame(Score):
    """1 where the largest attribution lies at most `tolerance` pixels from the region, 0 elsewhere (Zhang et al. 2018).

    The paper allows 15 pixels. Of several equal maxima, the share that hits. The catch: one pixel decides; chance is the
    region's share of the image. Quantus has no tolerance, counts a tie as a hit if any maximum hits, so that a constant map
    scores 1, and stores the `nan` of an empty region in an array of bool, where it becomes 1.

    >>> masks = torch.tensor([[[[False, False, True]]]])
    >>> maps = torch.tensor([[[[0.0, 9.0, 1.0]]]])
    >>> PointingGame()(maps, masks).item(), PointingGame(tolerance=1)(maps, masks).item()
    (0.0, 1.0)
    """

    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.tolerance) or self.tolerance < 0:
            raise ArgumentError("tolerance", "a number of pixels, 0 or larger", self.tolerance)

    def of(self, features: Features) -> Tensor:
        near = features.masks if self.tolerance < 1 else grown(features.masks, self.tolerance)
        largest = features.values == features.values.amax((1, 2), keepdim=True)
        hits = largest & near.flatten(2)
        return _where_marked(hits.sum((1, 2)).to(features.values.dtype) / largest.sum((1, 2)), features)


@dataclass(frozen=True)
class EnergyPointingGame(Score):
    """ΣA⁺M/ΣA⁺, the share of the positive attribution that lies inside (Wang et al. 2020, Score-CAM); locality's precision.

    The catch: negative attributions do not count, so a map that is mostly negative inside can still score 1.

    >>> EnergyPointingGame()(torch.tensor([[[[3.0, 1.0, -9.0]]]]), torch.tensor([[[[True, False, True]]]])).item()
    0.75
    """

    def of(self, features: Features) -> Tensor:
        inside, total = features.important(0.0)
        return _where_marked(inside / total, features)


@dataclass(frozen=True)
class AttributionLocalisation(Score):
    """μ = ΣA⁺M/ΣA⁺, or μ divided by the region's share of the image where `weighted` (Kohlbrenner et al. 2020).

    Unweighted it is the energy-based pointing game. Weighted, chance is 1 and the maximum is 1/share, so images are not
    comparable. Quantus takes |A| for A⁺ unless given `abs=False, positive_attributions=True`. Its weight multiplies by the
    share where the paper divides, and it takes the share of all images of the batch except the first two.

    >>> maps, masks = torch.tensor([[[[3.0, 1.0, -9.0, 0.0]]]]), torch.tensor([[[[True, False, False, False]]]])
    >>> AttributionLocalisation()(maps, masks).item(), AttributionLocalisation(weighted=True)(maps, masks).item()
    (0.75, 3.0)
    """

    weighted: bool = False

    def of(self, features: Features) -> Tensor:
        share = EnergyPointingGame().of(features)
        return share / features.inside.mean((1, 2)) if self.weighted else share


@dataclass(frozen=True)
class RelevanceMassAccuracy(Score):
    """Σ|A|M/Σ|A|, the share of all attribution that lies inside (Arras et al. 2022).

    The paper defines it for maps pooled to be non-negative: `channels="all"` is its pooling "l1-norm", "sum" its "sum,abs".
    The catch: evidence against the class counts like evidence for it. Quantus agrees with `abs=True`; by default it divides
    by the signed sum, which can be 0 or negative.

    >>> maps, masks = torch.tensor([[[[3.0, 1.0, -4.0]]]]), torch.tensor([[[[True, False, True]]]])
    >>> RelevanceMassAccuracy()(maps, masks).item()
    0.875
    """

    def of(self, features: Features) -> Tensor:
        inside, total = features.magnitude
        return _where_marked(inside / total, features)


@dataclass(frozen=True)
class RelevanceRankAccuracy(Score):
    """The share of the K largest attributions that lie inside, where K is the number of features inside (Arras et al. 2022).

    Chance is the region's share of the image. The catch: only the order of values counts, and to reach 1 a map must fill the
    region, however large the box is.

    >>> masks = torch.tensor([[[[True, True, False, False]]]])
    >>> RelevanceRankAccuracy()(torch.tensor([[[[3.0, 1.0, 2.0, 0.0]]]]), masks).item()
    0.5
    """

    def of(self, features: Features) -> Tensor:
        count = features.inside_count
        return _where_marked(features.ranking.expected_hits(count) / count, features)


@dataclass(frozen=True)
class TopKIntersection(Score):
    """The share of the `k` largest attributions that lie inside (Theiner et al. 2021).

    Chance is the region's share of the image. The catch: `k` is a number of features, so it means something else for every
    image size and number of channels; a region smaller than k cannot reach 1.

    >>> masks = torch.tensor([[[[True, True, False, False]]]])
    >>> TopKIntersection(k=1)(torch.tensor([[[[3.0, 1.0, 2.0, 0.0]]]]), masks).item()
    1.0
    """

    k: int = 1000

    def of(self, features: Features) -> Tensor:
        if not 1 <= self.k <= features.count:
            raise ArgumentError("k", f"from 1 to the number of features, {features.count}", self.k)
        hits = features.ranking.expected_hits(torch.full_like(features.inside_count, self.k))
        return _where_marked(hits / self.k, features)


@dataclass(frozen=True)
class RocAuc(Score):
    """The probability that a feature inside has a larger attribution than one outside; equal ones count half.

    Chance is 0.5. The catch: ranks of thousands of features near 0 outweigh the few that carry the attribution. `nan` also
    where the region is the whole image.

    >>> RocAuc()(torch.tensor([[[[3.0, 1.0, 2.0, 0.0]]]]), torch.tensor([[[[True, True, False, False]]]])).item()
    0.75
    """

    def of(self, features: Features) -> Tensor:
        # In whole numbers: 2·n·(D − n)·AUC = Σ_r (h(r − 1) + h(r)) − n² with n features inside, h(r) of them among the
        # first r. For equal attributions, h is taken before the first of them and after the last.
        inside, hits, ties = features.inside_count, features.ranking.hits, features.ranking.ties()
        twice = 2 * hits.sum(1) - inside  # h begins with 0 and ends with n
        shared = hits[ties.rows, ties.first] + hits[ties.rows, ties.last + 1]
        twice.index_add_(0, ties.rows, shared - hits[ties.rows, ties.ranks] - hits[ties.rows, ties.ranks + 1])
        auc = (twice - inside**2).to(features.values.dtype) / (2 * inside * (features.count - inside))
        return _where_marked(auc, features)


@dataclass(frozen=True)
class IouAtQuantile(Score):
    """|B ∩ M|/|B ∪ M| with B = {A > the map's `quantile`}; 0.8 keeps the largest fifth.

    Chance is ab/(a + b − ab) with b = 1 − quantile and a the region's share. The catch: the most a map can reach is
    min(a, b)/max(a, b), so the score says as much about the size of the box as about the map.

    >>> masks = torch.tensor([[[[True, True, False, False]]]])
    >>> IouAtQuantile(quantile=0.5)(torch.tensor([[[[3.0, 1.0, 2.0, 0.0]]]]), masks).item()  # {3, 2} and {3, 1}
    0.3333333432674408
    """

    quantile: float = 0.8

    def __post_init__(self) -> None:
        if not 0 <= self.quantile < 1:
            raise ArgumentError("quantile", "from 0 to below 1", self.quantile)

    def of(self, features: Features) -> Tensor:
        ranked = features.ranking
        # A quantile between two values keeps what exceeds the lower one. Slightly more, because 0.29·100 is below 29.
        below = math.floor(self.quantile * (features.count - 1) + 1e-9)
        size = ranked.above(-ranked.keys[:, features.count - 1 - below, None])
        both = ranked.hits.gather(1, size)
        union = size + features.inside_count[:, None] - both
        return _where_marked((both.to(features.values.dtype) / union)[:, 0], features)


def _where_marked(scores: Tensor, features: Features) -> Tensor:
    """The scores, `nan` where the region is empty."""
    return scores.masked_fill(features.inside_count == 0, torch.nan)


def grown(masks: Tensor, distance: float) -> Tensor:
    """N×1×H×W: True at most `distance` pixels (ℓ2, centre to centre) from the region.

    >>> grown(torch.tensor([[[[True, False, False]]]]), 1).tolist()
    [[[[True, True, False]]]]
    """
    height, width = masks.shape[2:]
    columns = torch.arange(width, device=masks.device, dtype=torch.float32)
    # Along each row, the distance to the nearest marked pixel on either side; then every row looks at those within reach.
    left = torch.where(masks, columns, -torch.inf).cummax(3).values
    right = torch.where(masks, columns, torch.inf).flip(3).cummin(3).values.flip(3)
    square = torch.minimum(columns - left, right - columns) ** 2
    near = masks.clone()
    for shift in range(min(math.floor(distance), height - 1) + 1):
        reached = square <= distance**2 - shift**2
        near[:, :, shift:] |= reached[:, :, : height - shift]
        near[:, :, : height - shift] |= reached[:, :, shift:]
    return near
