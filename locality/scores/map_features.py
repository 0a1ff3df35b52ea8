"""Attribution maps as features, with the region a person marked: checked once, a few maps at a time.

A feature is one channel of one pixel. Every `Score` goes through `over_maps`, so that memory does not grow with the number
of maps, and a map that is not finite (no boundary was found) is `nan` in all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from locality.errors import ArgumentError, unknown_choice
from locality.scores.ranking import Ranking, ranking
from locality.types import Channels, PathMaps

# Features scored at once. On CPUs a larger chunk does not fit into the caches; elsewhere it fills the device.
CHUNK_FEATURES = {"cpu": 2**20}
CHUNK_FEATURES_ELSEWHERE = 2**25


class Features:
    """Some maps and their regions; what several scores need is computed once, at first use.

    P is the number of pixels, D = C·P the number of features. Values for a map that is not finite mean nothing (see
    `finite`); no map affects the row of another.
    """

    def __init__(self, maps: Tensor, masks: Tensor) -> None:
        values = maps.flatten(2)
        # One sum shows every nan and inf, at a fraction of the cost of testing each value.
        self.finite = values.abs().sum((1, 2)).isfinite()  # N bool
        self.values = values  # N×C×P
        self.masks = masks  # N×1×H×W bool
        self.count = values.shape[1] * values.shape[2]  # D
        self._important: dict[float, tuple[Tensor, Tensor]] = {}

    @cached_property
    def inside(self) -> Tensor:
        """N×1×P: 1 inside the region, 0 outside, in the maps' dtype."""
        return self.masks.flatten(2).to(self.values.dtype)

    @cached_property
    def inside_count(self) -> Tensor:
        """N: the number of features inside."""
        return self.masks.flatten(1).sum(1) * self.values.shape[1]

    @cached_property
    def ranking(self) -> Ranking:
        """The features in descending order."""
        return ranking(self.values.flatten(1), self.masks.flatten(2).expand(self.values.shape).flatten(1))

    @cached_property
    def magnitude(self) -> tuple[Tensor, Tensor]:
        """N and N: Σ|A| inside and everywhere."""
        return self.mass(self.values.abs())

    def important(self, rho: float) -> tuple[Tensor, Tensor]:
        """N and N: the sums of I_f = A ⊙ 1[A > ρ] inside and everywhere."""
        if rho not in self._important:
            self._important[rho] = self.mass(F.threshold(self.values, rho, 0.0))
        return self._important[rho]

    def mass(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """N and N: the sums of N×C×P weights inside and everywhere.

        Terms are never negative, so nothing cancels, and torch adds them in a tree: float32 is accurate to about 1e-6.
        """
        return (weights * self.inside).sum((1, 2)), weights.sum((1, 2))


class Score(ABC):
    """A number per map that compares it with a region. Subclasses are frozen dataclasses of settings, with `of`."""

    @abstractmethod
    def of(self, features: Features) -> Tensor:
        """N: the score of each map; `nan` where it is undefined."""

    def __call__(self, maps: Tensor, masks: Tensor, channels: Channels = "all") -> Tensor:
        """N: the score of N×C×H×W maps against N×1×H×W bool masks."""
        return over_maps(maps, masks, channels, lambda features: (self.of(features),))[0]


def over_maps(
    maps: Tensor, masks: Tensor, channels: Channels, score: Callable[[Features], tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """`score` of all maps, a chunk at a time; `nan` in the rows of maps that are not finite."""
    check_maps(maps, masks, channels)
    elsewhere = CHUNK_FEATURES_ELSEWHERE
    step = max(1, CHUNK_FEATURES.get(maps.device.type, elsewhere) // (maps.shape[1] * maps.shape[2] * maps.shape[3]))
    # Filled in place: small results between large temporaries would fragment memory more with every chunk.
    results: tuple[Tensor, ...] = ()
    with torch.no_grad():
        for start in range(0, len(maps), step):
            part = maps[start : start + step]
            # Sums of half-precision maps would overflow.
            part = (part if part.dtype == torch.float64 else part.float()).contiguous()
            features = Features(part.sum(1, keepdim=True) if channels == "sum" else part, masks[start : start + step])
            scores = score(features)
            results = results or tuple(values.new_empty(len(maps), *values.shape[1:]) for values in scores)
            for result, values in zip(results, scores, strict=True):
                result[start : start + step] = _undefined(values, ~features.finite)
            del features, scores  # before the next chunk makes its own
    return results


def check_maps(maps: Tensor, masks: Tensor, channels: Channels) -> None:
    """Raise unless `maps` is N×C×H×W, `masks` is N×1×H×W bool of the same images, and `channels` is known."""
    if not isinstance(maps, Tensor) or maps.dim() != 4 or not maps.is_floating_point():
        raise ValueError(
            f"`maps` must be a float tensor N×C×H×W, got {_described(maps)}: maps without channels need [:, None]"
        )
    if maps.numel() == 0:
        raise ArgumentError("maps", "at least one map", tuple(maps.shape))
    check_masks(masks)
    expected = (maps.shape[0], 1, *maps.shape[2:])
    if masks.shape != expected:
        raise ArgumentError(
            "masks",
            f"N×1×H×W like the maps, {expected}",
            tuple(masks.shape),
            "several boxes of an image are one mask, their union",
        )
    if masks.device != maps.device:
        raise ValueError(f"`maps` are on {maps.device}, `masks` on {masks.device}: move one of them with .to()")
    if channels not in get_args(Channels):
        raise unknown_choice("channels", channels, get_args(Channels))


def check_masks(masks: Tensor) -> None:
    """Raise unless `masks` is N×1×H×W bool."""
    if not isinstance(masks, Tensor) or masks.dtype != torch.bool:
        raise TypeError(f"`masks` must be a tensor of bool, got {_described(masks)}: compare numbers, masks > 0")
    if masks.dim() != 4 or masks.shape[1] != 1 or masks.numel() == 0:
        raise ArgumentError("masks", "N×1×H×W", tuple(masks.shape))


def plain_maps(maps: PathMaps | Tensor) -> Tensor:
    """The maps themselves, without what a method that integrates says about them."""
    return maps.maps if isinstance(maps, PathMaps) else maps


def region_share(masks: Tensor) -> Tensor:
    """N: the share of each image that lies inside its region.

    >>> region_share(torch.tensor([[[[True, False], [False, False]]]]))
    tensor([0.2500])
    """
    check_masks(masks)
    return masks.flatten(1).float().mean(1)


def _undefined(scores: Tensor, where: Tensor) -> Tensor:
    """N or N×Q scores, `nan` in the given rows."""
    return scores.masked_fill(where.view(-1, *[1] * (scores.dim() - 1)), torch.nan)


def _described(value: object) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
