"""SM, BSM, BIG, SmoothGrad, AGI and all together: closed forms, sharing, undefined maps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from captum.attr import Saliency
from torch import Tensor, nn
from torch.nn import functional

from locality.attribution import (
    BIG,
    BSM,
    adversarial_gradient_integration,
    attribute_all,
    boundary_integrated_gradients,
    boundary_saliency,
    input_x_gradient,
    integrated_gradients,
    saliency_map,
    smooth_gradient,
)
from locality.boundary import find_boundary
from locality.model_calls import _runner, open_model
from locality.types import Boundary, PathMaps

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
    with pytest.raises(ValueError, match="`boundary` must hold one point for each image"):
        boundary_saliency(network, images, make_edge(torch.rand(6, 3, 12, 12)))
    with pytest.raises(ValueError, match="`on_missing` must be 'nan'"):
        boundary_saliency(network, images, make_edge(images), on_missing="zero")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"`boundary` must be a Boundary, .* or a tensor of points, got list"):
        boundary_saliency(network, images, [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`boundary` must hold one point for each image"):
        attribute_all(network, images, ["BIG"], boundary=torch.rand(6, 3, 12, 12))
    with pytest.raises(ValueError, match="`boundary` must hold finite points"):
        boundary_saliency(network, images, images * float("nan"))


def test_points_from_elsewhere_are_taken_as_they_are(network: nn.Module, images: Tensor, make_edge: Edge) -> None:
    points = torch.rand(images.shape)
    edge = make_edge(points)
    bsm, big = boundary_saliency(network, images, edge), boundary_integrated_gradients(network, images, edge).maps
    assert torch.equal(boundary_saliency(network, images, points.double()), bsm)
    assert torch.equal(boundary_integrated_gradients(network, images, points).maps, big)
    assert torch.equal(BSM(network).attribute(images, boundary=points), bsm)
    assert torch.equal(BIG(network).attribute(images, boundary=points.requires_grad_()), big)
    found = attribute_all(network, images, ["BSM", "BIG"], boundary=points)
    assert torch.allclose(found["BIG"].maps, big, atol=1e-6)  # type: ignore[union-attr]


def test_whoever_lets_us_search_hears_of_undefined_maps(images: Tensor) -> None:
    def mean(pixels: Tensor) -> Tensor:  # class 1 comes nearer with brightness and is still out of reach
        return torch.stack([2 + 0.5 * pixels.mean((1, 2, 3)), pixels.mean((1, 2, 3))], dim=1)

    said = "no boundary was found for 7 of 7 images: their maps are nan, undefined; on_missing='last'"
    for ask in (BIG(mean).attribute, BSM(mean).attribute, lambda images: attribute_all(mean, images, ["BSM", "BIG"])):
        with pytest.warns(UserWarning, match=said) as seen:
            ask(images)
        assert len(seen) == 1
        assert seen[0].filename == __file__
    BIG(mean, on_missing="last").attribute(images)
    BIG(mean).attribute(images, boundary=find_boundary(mean, images))  # the caller has seen `found`
    assert attribute_all(mean, images, ["SM"])["SM"].isfinite().all()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["IG"], {"baselines": "white"}, r"`baselines` is no argument of attribute_all, which .*did you mean `baseline`\?"),
        (["BIG"], {"baselines": "white"}, r"takes model, images, methods, .*norm, .*steps.*did you mean `baseline`\?"),
        (["IG"], {"baselines": 1.0, "search": "foolbox:DDNAttack"}, "did you mean `baseline`"),
        (["IG"], {"n_steps": 5}, "`n_steps` is no argument of attribute_all"),
        (["IG"], {"colour": 3, "search": "paper"}, "for search='paper', norm, labels, progress, epsilons$"),
        (["BIG"], {"colour": 3, "search": "paper"}, "`colour` is no argument of attribute_all"),
        (["BIG"], {"colour": 3, "search": "foolbox:DDNAttack"}, "`colour` is no option of foolbox:DDNAttack"),
        ("SM", {}, r"`methods` must be a list of names, got 'SM': pass \['SM'\]"),
        ([BIG], {}, r"`methods` must be a list of names, got BIG: pass a name, or call BIG\(model\)"),
        (["SM"], {"search": None}, "`search` must be one of fast"),
    ],
)
def test_together_refuses_what_it_would_ignore(
    network: nn.Module, images: Tensor, names: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        attribute_all(network, images, names, **options)


def test_together_takes_the_options_of_its_search(network: nn.Module, images: Tensor) -> None:
    attribute_all(network, images[:2], ["IG", "BIG"], steps=4, norm="linf")
    attribute_all(network, images[:2], ["SM"], search="foolbox:DDNAttack", stepsize=4)  # for when a boundary is wanted
    own = {"search": lambda calls, pixels, *_, patience: 1 - pixels, "patience": 3}
    attribute_all(network, images[:2], ["BIG"], on_missing="last", **own)  # type: ignore[arg-type]


def test_together_gives_the_same_numbers_with_fewer_gradients(network: nn.Module, images: Tensor, make_edge: Edge) -> None:
    found = torch.tensor([True, True, False, True, True, True, True])
    edge = make_edge(torch.rand(images.shape), found)
    names = ["SM", "IG", "BSM", "BIG"]
    with open_model(network, images) as calls:
        together = attribute_all(calls, images, names, boundary=edge, baseline="blur")
        shared, forwards = calls.gradients, calls.forwards
    with open_model(network, images) as calls:
        apart: dict[str, PathMaps | Tensor] = {
            "SM": saliency_map(calls, images),
            "IG": integrated_gradients(calls, images, None, "blur"),
            "BSM": boundary_saliency(calls, images, edge),
            "BIG": boundary_integrated_gradients(calls, images, edge),
        }
        separate = calls.gradients
    assert list(together) == names
    for name in names:
        ours, single = together[name], apart[name]
        if isinstance(ours, PathMaps):
            assert isinstance(single, PathMaps)
            assert torch.allclose(ours.gap, single.gap, atol=1e-5, equal_nan=True)
            assert torch.allclose(ours.integral, single.integral, atol=1e-6, equal_nan=True)
            ours, single = ours.maps, single.maps
        assert isinstance(single, Tensor)
        assert torch.allclose(ours, single, atol=1e-6, equal_nan=True), name
    assert separate == 7 + 7 * 20 + 6 + 7 + 6 * 19
    assert (shared, forwards) == (7 + 7 * 19 + 6 * 19, 0)


def test_together_searches_with_an_open_model(network: nn.Module, images: Tensor) -> None:
    names = ["SM", "IG", "BSM", "BIG"]
    alone = attribute_all(network, images, names)
    edge = find_boundary(network, images)
    with open_model(network, images) as calls:
        shared = attribute_all(calls, images, names)
        assert calls.gradients == edge.gradients + len(images) * 39
        assert calls.forwards == edge.forwards
    for name in names:
        ours, theirs = shared[name], alone[name]
        if isinstance(ours, PathMaps) and isinstance(theirs, PathMaps):
            assert torch.equal(ours.delta, theirs.delta)
            ours, theirs = ours.maps, theirs.maps
        assert torch.equal(ours, theirs), name  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [BSM, BIG])
def test_a_block_of_images_opens_the_model_once(
    network: nn.Module, images: Tensor, kind: type[BSM] | type[BIG], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []

    def noted(*arguments: Any) -> Any:
        opened.append(arguments[0])
        return _runner(*arguments)

    monkeypatch.setattr("locality.model_calls._runner", noted)
    kind(network).attribute(images)
    assert opened == [network]


def test_the_gap_is_the_size_of_the_signed_delta(network: nn.Module, images: Tensor) -> None:
    path = integrated_gradients(network, images, baseline="white", points=3)
    assert (path.delta < 0).any()
    assert torch.equal(path.gap, path.delta.abs())
    with open_model(network, images) as calls:
        change = calls.logits(images).max(1)
        white = calls.logits(torch.ones_like(images)).gather(1, change.indices[:, None])[:, 0]
    assert torch.allclose(path.delta, path.maps.flatten(1).sum(1) - (change.values - white), atol=1e-5)


@pytest.mark.parametrize("rule", ["gausslegendre", "riemann_left", "riemann_right"])
def test_together_with_open_rules(network: nn.Module, images: Tensor, make_edge: Edge, rule: str) -> None:
    edge = make_edge(torch.rand(images.shape))
    for names in (["IG"], ["BIG"], ["BSM", "BIG"], ["SM", "IG", "BSM", "BIG", "InputXGradient"]):
        found = attribute_all(network, images, names, 1, edge, points=6, rule=rule)
        assert list(found) == names
        if "IG" in names:
            assert torch.allclose(
                found["IG"].maps,  # type: ignore[union-attr]
                integrated_gradients(network, images, 1, points=6, rule=rule).maps,
                atol=1e-6,
            )
        if "BIG" in names:
            assert torch.allclose(
                found["BIG"].maps,  # type: ignore[union-attr]
                boundary_integrated_gradients(network, images, edge, 1, 6, rule).maps,
                atol=1e-6,
            )
        if "InputXGradient" in names:
            assert torch.allclose(found["InputXGradient"], input_x_gradient(network, images, 1), atol=1e-6)  # type: ignore[arg-type]


def test_together_finds_the_boundary_itself_and_runs_captums(network: nn.Module, images: Tensor) -> None:
    found = attribute_all(network, images[:2], ["captum:Saliency", "BIG", "SmoothGrad", "AGI"])
    assert list(found) == ["captum:Saliency", "BIG", "SmoothGrad", "AGI"]
    assert torch.allclose(found["captum:Saliency"], saliency_map(network, images[:2]), atol=1e-6)  # type: ignore[arg-type]
    assert torch.allclose(found["SmoothGrad"], smooth_gradient(network, images[:2]), atol=1e-6)  # type: ignore[arg-type]
    assert torch.allclose(found["AGI"], adversarial_gradient_integration(network, images[:2]), atol=1e-5)  # type: ignore[arg-type]
    edge = find_boundary(network, images[:2])
    assert torch.allclose(
        found["BIG"].maps,  # type: ignore[union-attr]
        boundary_integrated_gradients(network, images[:2], edge).maps,
        atol=1e-5,
    )
    with pytest.raises(ValueError, match="did you mean BIG"):
        attribute_all(network, images, ["BIGG"])


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
