"""How similar two attributions are: SM and BSM, IG and BIG (Table 3.1 of the thesis)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from locality.errors import ArgumentError
from locality.types import PathMaps


@dataclass(frozen=True, eq=False)
class Similarity:
    """Two maps of each image compared; `nan` where either map is undefined."""

    distance: Tensor  # N, ‖A − B‖₂
    cosine: Tensor  # N, A·B/(‖A‖‖B‖); nan where either map is zero
    unit_distance: Tensor  # N, ‖A/‖A‖ − B/‖B‖‖₂; nan where either map is zero


@dataclass(frozen=True, eq=False)
class BoundarySimilarity:
    """Each method and its counterpart at the decision boundary."""

    saliency: Similarity  # SM–BSM
    integrated: Similarity  # IG–BIG
    integral: Similarity  # the integral parts of IG and BIG: mean gradients, without the factor x − b

    def pairs(self) -> dict[str, Similarity]:
        return {"SM-BSM": self.saliency, "IG-BIG": self.integrated, "IG-BIG integral": self.integral}


def similarity(first: Tensor, second: Tensor) -> Similarity:
    """ℓ2 distance, cosine, and ℓ2 distance of the maps scaled to length 1, for each image over all features.

    Catch: the plain distance grows with the size of the gradients, so the maps of a model with small logits look similar;
    the other two do not depend on it.

    >>> compared = similarity(torch.tensor([[[[3.0, 0.0]]]]), torch.tensor([[[[0.0, 4.0]]]]))
    >>> compared.distance.item(), compared.cosine.item(), round(compared.unit_distance.item(), 4)
    (5.0, 0.0, 1.4142)
    """
    if first.shape != second.shape or first.dim() < 2:
        raise ValueError(
            f"`first` and `second` must be maps of the same images, got {tuple(first.shape)} and {tuple(second.shape)}"
        )
    one, other = (_rows(maps) for maps in (first, second))
    unit_one, unit_other = _scaled(one, _length(one)), _scaled(other, _length(other))
    return Similarity(_length(one - other), (unit_one * unit_other).sum(1).clamp(-1, 1), _length(unit_one - unit_other))


def boundary_similarity(maps: Mapping[str, PathMaps | Tensor]) -> BoundarySimilarity:
    """SM–BSM and IG–BIG of each image, from the maps of `attribute_all(model, images, ["SM", "BSM", "IG", "BIG"])`.

    IG − BIG mixes two differences: other gradients and another factor (x − 0 against x − x′, which is short). The integral
    parts are without the factor.

    >>> from locality.attribution import attribute_all
    >>> maps = attribute_all(torch.nn.Flatten(), torch.tensor([[[[0.8, 0.4]]]]), ["SM", "BSM", "IG", "BIG"])
    >>> boundary_similarity(maps).saliency.distance.tolist()  # a linear model has one gradient everywhere
    [0.0]
    """
    missing = [name for name in ("SM", "BSM", "IG", "BIG") if name not in maps]
    if missing:
        raise ArgumentError("maps", "those of SM, BSM, IG and BIG", list(maps), f"{', '.join(missing)} missing")
    sm, bsm, ig, big = (maps[name] for name in ("SM", "BSM", "IG", "BIG"))
    if not (isinstance(sm, Tensor) and isinstance(bsm, Tensor)):
        raise TypeError("`maps` must hold tensors for SM and BSM: pass the result of attribute_all")
    if not (isinstance(ig, PathMaps) and isinstance(big, PathMaps)):
        raise TypeError(
            "`maps` must hold PathMaps for IG and BIG, with their integral parts: pass the result of attribute_all"
        )
    return BoundarySimilarity(similarity(sm, bsm), similarity(ig.maps, big.maps), similarity(ig.integral, big.integral))


def _rows(maps: Tensor) -> Tensor:
    rows = maps.detach().flatten(1)
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def _length(rows: Tensor) -> Tensor:
    """N: ‖row‖₂, divided by the largest entry first: squares of tiny gradients vanish in float32, of huge ones overflow."""
    largest = rows.abs().amax(1, keepdim=True)
    safe = torch.where(largest == 0, torch.ones_like(largest), largest)
    length: Tensor = torch.linalg.vector_norm(rows / safe, dim=1)
    return length * largest[:, 0]


def _scaled(rows: Tensor, length: Tensor) -> Tensor:
    """Rows of length 1; 0/0 makes a zero row nan, which has no direction."""
    return rows / length[:, None]
