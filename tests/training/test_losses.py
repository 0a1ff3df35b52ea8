"""Losses against formulas written out by hand."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softmax

from locality.training.losses import LOSSES, REGULARISERS, TrainingBatch
from locality.training.recipe import LossPart

LABELS = torch.tensor([0, 2, 1])


def batch_of(model: nn.Module, images: Tensor, shift: float = 0.1, **settings: float) -> TrainingBatch:
    """A batch whose attack adds `shift` and notes the objective it was given."""

    def attack(objective: object, begin: str) -> Tensor:
        seen.append((objective, begin))
        return images + shift

    seen: list[tuple[object, str]] = []
    batch = TrainingBatch(model, model, attack, images, LABELS, LossPart(**settings))  # type: ignore[arg-type]
    object.__setattr__(batch, "seen", seen)
    return batch


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 3))


@pytest.fixture
def images() -> Tensor:
    return torch.rand(3, 3, 2, 2, generator=torch.Generator().manual_seed(1))


def test_standard_is_cross_entropy(model: nn.Module, images: Tensor) -> None:
    outcome = LOSSES["standard"](batch_of(model, images))
    chances = softmax(model(images), dim=1)
    assert torch.allclose(outcome.loss, -chances[torch.arange(3), LABELS].log().mean())
    assert torch.equal(outcome.logits, model(images))


def test_label_smoothing_mixes_in_the_uniform(model: nn.Module, images: Tensor) -> None:
    smoothed = LOSSES["standard"](batch_of(model, images, label_smoothing=0.3)).loss
    logs = model(images).log_softmax(1)
    assert torch.allclose(smoothed, -(0.7 * logs[torch.arange(3), LABELS] + 0.3 * logs.mean(1)).mean())


@pytest.mark.parametrize("name", ["at", "fast_at"])
def test_adversarial_fits_the_attacked_images(name: str, model: nn.Module, images: Tensor) -> None:
    batch = batch_of(model, images)
    outcome = LOSSES[name](batch)
    assert torch.allclose(outcome.loss, cross_entropy(model(images + 0.1), LABELS))
    ((objective, begin),) = batch.seen  # type: ignore[attr-defined]
    assert begin == "random"
    logits = model(images)
    assert torch.allclose(objective(logits), cross_entropy(logits, LABELS, reduction="none"))


def test_trades_is_cross_entropy_and_divergence(model: nn.Module, images: Tensor) -> None:
    batch = batch_of(model, images, beta=4.0)
    outcome = LOSSES["trades"](batch)
    clean, moved = softmax(model(images), dim=1), softmax(model(images + 0.1), dim=1)
    divergence = (clean * (clean / moved).log()).sum(1)
    assert torch.allclose(outcome.loss, cross_entropy(model(images), LABELS) + 4 * divergence.mean(), atol=1e-6)
    ((objective, begin),) = batch.seen  # type: ignore[attr-defined]
    assert begin == "near"
    assert torch.allclose(objective(model(images + 0.1)), divergence, atol=1e-6)
    # The clean half takes part in the divergence's gradient, as in the published code.
    (gradient,) = torch.autograd.grad(outcome.loss - cross_entropy(model(images), LABELS), model[1].weight)
    expected = torch.autograd.grad(4 * divergence.mean(), model[1].weight)[0]
    assert torch.allclose(gradient, expected, atol=1e-5)


def test_logit_squeezing(model: nn.Module, images: Tensor) -> None:
    logits = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    assert float(REGULARISERS["logit_squeezing"](batch_of(model, images), logits)) == 2.5
