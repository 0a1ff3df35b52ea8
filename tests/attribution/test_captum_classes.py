"""The classes as Captum and Quantus use them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import captum.attr  # type: ignore[import-untyped]
import matplotlib as mpl
import numpy as np
import pytest
import torch
from captum.attr import (
    GradientAttribution,
    GuidedBackprop,
    IntegratedGradients,
    NoiseTunnel,
    Saliency,
    visualization,
)
from torch import Tensor, nn

from locality.attribution import (
    AGI,
    BIG,
    BSG,
    BSM,
    IG,
    METHODS,
    SM,
    BDeepLIFT,
    GradientRollout,
    InputXGradient,
    Rollout,
    SmoothGrad,
    attribute_all,
    boundary_integrated_gradients,
    explain,
    integrated_gradients,
    method,
    saliency_map,
)
from locality.boundary import SearchContext, find_boundary
from locality.errors import ArgumentError
from locality.types import Boundary

Edge = Callable[..., Boundary]


def attribute(explainer: Any, *arguments: Any, **options: Any) -> Any:
    """Maps in whatever form the arguments ask for."""
    return explainer.attribute(*arguments, **options)


def towards_white(context: SearchContext) -> Tensor:
    """A search without cost: it need not find anything."""
    return torch.ones_like(context.images)


NEED_ATTENTION = {"Rollout", "GradientRollout"}  # test_rollout.py has networks for them
QUICK: dict[str, Callable[..., Any]] = {name: kind for name, kind in METHODS.items() if name not in NEED_ATTENTION} | {
    "BSM": functools.partial(BSM, search=towards_white, on_missing="last"),
    "BIG": functools.partial(BIG, search=towards_white, on_missing="last"),
    "BSG": functools.partial(BSG, samples=3, search=towards_white, on_missing="last"),
    "BDeepLIFT": functools.partial(BDeepLIFT, search=towards_white, on_missing="last"),
    "SmoothGrad": functools.partial(SmoothGrad, samples=3),
    "AGI": functools.partial(AGI, classes=2, steps=2),
}


def test_the_table() -> None:
    assert list(METHODS.values()) == [
        SM,
        InputXGradient,
        IG,
        BSM,
        BIG,
        BSG,
        BDeepLIFT,
        SmoothGrad,
        AGI,
        Rollout,
        GradientRollout,
    ]
    assert all(METHODS[name].__name__ == name for name in METHODS)
    assert all(issubclass(kind, GradientAttribution) for kind in METHODS.values())


@pytest.mark.parametrize("name", QUICK)
def test_inputs_come_back_in_the_form_they_were_given(network: nn.Module, images: Tensor, name: str) -> None:
    explainer = QUICK[name](network)
    maps = explainer.attribute(images[:2], target=1)
    assert maps.shape == images[:2].shape
    as_tuple = explainer.attribute((images[:2],), target=[1, 1])
    assert isinstance(as_tuple, tuple)
    assert len(as_tuple) == 1
    assert torch.allclose(as_tuple[0], maps, atol=1e-6)
    assert explainer.attribute(images[:2].half(), target=1).dtype == torch.float16
    with pytest.raises(ValueError, match="`additional_forward_args` must be None"):
        explainer.attribute(images, target=1, additional_forward_args=(3,))
    with pytest.raises(ValueError, match="`inputs` must be one tensor of images, got '2 tensors'"):
        explainer.attribute((images, images), target=1)
    with pytest.raises(ValueError, match="`inputs` must be in"):
        explainer.attribute(images + 1, target=1)


# Ours ↦ the Captum class whose order of arguments it has; methods that Captum does not have take the order of a gradient.
CAPTUMS = {
    "SM": Saliency,
    "InputXGradient": captum.attr.InputXGradient,
    "IG": IntegratedGradients,
    "BSM": GuidedBackprop,
    "BSG": GuidedBackprop,
    "SmoothGrad": GuidedBackprop,
    "AGI": GuidedBackprop,
}


@pytest.mark.parametrize("name", CAPTUMS)
def test_arguments_have_captums_order(name: str) -> None:
    ours = inspect.signature(METHODS[name].attribute).parameters.values()  # type: ignore[attr-defined]
    theirs = inspect.signature(CAPTUMS[name].attribute).parameters
    positional = [parameter.name for parameter in ours if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    if name in ("SM", "InputXGradient", "IG"):
        assert positional == list(theirs)
    assert positional[:3] == list(theirs)[:3]


def test_the_second_argument_of_ig_is_the_baseline_as_in_captum(network: nn.Module, images: Tensor) -> None:
    scale = 20 / 19  # Captum's trapezoid weights sum to 19/20
    theirs = IntegratedGradients(network).attribute(images, 0, 2, None, 20, "riemann_trapezoid")
    assert torch.allclose(attribute(IG(network), images, 0, 2), theirs.float() * scale, atol=1e-5)
    assert not torch.allclose(attribute(IG(network), images, 0), attribute(IG(network), images, target=0), atol=1e-3)
    with pytest.raises(ValueError, match="`baselines` must be in"):
        attribute(IG(network), images, 3)  # a class, by an older order of arguments


def test_big_and_captums_own_refuse_unnamed_arguments(network: nn.Module, images: Tensor) -> None:
    explainers = (
        (BIG(network), "BIG"),
        (BDeepLIFT(network), "BDeepLIFT"),
        (method("captum:DeepLift")(network), "captum:DeepLift"),
    )
    for explainer, name in explainers:
        with pytest.raises(TypeError, match=rf"^{name}.attribute takes only `inputs` by position, got 2 .*target="):
            explainer.attribute(images, 0)


def test_sm_honours_captums_abs(network: nn.Module, images: Tensor) -> None:
    signed = attribute(SM(network), images, target=1)
    assert torch.equal(signed, saliency_map(network, images, 1))
    assert (signed < 0).any()
    assert torch.equal(attribute(SM(network), images, target=1, abs=True), signed.abs())


def test_ig_honours_captums_arguments(network: nn.Module, images: Tensor) -> None:
    baseline = torch.rand(1, 3, 12, 12)
    asked: dict[str, Any] = {"target": 1, "baselines": baseline, "n_steps": 9, "method": "gausslegendre"}
    theirs, their_delta = IntegratedGradients(network).attribute(
        images.clone().requires_grad_(), return_convergence_delta=True, **asked
    )
    ours, delta = attribute(IG(network), images, return_convergence_delta=True, internal_batch_size=2, **asked)
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert torch.allclose(delta, their_delta.float(), atol=1e-4)
    assert (delta < 0).any(), "the sign is Captum's"
    assert (delta > 0).any()
    in_tuples = attribute(IG(network), (images,), **(asked | {"baselines": (baseline,)}))
    assert torch.equal(in_tuples[0], attribute(IG(network), images, **asked))
    assert torch.equal(
        attribute(IG(network, multiply_by_inputs=False), images, **asked),
        integrated_gradients(network, images, 1, baseline, 9, "gausslegendre").integral,
    )
    default = attribute(IG(network), images, target=1)
    assert torch.equal(default, integrated_gradients(network, images, 1, "black", 20, "trapezoid").maps)
    again = IG(network).compute_convergence_delta(ours, baseline, images, target=1)
    assert torch.allclose(again.float(), delta, atol=1e-4)
    largest = 0

    def counted(pixels: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, len(pixels))
        return network(pixels)  # type: ignore[no-any-return]

    attribute(IG(counted), images, internal_batch_size=2)
    assert largest == 2


def test_big_takes_a_boundary_or_finds_one(network: nn.Module, images: Tensor, make_edge: Edge) -> None:
    edge = make_edge(torch.rand(images.shape), torch.arange(7) != 3)
    maps, delta = attribute(BIG(network), images, boundary=edge, n_steps=5, return_convergence_delta=True)
    expected = boundary_integrated_gradients(network, images, edge, points=5)
    assert torch.equal(maps.nan_to_num(9), expected.maps.nan_to_num(9))
    assert torch.equal(delta.abs().nan_to_num(9), expected.gap.nan_to_num(9))
    assert maps[3].isnan().all()
    assert attribute(BIG(network, on_missing="last"), images, boundary=edge).isfinite().all()
    assert attribute(BSM(network), images, boundary=edge)[3].isnan().all()
    assert attribute(BSM(network, on_missing="last"), images, boundary=edge).isfinite().all()
    found = find_boundary(network, images[:2])
    assert torch.allclose(
        attribute(BIG(network), images[:2]), boundary_integrated_gradients(network, images[:2], found).maps, atol=1e-5
    )


def test_big_passes_its_options_to_the_search(network: nn.Module, images: Tensor) -> None:
    seen: dict[str, Any] = {}

    def search(context: SearchContext, **options: Any) -> Tensor:
        seen.update(options, seeds=context.seeds, norm=context.norm)
        return torch.ones_like(context.images)

    for kind in (BIG, BSM, BSG, BDeepLIFT):
        seen.clear()
        kind(network, search=search, seed=3, norm="linf", patience=4, on_missing="last").attribute(images)
        assert seen["patience"] == 4
        assert seen["norm"] == "linf"
        assert len(seen["seeds"]) == 7


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("IG", {"n_steps": 1}, "`n_steps` must be at least 2 for the trapezoid rule"),
        ("BIG", {"n_steps": 0}, "`n_steps` must be a whole number of points"),
        ("BIG", {"method": "simpson"}, "`method` must be one of trapezoid"),
        ("IG", {"baselines": "grey"}, "`baselines` must be one of"),
        ("IG", {"baselines": 3.0}, "`baselines` must be in \\[0, 1\\], as the images, got \\[3.0, 3.0\\]"),
        ("IG", {"baselines": torch.zeros(2, 5)}, "`baselines` must be of the images' shape"),
        *(
            (name, {"internal_batch_size": -1}, "`internal_batch_size` must be")
            for name in ("IG", "BIG", "AGI", "SmoothGrad", "BSG", "BDeepLIFT")
        ),
    ],
)
def test_errors_name_what_the_caller_typed(
    network: nn.Module, images: Tensor, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}") as caught:
        QUICK[name](network).attribute(images, **options)
    assert caught.value.argument in options


def test_a_wrong_type_is_a_type_error_with_captums_name(network: nn.Module, images: Tensor) -> None:
    with pytest.raises(TypeError, match=r"^`baselines` must be one of black, white, .* or a tensor, got 'list'"):
        IG(network).attribute(images, baselines=[0.0])  # type: ignore[arg-type]


def test_errors_are_renamed_by_their_field_not_by_their_text(network: nn.Module, images: Tensor) -> None:
    """A message that begins like one of ours, from the caller's own model, stays as it is."""

    def failing(pixels: Tensor) -> Tensor:
        raise ValueError("`points` must be mine")

    with pytest.raises(ValueError, match=r"^`points` must be mine$"):
        IG(failing).attribute(images)


@pytest.mark.parametrize("kind", [BIG, BSM, BSG, BDeepLIFT])
def test_a_wrong_search_fails_before_any_image_is_seen(network: nn.Module, kind: type) -> None:
    with pytest.raises(ValueError, match=r"`search` must be one of fast, .*got 'quick'"):
        kind(network, search="quick")
    with pytest.raises(TypeError, match=r"`search` must be one of fast, .*got None"):
        kind(network, search=None)


def test_every_attribute_says_what_it_takes() -> None:
    for kind in METHODS.values():
        assert "`target` is one class" in str(kind.attribute.__doc__)  # type: ignore[attr-defined]
    for word in ("boundary", "n_steps", "method", "internal_batch_size"):
        assert f"`{word}`" in str(BIG.attribute.__doc__)


@pytest.mark.parametrize("name", QUICK)
def test_inside_captums_noise_tunnel(network: nn.Module, images: Tensor, name: str) -> None:
    explainer = QUICK[name](network, bounds=None)
    torch.manual_seed(0)
    maps = NoiseTunnel(explainer).attribute(
        images[:2], nt_type="smoothgrad", nt_samples=2, stdevs=0.2, target=torch.tensor([1, 2])
    )
    assert maps.shape == images[:2].shape
    # The same by hand, with the noise that NoiseTunnel draws.
    torch.manual_seed(0)
    noise = torch.normal(0, torch.tensor(0.2).repeat(4, 3, 12, 12))
    noisy = images[:2].repeat_interleave(2, 0) + noise
    by_hand = explainer.attribute(noisy, target=torch.tensor([1, 1, 2, 2])).view(2, 2, 3, 12, 12).mean(1)
    assert torch.allclose(maps, by_hand, atol=1e-5, equal_nan=True)
    with pytest.raises(ValueError, match="`inputs` must be in"):
        NoiseTunnel(QUICK[name](network)).attribute(images[:2], nt_samples=2, stdevs=0.5, target=1)


@pytest.mark.parametrize("name", ["IG", "BIG", "BDeepLIFT"])
def test_delta_inside_the_noise_tunnel(network: nn.Module, images: Tensor, name: str) -> None:
    tunnel = NoiseTunnel(QUICK[name](network, bounds=None))
    maps, delta = tunnel.attribute(images[:2], nt_samples=3, stdevs=0.1, target=1, return_convergence_delta=True)
    assert maps.shape == images[:2].shape
    assert delta.shape == (6,)


def test_captums_visualization_draws_our_maps(network: nn.Module, images: Tensor) -> None:
    mpl.use("Agg")
    maps = attribute(SM(network), images[:1])[0].permute(1, 2, 0).numpy()
    figure, _ = visualization.visualize_image_attr(
        maps, images[0].permute(1, 2, 0).numpy(), method="blended_heat_map", sign="all", use_pyplot=False
    )
    assert figure.axes


@pytest.mark.parametrize("name", ["SM", "IG", "BIG", "captum:DeepLift"])
def test_quantus_calling_convention(network: nn.Module, images: Tensor, name: str) -> None:
    pixels, classes = images[:2].numpy(), np.array([1, 3])
    maps = explain(model=network, inputs=pixels, targets=classes, method=name, device="cpu")
    assert isinstance(maps, np.ndarray)
    assert maps.dtype == np.float32
    expected = method(name)(network).attribute(images[:2], target=torch.tensor([1, 3]))
    assert np.allclose(maps, expected.numpy(), atol=1e-5)


def test_quantus_options_find_their_place(network: nn.Module, images: Tensor) -> None:
    noisy = images.numpy() * 2 - 0.5
    found = explain(network, noisy, np.array(1), method="IG", n_steps=4, baselines=0.5, bounds=None)
    expected = attribute(IG(network, bounds=None), torch.as_tensor(noisy), target=1, n_steps=4, baselines=0.5)
    assert np.allclose(found, expected.numpy(), atol=1e-6)
    maps = explain(network, images.numpy(), None, method="SM")
    assert np.allclose(maps, attribute(SM(network), images).numpy(), atol=1e-6)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        explain(network, images.numpy(), np.array(1), method="IG", colour=3)


def test_method_resolves_names_classes_and_functions(network: nn.Module, images: Tensor) -> None:
    assert method("BIG") is BIG
    assert method(BIG) is BIG
    configured = functools.partial(IG, multiply_by_inputs=False)
    assert method(configured) is configured
    maps = method(lambda model, pixels, target: pixels * 0 + target)(network).attribute(images, target=3)
    assert (maps == 3).all()
    for wrong, hint in (("BIGG", "BIG"), ("smoothgrad", "SmoothGrad"), ("big", "BIG"), ("ig", "IG")):
        with pytest.raises(ValueError, match=f"`method` must be one of SM, .*got '{wrong}': did you mean '{hint}'\\?"):
            method(wrong)
    with pytest.raises(TypeError, match="`method` must be a name, a class or a function, got int"):
        method(3)  # type: ignore[arg-type]


def test_chunk_bounds_and_seed_reach_the_search_and_captum(network: nn.Module, images: Tensor) -> None:
    largest = 0

    def counted(pixels: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, len(pixels))
        return network(pixels)  # type: ignore[no-any-return]

    attribute(BIG(counted), images, internal_batch_size=2)
    attribute_all(counted, images, ["BIG", "BSM"], chunk=2)
    assert largest == 2
    # Noise takes pixels out of [0, 1]; bounds=None lets them, also the search and Captum's own methods.
    noisy = images * 3 - 1
    maps = attribute_all(network, noisy, ["SM", "BSM", "captum:Saliency"], bounds=None)
    assert torch.allclose(maps["SM"], maps["captum:Saliency"], atol=1e-6)  # type: ignore[arg-type]
    assert torch.equal(maps["BSM"], attribute(BSM(network, bounds=None), noisy))  # type: ignore[arg-type]
    names = ["captum:GradientShap"]
    drawn = [attribute_all(network, images, names, seed=seed)[names[0]] for seed in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])  # type: ignore[arg-type]
    assert not torch.equal(drawn[0], drawn[2])  # type: ignore[arg-type]
