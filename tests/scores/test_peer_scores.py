"""The scores of other papers against Quantus, scikit-learn, scipy and hand-drawn maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.ndimage import distance_transform_edt
from sklearn.metrics import roc_auc_score
from torch import Tensor

from locality.scores import SCORES, score_maps
from locality.scores.locality import locality_scores
from locality.scores.map_features import Score
from locality.scores.peer_scores import (
    AttributionLocalisation,
    EnergyPointingGame,
    IouAtQuantile,
    PointingGame,
    RelevanceMassAccuracy,
    RelevanceRankAccuracy,
    RocAuc,
    TopKIntersection,
    grown,
)

WHOLE_NUMBERS = st.integers(-3, 9).map(float)  # ties are frequent
MAPS = arrays(np.float32, (2, 2, 3, 4), elements=WHOLE_NUMBERS).map(torch.from_numpy)
MASKS = arrays(np.bool_, (2, 1, 3, 4)).map(torch.from_numpy)
quickly = settings(max_examples=30, deadline=None)
PEERS = (
    "pointing_game",
    "energy_pointing_game",
    "attribution_localisation",
    "relevance_mass_accuracy",
    "relevance_rank_accuracy",
    "top_k_intersection",
    "roc_auc",
    "iou_at_quantile",
)


def peer_scores(maps: Tensor, masks: Tensor, k: int = 1000, tolerance: float = 0.0) -> dict[str, Tensor]:
    scores: dict[str, Score] = {name: SCORES[name]() for name in PEERS}
    scores |= {"top_k_intersection": TopKIntersection(k), "pointing_game": PointingGame(tolerance)}
    return score_maps(maps, masks, scores)


@pytest.fixture(scope="module")
def quantus() -> ModuleType:
    import quantus

    return quantus


def random_case(channels: int = 1, count: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(10 + channels)
    masks = torch.zeros(count, 1, 40, 48, dtype=torch.bool)
    for index in range(count):
        masks[index, :, 4 + index : 20 + 3 * index, 6 : 30 + 2 * index] = True
    return torch.randn(count, channels, 40, 48, generator=generator) + 0.3 * masks, masks


def ask_quantus(metric: Callable[..., list[float]], maps: Tensor, masks: Tensor) -> np.ndarray:
    pixels, classes = np.zeros(maps.shape, dtype=np.float32), np.zeros(len(maps), dtype=int)
    found = metric(model=None, x_batch=pixels, y_batch=classes, a_batch=maps.numpy(), s_batch=masks.numpy())
    return np.asarray(found, dtype=np.float64)


# --- Quantus, where it does what is written ---


@pytest.mark.parametrize(
    ("score", "name", "options"),
    [
        (PointingGame(), "PointingGame", {}),
        (AttributionLocalisation(), "AttributionLocalisation", {"abs": False, "positive_attributions": True}),
        (EnergyPointingGame(), "AttributionLocalisation", {"abs": False, "positive_attributions": True}),
        (RelevanceMassAccuracy(), "RelevanceMassAccuracy", {"abs": True}),
        (RelevanceRankAccuracy(), "RelevanceRankAccuracy", {}),
        (TopKIntersection(), "TopKIntersection", {"k": 1000}),
        (RocAuc(), "AUC", {}),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_quantus_agrees(quantus: ModuleType, score: Score, name: str, options: dict[str, object], channels: int) -> None:
    maps, masks = random_case(channels, count=8)
    metric = getattr(quantus, name)(disable_warnings=True, **options)
    expected = ask_quantus(metric, maps.sum(1, keepdim=True), masks)
    assert len(set(expected.tolist())) > 1
    assert score(maps, masks, channels="sum").numpy() == pytest.approx(expected, abs=1e-6)


# --- Quantus, where it does not: our value by hand, and theirs as the docstring says ---


def test_a_tie_is_no_hit(quantus: ModuleType) -> None:
    maps, masks = random_case()  # Quantus refuses a batch of nothing but equal values
    maps[0] = 0.5
    assert ask_quantus(quantus.PointingGame(disable_warnings=True), maps, masks)[0] == 1.0
    assert PointingGame()(maps, masks)[0].item() == pytest.approx(masks[0].float().mean().item())


def test_pointing_into_nothing_is_undefined(quantus: ModuleType) -> None:
    maps, masks = random_case()
    masks[0] = False
    assert ask_quantus(quantus.PointingGame(disable_warnings=True), maps, masks)[0] == 1.0
    assert PointingGame()(maps, masks)[0].isnan()


def test_mass_is_not_divided_by_a_signed_sum(quantus: ModuleType) -> None:
    maps, masks = torch.zeros(1, 1, 40, 48), torch.zeros(1, 1, 40, 48, dtype=torch.bool)
    maps[0, 0, 0, :3] = torch.tensor([4.0, -3.0, 1.0])
    masks[0, 0, 0, 0] = True
    assert ask_quantus(quantus.RelevanceMassAccuracy(disable_warnings=True), maps, masks) == [2.0]
    assert RelevanceMassAccuracy()(maps, masks).item() == 0.5


def test_the_weight_of_attribution_localisation_divides_by_the_share(quantus: ModuleType) -> None:
    maps, masks = torch.zeros(4, 1, 40, 48), torch.zeros(4, 1, 40, 48, dtype=torch.bool)
    maps[:, 0, 0, :3] = torch.tensor([3.0, 1.0, -4.0])
    masks[:, 0, :10, ::2] = True  # an eighth of the image
    metric = quantus.AttributionLocalisation(weighted=True, abs=False, positive_attributions=True, disable_warnings=True)
    assert ask_quantus(metric, maps, masks) == pytest.approx([0.75 / 16] * 4)  # of two images out of four, and times it
    assert AttributionLocalisation(weighted=True)(maps, masks).tolist() == pytest.approx([0.75 * 8] * 4)
    theirs = ask_quantus(quantus.AttributionLocalisation(disable_warnings=True), maps, masks)
    assert theirs == pytest.approx([7 / 8] * 4)  # |A|: the paper takes positive relevance
    assert AttributionLocalisation()(maps, masks).tolist() == [0.75] * 4


def test_quantus_takes_one_channel_only(quantus: ModuleType) -> None:
    maps, masks = random_case(channels=3)
    with pytest.raises((ValueError, IndexError)):
        ask_quantus(quantus.RelevanceRankAccuracy(disable_warnings=True), maps, masks)
    # Ours with three: as if the mask had three, too.
    wide = (maps.reshape(5, 1, 120, 48), masks.expand(5, 3, 40, 48).reshape(5, 1, 120, 48))
    for name, values in peer_scores(maps, masks).items():
        assert torch.allclose(values, SCORES[name]()(*wide)), name


# --- Other libraries, and by hand ---


@quickly
@given(maps=MAPS, masks=MASKS)
def test_roc_auc_with_ties(maps: Tensor, masks: Tensor) -> None:
    for one, mask, found in zip(maps, masks, RocAuc()(maps, masks).tolist(), strict=True):
        inside = mask.expand(one.shape).flatten()
        expected = roc_auc_score(inside, one.flatten()) if inside.any() and not inside.all() else math.nan
        assert found == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_roc_auc_of_a_large_region_is_accurate() -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(1, 3, 224, 224, generator=generator)
    masks = torch.ones(1, 1, 224, 224, dtype=torch.bool)
    masks[..., :2] = False
    expected = roc_auc_score(masks.expand(maps.shape).flatten(), maps.flatten())
    assert RocAuc()(maps, masks).item() == pytest.approx(expected, rel=3e-7)
    assert RocAuc()(maps.double(), masks).item() == pytest.approx(expected, rel=1e-12)


@quickly
@given(masks=arrays(np.bool_, (2, 1, 9, 7)), distance=st.floats(1, 12))
def test_growing_a_region(masks: np.ndarray, distance: float) -> None:
    found = grown(torch.from_numpy(masks), distance).numpy()
    for mask, near in zip(masks[:, 0], found[:, 0], strict=True):
        # Without a marked pixel scipy measures the distance to somewhere outside.
        expected = distance_transform_edt(~mask) <= distance if mask.any() else mask
        assert (near == expected).all()


def test_pointing_game_with_tolerance() -> None:
    masks = torch.zeros(1, 1, 20, 20, dtype=torch.bool)
    masks[0, 0, 5, 5] = True
    maps = torch.zeros(1, 1, 20, 20)
    maps[0, 0, 8, 9] = 1  # 3 down, 4 right: 5 away
    hits = [PointingGame(tolerance=tolerance)(maps, masks).item() for tolerance in (0, 4.9, 5, 15)]
    assert hits == [0, 0, 1, 1]
    maps[0, 0, 19, 19] = 1  # an equal one, far away
    assert PointingGame(tolerance=5)(maps, masks).item() == 0.5
    assert peer_scores(maps, masks, k=1, tolerance=5)["pointing_game"].item() == 0.5


@quickly
@given(maps=MAPS, masks=MASKS, quantile=st.sampled_from([0.0, 0.25, 0.5, 0.8, 0.99]))
def test_iou_at_a_quantile(maps: Tensor, masks: Tensor, quantile: float) -> None:
    for one, mask, found in zip(maps, masks, IouAtQuantile(quantile)(maps, masks).tolist(), strict=True):
        kept = one.double().numpy() > np.quantile(one.double().numpy(), quantile) + 1e-6  # whole numbers: ties are ties
        inside = mask.expand(one.shape).numpy()
        union = (kept | inside).sum()
        expected = (kept & inside).sum() / union if inside.any() else math.nan
        assert found == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_a_quantile_that_is_one_of_the_values() -> None:
    maps = torch.arange(101.0).view(1, 1, 1, 101)
    assert IouAtQuantile(0.29)(maps, maps > 29).item() == 1  # although 0.29·100 is 28.999… for the computer


def test_ranks_by_hand() -> None:
    maps = torch.tensor([[[[9.0, 5, 5, 5], [1, 0, -1, -2]]]])
    masks = torch.tensor([[[[True, True, False, False], [False, False, False, True]]]])
    # The three largest are 9 and two of the three fives, of which one is inside: 1 + 2/3 of 3.
    assert RelevanceRankAccuracy()(maps, masks).item() == pytest.approx((1 + 2 / 3) / 3)
    assert TopKIntersection(k=1)(maps, masks).item() == 1
    assert TopKIntersection(k=2)(maps, masks).item() == pytest.approx((1 + 1 / 3) / 2)
    assert TopKIntersection(k=8)(maps, masks).item() == pytest.approx(3 / 8)
    with pytest.raises(ValueError, match="`k` must be from 1 to the number of features, 8, got 9"):
        TopKIntersection(k=9)(maps, masks)


def test_energy_is_the_precision_of_locality() -> None:
    maps, masks = random_case(3)
    assert torch.equal(EnergyPointingGame()(maps, masks), locality_scores(maps, masks).precision)


# --- Chance ---


def test_chance_is_what_the_docstrings_say() -> None:
    generator = torch.Generator().manual_seed(7)
    maps = torch.randn(200, 1, 40, 48, generator=generator)
    masks = torch.zeros(200, 1, 40, 48, dtype=torch.bool)
    masks[:, :, :20, :24] = True
    share, kept = 0.25, 0.2
    expected = dict.fromkeys(PEERS, share)
    expected |= {"roc_auc": 0.5, "iou_at_quantile": share * kept / (share + kept - share * kept)}
    for name, values in peer_scores(maps, masks).items():
        interval = 4 * values.std() / math.sqrt(200)
        assert (values.mean() - expected[name]).abs() < interval + 1e-3, name
    weighted = AttributionLocalisation(weighted=True)(maps, masks)
    assert weighted.mean().item() == pytest.approx(1, abs=0.02)
    # A constant map is chance itself, where the score knows ties.
    for name, values in peer_scores(torch.ones_like(maps[:1]), masks[:1]).items():
        assert values.item() == pytest.approx(0 if name == "iou_at_quantile" else expected[name], abs=1e-6), name


# --- All scores ---


@quickly
@given(maps=MAPS, masks=MASKS, scale=st.sampled_from([1e-6, 0.3, 7.0, 1e6]))
def test_neither_scale_nor_order_nor_flips_matter(maps: Tensor, masks: Tensor, scale: float) -> None:
    options: dict[str, Any] = {"tolerance": 1.5, "k": 5}
    found = peer_scores(maps, masks, **options)
    scaled = peer_scores(maps * scale, masks, **options)
    swapped = peer_scores(maps.flip(0), masks.flip(0), **options)
    flipped = peer_scores(maps.flip(2, 3), masks.flip(2, 3), **options)
    for name, values in found.items():
        for other in (scaled[name], swapped[name].flip(0), flipped[name]):
            assert torch.allclose(values, other, rtol=1e-5, equal_nan=True), name
        assert ((values >= 0) & (values <= 1) | values.isnan()).all(), name


def test_undefined() -> None:
    maps, masks = random_case(count=3)
    ones, none, whole = torch.ones_like(maps[:1]), torch.zeros_like(masks[:1]), torch.ones_like(masks[:1])
    broken = maps[:1].clone()
    broken[0, 0, -1, -1] = math.nan
    for values in peer_scores(broken, masks[:1]).values():
        assert values.isnan().all()
    for values in peer_scores(torch.cat([maps[:1], broken, maps[1:2]]), masks[:3]).values():
        assert values.isnan().tolist() == [False, True, False]
    for values in peer_scores(maps[:1], none).values():
        assert values.isnan().all()
    full = peer_scores(maps[:1], whole)
    assert full.pop("roc_auc").isnan().all()
    assert full.pop("iou_at_quantile").item() == pytest.approx(0.2, abs=1e-3)
    assert [values.item() for values in full.values()] == pytest.approx([1] * 6)
    negative = peer_scores(-ones, masks[:1])
    assert negative["energy_pointing_game"].isnan().all()
    assert negative["relevance_mass_accuracy"].item() == pytest.approx(masks[0].float().mean().item())
    zero = peer_scores(0 * ones, masks[:1])
    assert zero["relevance_mass_accuracy"].isnan().all()
    assert zero["roc_auc"].item() == 0.5


def test_errors_say_what_to_do() -> None:
    maps, masks = random_case()
    with pytest.raises(ValueError, match="`tolerance` must be a number of pixels, 0 or larger, got -1"):
        PointingGame(tolerance=-1)(maps, masks)
    with pytest.raises(ValueError, match="`quantile` must be from 0 to below 1, got 1"):
        IouAtQuantile(quantile=1)(maps, masks)
