"""Locality against hand-drawn maps, float64 sums and the properties it must have; lift against shuffled maps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from locality import Box, box_mask, load_dataset
from locality.scores import map_features
from locality.scores.locality import lift, locality_curve, locality_scores, map_scores
from locality.scores.map_features import Features
from locality.types import Channels, LocalityScores

# 10 inside the left half, of which −2 − 1 are negative; 5 outside, of which −3 is negative.
DRAWN = torch.tensor([[4.0, -2, 0, 0], [3.0, 0, -3, 0], [0.0, 0, 1, 0], [0.0, -1, 0, 1]]).view(1, 1, 4, 4)
LEFT = box_mask([Box(0, 0, 2, 4)], 4, 4)[None]


def numbers(found: LocalityScores) -> list[float]:
    return [float(score) for score in (found.precision, found.recall, found.f1)]


def scores_in_float64(maps: Tensor, masks: Tensor, rho: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Definitions 9 and 10 as they are written, one image at a time."""
    rows = []
    for one, mask in zip(maps.double().numpy(), masks.numpy(), strict=True):
        important, inside = one * (one > rho), np.broadcast_to(mask, one.shape)
        precision = important[inside].sum() / important.sum()
        recall = important[inside].sum() / np.abs(one[inside]).sum()
        rows.append((precision, recall, 2 * precision * recall / (precision + recall)))
    columns = np.array(rows).T
    return columns[0], columns[1], columns[2]


def test_a_map_drawn_by_hand() -> None:
    assert numbers(locality_scores(DRAWN, LEFT)) == pytest.approx([7 / 9, 7 / 10, 14 / 19])


def test_several_boxes_are_their_union() -> None:
    overlapping = box_mask([Box(0, 0, 2, 2), Box(0, 1, 2, 4), Box(3, 3, 4, 4)], 4, 4)[None]
    assert numbers(locality_scores(DRAWN, overlapping)) == pytest.approx([8 / 9, 8 / 11, 16 / 20])


def test_the_pixels_of_an_object() -> None:
    outline = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    outline[0, 0, [0, 1, 1], [0, 0, 2]] = True
    assert numbers(locality_scores(DRAWN, outline)) == pytest.approx([7 / 9, 7 / 10, 14 / 19])
    sample = load_dataset("shapes", count=1)[0]
    assert sample.outline is not None
    found = locality_scores(sample.outline.float()[None], torch.stack([sample.mask, sample.outline])[:1])
    assert numbers(found) == [1, 1, 1]
    # The box's corners are not the object's.
    assert locality_scores(sample.mask.float()[None], sample.outline[None]).precision < 1


def test_rho_drops_what_does_not_exceed_it() -> None:
    assert numbers(locality_scores(DRAWN, LEFT, rho=1.0)) == pytest.approx([1, 7 / 10, 14 / 17])
    assert numbers(locality_scores(DRAWN, LEFT, rho=3.0)) == pytest.approx([1, 4 / 10, 8 / 14])
    nothing = locality_scores(DRAWN, LEFT, rho=4.0)
    assert nothing.precision.isnan()
    assert nothing.recall == 0
    assert nothing.f1.isnan()


def test_channels_are_features_or_are_added_up() -> None:
    maps = torch.cat([DRAWN, -DRAWN.clamp(min=0), torch.ones(1, 1, 4, 4)], dim=1)
    # All: 7 + 8 inside of 9 + 16, |A| inside 10 + 7 + 8. Sum: min(A, 0) + 1, so 6 inside of 13, |A| inside 6 + 1 + 0.
    assert numbers(locality_scores(maps, LEFT)) == pytest.approx([15 / 25, 15 / 25, 15 / 25])
    assert numbers(locality_scores(maps, LEFT, channels="sum")) == pytest.approx([6 / 13, 6 / 7, 12 / 20])


@pytest.mark.parametrize("channels", ["all", "sum"])
def test_sums_in_float32_are_as_accurate_as_in_float64(channels: Channels) -> None:
    generator = torch.Generator().manual_seed(0)
    # Heavy tails and a wide range, as gradients have them; a sequential sum would lose four digits.
    maps = torch.randn(3, 3, 224, 224, generator=generator) * torch.exp(2 * torch.randn(3, 3, 224, 224, generator=generator))
    maps[1] = maps[1].abs() + 1000
    masks = torch.zeros(3, 1, 224, 224, dtype=torch.bool)
    masks[:, :, 30:150, 40:200] = True
    expected = scores_in_float64(maps if channels == "all" else maps.sum(1, keepdim=True), masks)
    found = locality_scores(maps, masks, channels=channels)
    for score, reference in zip((found.precision, found.recall, found.f1), expected, strict=True):
        assert score.dtype == torch.float32
        assert score.numpy() == pytest.approx(reference, rel=1e-6)


def test_neither_other_images_nor_chunks_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, masks = random_case(9, 0)
    maps[4, 0, 0, 0] = torch.nan
    whole = map_scores(maps, masks)
    monkeypatch.setitem(map_features.CHUNK_FEATURES, "cpu", 2 * maps[0].numel())
    seen: list[int] = []

    def counted(part: Tensor, inside: Tensor) -> Features:
        seen.append(len(part))
        return Features(part, inside)

    monkeypatch.setattr(map_features, "Features", counted)
    for name, values in vars(map_scores(maps, masks)).items():
        assert torch.equal(values.nan_to_num(-9), getattr(whole, name).nan_to_num(-9))
    assert seen == [2, 2, 2, 2, 1]
    assert whole.f1.isnan().nonzero().flatten().tolist() == [4]


def test_maps_of_any_memory_layout_precision_and_history() -> None:
    maps, masks = random_case(4, 1)
    expected = locality_scores(maps, masks).f1
    assert torch.equal(locality_scores(maps.to(memory_format=torch.channels_last), masks).f1, expected)
    asking = maps.clone().requires_grad_()
    found = locality_scores(asking, masks).f1
    assert torch.equal(found, expected)
    assert not found.requires_grad
    double = locality_scores(maps.double(), masks).f1
    assert double.dtype == torch.float64
    assert torch.allclose(double.float(), expected)
    # Sums of 65,000 values of 10 exceed what half precision can hold.
    large = torch.full((1, 4, 128, 128), 10.0, dtype=torch.float16)
    half = locality_scores(large, torch.ones(1, 1, 128, 128, dtype=torch.bool))
    assert numbers(half) == [1, 1, 1]


# --- Undefined ---


def test_nothing_is_undefined_silently() -> None:
    half = LEFT
    none, whole = torch.zeros_like(half), torch.ones_like(half)
    nan = math.nan
    broken = DRAWN.clone()
    broken[0, 0, 0, 3] = nan  # outside the region: still, this map is not one
    endless = DRAWN.clone()
    endless[0, 0, 0, 3] = torch.inf
    cases = [
        (torch.zeros_like(DRAWN), half, [nan, nan, nan]),
        (-torch.ones_like(DRAWN), half, [nan, 0, nan]),
        (torch.full_like(DRAWN, nan), half, [nan, nan, nan]),
        (broken, half, [nan, nan, nan]),
        (endless, half, [nan, nan, nan]),
        (DRAWN, none, [0, nan, nan]),
        (DRAWN, whole, [1, 9 / 15, 18 / 24]),
        # All positive outside, all negative inside: neither is undefined, both are 0.
        (torch.where(half, -1.0, 1.0), half, [0, 0, 0]),
        # Positive outside, nothing inside.
        (torch.where(half, 0.0, 1.0), half, [0, nan, nan]),
    ]
    for maps, masks, expected in cases:
        assert numbers(locality_scores(maps, masks)) == pytest.approx(expected, nan_ok=True)


def test_lift_where_chance_and_perfection_are_the_same() -> None:
    whole = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    assert lift(torch.rand(1, 3, 4, 4), whole).isnan().all()
    assert lift(DRAWN, whole).item() == pytest.approx(0, abs=1e-6)
    assert lift(torch.full_like(DRAWN, math.nan), LEFT).isnan().all()
    assert lift(DRAWN, ~whole).isnan().all()


# --- Lift ---


def test_lift_by_hand() -> None:
    # a = 1/2, p = 9/15, so c = 0.6/1.1; F1 = 14/19.
    chance = 0.6 / 1.1
    found = map_scores(DRAWN, LEFT)
    assert found.box_share.item() == 0.5
    assert found.chance.item() == pytest.approx(chance)
    assert found.lift.item() == pytest.approx((14 / 19 - chance) / (1 - chance))
    assert lift(DRAWN, LEFT).item() == found.lift.item()
    # With ρ = 1, the important features are 7 of 15, all inside.
    chance = 2 * 0.5 * (7 / 15) / (0.5 + 7 / 15)
    assert lift(DRAWN, LEFT, rho=1.0).item() == pytest.approx((14 / 17 - chance) / (1 - chance))


def test_the_ends_of_lift() -> None:
    assert lift(LEFT.float(), LEFT).item() == 1
    assert lift(torch.ones_like(DRAWN), LEFT).item() == pytest.approx(0, abs=1e-6)
    assert lift((~LEFT).float() - 0.1 * LEFT.float(), LEFT).item() < -0.9


@pytest.mark.parametrize("positive", [0.5, 0.95], ids=["signed", "almost all positive"])
def test_shuffled_maps_have_a_mean_lift_of_zero(positive: float) -> None:
    generator = torch.Generator().manual_seed(5)
    data = load_dataset("shapes", count=200)
    masks = data.batch(range(200)).masks
    size = torch.randn(200, 3, 64, 64, generator=generator).exp()
    signs = torch.where(torch.rand(size.shape, generator=generator) < positive, 1.0, -1.0)
    informed = size * torch.where(masks, 1.0, 0.2) * signs
    orders = torch.argsort(torch.rand(200, 3 * 64 * 64, generator=generator), dim=1)
    shuffled = informed.flatten(1).gather(1, orders).view_as(informed)
    values = lift(shuffled, masks)
    interval = 1.96 * values.std() / math.sqrt(200)
    assert values.mean().abs() < interval
    assert interval < 0.003  # so that the line above says something
    assert (lift(informed, masks) > 0.1).all()
    # F1 alone is far from 0 for the same shuffled maps, the more so where there is little that is negative.
    assert locality_scores(shuffled, masks).f1.mean() > 0.25


# --- Properties ---


def random_case(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, 5, 6, generator=generator), torch.rand(count, 1, 5, 6, generator=generator) < 0.4


WHOLE_NUMBERS = st.integers(-40, 40).map(float)  # sums are exact in float32, ties and zeros are frequent
MAPS = arrays(np.float32, (2, 2, 3, 4), elements=WHOLE_NUMBERS).map(torch.from_numpy)
MASKS = arrays(np.bool_, (2, 1, 3, 4)).map(torch.from_numpy)
quickly = settings(max_examples=30, deadline=None)  # no deadline: this machine may be busy


def same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


@quickly
@given(maps=MAPS, masks=MASKS, scale=st.floats(1e-6, 1e6))
def test_scale_does_not_matter(maps: Tensor, masks: Tensor, scale: float) -> None:
    one, other = map_scores(maps, masks), map_scores(maps * scale, masks)
    for name, values in vars(one).items():
        assert same(values, getattr(other, name)), name


@quickly
@given(maps=MAPS, masks=MASKS)
def test_order_and_flips_do_not_matter(maps: Tensor, masks: Tensor) -> None:
    one = map_scores(maps, masks)
    for name, values in vars(one).items():
        assert same(values.flip(0), getattr(map_scores(maps.flip(0), masks.flip(0)), name))
        for axes in ((2,), (3,), (2, 3)):
            assert same(values, getattr(map_scores(maps.flip(axes), masks.flip(axes)), name))


@quickly
@given(maps=MAPS, masks=MASKS)
def test_all_mass_inside(maps: Tensor, masks: Tensor) -> None:
    inside = torch.where(masks, maps, 0)
    found = locality_scores(inside, masks)
    positive, all_of_it = inside.clamp(min=0).sum((1, 2, 3)), inside.abs().sum((1, 2, 3))
    assert same(found.precision, torch.where(positive > 0, 1.0, torch.nan))
    assert same(found.recall, positive / all_of_it)


@quickly
@given(maps=MAPS, masks=MASKS, split=st.integers(0, 4))
def test_precision_of_disjoint_regions_adds_up(maps: Tensor, masks: Tensor, split: int) -> None:
    left = masks.clone()
    left[..., split:] = False
    right = masks & ~left
    both, one, other = (locality_scores(maps, region) for region in (masks, left, right))
    assert same(both.precision, one.precision + other.precision)
    # Recall of the union is the mean of both, weighted with the attribution inside each.
    weights = [(maps.abs() * region).sum((1, 2, 3)) for region in (left, right)]
    parts = [found.recall.nan_to_num(0) * weight for found, weight in zip((one, other), weights, strict=True)]
    assert same(both.recall, (parts[0] + parts[1]) / (weights[0] + weights[1]))


@quickly
@given(maps=MAPS, masks=MASKS)
def test_ranges(maps: Tensor, masks: Tensor) -> None:
    found = map_scores(maps, masks)
    for values in (found.precision, found.recall, found.f1, found.box_share):
        assert ((values >= 0) & (values <= 1) | values.isnan()).all()
    assert ((found.lift <= 1 + 1e-6) | found.lift.isnan()).all()
    assert torch.equal(found.f1.isnan(), found.precision.isnan() | found.recall.isnan())


# --- The curve ---


def areas_by_hand(maps: Tensor, masks: Tensor) -> list[float]:
    """The area of the step curve through every threshold, with `locality_scores` at each."""
    areas = []
    for one, mask in zip(maps[:, None], masks[:, None], strict=True):
        thresholds = sorted({0.0, *one[one > 0].tolist()}, reverse=True)
        scores = [locality_scores(one, mask, rho=threshold) for threshold in thresholds]
        area, before = 0.0, 0.0
        for found in scores:
            recall = float(found.recall)
            area += (recall - before) * float(found.precision.nan_to_num(0))
            before = recall
        areas.append(area if not scores[-1].f1.isnan() else math.nan)
    return areas


@quickly
@given(maps=MAPS, masks=MASKS)
def test_the_area_is_that_of_every_threshold(maps: Tensor, masks: Tensor) -> None:
    assert locality_curve(maps, masks).area.tolist() == pytest.approx(areas_by_hand(maps, masks), abs=1e-5, nan_ok=True)


@quickly
@given(maps=MAPS, masks=MASKS, channels=st.sampled_from(["all", "sum"]))
def test_every_point_of_the_curve_is_locality_at_its_rho(maps: Tensor, masks: Tensor, channels: Channels) -> None:
    quantiles = (0.0, 0.25, 0.29, 0.9, 0.999)
    curve = locality_curve(maps, masks, quantiles, channels)
    assert curve.rho.shape == (2, 5)
    reduced = maps if channels == "all" else maps.sum(1, keepdim=True)
    for row in range(2):
        positive = reduced[row][reduced[row] > 0].sort(descending=True).values.tolist()
        for column, quantile in enumerate(quantiles):
            kept = len(positive) - math.floor(quantile * len(positive) + 1e-9)
            rho = curve.rho[row, column].item()
            assert rho == [*positive, 0.0][kept]
            found = locality_scores(reduced[row : row + 1], masks[row : row + 1], rho)
            assert same(curve.precision[row, column], found.precision[0])
            assert same(curve.recall[row, column], found.recall[0])


def test_the_area_of_shuffled_and_of_perfect_maps() -> None:
    generator = torch.Generator().manual_seed(3)
    maps, masks = torch.randn(50, 1, 64, 64, generator=generator), torch.zeros(50, 1, 64, 64, dtype=torch.bool)
    masks[:, :, 10:42, 10:42] = True
    assert locality_curve(maps, masks).area.mean().item() == pytest.approx(0.25 * 0.5, rel=0.03)
    assert locality_curve(masks.float(), masks).area.tolist() == [1.0] * 50
    maps[0, 0, 0, 0] = torch.nan
    curve = locality_curve(maps, masks)
    assert curve.area.isnan().nonzero().flatten().tolist() == [0]
    assert curve.recall[0].isnan().all()


def test_the_curve_where_nothing_is_positive_or_nothing_is_marked() -> None:
    for maps, masks in ((-torch.ones_like(DRAWN), LEFT), (DRAWN, torch.zeros_like(LEFT)), (0 * DRAWN, LEFT)):
        curve = locality_curve(maps, masks, (0.0, 0.5))
        assert curve.area.isnan().all()
        assert (curve.precision.isnan() | curve.recall.isnan()).all()
        assert curve.rho.isfinite().all()


def test_a_quantile_of_a_hundred_features_is_a_whole_number_of_them() -> None:
    maps = torch.arange(1.0, 101).view(1, 1, 10, 10)
    curve = locality_curve(maps, torch.ones(1, 1, 10, 10, dtype=torch.bool), (0.29, 0.57, 0.58))
    assert curve.rho.tolist() == [[29, 57, 58]]  # although 0.29·100 is 28.999… for the computer


# --- Errors ---


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"`rho` must be 0 or larger, got -1.0"):
        locality_scores(DRAWN, LEFT, rho=-1.0)
    with pytest.raises(ValueError, match=r"`rho` must be 0 or larger, got nan"):
        lift(DRAWN, LEFT, rho=math.nan)
    with pytest.raises(ValueError, match=r"`quantiles` must be numbers from 0 to below 1, got \[0.5, 1.0\]"):
        locality_curve(DRAWN, LEFT, (0.5, 1.0))
    with pytest.raises(ValueError, match=r"`quantiles` must be numbers"):
        locality_curve(DRAWN, LEFT, ())
