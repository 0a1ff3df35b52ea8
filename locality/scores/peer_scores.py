"""The scores of other papers beside locality, so that nobody needs a second library.

All take N×C×H×W signed maps and N×1×H×W masks and give N numbers; `localisation_scores` gives all of them from one sort.
They run over all features (channel × pixel) like locality; `channels="sum"` adds the channels up first, which most of these
papers do. Among equal attributions the order is left to chance, in expectation, so a constant map scores chance. `nan` where
the map is not finite, the region is empty, or the score divides by 0. Quantus has six of them, for maps of one channel;
where it differs from what is written, the docstring says how.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from locality.scores.map_features import Channels, Features, over_maps


def pointing_game(maps: Tensor, masks: Tensor, tolerance: float = 0.0, channels: Channels = "all") -> Tensor:
    """1 where the largest attribution lies at most `tolerance` pixels from the region, 0 elsewhere (Zhang et al. 2018).

    The paper allows 15 pixels. Of several equal maxima the share that hits. The catch: one pixel decides; chance is the
    region's share of the image. Quantus has no tolerance, counts a tie as a hit if any maximum hits, so that a constant map
    scores 1, and stores the `nan` of an empty region in an array of bool, where it becomes 1.

    >>> masks = torch.tensor([[[[False, False, True]]]])
    >>> maps = torch.tensor([[[[0.0, 9.0, 1.0]]]])
    >>> pointing_game(maps, masks).item(), pointing_game(maps, masks, tolerance=1).item()
    (0.0, 1.0)
    """
    return _scores(maps, masks, channels, lambda features: _pointing_game(features, tolerance))


def energy_pointing_game(maps: Tensor, masks: Tensor, channels: Channels = "all") -> Tensor:
    """ΣA⁺M/ΣA⁺, the share of the positive attribution that lies inside (Wang et al. 2020, Score-CAM); locality's precision.

    The catch: negative attributions do not count, so a map that is mostly negative inside can still score 1.

    >>> energy_pointing_game(torch.tensor([[[[3.0, 1.0, -9.0]]]]), torch.tensor([[[[True, False, True]]]])).item()
    0.75
    """
    return _scores(maps, masks, channels, _positive_share)


def attribution_localisation(maps: Tensor, masks: Tensor, weighted: bool = False, channels: Channels = "all") -> Tensor:
    """μ = ΣA⁺M/ΣA⁺, or μ divided by the region's share of the image where `weighted` (Kohlbrenner et al. 2020).

    Unweighted it is the energy-based pointing game. Weighted, chance is 1 and the maximum is 1/share, so images are not
    comparable. Quantus takes |A| for A⁺ unless told `abs=False, positive_attributions=True`. Its weight multiplies by the
    share where the paper divides, and it takes the share of all images of the batch but the first two.

    >>> maps, masks = torch.tensor([[[[3.0, 1.0, -9.0, 0.0]]]]), torch.tensor([[[[True, False, False, False]]]])
    >>> attribution_localisation(maps, masks).item(), attribution_localisation(maps, masks, weighted=True).item()
    (0.75, 3.0)
    """

    def score(features: Features) -> Tensor:
        share = _positive_share(features)
        return share / features.inside.mean((1, 2)) if weighted else share

    return _scores(maps, masks, channels, score)


def relevance_mass_accuracy(maps: Tensor, masks: Tensor, channels: Channels = "all") -> Tensor:
    """Σ|A|M/Σ|A|, the share of all attribution that lies inside (Arras et al. 2022).

    The paper defines it for maps pooled to be non-negative: `channels="all"` is its pooling "l1-norm", "sum" its "sum,abs".
    The catch: evidence against the class counts like evidence for it. Quantus agrees with `abs=True`; by default it divides
    by the signed sum, which can be 0 or negative.

    >>> relevance_mass_accuracy(torch.tensor([[[[3.0, 1.0, -4.0]]]]), torch.tensor([[[[True, False, True]]]])).item()
    0.875
    """
    return _scores(maps, masks, channels, _mass_accuracy)


def relevance_rank_accuracy(maps: Tensor, masks: Tensor, channels: Channels = "all") -> Tensor:
    """The share of the K largest attributions that lie inside, where K is the number of features inside (Arras et al. 2022).

    Chance is the region's share of the image. The catch: only the order of values counts, and to reach 1 a map must fill the
    region, however generously the box is drawn.

    >>> masks = torch.tensor([[[[True, True, False, False]]]])
    >>> relevance_rank_accuracy(torch.tensor([[[[3.0, 1.0, 2.0, 0.0]]]]), masks).item()
    0.5
    """
    return _scores(maps, masks, channels, _rank_accuracy)


def top_k_intersection(maps: Tensor, masks: Tensor, k: int = 1000, channels: Channels = "all") -> Tensor:
    """The share of the `k` largest attributions that lie inside (Theiner et al. 2021).

    Chance is the region's share of the image. The catch: `k` is a number of features, so it means something else for every
    image size and number of channels; a region smaller than k cannot reach 1.

    >>> masks = torch.tensor([[[[True, True, False, False]]]])
    >>> top_k_intersection(torch.tensor([[[[3.0, 1.0, 2.0, 0.0]]]]), masks, k=1).item()
    1.0
    """
    return _scores(maps, masks, channels, lambda features: _top_k(features, k))


def roc_auc(maps: Tensor, masks: Tensor, channels: Channels = "all") -> Tensor:
    """The chance that a feature inside has a larger attribution than one outside; equal ones count half.

    Chance is 0.5. The catch: ranks of thousands of features near 0 outweigh the few that carry the attribution. `nan` also
    where the region is the whole image.

    >>> roc_auc(torch.tensor([[[[3.0, 1.0, 2.0, 0.0]]]]), torch.tensor([[[[True, True, False, False]]]])).item()
    0.75
    """
    return _scores(maps, masks, channels, _roc_auc)


def iou_at_quantile(maps: Tensor, masks: Tensor, quantile: float = 0.8, channels: Channels = "all") -> Tensor:
    """|B ∩ M|/|B ∪ M| with B = {A > the map's `quantile`}; 0.8 keeps the largest fifth.

    Chance is ab/(a + b − ab) with b = 1 − quantile and a the region's share. The catch: the most a map can reach is
    min(a, b)/max(a, b), so the score says as much about the size of the box as about the map.

    >>> masks = torch.tensor([[[[True, True, False, False]]]])
    >>> iou_at_quantile(torch.tensor([[[[3.0, 1.0, 2.0, 0.0]]]]), masks, quantile=0.5).item()  # {3, 2} and {3, 1}
    0.3333333432674408
    """
    return _scores(maps, masks, channels, lambda features: _iou(features, quantile))


# Every score by name, each with its own options.
LOCALISATION_SCORES: dict[str, Callable[..., Tensor]] = {
    "pointing_game": pointing_game,
    "energy_pointing_game": energy_pointing_game,
    "attribution_localisation": attribution_localisation,
    "relevance_mass_accuracy": relevance_mass_accuracy,
    "relevance_rank_accuracy": relevance_rank_accuracy,
    "top_k_intersection": top_k_intersection,
    "roc_auc": roc_auc,
    "iou_at_quantile": iou_at_quantile,
}


def localisation_scores(
    maps: Tensor,
    masks: Tensor,
    channels: Channels = "all",
    *,
    tolerance: float = 0.0,
    k: int = 1000,
    quantile: float = 0.8,
) -> dict[str, Tensor]:
    """All of LOCALISATION_SCORES, which share sums and one sort; options as in the functions of these names.

    >>> found = localisation_scores(torch.eye(2)[None, None], torch.eye(2).bool()[None, None], k=2)
    >>> found["relevance_rank_accuracy"].item(), list(found) == list(LOCALISATION_SCORES)
    (1.0, True)
    """

    def scores(features: Features) -> tuple[Tensor, ...]:
        share = _positive_share(features)
        found = (
            _pointing_game(features, tolerance),
            share,
            share,
            _mass_accuracy(features),
            _rank_accuracy(features),
            _top_k(features, k),
            _roc_auc(features),
            _iou(features, quantile),
        )
        return tuple(_where_marked(score, features) for score in found)

    return dict(zip(LOCALISATION_SCORES, over_maps(maps, masks, channels, scores), strict=True))


def _scores(maps: Tensor, masks: Tensor, channels: Channels, score: Callable[[Features], Tensor]) -> Tensor:
    return over_maps(maps, masks, channels, lambda features: (_where_marked(score(features), features),))[0]


def _where_marked(scores: Tensor, features: Features) -> Tensor:
    """The scores, `nan` where nothing is marked."""
    return scores.masked_fill(features.inside_count == 0, torch.nan)


def _pointing_game(features: Features, tolerance: float) -> Tensor:
    if not math.isfinite(tolerance) or tolerance < 0:
        raise ValueError(f"`tolerance` must be a number of pixels, 0 or larger, got {tolerance}")
    near = features.masks if tolerance < 1 else grown(features.masks, tolerance)
    largest = features.values == features.values.amax((1, 2), keepdim=True)
    hits = largest & near.flatten(2)
    return hits.sum((1, 2)).to(features.values.dtype) / largest.sum((1, 2))


def _positive_share(features: Features) -> Tensor:
    inside, total = features.important(0.0)
    return inside / total


def _mass_accuracy(features: Features) -> Tensor:
    inside, total = features.magnitude
    return inside / total


def _rank_accuracy(features: Features) -> Tensor:
    count = features.inside_count
    return features.ranking.expected_hits(count) / count


def _top_k(features: Features, k: int) -> Tensor:
    if not 1 <= k <= features.count:
        raise ValueError(f"`k` must be from 1 to the number of features, {features.count:,}, got {k:,}")
    return features.ranking.expected_hits(torch.full_like(features.inside_count, k)) / k


def _roc_auc(features: Features) -> Tensor:
    """2·n·(D − n)·AUC = Σ_r (h(r − 1) + h(r)) − n² in whole numbers: n features inside, h(r) of them among the first r.

    For equal attributions, h is taken before the first of them and after the last.
    """
    inside, hits, ties = features.inside_count, features.ranking.hits, features.ranking.ties()
    twice = 2 * hits.sum(1) - inside  # h begins with 0 and ends with n
    shared = hits[ties.rows, ties.first] + hits[ties.rows, ties.last + 1]
    twice.index_add_(0, ties.rows, shared - hits[ties.rows, ties.ranks] - hits[ties.rows, ties.ranks + 1])
    return (twice - inside**2).to(features.values.dtype) / (2 * inside * (features.count - inside))


def _iou(features: Features, quantile: float) -> Tensor:
    if not 0 <= quantile < 1:
        raise ValueError(f"`quantile` must be from 0 to below 1, got {quantile}")
    ranked = features.ranking
    # A quantile between two values keeps what exceeds the lower one. A hair up: 0.29·100 is 29.
    below = math.floor(quantile * (features.count - 1) + 1e-9)
    size = ranked.above(-ranked.keys[:, features.count - 1 - below, None])
    both = ranked.hits.gather(1, size)
    return (both.to(features.values.dtype) / (size + features.inside_count[:, None] - both))[:, 0]


def grown(masks: Tensor, distance: float) -> Tensor:
    """N×1×H×W: True at most `distance` pixels (ℓ2, centre to centre) from the region.

    >>> grown(torch.tensor([[[[True, False, False]]]]), 1).tolist()
    [[[[True, True, False]]]]
    """
    height, width = masks.shape[2:]
    columns = torch.arange(width, device=masks.device, dtype=torch.float32)
    # Along each row, how far the nearest marked pixel is on either side; then every row looks at those in reach.
    left = torch.where(masks, columns, -torch.inf).cummax(3).values
    right = torch.where(masks, columns, torch.inf).flip(3).cummin(3).values.flip(3)
    square = torch.minimum(columns - left, right - columns) ** 2
    near = masks.clone()
    for shift in range(min(math.floor(distance), height - 1) + 1):
        reached = square <= distance**2 - shift**2
        near[:, :, shift:] |= reached[:, :, : height - shift]
        near[:, :, : height - shift] |= reached[:, :, shift:]
    return near
