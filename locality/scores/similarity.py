"""How alike two attributions are: SM and BSM, IG and BIG (Table 3.1 of the thesis)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from locality.statistics import RESAMPLES, Summary, summary
from locality.types import PathMaps


@dataclass(frozen=True, eq=False)
class Similarity:
    """Two maps of each image compared; `nan` where either map is undefined."""

    distance: Tensor  # N, ‖A − B‖₂
    cosine: Tensor  # N, A·B/(‖A‖‖B‖); nan where either map is zero
    unit_distance: Tensor  # N, ‖A/‖A‖ − B/‖B‖‖₂; nan where either map is zero


@dataclass(frozen=True, eq=False)
class BoundarySimilarity:
    """Each method beside its counterpart at the decision boundary."""

    saliency: Similarity  # SM–BSM
    integrated: Similarity  # IG–BIG
    integral: Similarity  # the integral parts of IG and BIG: mean gradients, without the factor x − b

    def pairs(self) -> dict[str, Similarity]:
        return {"SM-BSM": self.saliency, "IG-BIG": self.integrated, "IG-BIG integral": self.integral}


def similarity(first: Tensor, second: Tensor) -> Similarity:
    """ℓ2 distance, cosine, and ℓ2 distance of the maps scaled to length 1, for each image over all features.

    Catch: the plain distance grows with the size of the gradients, so a model with small logits looks similar for free;
    the other two do not.

    >>> found = similarity(torch.tensor([[[[3.0, 0.0]]]]), torch.tensor([[[[0.0, 4.0]]]]))
    >>> found.distance.item(), found.cosine.item(), round(found.unit_distance.item(), 4)
    (5.0, 0.0, 1.4142)
    """
    if first.shape != second.shape or first.dim() < 2:
        raise ValueError(
            f"`first` and `second` must be maps of the same images, got {tuple(first.shape)} and {tuple(second.shape)}"
        )
    one, other = (_rows(maps) for maps in (first, second))
    unit_one, unit_other = _scaled(one, _length(one)), _scaled(other, _length(other))
    return Similarity(_length(one - other), (unit_one * unit_other).sum(1).clamp(-1, 1), _length(unit_one - unit_other))


def boundary_similarity(found: Mapping[str, PathMaps | Tensor]) -> BoundarySimilarity:
    """SM–BSM and IG–BIG of each image, from what `attribute_all(model, images, ["SM", "BSM", "IG", "BIG"])` gave.

    IG − BIG mixes two things: other gradients and another factor (x − 0 against x − x′, which is short). The integral
    parts leave the factor out.

    >>> from locality.attribution import attribute_all
    >>> maps = attribute_all(torch.nn.Flatten(), torch.tensor([[[[0.8, 0.4]]]]), ["SM", "BSM", "IG", "BIG"])
    >>> boundary_similarity(maps).saliency.distance.tolist()  # a linear model has one gradient everywhere
    [0.0]
    """
    missing = [name for name in ("SM", "BSM", "IG", "BIG") if name not in found]
    if missing:
        raise ValueError(f"`found` must hold maps of SM, BSM, IG and BIG, got none of {', '.join(missing)}")
    sm, bsm, ig, big = (found[name] for name in ("SM", "BSM", "IG", "BIG"))
    if not (isinstance(sm, Tensor) and isinstance(bsm, Tensor)):
        raise TypeError("`found` must hold tensors for SM and BSM: pass what attribute_all gave")
    if not (isinstance(ig, PathMaps) and isinstance(big, PathMaps)):
        raise TypeError("`found` must hold PathMaps for IG and BIG, with their integral parts: pass what attribute_all gave")
    return BoundarySimilarity(similarity(sm, bsm), similarity(ig.maps, big.maps), similarity(ig.integral, big.integral))


def similarity_summaries(
    found: BoundarySimilarity, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, dict[str, Summary]]:
    """A model's column of Table 3.1: for each pair of methods the means over images, with intervals and counts.

    >>> same = similarity(torch.ones(4, 1, 2, 2), torch.ones(4, 1, 2, 2))
    >>> similarity_summaries(BoundarySimilarity(same, same, same))["SM-BSM"]["cosine"].mean
    1.0
    """
    return {
        pair: {
            name: summary(getattr(each, name), resamples=resamples, seed=seed)
            for name in ("distance", "cosine", "unit_distance")
        }
        for pair, each in found.pairs().items()
    }


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
