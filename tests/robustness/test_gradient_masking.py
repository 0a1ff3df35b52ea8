"""Models whose gradients mislead attacks, and models that are fine."""

import pytest
import torch
from known_models import linear_model, small_network
from torch import Tensor, nn

from locality.model_calls import Model, open_model
from locality.robustness.gradient_masking import PROBABILITIES, Caveat, examine, square_caveat
from locality.types import Norm, Threat


def examined(model: Model, images: Tensor, norm: Norm = "linf", epsilon: float = 8 / 255) -> tuple[Caveat, ...]:
    with open_model(model, images) as calls:
        return examine(calls, images, calls.logits(images).argmax(1), Threat(norm, epsilon))


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 4 / 255), ("linf", 0.1), ("l2", 0.5)])
def test_ordinary_models_pass(norm: Norm, epsilon: float) -> None:
    model, images, _, _ = linear_model([0.1, 0.2, 0.3, 0.4])
    assert examined(model, images, norm, epsilon) == ()
    assert examined(small_network(), torch.rand(16, 3, 8, 8), norm, epsilon) == ()


def test_outputs_that_change() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))

    def noisy(images: Tensor) -> Tensor:
        logits: Tensor = model(images)
        return logits + 0.01 * torch.randn(logits.shape)

    (caveat,) = examined(noisy, torch.rand(4, 3, 8, 8))
    assert caveat.kind == "unsteady outputs"
    assert caveat.text.startswith("the model's outputs change from call to call")


@pytest.mark.filterwarnings("ignore:.*returns probabilities")
def test_probabilities() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.Softmax(dim=1))
    assert examined(model, torch.rand(4, 3, 8, 8)) == (PROBABILITIES,)


def test_zero_gradients() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    images = torch.rand(4, 3, 8, 8)

    def quantised(images: Tensor) -> Tensor:
        logits: Tensor = model((images * 8).round() / 8)
        return logits

    (caveat,) = examined(quantised, images)
    assert caveat.kind == "zero gradients"
    assert caveat.text.startswith("the gradient of the cross-entropy is exactly zero at 4 of 4 images")
    assert "cw20" not in caveat.text

    def saturated(images: Tensor) -> Tensor:
        logits: Tensor = model(images)
        return logits * 1e5

    (caveat,) = examined(saturated, images)
    assert "is exactly zero at" in caveat.text
    assert caveat.text.endswith("that of the margin is not: use cw20, paper or standard")


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 8 / 255), ("l2", 0.5)])
def test_blind_gradients(norm: Norm, epsilon: float) -> None:
    """A fine ripple on the logits: steep everywhere, but without effect over a step as long as an attack's."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))

    def rippled(images: Tensor) -> Tensor:
        logits: Tensor = model(images)
        return logits + 0.003 * (2e5 * logits).sin() * torch.arange(5)

    images = torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    (caveat,) = examined(rippled, images, norm, epsilon)
    assert caveat.kind == "blind gradients"
    assert caveat.text.startswith("a step along the gradient is no better than a random one for")


def test_square_breaks_more() -> None:
    assert square_caveat(0, 500) is None
    assert square_caveat(1, 500) is None
    caveat = square_caveat(2, 500)
    assert caveat is not None
    assert caveat.kind == "square"
    assert "broke 2 of 500 images" in caveat.text
