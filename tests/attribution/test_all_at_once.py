"""Several methods at once: shared gradients, one open model, options of the search."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from locality.attribution import (
    BIG,
    BSM,
    adversarial_gradient_integration,
    attribute_all,
    boundary_deep_lift,
    boundary_integrated_gradients,
    boundary_saliency,
    boundary_smooth_gradient,
    input_x_gradient,
    integrated_gradients,
    saliency_map,
    smooth_gradient,
)
from locality.boundary import SearchContext, find_boundary
from locality.model_calls import _runner, open_model
from locality.types import Boundary, PathMaps

Edge = Callable[..., Boundary]


def test_a_search_warns_of_undefined_maps(images: Tensor) -> None:
    def mean(pixels: Tensor) -> Tensor:  # class 1 comes nearer with brightness and is still out of reach
        return torch.stack([2 + 0.5 * pixels.mean((1, 2, 3)), pixels.mean((1, 2, 3))], dim=1)

    said = "no boundary was found for 7 of 7 images: their maps are undefined \\(nan\\); on_missing='last'"
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
        (["IG"], {"baselines": "white"}, r"`baselines` is no argument of attribute_all, which .*did you mean 'baseline'\?"),
        (["BIG"], {"baselines": "white"}, r"takes model, images, methods, .*norm, .*steps.*did you mean 'baseline'\?"),
        (["IG"], {"baselines": 1.0, "search": "foolbox:DDNAttack"}, "did you mean 'baseline'"),
        (["IG"], {"n_steps": 5}, "`n_steps` is no argument of attribute_all"),
        (["IG"], {"colour": 3, "search": "paper"}, "for search='paper', norm, labels, progress, to, epsilons$"),
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
    assert set(attribute_all(network, images[:2], ["IG", "BIG"], steps=4, norm="linf")) == {"IG", "BIG"}
    # Options of a search are accepted even where no method needs a boundary.
    assert set(attribute_all(network, images[:2], ["SM"], search="foolbox:DDNAttack", stepsize=4)) == {"SM"}
    patience_given = []

    def own(context: SearchContext, *, patience: int) -> Tensor:
        patience_given.append(patience)
        return 1 - context.images

    attribute_all(network, images[:2], ["BIG"], on_missing="last", search=own, patience=3)
    assert patience_given == [3]


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


def test_boundary_smoothgrad_and_deep_lift_together_equal_single_calls(
    network: nn.Module, images: Tensor, make_edge: Edge
) -> None:
    edge = make_edge(torch.rand(images.shape), torch.tensor([True, True, False, True, True, True, True]))
    with open_model(network, images) as calls:
        together = attribute_all(calls, images, ["BDeepLIFT", "BSG"], boundary=edge, seed=3)
        assert (calls.gradients, calls.forwards) == (6 + 6 * 50, 7 + 2 * 6)
    smooth, lifted = together["BSG"], together["BDeepLIFT"]
    assert isinstance(smooth, Tensor)
    assert isinstance(lifted, PathMaps)
    assert smooth[2].isnan().all()
    single = boundary_deep_lift(network, images, edge)
    assert torch.allclose(smooth, boundary_smooth_gradient(network, images, edge, seed=3), atol=1e-6, equal_nan=True)
    assert torch.allclose(lifted.maps, single.maps, atol=1e-6, equal_nan=True)
    assert torch.allclose(lifted.delta, single.delta, atol=1e-5, equal_nan=True)


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
    with pytest.raises(ValueError, match="did you mean 'BIG'"):
        attribute_all(network, images, ["BIGG"])
