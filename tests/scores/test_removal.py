"""Deletion and insertion: a linear model in closed form, Quantus' pixel flipping, and what must not change a curve."""

import importlib
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_models import small_network
from torch import Tensor, nn

from locality.attribution import integrated_gradients
from locality.attribution.baselines import blurred
from locality.model_calls import open_model
from locality.model_calls.randomness import image_seeds
from locality.scores.removal import Curve, PixelOrder, chance_curves, removal_curves

quantus: Any = importlib.import_module("quantus")  # untyped


@pytest.fixture
def images() -> Tensor:
    return torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def weighted_sum(seed: int = 5) -> tuple[Tensor, Any]:
    """Weights w and the model with logits (w·x, 0)."""
    weights = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(seed))

    def model(images: Tensor) -> Tensor:
        logit = (images * weights).sum((1, 2, 3))
        return torch.stack((logit, torch.zeros_like(logit)), 1)

    return weights, model


def normal_maps(seed: int, rounded: bool = False) -> Tensor:
    maps = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return (2 * maps).round() if rounded else maps


@pytest.mark.parametrize("steps", [1, 8, 64])
@pytest.mark.parametrize("output", ["logit", "probability"])
def test_a_linear_model_in_closed_form(images: Tensor, steps: int, output: Any) -> None:
    weights, model = weighted_sum()
    maps = images * weights
    found = removal_curves(model, images, maps, 0, steps=steps, fill="black", start="black", output=output)["map"]
    pixels = maps.sum(1).flatten(1).double()
    taken = torch.cat((torch.zeros(4, 1), pixels.sort(descending=True).values.cumsum(1)), 1)[:, :: 64 // steps]
    for curve, logits in ((found.deletion, pixels.sum(1, keepdim=True) - taken), (found.insertion, taken)):
        expected = logits if output == "logit" else torch.sigmoid(logits)
        assert torch.allclose(curve.output.double(), expected, atol=1e-4)
        assert torch.allclose(curve.share, torch.linspace(0, 1, steps + 1))
        area = (expected[:, 1:] + expected[:, :-1]).sum(1) / 2 / steps
        assert torch.allclose(curve.area.double(), area, atol=1e-4)


def test_the_right_map_is_the_best_order(images: Tensor) -> None:
    """Of a linear model's logit with black pixels, in closed form: any other order removes less at each step."""
    weights, model = weighted_sum()
    options: dict[str, Any] = {"target": 0, "steps": 16, "fill": "black", "start": "black", "output": "logit"}
    maps = {"right": images * weights, "other": normal_maps(3), "opposite": -images * weights}
    curves = removal_curves(model, images, maps, **options)
    assert list(curves) == list(maps)
    for name in ("other", "opposite"):
        assert (curves["right"].deletion.output <= curves[name].deletion.output + 1e-4).all()
        assert (curves["right"].deletion.area < curves[name].deletion.area).all()
        assert (curves["right"].insertion.area > curves[name].insertion.area).all()


def test_chance_is_a_straight_line_of_a_linear_logit() -> None:
    """A random order removes the same share of every pixel's contribution, in expectation: the area is f(x)/2."""
    _, model = weighted_sum()
    images = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(1)).expand(400, -1, -1, -1).clone()
    images[:, :, 0, 0] = torch.linspace(0, 1e-3, 400)[:, None]  # another image has another order
    found = chance_curves(model, images, 0, steps=8, fill="black", start="black", output="logit")
    value = model(images)[:, 0]
    for curve in (found.deletion, found.insertion):
        error = 4 * curve.area.std() / 20
        assert (curve.area - value / 2).mean().abs() < error
        assert curve.area.std() > 0.1


def test_chance_is_what_shuffled_values_score(images: Tensor) -> None:
    """A curve knows the order only, so a map of distinct values is, when shuffled, a random order."""
    model = small_network().eval()
    generator = torch.Generator().manual_seed(0)
    image = images[:1].expand(300, -1, -1, -1)
    shuffled = normal_maps(0)[:1].sum(1).flatten()[torch.rand(300, 64, generator=generator).argsort(1)].view(300, 1, 8, 8)
    scored = removal_curves(model, image, shuffled, 2, steps=6)["map"]
    jittered = (image + 1e-6 * torch.rand(300, 1, 1, 1, generator=generator)).clamp(0, 1)
    chance = chance_curves(model, jittered, 2, steps=6)
    for one, other in ((scored.deletion, chance.deletion), (scored.insertion, chance.insertion)):
        error = (one.area.var() / 300 + other.area.var() / 300).sqrt()
        assert (one.area.mean() - other.area.mean()).abs() < 4 * error


@given(st.integers(0, 50), st.sampled_from([0.25, 3.0, 1000.0]), st.integers(-7, 7))
@settings(max_examples=15, deadline=None)
def test_only_the_order_counts(seed: int, scale: float, shift: int) -> None:
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    model, maps = small_network().eval(), normal_maps(seed, rounded=True).sum(1, keepdim=True)  # with many ties
    expected = removal_curves(model, images, maps, 2, steps=5)["map"]
    changed = {"affine": scale * maps + shift, "monotone": maps**3, "channels": torch.cat((maps, 0 * maps), 1)}
    changed["zeros"] = torch.where(maps == 0, -0.0, maps)
    for name, found in removal_curves(model, images, changed, 2, steps=5).items():
        assert torch.equal(found.deletion.output, expected.deletion.output), name
        assert torch.equal(found.insertion.output, expected.insertion.output), name


def test_ties_depend_on_the_image_and_the_seed_only(images: Tensor) -> None:
    model, maps = small_network().eval(), normal_maps(2, rounded=True)
    whole = removal_curves(model, images, maps, 1)["map"].deletion.output
    for row in range(4):
        alone = removal_curves(model, images[row, None], maps[row, None], 1, chunk=2)["map"].deletion.output
        assert torch.allclose(alone[0], whole[row], atol=1e-6)
    assert not torch.allclose(removal_curves(model, images, maps, 1, seed=1)["map"].deletion.output, whole, atol=1e-6)
    order = PixelOrder.of(torch.zeros(4, 1, 8, 8), image_seeds(images, 0))
    for count in (0, 1, 31, 64):
        assert order.first(2, count).sum() == count
    first = torch.stack([order.first(row, 20) for row in range(4)])
    assert (first[0] != first[1]).any()
    assert torch.equal(first[2] & order.first(2, 9), order.first(2, 9))  # what is gone stays gone
    rows = first.float().mean((0, 2))
    assert rows.max() < 0.8  # not by the place in memory: 20 of 64 pixels are the first two and a half rows


def test_quantus_flips_the_same_pixels(images: Tensor) -> None:
    """One channel, because Quantus flips values of channels, and its curve has no point for the whole image."""
    grey = images[:, :1]
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 5)).eval()
    maps = integrated_gradients(model, grey, 2).maps
    found = removal_curves(model, grey, maps, 2, steps=16, fill="black")["map"].deletion
    # Its "black" is the darkest value of the image.
    metric = quantus.PixelFlipping(features_in_step=4, perturb_baseline=0.0, disable_warnings=True, normalise=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        curves = metric(model=model, x_batch=grey.numpy(), y_batch=np.full(4, 2), a_batch=maps.numpy(), softmax=True)
    assert np.allclose(found.output[:, 1:], np.array(curves), atol=1e-5)
    assert np.ptp(np.array(curves)) > 0.05


def test_the_default_baselines(images: Tensor) -> None:
    model = small_network().eval()
    found = removal_curves(model, images, normal_maps(1), 2, steps=2)["map"]
    ends = found.deletion.output[:, [0, -1]], found.insertion.output[:, [0, -1]]
    mean = images.mean((2, 3), keepdim=True).expand_as(images)
    with torch.no_grad():
        whole, grey = model(images).softmax(1)[:, 2], model(mean).softmax(1)[:, 2]
    assert torch.allclose(ends[0], torch.stack((whole, grey), 1), atol=1e-5)
    assert torch.allclose(ends[1][:, 1], whole, atol=1e-5)
    assert not torch.allclose(ends[1][:, 0], grey, atol=1e-3)  # the blurred image is not the mean colour


def test_deletion_fills_with_the_mean_and_insertion_starts_from_the_blur(images: Tensor) -> None:
    """The points between: half of the pixels are the image's, the others those of either baseline."""
    model, maps = small_network().eval(), normal_maps(1)
    found = removal_curves(model, images, maps, 2, steps=2)["map"]
    summed = maps.sum(1, keepdim=True)
    top = summed > summed.flatten(1).median(1).values.view(-1, 1, 1, 1)  # the lower of the two in the middle
    half = torch.where(top, images.mean((2, 3), keepdim=True), images), torch.where(top, images, blurred(images))
    for curve, points in zip((found.deletion, found.insertion), half, strict=True):
        with torch.no_grad():
            expected = model(points).softmax(1)[:, 2]
        assert torch.allclose(curve.output[:, 1], expected, atol=1e-6)


def test_undefined_maps_and_the_number_of_passes(images: Tensor) -> None:
    model, maps = small_network().eval(), normal_maps(1)
    maps[1, 0, 3, 3], maps[2, 2, 0, 0] = torch.nan, torch.inf
    with open_model(model, images) as calls:
        found = removal_curves(calls, images, {"a": maps, "b": normal_maps(2)}, steps=6)
        assert calls.forwards == 3 * 4 + 2 * 5 * (2 + 4)  # nothing is spent on the undefined maps
    for curve in (found["a"].deletion, found["a"].insertion):
        assert curve.area.isnan().tolist() == [False, True, True, False]
        assert curve.output[1].isnan().all()
        assert curve.output[0].isfinite().all()
    one_step = removal_curves(model, images, maps, steps=1)["map"].deletion
    assert one_step.area.isnan().tolist() == [False, True, True, False]
    nothing = removal_curves(model, images, torch.full_like(images, torch.nan))["map"]
    assert nothing.insertion.area.isnan().all()
    assert isinstance(found["b"].deletion, Curve)


def test_the_predicted_class_is_the_default(images: Tensor) -> None:
    model, maps = small_network().eval(), normal_maps(1)
    with torch.no_grad():
        predicted = model(images).argmax(1)
    expected = removal_curves(model, images, maps, predicted)["map"].deletion.area
    assert torch.equal(removal_curves(model, images, maps)["map"].deletion.area, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "`steps` must be a whole number of steps from none to all of the pixels, got 0"),
        ({"steps": 65}, "`steps` must be at most one per pixel, 64, got 65"),
        ({"output": "loss"}, "`output` must be one of probability, logit, got 'loss'"),
        ({"fill": "grey"}, "`baseline` must be one of black, white, mean, blur"),
        ({"maps": torch.zeros(4, 3, 9, 8)}, "`maps` must be N×C×H×W like the images"),
    ],
)
def test_bad_arguments_are_named(images: Tensor, options: dict[str, Any], message: str) -> None:
    given_options = {"maps": images} | options
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        removal_curves(small_network().eval(), images, **given_options)
