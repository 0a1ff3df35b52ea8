"""`points="auto"`: nested points of the trapezoid rule, doubled until the completeness gap is small."""

import pytest
import torch
from torch import Tensor

from locality.attribution import attribute_all, boundary_integrated_gradients, integrated_gradients
from locality.attribution.integrated_gradients import AutoPoints, relative_gap
from locality.model_calls import open_model


def bent(pixels: Tensor) -> Tensor:
    """Class 0 turns sharply where the mean brightness is 0.3; class 1 is constant."""
    mean = pixels.flatten(1).mean(1)
    return torch.stack([torch.sigmoid(200 * (mean - 0.303)), torch.full_like(mean, 0.4)], 1)


IMAGES = torch.stack([torch.full((1, 2, 2), 0.95), torch.full((1, 2, 2), 0.02)]).double()


def test_the_gap_is_below_the_tolerance() -> None:
    assert relative_gap(integrated_gradients(bent, IMAGES[:1], 0, points=20))[0] > 0.1
    for tolerance in (0.05, 0.001):
        path_maps = integrated_gradients(bent, IMAGES[:1], 0, points=AutoPoints(tolerance))
        assert relative_gap(path_maps)[0] <= tolerance
    assert relative_gap(integrated_gradients(bent, IMAGES[:1], 0, points="auto"))[0] <= 0.05


@pytest.mark.parametrize("halvings", [0, 1, 3])
def test_gradients_are_reused_and_the_sum_is_the_trapezoid_rule_s(halvings: int) -> None:
    """With tolerance 0 every image is halved to the end: 16 · 2^k + 1 gradients, each point once."""
    most = 16 * 2**halvings
    with open_model(bent, IMAGES) as calls:
        path_maps = integrated_gradients(calls, IMAGES, 0, points=AutoPoints(-1.0, most=most))
        assert calls.gradients == len(IMAGES) * (most + 1)
    expected = integrated_gradients(bent, IMAGES, 0, points=most + 1)
    assert torch.allclose(path_maps.maps, expected.maps, rtol=0, atol=1e-5)
    assert torch.allclose(path_maps.delta, expected.delta, rtol=0, atol=1e-5)


def test_only_images_that_need_them_have_more_points() -> None:
    both = integrated_gradients(bent, IMAGES, 0, points="auto")
    for index in range(2):
        alone = integrated_gradients(bent, IMAGES[index : index + 1], 0, points="auto")
        assert torch.allclose(both.maps[index], alone.maps[0], rtol=0, atol=1e-5)
    straight = lambda pixels: pixels.flatten(1)  # noqa: E731
    with open_model(straight, IMAGES) as calls:
        integrated_gradients(calls, IMAGES, 0, points="auto")
        assert calls.gradients == len(IMAGES) * 17


def test_attribute_all_gives_the_same_maps() -> None:
    images = torch.full_like(IMAGES[:1], 0.35)
    edge = torch.full_like(images, 0.25)  # across: class 1 is larger there
    maps = attribute_all(bent, images, ["IG", "BIG"], 0, edge, points="auto")
    expected = {
        "IG": integrated_gradients(bent, images, 0, points="auto"),
        "BIG": boundary_integrated_gradients(bent, images, edge, 0, points="auto"),
    }
    for name, path_maps in expected.items():
        assert torch.equal(maps[name].maps, path_maps.maps), name  # type: ignore[union-attr]


def test_other_rules_have_no_nested_points() -> None:
    with pytest.raises(ValueError, match="`rule` must be the trapezoid rule where `points` is 'auto', got 'gausslegendre'"):
        integrated_gradients(bent, IMAGES, 0, points="auto", rule="gausslegendre")
    with pytest.raises(ValueError, match="`points` must be a whole number of points on the path, or 'auto', got 'many'"):
        integrated_gradients(bent, IMAGES, 0, points="many")  # type: ignore[arg-type]
