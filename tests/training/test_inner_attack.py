"""The inner attack against what a linear model makes of it in closed form."""

import pytest
import torch
from torch import Tensor, nn

from locality.perturbation import random_in_ball
from locality.training.inner_attack import perturbed


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
    found = perturbed(model, images, objective, images, 0.1, "linf", 2, 0.07)
    expected = images + 0.1 * model.weight[0].sign().view(1, 3, 2, 2)
    assert torch.allclose(found, expected)
    one = perturbed(model, images, objective, images, 0.1, "linf", 1, 0.07)
    assert torch.allclose(one, images + 0.07 * model.weight[0].sign().view(1, 3, 2, 2))


def test_l2_goes_along_the_gradient() -> None:
    model, images = Linear(), torch.full((2, 3, 2, 2), 0.5)
    found = perturbed(model, images, objective, images, 0.2, "l2", 3, 0.1)
    direction = model.weight[0] / model.weight[0].norm()
    assert torch.allclose(found, images + 0.2 * direction.view(1, 3, 2, 2), atol=1e-6)


def test_pixels_stay_in_range_and_weights_get_no_gradient() -> None:
    model, images = Linear(), torch.rand(4, 3, 2, 2)
    images[0] = 1.0
    for norm in ("linf", "l2"):
        start = random_in_ball(images, [1, 2, 3, 4], 0.3, norm)  # type: ignore[arg-type]
        found = perturbed(model, images, objective, start, 0.3, norm, 4, 0.2)  # type: ignore[arg-type]
        assert float(found.min()) >= 0
        assert float(found.max()) <= 1
        offset = (found - images).flatten(1)
        assert float((offset.abs().amax(1) if norm == "linf" else offset.norm(dim=1)).max()) <= 0.3 + 1e-6
        assert not found.requires_grad
    assert model.weight.grad is None


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_starts_are_each_images_own(norm: str) -> None:
    images = torch.full((2, 3, 8, 8), 0.5)
    both = random_in_ball(images, [5, 9], 0.1, norm)  # type: ignore[arg-type]
    turned = random_in_ball(images, [9, 5], 0.1, norm)  # type: ignore[arg-type]
    assert torch.equal(both, turned.flip(0))
    assert not torch.equal(both[0], both[1])
    offset = (both - images).flatten(1)
    lengths = offset.abs().amax(1) if norm == "linf" else offset.norm(dim=1)
    assert (lengths <= 0.1 + 1e-6).all()
    assert (lengths > 0.09).all()
