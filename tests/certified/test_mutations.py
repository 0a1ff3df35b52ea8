"""Certificates that are wrong on purpose: for each mistake the checks of soundness see it, and nothing without it."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from known_models import linear_layer
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d

from locality.boundary import find_boundary
from locality.certified import layer_bounds
from locality.certified import lipschitz_bound as bounds
from locality.certified.bracket import FalseCertificateError, certify_boundary
from locality.certified.certificate import Certificate
from locality.certified.known_bounds import KNOWN_BOUNDS
from locality.certified.layer_bounds import EXACT
from locality.certified.lipschitz import certify
from locality.certified.lipschitz_bound import LipschitzBound, lipschitz_bound
from locality.types import ModelSpec
from locality.zoo.nets.lipschitz import MinMax
from locality.zoo.pixel_model import PixelModel

SIZE = 12
Patch = Callable[[pytest.MonkeyPatch], None]


def linear_net() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 4))
    nn.init.orthogonal_(linear_layer(model).weight)
    return model


def normalised_net() -> nn.Module:
    return PixelModel(linear_net(), ModelSpec("small", (2, 2), 2, mean=(0.5,) * 3, std=(0.25,) * 3))


def steep_net() -> nn.Module:
    """The steepest direction of its first layer is orthogonal to a start of ones, and of its head, too."""
    direction = torch.zeros(SIZE)
    direction[0], direction[1] = 0.5**0.5, -(0.5**0.5)
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIZE, SIZE, bias=False), MinMax(), nn.Linear(SIZE, 4))
    linear_layer(model, 1).weight.data = torch.eye(SIZE) + 99 * direction[:, None] * direction
    linear_layer(model).weight.data[:, :2] *= 5
    return model


def steep_convolution() -> nn.Module:
    """The same for a convolution: its steepest direction is a difference of two channels."""
    direction = torch.tensor([0.5**0.5, -(0.5**0.5), 0.0])
    model = nn.Sequential(nn.Conv2d(3, 3, 1, bias=False), nn.Flatten(), nn.Linear(SIZE, 4))
    kernel = torch.eye(3) + 99 * direction[:, None] * direction
    model[0].weight.data = kernel[:, :, None, None]
    return model


def halve_the_constant(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LipschitzBound, "margins", property(lambda bound: bound.differences * bound.features / 2))


def forget_the_deviation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bounds, "normalisation", lambda mean, std, shape: EXACT)


def drop_the_difference_of_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        LipschitzBound, "margins", property(lambda bound: bound.features * (1 - torch.eye(len(bound.differences))))
    )


def power_iteration_for_the_bound(patch: pytest.MonkeyPatch) -> None:
    def estimate(matrix: Tensor) -> Tensor:
        vector = torch.ones(matrix.shape[-1], dtype=torch.float64)
        for _ in range(20):
            vector = matrix.mT @ (matrix @ vector)
            vector /= vector.norm()
        length: Tensor = (matrix @ vector).norm()
        return length

    patch.setattr(layer_bounds, "matrix_norm_upper", estimate)


def power_iteration_for_convolutions(patch: pytest.MonkeyPatch) -> None:
    def estimate(kernel: Tensor, size: tuple[int, int], *layer: object, tight: bool) -> float:
        vector = torch.ones(1, kernel.shape[1], *size, dtype=torch.float64)
        for _ in range(20):
            vector = conv_transpose2d(conv2d(vector, kernel), kernel)
            vector /= vector.norm()
        return float(conv2d(vector, kernel).norm())

    patch.setattr(layer_bounds, "conv_norm_upper", estimate)


MUTATIONS: dict[str, tuple[Patch, Callable[[], nn.Module]]] = {
    "halve K": (halve_the_constant, linear_net),
    "forget 1/std": (forget_the_deviation, normalised_net),
    "drop the head difference": (drop_the_difference_of_rows, linear_net),
    "power iteration": (power_iteration_for_the_bound, steep_net),
    "power iteration of convolutions": (power_iteration_for_convolutions, steep_convolution),
}


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "bench"))
    return importlib.import_module("certified_attacks")


@pytest.mark.parametrize("name", MUTATIONS)
def test_mistakes_break_certificates(name: str, attacks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate, build = MUTATIONS[name]
    torch.manual_seed(0)
    model, images = build().eval(), torch.rand(8, 3, 2, 2)
    edge = find_boundary(model, images, bounds=None)
    assert edge.found.all()
    assert attacks.singular(model, images, certify(model, images))["broken"] == 0
    assert certify_boundary(model, images, edge).radius is not None
    mutate(monkeypatch)
    KNOWN_BOUNDS.clear()
    assert attacks.singular(model, images, certify(model, images))["broken"] > 0
    with pytest.raises(FalseCertificateError):
        certify_boundary(model, images, edge)


def test_at_least_in_place_of_more_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tie has radius 0, and a certificate at 0 would state that it cannot be broken."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 2))
    for weight in model.parameters():
        nn.init.zeros_(weight)
    certificate = certify(model, torch.rand(1, 3, 2, 2))
    assert not certificate.certifies(0.0).any()
    monkeypatch.setattr(Certificate, "certifies", lambda self, radius: ~self.abstained & (self.radius >= radius))
    assert certificate.certifies(0.0).any()


def test_deel_torchlips_networks_are_nearly_1_lipschitz() -> None:
    """Its layers are normalised by iteration to 1; our bound says by how much they miss it, and is above its estimate."""
    from deel import torchlip

    torch.manual_seed(0)
    conv, first, second = (
        torchlip.SpectralConv2d(3, 4, 3, padding=1),
        torchlip.SpectralLinear(256, 16),
        torchlip.SpectralLinear(16, 4),
    )
    net = torchlip.Sequential(conv, nn.ReLU(), nn.Flatten(), first, nn.ReLU(), second)
    net(torch.rand(1, 3, 8, 8))
    exported = nn.Sequential(*net.vanilla_export().children()).eval()
    bound = lipschitz_bound(exported, (8, 8))
    assert 0.99 < dict(bound.layers)["3 Linear"] < 1.01
    assert bound.features < 1.01  # its convolution is normalised by a looser bound of its own
    images = torch.rand(4, 3, 8, 8)
    jacobian = torch.func.jacrev(lambda one: exported(one[None])[0])(images[0]).flatten(1)
    assert torch.cdist(jacobian, jacobian).max() <= bound.largest
