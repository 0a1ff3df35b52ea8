"""SM, BSM, BIG, BSG, SmoothGrad and AGI: closed forms and undefined maps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from captum.attr import Saliency  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional

from locality.attribution import (
    BIG,
    BSG,
    BSM,
    adversarial_gradient_integration,
    attribute_all,
    boundary_integrated_gradients,
    boundary_saliency,
    boundary_smooth_gradient,
    input_x_gradient,
    integrated_gradients,
    saliency_map,
    smooth_gradient,
)
from locality.boundary import find_boundary
from locality.model_calls import open_model
from locality.types import Boundary

Edge = Callable[..., Boundary]


def test_saliency_of_a_linear_model_is_its_weights(linear: nn.Module) -> None:
    images = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 3, 1, 1, 2])
    weights = linear.rows(target)  # type: ignore[operator]
    assert torch.equal(saliency_map(linear, images, target), weights)
    assert torch.equal(input_x_gradient(linear, images, target), weights * images)
    predicted = linear(images).argmax(1)
    assert len(predicted.unique()) > 1
    assert torch.equal(saliency_map(linear, images), linear.rows(predicted))  # type: ignore[operator]


def test_saliency_equals_captums(network: nn.Module, images: Tensor) -> None:
    theirs = Saliency(network).attribute(images.clone().requires_grad_(), target=3, abs=False)
    assert torch.allclose(saliency_map(network, images, 3), theirs, atol=1e-6)


def test_boundary_methods_of_a_linear_model(linear: nn.Module) -> None:
    images = 0.4 + 0.2 * torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    edge = find_boundary(linear, images)
    assert edge.found.all()
    weights = linear.rows(edge.labels)  # type: ignore[operator]
    assert torch.equal(boundary_saliency(linear, images, edge), weights)
    found = boundary_integrated_gradients(linear, images, edge)
    assert torch.allclose(found.maps, (images - edge.points) * weights, atol=1e-6)
    assert found.gap.max() < 1e-4
    normal = weights - linear.rows(edge.crossed_to)  # type: ignore[operator]
    offset = images - edge.points
    assert functional.cosine_similarity(offset.flatten(1), normal.flatten(1)).min() > 0.999


def test_big_is_integrated_gradients_from_the_boundary(network: nn.Module, images: Tensor, make_edge: Edge) -> None:
    points = torch.rand(images.shape, generator=torch.Generator().manual_seed(5))
    edge = make_edge(points)
    for rule in ("trapezoid", "gausslegendre", "riemann_left", "riemann_right"):
        theirs = integrated_gradients(network, images, None, points, 7, rule)
        ours = boundary_integrated_gradients(network, images, edge, None, 7, rule)
        assert torch.allclose(ours.maps, theirs.maps, atol=1e-6)
        assert torch.allclose(ours.integral, theirs.integral, atol=1e-6)
        assert torch.allclose(ours.gap, theirs.gap, atol=1e-5)


def test_the_class_attributed_is_that_of_the_image_not_of_the_point(linear: nn.Module, make_edge: Edge) -> None:
    images, points = torch.rand(40, 3, 4, 4), torch.rand(40, 3, 4, 4)
    predicted = linear(images).argmax(1)
    assert (predicted != linear(points).argmax(1)).any()
    assert torch.equal(boundary_saliency(linear, images, make_edge(points)), linear.rows(predicted))  # type: ignore[operator]


@pytest.mark.parametrize("missing", [[1, 4], list(range(7))])
def test_no_boundary_leaves_the_map_undefined(
    network: nn.Module, images: Tensor, make_edge: Edge, missing: list[int]
) -> None:
    found = torch.ones(7, dtype=torch.bool)
    found[missing] = False
    points = torch.rand(images.shape)
    edge, whole = make_edge(points, found), make_edge(points)
    bsm, big = boundary_saliency(network, images, edge), boundary_integrated_gradients(network, images, edge)
    for maps in (bsm, big.maps, big.integral, big.gap):
        assert maps[missing].isnan().all()
        assert maps[found].isfinite().all()
    all_big = boundary_integrated_gradients(network, images, whole)
    assert torch.allclose(big.maps[found], all_big.maps[found], atol=1e-6)
    last = boundary_integrated_gradients(network, images, edge, on_missing="last")
    assert torch.equal(last.maps, all_big.maps)
    assert torch.equal(
        boundary_saliency(network, images, edge, on_missing="last"), boundary_saliency(network, images, whole)
    )
    with open_model(network, images) as calls:
        boundary_integrated_gradients(calls, images, edge)
        assert calls.gradients == 7 + 19 * int(found.sum()), "nothing is spent on undefined maps"


def test_a_boundary_of_other_images_is_refused(network: nn.Module, images: Tensor, make_edge: Edge) -> None:
    with pytest.raises(ValueError, match="`boundary` must be one point for each image"):
        boundary_saliency(network, images, make_edge(torch.rand(6, 3, 12, 12)))
    with pytest.raises(ValueError, match="`on_missing` must be 'nan'"):
        boundary_saliency(network, images, make_edge(images), on_missing="zero")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`boundary` must be the Boundary of find_boundary or a tensor of points, got list"):
        boundary_saliency(network, images, [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`boundary` must be one point for each image"):
        attribute_all(network, images, ["BIG"], boundary=torch.rand(6, 3, 12, 12))
    with pytest.raises(ValueError, match="`boundary` must be finite"):
        boundary_saliency(network, images, images * float("nan"))


def test_points_from_elsewhere_are_taken_as_they_are(network: nn.Module, images: Tensor, make_edge: Edge) -> None:
    points = torch.rand(images.shape)
    edge = make_edge(points)
    bsm, big = boundary_saliency(network, images, edge), boundary_integrated_gradients(network, images, edge).maps
    assert torch.equal(boundary_saliency(network, images, points.double()), bsm)
    assert torch.equal(boundary_integrated_gradients(network, images, points).maps, big)
    kinds: list[tuple[Any, Tensor]] = [(BSM, bsm), (BIG, big)]
    for kind, expected in kinds:
        assert torch.equal(kind(network).attribute(images, boundary=points.clone().requires_grad_()), expected)
    found = attribute_all(network, images, ["BSM", "BIG"], boundary=points)
    assert torch.allclose(found["BIG"].maps, big, atol=1e-6)  # type: ignore[union-attr]


def test_the_gap_is_the_size_of_the_signed_delta(network: nn.Module, images: Tensor) -> None:
    path = integrated_gradients(network, images, baseline="white", points=3)
    assert (path.delta < 0).any()
    assert torch.equal(path.gap, path.delta.abs())
    with open_model(network, images) as calls:
        change = calls.logits(images).max(1)
        white = calls.logits(torch.ones_like(images)).gather(1, change.indices[:, None])[:, 0]
    assert torch.allclose(path.delta, path.maps.flatten(1).sum(1) - (change.values - white), atol=1e-5)


def test_smooth_gradient_of_one_unit_is_known(make_edge: Edge) -> None:
    # saliency of ReLU(w·x) under N(0, σ²) is w·Φ(w·x/(σ‖w‖))
    weights = torch.tensor([1.0, -2.0, 0.5, 1.5])

    def unit(images: Tensor) -> Tensor:
        return torch.stack([(images.flatten(1) @ weights - 0.1).relu(), images.flatten(1)[:, 0] * 0], 1)

    image = torch.tensor([0.5, 0.4, 0.3, 0.2]).view(1, 1, 2, 2)
    margin = (image.flatten() @ weights - 0.1) / (0.15 * weights.norm())
    expected = weights * torch.distributions.Normal(0, 1).cdf(margin)
    found = smooth_gradient(unit, image, 0, samples=4000).flatten()
    assert 0.05 < expected[0] < 0.95
    assert torch.allclose(found, expected, atol=0.06)
    assert torch.equal(smooth_gradient(unit, image, 0, samples=3, sigma=0.0), saliency_map(unit, image, 0))


def test_boundary_smooth_gradient_is_smooth_gradient_at_the_point(
    network: nn.Module, images: Tensor, make_edge: Edge
) -> None:
    weights = torch.tensor([1.0, -2.0, 0.5, 1.5])

    def unit(pixels: Tensor) -> Tensor:
        return torch.stack([(pixels.flatten(1) @ weights - 0.1).relu(), pixels.flatten(1)[:, 0] * 0], 1)

    image, point = torch.tensor([0.9, 0.1, 0.8, 0.7]).view(1, 1, 2, 2), torch.tensor([0.5, 0.4, 0.3, 0.2]).view(1, 1, 2, 2)
    margin = (point.flatten() @ weights - 0.1) / (0.15 * weights.norm())
    expected = weights * torch.distributions.Normal(0, 1).cdf(margin)
    found = boundary_smooth_gradient(unit, image, point, 0, samples=4000).flatten()
    assert torch.allclose(found, expected, atol=0.06)
    assert not torch.allclose(smooth_gradient(unit, image, 0, samples=4000).flatten(), expected, atol=0.06)
    # The noise is that of the image, the class too; without noise it is BSM.
    assert torch.equal(boundary_smooth_gradient(network, images, images, seed=2), smooth_gradient(network, images, seed=2))
    edge = make_edge(torch.rand(images.shape), torch.tensor([True, False, True, True, False, True, True]))
    still = boundary_smooth_gradient(network, images, edge, samples=2, sigma=0.0)
    assert torch.allclose(still, boundary_saliency(network, images, edge), atol=1e-6, equal_nan=True)
    assert still[1].isnan().all()
    last = boundary_smooth_gradient(network, images, edge, samples=2, on_missing="last")
    assert last.isfinite().all()
    with open_model(network, images) as calls:
        boundary_smooth_gradient(calls, images, edge, samples=4)
        assert (calls.gradients, calls.forwards) == (4 * 5, 7), "nothing is spent on undefined maps"
        nowhere = boundary_smooth_gradient(calls, images, make_edge(images, edge.found & False), samples=4)
    assert nowhere.isnan().all()
    with pytest.raises(ValueError, match="`samples`"):
        BSG(network, samples=0)


def test_boundary_smooth_gradient_keeps_class_and_noise_of_the_image(
    network: nn.Module, images: Tensor, make_edge: Edge
) -> None:
    flatten = nn.Flatten()
    image, across = torch.tensor([[[[0.8, 0.4]]]]), torch.tensor([[[[0.3, 0.7]]]])
    assert boundary_smooth_gradient(flatten, image, across, samples=3).flatten().tolist() == [1.0, 0.0]
    found = torch.tensor([False, True, True, False, True, True, False])
    points = torch.rand(images.shape, generator=torch.Generator().manual_seed(1))
    several = boundary_smooth_gradient(network, images, make_edge(points, found), 1, samples=3)
    alone = boundary_smooth_gradient(network, images[4, None], points[4, None], 1, samples=3)
    assert torch.allclose(several[4], alone[0], atol=1e-6)


def test_smooth_gradient_has_the_published_defaults_and_leaves_the_unit_range() -> None:
    seen = []

    def model(pixels: Tensor) -> Tensor:
        seen.append(pixels.detach())
        return pixels.flatten(1)[:, :3]

    images = torch.full((1, 3, 16, 16), 0.5)
    smooth_gradient(model, images, 0)
    noise = torch.cat(seen) - 0.5
    assert len(noise) == 50
    assert noise.std().item() == pytest.approx(0.15, abs=0.003)
    assert noise.mean().abs() < 0.005
    assert noise.abs().max() > 0.5
    seen.clear()
    smooth_gradient(model, images, 0, seed=1)
    assert not torch.equal(torch.cat(seen) - 0.5, noise)


def test_agi_follows_the_attack(linear: nn.Module) -> None:
    # On a linear model each path is known: steps of 0.05·sign(∇log p_c), until c is predicted.
    image = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(4)) * 0.2 + 0.4
    predicted = linear(image).argmax(1)
    expected = torch.zeros_like(image)
    lengths = []
    for rival in range(4):
        if rival == predicted:
            continue
        point, length = image.clone(), 0
        while length < 15 and linear(point).argmax(1) != rival:
            point.requires_grad_()
            (slope,) = torch.autograd.grad(linear(point).softmax(1)[0, rival], point)
            after = (point + 0.05 * slope.sign()).clamp(0, 1).detach()
            expected -= linear.rows(predicted) * (after - point.detach())  # type: ignore[operator]
            point, length = after, length + 1
        lengths.append(length)
    assert max(lengths) > 1, "a path of several steps, or the test cannot tell them from one"
    assert torch.allclose(adversarial_gradient_integration(linear, image), expected, atol=1e-4)


def test_agi_attacks_twenty_other_classes_for_fifteen_steps() -> None:
    seen: list[Tensor] = []

    def model(pixels: Tensor) -> Tensor:  # forty classes, and class 0 wins wherever the attack goes
        seen.append(pixels.detach())
        return torch.cat([pixels.flatten(1)[:, :1] * 0 + 100, pixels.flatten(1)[:, :39]], 1)

    images = torch.rand(1, 3, 8, 8)
    with pytest.warns(UserWarning, match="Adversarial Gradient Integration is zero in every pixel for 1 of 1"):
        adversarial_gradient_integration(model, images)
    assert sum(map(len, seen)) == 1 + 20 * 15 * 2
    seen.clear()
    with pytest.warns(UserWarning, match="is zero in every pixel"):
        adversarial_gradient_integration(model, images, classes=60, steps=2)
    assert sum(map(len, seen)) == 1 + 39 * 2 * 2, "no class twice, and never the predicted one"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"classes": 0}, "`classes`"), ({"steps": 0}, "`steps`"), ({"step_size": 0.0}, "`step_size`")],
)
def test_agi_refuses_wrong_settings(linear: nn.Module, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adversarial_gradient_integration(linear, torch.rand(1, 3, 4, 4), **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`samples`"):
        smooth_gradient(linear, torch.rand(1, 3, 4, 4), samples=0)
    with pytest.raises(ValueError, match="`sigma`"):
        smooth_gradient(linear, torch.rand(1, 3, 4, 4), sigma=-1.0)
