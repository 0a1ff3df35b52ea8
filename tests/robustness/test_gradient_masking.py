"""Models that no attack can say much about, and those that are fine."""

import pytest
import torch
from known_models import linear_model, small_network
from torch import Tensor, nn

from locality.model_calls import Model, open_model
from locality.robustness.autoattack import Threat
from locality.robustness.gradient_masking import PROBABILITIES, examine, square_sentence
from locality.robustness.pgd import Norm


def examined(model: Model, images: Tensor, norm: Norm = "linf", epsilon: float = 8 / 255) -> tuple[str, ...]:
    with open_model(model, images) as calls:
        return examine(calls, images, calls.logits(images).argmax(1), Threat(norm, epsilon, 0))


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

    (sentence,) = examined(noisy, torch.rand(4, 3, 8, 8))
    assert sentence.startswith("the model's outputs change from call to call")


@pytest.mark.filterwarnings("ignore:.*returns probabilities")
def test_probabilities() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.Softmax(dim=1))
    assert examined(model, torch.rand(4, 3, 8, 8)) == (PROBABILITIES,)


def test_zero_gradients() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    images = torch.rand(4, 3, 8, 8)

    def quantised(images: Tensor) -> Tensor:
        return model((images * 8).round() / 8)

    (sentence,) = examined(quantised, images)
    assert sentence.startswith("the gradient of the cross-entropy is exactly zero at 4 of 4 images")
    assert "cw20" not in sentence

    def saturated(images: Tensor) -> Tensor:
        return model(images) * 1e5

    (sentence,) = examined(saturated, images)
    assert "is exactly zero at" in sentence
    assert sentence.endswith("that of the margin is not: use cw20, paper or standard")


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 8 / 255), ("l2", 0.5)])
def test_gradients_that_lead_nowhere(norm: Norm, epsilon: float) -> None:
    """A fine ripple on the logits: steep everywhere, but over a step as long as an attack's it says nothing."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))

    def rippled(images: Tensor) -> Tensor:
        logits: Tensor = model(images)
        return logits + 0.003 * (2e5 * logits).sin() * torch.arange(5)

    images = torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    (sentence,) = examined(rippled, images, norm, epsilon)
    assert sentence.startswith("a step along the gradient is no better than a random one for")


def test_square_breaks_more() -> None:
    assert square_sentence(0, 500) is None
    assert square_sentence(1, 500) is None
    sentence = square_sentence(2, 500)
    assert sentence is not None
    assert "broke 2 of 500 images" in sentence
