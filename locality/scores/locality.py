"""Locality: how much of an attribution lies inside the region a person marked (section 2.4 of the thesis), against chance.

I_f = A ⊙ 1[A > ρ] are the important features of a map A; M is 1 inside the region. Sums run over all features, that is
every channel of every pixel; `channels="sum"` adds the channels first. A map that is not finite scores `nan` everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from locality.errors import ArgumentError
from locality.scores.map_features import Features, Score, over_maps
from locality.types import Channels, LocalityScores

QUANTILES = tuple(step / 20 for step in range(20))


@dataclass(frozen=True, eq=False)
class MapScores:
    """Locality and what chance would give; every field has one number per map, `nan` where undefined."""

    precision: Tensor
    recall: Tensor
    f1: Tensor
    chance: Tensor  # the F1 that the same values score when shuffled over the image
    lift: Tensor  # (F1 − chance)/(1 − chance)
    box_share: Tensor  # the share of the image that lies inside the region


@dataclass(frozen=True, eq=False)
class LocalityCurve:
    """Locality at increasing thresholds ρ, and the area under precision over recall."""

    rho: Tensor  # N×Q
    precision: Tensor  # N×Q
    recall: Tensor  # N×Q
    area: Tensor  # N


def locality_scores(maps: Tensor, masks: Tensor, rho: float = 0.0, channels: Channels = "all") -> LocalityScores:
    """Precision, recall and F1 of each map: Definitions 9 and 10 and Equation 2.3 of the thesis.

    Pre = Σ I_f·M / Σ I_f, Rec = Σ I_f·M / Σ |A|·M, F1 = 2·Pre·Rec/(Pre + Rec). `nan`: Pre where ΣI_f = 0, Rec where
    Σ|A|·M = 0, F1 where either is; F1 = 0 where both are 0. The catch: a map without negative values has Rec = 1 whatever it
    shows, so read F1 together with `lift`. `rho` is in the units of the map: only ρ = 0 does not depend on its scale.

    >>> maps = torch.tensor([[[[4.0, -2.0], [1.0, -1.0]]]])
    >>> masks = torch.tensor([[[[True, True], [False, False]]]])
    >>> scores = locality_scores(maps, masks)
    >>> [round(score.item(), 3) for score in (scores.precision, scores.recall, scores.f1)]  # 4/5, 4/6
    [0.8, 0.667, 0.727]
    """
    check_rho(rho)
    return LocalityScores(*over_maps(maps, masks, channels, lambda features: _map_scores(features, rho)[:3]))


def lift(maps: Tensor, masks: Tensor, rho: float = 0.0, channels: Channels = "all") -> Tensor:
    """N: F1 above chance, (F1 − c)/(1 − c): 0 is what the same values score when shuffled, 1 is perfect.

    c = 2ap/(a + p) with a the region's share of the image and p = ΣI_f/Σ|A|: shuffling makes Pre = a and Rec = p. So
    maps that are almost all positive gain nothing by their high recall. Below 0 the map avoids the region. `nan` where F1
    is, and where c = 1: all values positive, and the region is the whole image.

    >>> masks = torch.tensor([[[[True, False], [False, False]]]])
    >>> lift(torch.tensor([[[[5.0, 0.0], [0.0, 0.0]]]]), masks), lift(torch.ones(1, 1, 2, 2), masks)
    (tensor([1.]), tensor([0.]))
    """
    return map_scores(maps, masks, rho, channels).lift


def map_scores(maps: Tensor, masks: Tensor, rho: float = 0.0, channels: Channels = "all") -> MapScores:
    """`locality_scores`, `lift` and what they are computed from, in one pass.

    >>> masks = torch.tensor([[[[True, False], [False, False]]]])
    >>> scores = map_scores(torch.tensor([[[[3.0, -1.0], [0.0, -2.0]]]]), masks)
    >>> scores.f1, scores.box_share, scores.chance  # a = 1/4, p = 3/6
    (tensor([1.]), tensor([0.2500]), tensor([0.3333]))
    """
    check_rho(rho)
    return MapScores(*over_maps(maps, masks, channels, lambda features: _map_scores(features, rho)))


def locality_curve(
    maps: Tensor, masks: Tensor, quantiles: Sequence[float] = QUANTILES, channels: Channels = "all"
) -> LocalityCurve:
    """Precision and recall as ρ increases over quantiles of a map's positive attributions, and the area under the curve.

    Quantile q keeps the ⌈(1 − q)·m⌉ largest of m positive features; q = 0 is ρ = 0. The area does not depend on
    `quantiles`: it is that of the step curve through every threshold, Σ A⁺ᵢMᵢ·Pre(A ≥ Aᵢ) / Σ|A|M, the average precision
    with each feature weighted by its attribution. Shuffled values have an area of about a·p (see `lift`). The catch: recall
    ends at the positive share inside, so the area cannot exceed it. `nan` where nothing is kept or locality is undefined.

    >>> maps = torch.tensor([[[[4.0, 1.0], [3.0, -1.0]]]])
    >>> masks = torch.tensor([[[[True, True], [False, False]]]])
    >>> curve = locality_curve(maps, masks, quantiles=(0.0, 0.5))
    >>> curve.rho, curve.precision, curve.recall
    (tensor([[0., 1.]]), tensor([[0.6250, 0.5714]]), tensor([[1.0000, 0.8000]]))
    >>> curve.area  # 4/5 of the mass at precision 1, 1/5 at 5/8
    tensor([0.9250])
    """
    if not quantiles or not all(0 <= quantile < 1 for quantile in quantiles):
        raise ArgumentError("quantiles", "numbers from 0 to below 1", list(quantiles))
    return LocalityCurve(*over_maps(maps, masks, channels, lambda features: _curve(features, quantiles)))


@dataclass(frozen=True)
class _AtRho(Score):
    """A field of `MapScores`, with the threshold ρ as setting."""

    rho: float = 0.0

    def __post_init__(self) -> None:
        check_rho(self.rho)


class Precision(_AtRho):
    """The precision of `locality_scores`."""

    def of(self, features: Features) -> Tensor:
        return _map_scores(features, self.rho)[0]


class Recall(_AtRho):
    """The recall of `locality_scores`."""

    def of(self, features: Features) -> Tensor:
        return _map_scores(features, self.rho)[1]


class F1(_AtRho):
    """The F1 of `locality_scores`."""

    def of(self, features: Features) -> Tensor:
        return _map_scores(features, self.rho)[2]


class Lift(_AtRho):
    """`lift`: F1 above chance."""

    def of(self, features: Features) -> Tensor:
        return _map_scores(features, self.rho)[4]


class CurveArea(Score):
    """The area of `locality_curve`.

    >>> maps, masks = torch.tensor([[[[4.0, 1.0], [3.0, -1.0]]]]), torch.tensor([[[[True, True], [False, False]]]])
    >>> CurveArea()(maps, masks)
    tensor([0.9250])
    """

    def of(self, features: Features) -> Tensor:
        return _curve(features, (0.0,))[3]


def _map_scores(features: Features, rho: float) -> tuple[Tensor, ...]:
    """The fields of `MapScores`, from ΣI_f·M, ΣI_f, Σ|A|·M and Σ|A|; 0/0 is `nan`."""
    (important_inside, important), (magnitude_inside, magnitude) = features.important(rho), features.magnitude
    precision = important_inside / important
    recall = important_inside / magnitude_inside
    f1 = 2 * precision * recall / (precision + recall)
    f1 = torch.where((precision == 0) & (recall == 0), 0.0, f1)
    share = features.inside.mean((1, 2))
    positive = important / magnitude
    chance = 2 * share * positive / (share + positive)
    return precision, recall, f1, chance, (f1 - chance) / (1 - chance), share


def _curve(features: Features, quantiles: Sequence[float]) -> tuple[Tensor, ...]:
    ranked = features.ranking
    kept, within = (-ranked.keys).clamp(min=0), ranked.inside
    # Sums over the 0, 1, …, D largest features.
    total, inside = (F.pad(mass.cumsum(1), (1, 0)) for mass in (kept, kept * within))
    magnitude = features.magnitude[0][:, None]
    positive = (kept > 0).sum(1, keepdim=True).cpu()
    # In float64, which not every device has, and slightly more, because 0.29·100 is below 29.
    dropped = (positive * torch.tensor(quantiles, dtype=torch.float64) + 1e-9).floor().long()
    rho = F.pad(kept, (0, 1)).gather(1, (positive - dropped).to(kept.device))
    above = ranked.above(rho)  # of equal features all or none are kept
    kept_inside, kept_total = inside.gather(1, above), total.gather(1, above)
    precision, ties = inside[:, 1:] / total[:, 1:], ranked.ties()
    precision[ties.rows, ties.ranks] = precision[ties.rows, ties.last]
    area = (kept * within * precision.nan_to_num(0.0)).sum(1) / magnitude[:, 0]
    undefined = (total[:, -1] == 0) | (magnitude[:, 0] == 0)
    return rho, kept_inside / kept_total, kept_inside / magnitude, area.masked_fill(undefined, torch.nan)


def check_rho(rho: float) -> None:
    """Raise unless the threshold is 0 or larger."""
    if not math.isfinite(rho) or rho < 0:
        raise ArgumentError("rho", "0 or larger", rho, "below 0, negative attributions would count as important")
