"""Locality: how much of an attribution lies inside the region a person marked (section 2.4 of the thesis), beside chance.

I_f = A ⊙ 1[A > ρ] are the important features of a map A; M is 1 inside the region. Sums run over all features, that is
every channel of every pixel; `channels="sum"` adds the channels up first. A map that is not finite scores `nan` everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from locality.scores.map_features import Channels, Features, over_maps
from locality.types import LocalityScores

QUANTILES = tuple(step / 20 for step in range(20))


@dataclass(frozen=True, eq=False)
class MapScores:
    """Locality beside what it is worth; every field has one number a map, `nan` where undefined."""

    precision: Tensor
    recall: Tensor
    f1: Tensor
    chance: Tensor  # the F1 that the same values score when shuffled over the image
    lift: Tensor  # (F1 − chance)/(1 − chance)
    box_share: Tensor  # the share of the image that lies inside the region


@dataclass(frozen=True, eq=False)
class LocalityCurve:
    """Locality at rising thresholds ρ, and the area under precision over recall."""

    rho: Tensor  # N×Q
    precision: Tensor  # N×Q
    recall: Tensor  # N×Q
    area: Tensor  # N


def locality_scores(maps: Tensor, masks: Tensor, rho: float = 0.0, channels: Channels = "all") -> LocalityScores:
    """Precision, recall and F1 of each map: Definitions 9 and 10 and Equation 2.3 of the thesis.

    Pre = Σ I_f·M / Σ I_f, Rec = Σ I_f·M / Σ |A|·M, F1 = 2·Pre·Rec/(Pre + Rec). `nan`: Pre where ΣI_f = 0, Rec where
    Σ|A|·M = 0, F1 where either is; F1 = 0 where both are 0. The catch: a map without negative values has Rec = 1 whatever it
    shows, so read F1 beside `lift`. `rho` is in the units of the map: only ρ = 0 does not depend on its scale.

    >>> maps = torch.tensor([[[[4.0, -2.0], [1.0, -1.0]]]])
    >>> masks = torch.tensor([[[[True, True], [False, False]]]])
    >>> found = locality_scores(maps, masks)
    >>> [round(score.item(), 3) for score in (found.precision, found.recall, found.f1)]  # 4/5, 4/6
    [0.8, 0.667, 0.727]
    """
    _check_rho(rho)

    def score(features: Features) -> tuple[Tensor, ...]:
        return _locality(*features.important(rho), features.magnitude[0])

    return LocalityScores(*over_maps(maps, masks, channels, score))


def lift(maps: Tensor, masks: Tensor, rho: float = 0.0, channels: Channels = "all") -> Tensor:
    """N: how far F1 lies above chance, (F1 − c)/(1 − c): 0 is what the same values score when shuffled, 1 is perfect.

    c = 2ap/(a + p) with a the region's share of the image and p = ΣI_f/Σ|A|: shuffling makes Pre = a and Rec = p. So the
    free recall of maps that are almost all positive is taken away. Below 0 the map avoids the region. `nan` where F1 is, and
    where c = 1: all values positive, and the region is the whole image.

    >>> masks = torch.tensor([[[[True, False], [False, False]]]])
    >>> lift(torch.tensor([[[[5.0, 0.0], [0.0, 0.0]]]]), masks), lift(torch.ones(1, 1, 2, 2), masks)
    (tensor([1.]), tensor([0.]))
    """
    return map_scores(maps, masks, rho, channels).lift


def map_scores(maps: Tensor, masks: Tensor, rho: float = 0.0, channels: Channels = "all") -> MapScores:
    """`locality_scores`, `lift` and what they rest on, in one pass.

    >>> masks = torch.tensor([[[[True, False], [False, False]]]])
    >>> found = map_scores(torch.tensor([[[[3.0, -1.0], [0.0, -2.0]]]]), masks)
    >>> found.f1, found.box_share, found.chance  # a = 1/4, p = 3/6
    (tensor([1.]), tensor([0.2500]), tensor([0.3333]))
    """
    _check_rho(rho)

    def score(features: Features) -> tuple[Tensor, ...]:
        important, magnitude = features.important(rho), features.magnitude
        precision, recall, f1 = _locality(*important, magnitude[0])
        share = features.inside.mean((1, 2))
        positive = important[1] / magnitude[1]
        chance = 2 * share * positive / (share + positive)
        return precision, recall, f1, chance, (f1 - chance) / (1 - chance), share

    return MapScores(*over_maps(maps, masks, channels, score))


def locality_curve(
    maps: Tensor, masks: Tensor, quantiles: Sequence[float] = QUANTILES, channels: Channels = "all"
) -> LocalityCurve:
    """Precision and recall as ρ rises over quantiles of a map's positive attributions, and the area under the whole curve.

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
        raise ValueError(f"`quantiles` must be numbers from 0 to below 1, got {list(quantiles)}")
    return LocalityCurve(*over_maps(maps, masks, channels, lambda features: _curve(features, quantiles)))


def _locality(important_inside: Tensor, important: Tensor, magnitude_inside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Precision, recall and F1 from ΣI_f·M, ΣI_f and Σ|A|·M; 0/0 is `nan`."""
    precision = important_inside / important
    recall = important_inside / magnitude_inside
    f1 = 2 * precision * recall / (precision + recall)
    return precision, recall, torch.where((precision == 0) & (recall == 0), 0.0, f1)


def _curve(features: Features, quantiles: Sequence[float]) -> tuple[Tensor, ...]:
    ranked = features.ranking
    kept, within = (-ranked.keys).clamp(min=0), ranked.inside
    # Sums over the 0, 1, …, D largest features.
    total, inside = (F.pad(mass.cumsum(1), (1, 0)) for mass in (kept, kept * within))
    magnitude = features.magnitude[0][:, None]
    positive = (kept > 0).sum(1, keepdim=True).cpu()
    # In float64, which not every device has, and a hair up: 0.29·100 is 29.
    dropped = (positive * torch.tensor(quantiles, dtype=torch.float64) + 1e-9).floor().long()
    rho = F.pad(kept, (0, 1)).gather(1, (positive - dropped).to(kept.device))
    above = ranked.above(rho)  # of equal features all or none are kept
    kept_inside, kept_total = inside.gather(1, above), total.gather(1, above)
    precision, ties = inside[:, 1:] / total[:, 1:], ranked.ties()
    precision[ties.rows, ties.ranks] = precision[ties.rows, ties.last]
    area = (kept * within * precision.nan_to_num(0.0)).sum(1) / magnitude[:, 0]
    undefined = (total[:, -1] == 0) | (magnitude[:, 0] == 0)
    return rho, kept_inside / kept_total, kept_inside / magnitude, area.masked_fill(undefined, torch.nan)


def _check_rho(rho: float) -> None:
    if not math.isfinite(rho) or rho < 0:
        raise ValueError(f"`rho` must be 0 or larger, got {rho}: below 0, negative attributions would count as important")
