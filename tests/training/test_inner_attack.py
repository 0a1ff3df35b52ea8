"""The inner attack on a linear model, whose answer is known in closed form."""

import pytest
import torch
from torch import Tensor, nn

from locality.perturbation import length, random_in_ball
from locality.training.inner_attack import InnerAttack, perturbed
from locality.training.schedules import Moment
from locality.training.settings import problems_in
from locality.types import NORMS, Norm, Threat


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 12, generator=torch.Generator().manual_seed(3)))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weight.T


def objective(logits: Tensor) -> Tensor:
    return logits[:, 0]


def test_linf_goes_to_the_corner() -> None:
    model, images = Linear(), torch.full((2, 3, 2, 2), 0.5)
    attacked = perturbed(model, images, objective, images, Threat("linf", 0.1), 2, 0.07)
    expected = images + 0.1 * model.weight[0].sign().view(1, 3, 2, 2)
    assert torch.allclose(attacked, expected)
    one = perturbed(model, images, objective, images, Threat("linf", 0.1), 1, 0.07)
    assert torch.allclose(one, images + 0.07 * model.weight[0].sign().view(1, 3, 2, 2))


def test_l2_goes_along_the_gradient() -> None:
    model, images = Linear(), torch.full((2, 3, 2, 2), 0.5)
    attacked = perturbed(model, images, objective, images, Threat("l2", 0.2), 3, 0.1)
    direction = model.weight[0] / model.weight[0].norm()
    assert torch.allclose(attacked, images + 0.2 * direction.view(1, 3, 2, 2), atol=1e-6)


def test_pixels_stay_in_range_and_weights_get_no_gradient() -> None:
    model, images = Linear(), torch.rand(4, 3, 2, 2)
    images[0] = 1.0
    for norm in NORMS:
        start = random_in_ball(images, [1, 2, 3, 4], 0.3, norm)
        attacked = perturbed(model, images, objective, start, Threat(norm, 0.3), 4, 0.2)
        assert float(attacked.min()) >= 0
        assert float(attacked.max()) <= 1
        assert float(length(attacked - images, norm).max()) <= 0.3 + 1e-6
        assert not attacked.requires_grad
    assert model.weight.grad is None


@pytest.mark.parametrize("norm", NORMS)
def test_starts_are_each_images_own(norm: Norm) -> None:
    images = torch.full((2, 3, 8, 8), 0.5)
    both = random_in_ball(images, [5, 9], 0.1, norm)
    turned = random_in_ball(images, [9, 5], 0.1, norm)
    assert torch.equal(both, turned.flip(0))
    assert not torch.equal(both[0], both[1])
    lengths = length(both - images, norm)
    assert (lengths <= 0.1 + 1e-6).all()
    assert (lengths > 0.09).all()


def test_epsilon_warms_up() -> None:
    attack = InnerAttack(0.04, warm_up=0.5)
    assert [attack.radius(Moment.of(step, 8, 4)) for step in range(8)] == pytest.approx([0.02] * 2 + [0.04] * 6)
    assert attack.threat == Threat("linf", 0.04)  # what the model is trained against in the end


@pytest.mark.parametrize(
    ("attack", "where"),
    [
        (InnerAttack(4.0), ["epsilon"]),
        (InnerAttack(float("nan"), "l2"), ["epsilon"]),
        (InnerAttack(0.1, steps=0, step_size=-1.0, warm_up=2.0), ["steps", "step_size", "warm_up"]),
        (InnerAttack(3.0, "l2"), []),
    ],
)
def test_settings_that_make_no_sense(attack: InnerAttack, where: list[str]) -> None:
    assert [problem.where for problem in problems_in(attack)] == where
