"""MaxBoxAccV2 and PxAP: components labelled one threshold at a time, scikit-learn's average precision, known answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from sklearn.metrics import average_precision_score
from torch import Tensor

from locality.pooled_scores import max_box_accuracy, pixel_average_precision
from locality.scores.localisation import Components, box_overlaps, level_histograms, map_levels
from locality.types import Box


def maps_of(seed: int, height: int = 9, width: int = 11, distinct: int = 6, count: int = 3) -> Tensor:
    """With few values, so that plateaus, holes and ties occur."""
    draws = torch.Generator().manual_seed(seed)
    maps = torch.randint(0, distinct, (count, 2, height, width), generator=draws).float()
    return ndimage_smooth(maps) if seed % 2 else maps


def ndimage_smooth(maps: Tensor) -> Tensor:
    return torch.from_numpy(ndimage.uniform_filter(maps.numpy(), (0, 0, 3, 3)))


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    both = max(wide, 0) * max(high, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return both / (sum(areas) - both)


def by_definition(levels: np.ndarray, boxes: list[Box], components: Components) -> list[float]:
    """Threshold, label, draw a box, compare: one threshold after another; of components of equal size the best."""
    best = []
    for threshold in range(255):
        labels, count = ndimage.label(levels > threshold, np.ones((3, 3)))
        found = []
        for label in range(1, count + 1):
            down, right = np.nonzero(labels == label)
            box = (right.min(), down.min(), right.max() + 1, down.max() + 1)
            match = max(overlap(box, (other.x0, other.y0, other.x1, other.y1)) for other in boxes)
            found.append((len(down), match))
        if components == "largest" and found:
            most = max(size for size, _ in found)
            found = [max((pair for pair in found if pair[0] == most), key=lambda pair: pair[1])]
        best.append(max((match for _, match in found), default=0.0))
    return best


@given(st.integers(0, 99), st.sampled_from(["all", "largest"]))
@settings(max_examples=12, deadline=None)
def test_the_component_tree_is_thresholding_and_labelling(seed: int, components: Components) -> None:
    maps = maps_of(seed, count=1)
    boxes = [Box(1, 2, 6, 7), Box(5.5, 0, 9.25, 3)]
    expected = by_definition(map_levels(maps)[0], boxes, components)
    found = box_overlaps(maps, [boxes], components)[0]
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("side", [1, 9, 41])
@pytest.mark.parametrize("components", ["all", "largest"])
def test_maps_of_all_levels_with_many_and_few_maxima(side: int, components: Components) -> None:
    """Noise has a maximum for every nine pixels, smooth maps have few, long slopes and plateaus."""
    noise = torch.randn(1, 3, 45, 61, generator=torch.Generator().manual_seed(side))
    maps = torch.from_numpy(ndimage.uniform_filter(noise.numpy(), (0, 0, side, side), mode="nearest"))
    boxes = [Box(12, 8, 40, 37), Box(30.5, 20, 60, 44)]
    expected = by_definition(map_levels(maps)[0], boxes, components)
    assert box_overlaps(maps, [boxes], components)[0] == pytest.approx(expected, abs=1e-6)


def test_the_largest_component_and_the_best() -> None:
    """A small bright square on the object and a large one beside it."""
    maps = torch.zeros(1, 1, 20, 20)
    maps[..., 2:6, 2:6] = 3
    maps[..., 10:19, 10:19] = 2
    boxes = [[Box(2, 2, 6, 6)]]
    best, largest = box_overlaps(maps, boxes)[0], box_overlaps(maps, boxes, "largest")[0]
    assert (best == 1).all()
    assert (largest[:170] == 0).all()
    assert (largest[170:] == 1).all()
    diagonal = torch.eye(4)[None, None]  # pixels that touch at a corner are one component
    assert box_overlaps(diagonal, [[Box(0, 0, 4, 4)]]).tolist() == [[1.0] * 255]


def test_the_threshold_belongs_to_the_data_set() -> None:
    """Each image has a threshold with a perfect box, but no threshold serves both."""
    maps = torch.zeros(2, 1, 10, 10)
    maps[0, :, 0:4, 0:4], maps[0, :, 0:2, 0:2] = 1, 4  # the object is the low square
    maps[1, :, 0:8, 0:8], maps[1, :, 0:4, 0:4] = 3, 4  # the object is the high square
    boxes = [[Box(0, 0, 4, 4)]] * 2
    overlaps = box_overlaps(maps, boxes)
    assert overlaps.max(1).tolist() == [1, 1]
    assert max_box_accuracy(overlaps, (0.9,)).mean == 0.5
    # IoU of the wrong boxes is 1/4, so that each δ counts the same; at δ = 0.2 both are found.
    assert max_box_accuracy(overlaps, (0.2, 0.9)).mean == 0.75
    assert max_box_accuracy(overlaps).mean == 0.5
    # Each δ has the threshold that is best for it; an IoU of δ is enough.
    assert max_box_accuracy(np.array([[0.4, 0.8], [0.4, 0.0]]), (0.3, 0.5)).mean == 0.75
    assert max_box_accuracy(np.array([[0.5, 0.0]]), (0.5,)).mean == 1


def test_the_second_version_is_the_mean_over_three_overlaps() -> None:
    """Choe et al. 2020: δ = 0.3, 0.5 and 0.7, reached here by all, two and one of four images."""
    found = max_box_accuracy(np.array([[0.31], [0.49], [0.69], [0.71]]))
    assert found.mean == pytest.approx((4 / 4 + 2 / 4 + 1 / 4) / 3)


def test_perfect_and_wrong_maps() -> None:
    masks = torch.zeros(4, 1, 16, 16, dtype=torch.bool)
    boxes = []
    for row in range(4):
        masks[row, :, row : row + 8, 3:10] = True
        boxes.append([Box(3, row, 10, row + 8)])
    for maps, accuracy, precision in ((masks.float(), 1.0, 1.0), (-masks.float(), None, None)):
        found = max_box_accuracy(box_overlaps(maps, boxes))
        pixels = pixel_average_precision(*level_histograms(maps, masks))
        if accuracy is not None:
            assert (found.mean, found.low, found.high) == (accuracy, 1, 1)
            assert (pixels.mean, pixels.used) == (precision, 4)
        else:
            assert pixels.mean == pytest.approx(7 * 8 / 256, abs=0.01)  # all of it in the last step, at the region's share
            assert found.mean < 0.4  # a frame around the object, whose box is the whole image


def test_pixel_precision_is_scikit_learns() -> None:
    maps = torch.randn(7, 3, 12, 9, generator=torch.Generator().manual_seed(2))
    masks = torch.rand(7, 1, 12, 9, generator=torch.Generator().manual_seed(3)) < 0.3
    maps += masks.float() * torch.linspace(0, 3, 7)[:, None, None, None]
    found = pixel_average_precision(*level_histograms(maps, masks))
    expected = average_precision_score(masks.flatten().numpy(), map_levels(maps).ravel())
    assert found.mean == pytest.approx(expected, abs=1e-9)
    assert found.low < found.mean < found.high
    # One image's scale says nothing about another's: each is scaled to [0, 1] first.
    scaled = maps * torch.tensor([1.0, 10, 0.1, 3, 1, 1, 100])[:, None, None, None] + 5
    assert pixel_average_precision(*level_histograms(scaled, masks)).mean == pytest.approx(expected, abs=2e-3)


def test_chance_of_pixels_is_the_share_of_the_region() -> None:
    maps = torch.randn(60, 1, 40, 40, generator=torch.Generator().manual_seed(2))
    masks = torch.zeros(60, 1, 40, 40, dtype=torch.bool)
    masks[:30, :, :10, :16], masks[30:, :, :30] = True, True
    found = pixel_average_precision(*level_histograms(maps, masks))
    assert found.mean == pytest.approx(float(masks.float().mean()), abs=0.01)
    constant = pixel_average_precision(*level_histograms(torch.ones_like(maps), masks))
    assert constant.mean == pytest.approx(float(masks.double().mean()), abs=1e-9)


def test_undefined_images_are_counted() -> None:
    maps = maps_of(2, count=5)
    masks = torch.zeros(5, 1, 9, 11, dtype=torch.bool)
    masks[..., :4, :4] = True
    maps[1, 0, 2, 2], maps[2] = torch.nan, 3.0
    boxes = [[Box(0, 0, 4, 4)], [Box(0, 0, 4, 4)], [Box(0, 0, 4, 4)], [], [Box(0, 0, 4, 4)]]
    overlaps = box_overlaps(maps, boxes)
    assert np.isnan(overlaps).all(1).tolist() == [False, True, True, True, False]
    found = max_box_accuracy(overlaps)
    assert (found.used, found.undefined) == (2, 3)
    pixels = pixel_average_precision(*level_histograms(maps, masks))
    assert (pixels.used, pixels.undefined) == (4, 1)
    nothing = max_box_accuracy(overlaps[1:2])
    assert np.isnan(nothing.mean)
    assert (nothing.used, nothing.undefined) == (0, 1)
    assert np.isnan(pixel_average_precision(*level_histograms(maps, masks & False)).mean)


def test_the_interval_covers_the_truth() -> None:
    """The share of intervals that contain the score of the population, at 40 images."""
    draws = np.random.default_rng(0)
    quality = draws.uniform(0, 1, size=(4000, 1))
    thresholds = np.linspace(0, 1, 12)
    population = np.clip(quality + 0.2 * draws.normal(size=(4000, 12)) - (thresholds - 0.4) ** 2, 0, 1)
    truth = max_box_accuracy(population, resamples=2).mean
    samples = [max_box_accuracy(population[draws.choice(4000, 40)], resamples=300) for _ in range(120)]
    assert np.mean([one.low <= truth <= one.high for one in samples]) > 0.88


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="`boxes` must be a list of boxes for each of the 3 maps, got 1"):
        box_overlaps(maps_of(0), [[Box(0, 0, 4, 4)]])
    with pytest.raises(ValueError, match="`components` must be one of all, largest, got 'biggest'"):
        box_overlaps(maps_of(0), [[Box(0, 0, 4, 4)]] * 3, "biggest")  # type: ignore[arg-type]
