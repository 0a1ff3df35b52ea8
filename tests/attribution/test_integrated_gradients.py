"""Integrated Gradients against Captum's, against completeness, and against closed forms."""

import math
from collections.abc import Callable

import pytest
import torch
from captum.attr import IntegratedGradients  # type: ignore[import-untyped]
from captum.attr._utils.approximation_methods import approximation_parameters  # type: ignore[import-untyped]
from torch import Tensor, nn

from locality.attribution import integrated_gradients
from locality.attribution.baselines import baseline_images, blurred
from locality.attribution.integrated_gradients import RULES, AutoPoints, quadrature
from locality.model_calls import open_model


def captum_maps(model: nn.Module, images: Tensor, target: Tensor, method: str, points: int, baseline: float = 0.0) -> Tensor:
    leaf = images.clone().requires_grad_()
    explainer = IntegratedGradients(model)
    maps: Tensor = explainer.attribute(
        leaf, baselines=baseline, target=target, method=method, n_steps=points, internal_batch_size=len(images)
    )
    return maps.detach()


@pytest.mark.parametrize("rule", sorted(RULES))
def test_weights_sum_to_one_and_positions_lie_on_the_path(rule: str) -> None:
    for points in (2, 3, 20):
        path = quadrature(rule, points)
        assert not isinstance(path, AutoPoints)
        positions, weights = path
        assert len(positions) == len(weights) == points
        assert weights.sum().item() == pytest.approx(1, abs=1e-12)
        assert positions.min() >= 0
        assert positions.max() <= 1
        assert (positions.diff() > 0).all()


def test_captums_trapezoid_weights_do_not_sum_to_one() -> None:
    for points in (2, 5, 20):
        weights, _ = approximation_parameters("riemann_trapezoid")
        assert sum(weights(points)) == pytest.approx((points - 1) / points)
    # so on Σx², where the trapezoid rule is exact, Captum returns 95 % at 20 points
    images = torch.rand(1, 1, 3, 3)
    squares = nn.Sequential(nn.Flatten())
    model = lambda pixels: (squares(pixels) ** 2).sum(1, keepdim=True).expand(-1, 2)  # noqa: E731
    total = (images**2).sum()
    theirs = captum_maps(model, images, torch.tensor([0]), "riemann_trapezoid", 20).sum()  # type: ignore[arg-type]
    assert theirs.item() == pytest.approx(0.95 * total.item(), rel=1e-5)
    assert integrated_gradients(model, images, 0).maps.sum().item() == pytest.approx(total.item(), rel=1e-5)


def check_against_captum(model: nn.Module, images: Tensor, rules: tuple[str, ...], points: int = 20) -> None:
    target = torch.arange(len(images)) % 5
    for rule in rules:
        theirs = captum_maps(model, images, target, rule, points)
        ours = integrated_gradients(model, images, target, rule=rule, points=points).maps
        if rule == "riemann_trapezoid":
            theirs = theirs * points / (points - 1)
            assert torch.equal(integrated_gradients(model, images, target, points=points).maps, ours), "it is the default"
        assert theirs.abs().max() > 1e-3, "maps of nearly zero would agree with anything"
        assert torch.allclose(ours, theirs, atol=1e-5, rtol=0), rule


def test_equals_captum_on_a_convolutional_network(network: nn.Module, images: Tensor) -> None:
    rules = ("gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid")
    check_against_captum(network, images, rules)


def test_equals_captum_on_a_transformer(timm_model: Callable[..., nn.Module]) -> None:
    model = timm_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=3)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    check_against_captum(model, images, ("gausslegendre", "riemann_trapezoid"), points=10)


def test_equals_captum_on_an_efficientnet(timm_model: Callable[..., nn.Module]) -> None:
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    check_against_captum(timm_model("efficientnet_lite0"), images, ("gausslegendre", "riemann_trapezoid"), points=6)


@pytest.mark.slow
def test_where_float32_falls_to_the_other_side_of_a_kink_float64_agrees(timm_model: Callable[..., nn.Module]) -> None:
    # The first of these images is the one in twelve tried whose float32 maps differ from Captum's by more than 1e-5 (up to
    # 0.4 % of the largest value). In float64 they agree, so it is rounding: our channels-last copy rounds differently, and
    # a unit that close to a kink of ReLU6 falls to the other side.
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    model = timm_model("efficientnet_lite0")
    check_against_captum(model.double(), images.double(), ("gausslegendre",), points=6)


@pytest.mark.parametrize("rule", ["trapezoid", "gausslegendre", "riemann_middle"])
@pytest.mark.parametrize("baseline", ["black", "white", "mean", "blur", 0.3])
def test_completeness_holds_to_the_error_of_the_rule(
    network: nn.Module, images: Tensor, rule: str, baseline: str | float
) -> None:
    start = baseline_images(baseline, images, (0.0, 1.0))
    with torch.no_grad():
        risen = (network(images) - network(start))[:, 2]
    gaps = []
    for points in (5, 150):
        found = integrated_gradients(network, images, 2, baseline, points, rule)
        assert torch.allclose(found.gap, (found.maps.sum((1, 2, 3)) - risen).abs(), atol=1e-5)
        assert torch.allclose(found.maps, found.integral * (images - start), atol=1e-6)
        gaps.append(found.gap.mean().item())
    assert gaps[1] < 0.005
    assert gaps[0] > 3 * gaps[1], "more points must help, or the gap measures something else"


def test_gap_costs_no_second_run_with_the_trapezoid_rule(network: nn.Module, images: Tensor) -> None:
    with open_model(network, images) as calls:
        integrated_gradients(calls, images)
        assert (calls.gradients, calls.forwards) == (7 * 20, 0)
    with open_model(network, images) as calls:
        integrated_gradients(calls, images, rule="gausslegendre")
        assert (calls.gradients, calls.forwards) == (7 * 20, 7 * 2)
    with open_model(network, images) as calls:
        integrated_gradients(calls, images, rule="riemann_left")
        assert (calls.gradients, calls.forwards) == (7 * 20, 7)


def test_batches_do_not_grow_with_the_number_of_points(images: Tensor) -> None:
    largest = 0

    def model(pixels: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, len(pixels))
        return (pixels**2).flatten(1)[:, :3]

    few = integrated_gradients(model, images, 1, points=50, chunk=4)
    assert largest == 4
    many = integrated_gradients(model, images, 1, points=50, chunk=350)
    assert largest == 350 - 2 * 7  # the ends go first
    assert torch.allclose(few.maps, many.maps, atol=1e-6)


def test_out_of_memory_halves_the_chunk(images: Tensor) -> None:
    def model(pixels: Tensor) -> Tensor:
        if len(pixels) > 3:
            raise RuntimeError("CUDA out of memory")
        return (pixels**2).flatten(1)[:, :3]

    found = integrated_gradients(model, images, 1, chunk=16)
    expected = torch.zeros_like(images)
    expected[:, 0, 0, 1] = images[:, 0, 0, 1] ** 2
    assert torch.allclose(found.maps, expected, atol=1e-6)


def test_linear_model_needs_no_integral(linear: nn.Module) -> None:
    images = torch.rand(3, 3, 4, 4)
    target = torch.tensor([2, 0, 3])
    weights = linear.rows(target)  # type: ignore[operator]
    for points in (2, 20):
        found = integrated_gradients(linear, images, target, "white", points)
        assert torch.allclose(found.maps, (images - 1) * weights, atol=1e-5)
        assert torch.allclose(found.integral, weights, atol=1e-5)
        assert found.gap.max() < 1e-4


def test_baselines_by_name() -> None:
    images = torch.rand(2, 3, 20, 30)
    assert (baseline_images("black", images, None) == 0).all()
    assert (baseline_images("white", images, None) == 1).all()
    mean = baseline_images("mean", images, None)
    assert torch.allclose(mean[1, 2], images[1, 2].mean().expand(20, 30))
    assert not torch.allclose(mean[0, 0], mean[0, 1])
    blur = baseline_images("blur", images, None)
    assert blur.var() < images.var() / 4
    flat = torch.full((1, 3, 20, 30), 0.7)
    assert torch.allclose(baseline_images("blur", flat, None), flat, atol=1e-6), "a flat image stays flat up to its edges"
    dot = torch.zeros(1, 1, 41, 61)
    dot[0, 0, 20, 30] = 1
    spot = baseline_images("blur", dot, None)[0, 0]
    assert torch.allclose(spot, spot.flip(0), atol=1e-7)
    assert torch.allclose(spot[20, 30 - 6 : 30 + 7], spot[20 - 6 : 20 + 7, 30], atol=1e-7)
    assert spot[20, 32] / spot[20, 30] == pytest.approx(torch.tensor(-(2**2) / (2 * (41 / 20) ** 2)).exp().item(), rel=1e-4)
    assert baseline_images("blur", torch.rand(1, 1, 1, 2), None).shape == (1, 1, 1, 2)


def test_baselines_as_tensors_broadcast(linear: nn.Module) -> None:
    images, one = torch.rand(3, 3, 4, 4), torch.rand(3, 4, 4)
    expected = integrated_gradients(linear, images, 1, one.expand(3, 3, 4, 4)).maps
    for baseline in (one, one[None]):
        assert torch.equal(integrated_gradients(linear, images, 1, baseline).maps, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": "grey"}, "`baseline` must be one of"),
        ({"baseline": torch.rand(2, 3, 4, 4)}, "`baseline` must be of the images' shape"),
        ({"baseline": -1.0}, r"`baseline` must be in \[0, 1\], as the images, got \[-1.0, -1.0\]"),
        ({"baseline": float("nan")}, "`baseline` must be finite"),
        ({"points": 1}, "`points` must be at least 2"),
        ({"points": 0, "rule": "riemann_left"}, "`points` must be a whole number"),
        ({"points": 2.5}, "`points` must be a whole number"),
        ({"rule": "simpson"}, "`rule` must be one of trapezoid"),
    ],
)
def test_wrong_paths_are_refused(linear: nn.Module, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        integrated_gradients(linear, torch.rand(3, 3, 4, 4), 1, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("height", "width"), [(40, 9), (3, 64), (16, 16)])
def test_blur_is_a_convolution_with_reflected_borders(height: int, width: int) -> None:
    """Of 15 % of the shorter side, cut off at three standard deviations or at the size of the image."""
    images = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    sigma, expected = max(0.15 * min(height, width), 0.5), images
    for axis, side in ((2, height), (3, width)):
        radius = min(math.ceil(3 * sigma), side - 1)
        weights = torch.exp(-(torch.arange(-radius, radius + 1).float() ** 2) / (2 * sigma**2))
        padding = (0, 0, radius, radius) if axis == 2 else (radius, radius, 0, 0)
        kernel = (weights / weights.sum()).view(1, 1, *((-1, 1) if axis == 2 else (1, -1)))
        padded = torch.nn.functional.pad(expected, padding, mode="reflect").flatten(0, 1)[:, None]
        expected = torch.nn.functional.conv2d(padded, kernel).view_as(images)
    assert torch.allclose(blurred(images, 0.15), expected, atol=1e-6)
