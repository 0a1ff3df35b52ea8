"""Captum's own methods by name: they agree with Captum where it runs as it is, and run where it does not."""

import copy
import importlib.util
from typing import Any

import captum.attr  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from known_models import small_network
from torch import Tensor, nn
from torch.nn import functional

from locality.attribution import method, saliency_map
from locality.attribution.captum_methods import DEFAULTS, captum_names, patches, submodule
from locality.zoo.load import load_model

FITTED = {"KernelShap", "Lime"}  # with scikit-learn
HAS_SKLEARN = importlib.util.find_spec("sklearn") is not None
PIXELS = sorted(name for name in DEFAULTS if name != "GuidedGradCam" and (HAS_SKLEARN or name not in FITTED))


class Plain(nn.Module):
    """Each module is used once, nothing is in place, no Flatten: Captum itself can hook it, LRP too."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(8, 5)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.pool(self.body(images)).flatten(1))
        return logits


@pytest.fixture
def plain() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Plain().eval()


@pytest.mark.parametrize("name", PIXELS)
def test_every_default_gives_signed_maps_that_do_not_depend_on_the_batch(
    network: nn.Module, images: Tensor, name: str
) -> None:
    network.train()
    explainer = method(f"captum:{name}")(network)
    torch.manual_seed(0)
    np.random.seed(0)
    numpy_state: Any = np.random.get_state
    before, numpy_before = torch.get_rng_state(), numpy_state()[1].copy()
    images = images[:3]
    maps = explainer.attribute(images)
    assert maps.shape == images.shape
    if name != "Lime":  # its lasso makes effects below a hundredth exactly 0, and this network has no larger ones
        assert (maps < 0).any()
        assert (maps > 0).any()
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(numpy_state()[1], numpy_before)
    assert all(part.training for part in network.modules())
    assert not any(part._forward_hooks or part._backward_hooks or part._forward_pre_hooks for part in network.modules())
    assert all(p.grad is None for p in network.parameters())
    assert network.stem[2].inplace  # type: ignore[index, union-attr]
    shuffled = explainer.attribute(images[[2, 0, 1]])
    assert torch.allclose(shuffled, maps[[2, 0, 1]], atol=1e-4)
    assert torch.allclose(explainer.attribute(images[1:2]), maps[1:2], atol=1e-4)
    in_tuple = explainer.attribute((images,), target=[1, 2, 3])
    assert torch.allclose(in_tuple[0], explainer.attribute(images, target=torch.tensor([1, 2, 3])), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Saliency", {"abs": False}),
        ("InputXGradient", {}),
        ("DeepLift", {"baselines": 0.0}),
        ("LRP", {}),
        ("Occlusion", {"sliding_window_shapes": (3, 1, 1), "strides": (3, 1, 1), "baselines": 0.0}),
    ],
)
def test_agrees_with_captum(plain: nn.Module, images: Tensor, name: str, arguments: dict[str, Any]) -> None:
    leaf = images.clone().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *args, **kwargs: None)  # DeepLift announces its hooks
        theirs = getattr(captum.attr, name)(plain).attribute(leaf, target=2, **arguments).detach()
    ours = method(f"captum:{name}")(plain).attribute(images, target=2)
    assert theirs.abs().max() > 1e-4
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_arguments_can_be_overridden(network: nn.Module, images: Tensor) -> None:
    explainer = method("captum:Saliency")
    assert torch.equal(explainer(network).attribute(images, abs=True), explainer(network).attribute(images).abs())
    assert torch.equal(explainer(network, abs=True).attribute(images), explainer(network).attribute(images).abs())
    assert torch.allclose(explainer(network).attribute(images), saliency_map(network, images), atol=1e-6)


def test_random_methods_are_seeded(network: nn.Module, images: Tensor) -> None:
    explainer = method("captum:GradientShap")
    first = explainer(network).attribute(images)
    torch.manual_seed(5)
    np.random.seed(5)
    assert torch.equal(explainer(network).attribute(images), first)
    assert not torch.allclose(explainer(network, seed=1).attribute(images), first, atol=1e-4)


def test_cam_is_upsampled_and_spread_over_channels(network: nn.Module, images: Tensor) -> None:
    maps = method("captum:LayerGradCam@body.1")(network).attribute(images, target=2)
    parts: Any = network
    before = nn.Sequential(parts.stem, *parts.body[:2])(images)
    rest = parts.head(before.relu().mean((2, 3))) * 4
    (gradient,) = torch.autograd.grad(rest[:, 2].sum(), before)
    cam = (gradient.mean((2, 3), keepdim=True) * before).sum(1, keepdim=True).detach()
    expected = functional.interpolate(cam, (12, 12), mode="bilinear")
    assert maps.shape == images.shape
    assert torch.allclose(maps.sum(1, keepdim=True), expected, atol=1e-5)
    assert torch.equal(maps[:, 0], maps[:, 2])
    assert (maps < 0).any(), "signed: no ReLU unless asked for"
    guided = method("captum:GuidedGradCam@body.1")(network).attribute(images)
    assert guided.shape == images.shape


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("captum:DeepLft", r"captum:NAME of a Captum class.*, got 'captum:DeepLft': did you mean 'DeepLift'\?"),
        ("captum:NoiseTunnel", "of a Captum class that explains images, got .*: there are IntegratedGradients"),
        ("captum:NeuronGradient", "of a Captum class that explains images"),
        ("captum:LayerGradCam", "must be a name with a layer, such as captum:LayerGradCam@layer4"),
        ("captum:DeepLift@body", "must be captum:DeepLift without a layer"),
    ],
)
def test_wrong_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method(name)


def test_wrong_layers_and_models_are_refused(network: nn.Module, images: Tensor) -> None:
    with pytest.raises(ValueError, match=r"`layer` must be the name of a module of the model, got 'body.9': did you"):
        method("captum:LayerGradCam@body.9")(network)
    with pytest.raises(TypeError, match=r"`model` must be an nn.Module for captum:DeepLift"):
        method("captum:DeepLift")(lambda pixels: pixels.flatten(1))
    with pytest.raises(ValueError, match="`LayerGradientXActivation@head` must return N×channels×height×width"):
        method("captum:LayerGradientXActivation@head")(network).attribute(images, target=1)
    with pytest.raises(ValueError, match="`target` must be a class from 0 to 4, got 9"):
        method("captum:Saliency")(network).attribute(images, target=9)
    with pytest.raises(ValueError, match="`inputs` must be in"):
        method("captum:Saliency")(network).attribute(images + 1)
    with pytest.raises(ValueError, match="`additional_forward_args`"):
        method("captum:Saliency")(network).attribute(images, additional_forward_args=(1,))


def test_lrp_says_what_it_cannot_do(images: Tensor) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(400, 5))
    with pytest.raises(RuntimeError, match=r"captum:LRP cannot explain this model, Captum says: .*GELU"):
        method("captum:LRP")(model).attribute(images)


def test_plain_functions_work_where_captum_needs_no_hooks(images: Tensor) -> None:
    def model(pixels: Tensor) -> Tensor:
        return (pixels**2).flatten(1)[:, :3]

    expected = torch.zeros_like(images)
    expected[:, 0, 0, 1] = 2 * images[:, 0, 0, 1]
    assert torch.allclose(method("captum:Saliency")(model).attribute(images, target=1), expected)


def test_patches_cover_the_image() -> None:
    grid = patches(torch.rand(1, 3, 20, 12))
    assert grid.shape == (1, 1, 20, 12)
    assert grid.unique().tolist() == list(range(64))
    assert len(captum_names()) > 20


@pytest.mark.parametrize("name", sorted(FITTED))
def test_a_missing_scikit_learn_is_named(network: nn.Module, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=f"captum:{name} needs scikit-learn, which is not installed: pip install"):
        method(f"captum:{name}")(network)


def test_which_methods_fit_a_model_with_scikit_learn() -> None:
    assert {name for name, defaults in DEFAULTS.items() if defaults.fits} == FITTED


def test_random_methods_seed_no_device_but_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(seed: int) -> None:
        raise AssertionError("the generators of other devices are the caller's")

    model = small_network().eval()
    monkeypatch.setattr(torch.cuda, "manual_seed_all", refuse)
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    first, second = (method("captum:GradientShap")(model).attribute(images, target=0) for _ in range(2))
    assert torch.equal(first, second)


def test_lrp_explains_models_that_ship_and_sees_through_what_hands_values_on(
    plain: nn.Module, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = load_model("shapes_cnn")
    maps = method("captum:LRP")(shipped).attribute(torch.rand(2, 3, 64, 64))
    assert maps.isfinite().all()
    assert maps.abs().max() > 1e-3
    expected = method("captum:LRP")(plain).attribute(images, target=2)
    parts = list(plain.body)  # type: ignore[arg-type]
    longer = nn.Sequential(
        nn.Identity(), parts[0], nn.Identity(), parts[1], nn.Identity(), parts[2], parts[3], nn.Dropout2d(0.3)
    )
    head = nn.Sequential(plain.pool, nn.Flatten(), nn.Dropout(0.5), plain.head, nn.Identity())  # type: ignore[arg-type]
    monkeypatch.setattr("locality.model_calls.CHUNK_PIXELS", {"cpu": 2 * 12 * 12})  # several calls of one explainer
    found = method("captum:LRP")(nn.Sequential(longer, head)).attribute(images, target=2)
    assert expected.abs().max() > 1e-4
    assert torch.allclose(found, expected, atol=1e-6)
    layer = method("captum:LayerLRP@0.1")(nn.Sequential(longer, head)).attribute(images, target=2)
    assert torch.allclose(layer, method("captum:LayerLRP@body.0")(plain).attribute(images, target=2), atol=1e-6)


@pytest.mark.parametrize("name", PIXELS)
def test_any_precision_of_model_and_images(network: nn.Module, images: Tensor, name: str) -> None:
    explainer, images = method(f"captum:{name}"), images[:2]
    expected = explainer(network).attribute(images, target=1)
    scale = expected.abs().max()
    double = explainer(network).attribute(images.double(), target=1)
    assert double.dtype == torch.float64
    assert torch.allclose(double.float(), expected, atol=1e-6)
    exact = explainer(copy.deepcopy(network).double()).attribute(images, target=1)
    assert exact.dtype == torch.float32
    assert torch.allclose(exact, expected, atol=1e-3 * float(scale) + 1e-7)
    if name != "GradientShap":  # Captum draws its noise in float32
        rough = explainer(copy.deepcopy(network).bfloat16()).attribute(images, target=1)
        assert rough.dtype == torch.float32
        assert rough.isfinite().all()


def test_arguments_take_the_models_precision(network: nn.Module, images: Tensor) -> None:
    baselines = torch.rand(images.shape)
    expected = method("captum:DeepLift")(network).attribute(images, target=1, baselines=baselines)
    found = method("captum:DeepLift")(copy.deepcopy(network).double()).attribute(images, target=1, baselines=baselines)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_layer_before_a_relu_in_place(network: nn.Module, images: Tensor) -> None:
    found = method("captum:LayerIntegratedGradients@stem.1")(network).attribute(images, target=1)
    assert network.stem[2].inplace  # type: ignore[index, union-attr]
    apart = copy.deepcopy(network)
    apart.stem[2].inplace = apart.body[2].inplace = False  # type: ignore[index, union-attr]
    expected = method("captum:LayerIntegratedGradients@stem.1")(apart).attribute(images, target=1)
    assert expected.abs().max() > 1e-5
    assert torch.equal(found, expected)


def test_a_layer_of_a_loaded_network_has_the_name_in_its_own_code(network: nn.Module) -> None:
    inside = nn.ModuleDict({"net": network})
    assert submodule(inside, "body.0") is submodule(inside, "net.body.0") is submodule(network, "body.0")
