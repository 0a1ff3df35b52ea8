"""PGD against linear models, whose answer is known, and against Foolbox's."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from known_models import linear_layer, linear_model, small_network
from torch import Tensor

from locality.model_calls import open_model
from locality.model_calls.randomness import image_seeds
from locality.model_calls.third_party import load_foolbox
from locality.perturbation import margin, project, random_in_ball
from locality.robustness.pgd import Loss, pgd
from locality.types import Norm


def crosses(model: Any, points: Tensor, labels: Tensor) -> list[bool]:
    with torch.no_grad():
        found: list[bool] = (margin(model(points), labels) < 0).tolist()
    return found


@pytest.mark.parametrize("loss", ["ce", "margin"])
def test_l2_breaks_what_is_nearer_than_epsilon(loss: Loss) -> None:
    model, images, labels, _ = linear_model([0.1, 0.2, 0.29, 0.31, 0.4])
    points = pgd(model, images, labels, epsilon=0.3, norm="l2", loss=loss)
    assert crosses(model, points, labels) == [True, True, True, False, False]
    lengths = (points - images).flatten(1).norm(dim=1)
    assert (lengths <= 0.3 * 1.00001).all()
    assert lengths[3:] == pytest.approx(0.3, rel=1e-4)  # what was not broken went as far as it may


@pytest.mark.parametrize("loss", ["ce", "margin"])
def test_linf_breaks_what_the_closed_form_says(loss: Loss) -> None:
    model, images, labels, _ = linear_model([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    weights = linear_layer(model).weight.detach()
    reach = (weights[labels] - weights[(labels + 1) % 4]).abs().sum(1)
    limits = margin(model(images), labels).detach() / reach
    epsilon = float(limits.sort().values[2:4].mean())
    points = pgd(model, images, labels, epsilon, loss=loss)
    assert crosses(model, points, labels) == (limits < epsilon).tolist()
    assert (points - images).abs().max() <= epsilon * 1.00001


def test_the_best_point_of_two_classes_is_a_corner() -> None:
    model, images, labels, _ = linear_model([0.5, 0.6], classes=2)
    points = pgd(model, images, labels, epsilon=0.01, steps=8)
    weights = linear_layer(model).weight.detach()
    corner = images - 0.01 * (weights[labels] - weights[1 - labels]).sign().view_as(images)
    assert torch.allclose(points, corner, atol=1e-7)


def test_pixels_stay_pixels() -> None:
    model = small_network().eval()
    images = torch.rand(6, 3, 8, 8).round()
    labels = model(images).argmax(1)
    for norm, epsilon in (("linf", 0.1), ("l2", 1.0)):
        points = pgd(model, images, labels, epsilon, norm)  # type: ignore[arg-type]
        assert points.min() >= 0
        assert points.max() <= 1
        assert (points != images).flatten(1).any(dim=1).all()
    far = project(torch.full((1, 1, 1, 2), 3.0), torch.tensor([[[[0.9, 0.5]]]]), 0.3, "linf")
    assert far.flatten().tolist() == pytest.approx([1.0, 0.8])
    far = project(torch.tensor([[[[0.9, 4.5]]]]), torch.tensor([[[[0.9, 0.5]]]]), 0.3, "l2")
    assert far.flatten().tolist() == pytest.approx([0.9, 0.8])


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.filterwarnings("ignore:.*np.* is deprecated:DeprecationWarning")
def test_it_walks_where_foolbox_walks(norm: Norm) -> None:
    """From the image itself, where no image is broken: Foolbox goes on where ours stops."""
    model = small_network().eval()
    images = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.6 + 0.2
    labels = model(images).argmax(1)
    epsilon, step = (0.002, 0.0005) if norm == "linf" else (0.02, 0.004)
    foolbox = load_foolbox()
    kind = foolbox.attacks.LinfPGD if norm == "linf" else foolbox.attacks.L2PGD
    attack = kind(abs_stepsize=step, steps=7, random_start=False)
    theirs, _, broken = attack(foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu"), images, labels, epsilons=epsilon)
    assert not broken.any()
    ours = pgd(model, images, labels, epsilon, norm, steps=7, step_size=step, random_start=False)
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert (ours - images).flatten(1).norm(dim=1).min() > 0.9 * epsilon


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_batch_and_order_do_not_matter(norm: Norm) -> None:
    model = small_network().eval()
    images = torch.rand(5, 3, 8, 8)
    labels = model(images).argmax(1)

    def found(chosen: list[int], **options: Any) -> Tensor:
        return pgd(model, images[chosen], labels[chosen], 0.05, norm, steps=4, **options)

    together = found([0, 1, 2, 3, 4])
    assert torch.allclose(found([3, 1, 0, 4, 2])[2], together[0], atol=1e-6)
    assert torch.allclose(found([0], chunk=1), together[:1], atol=1e-6)
    assert torch.allclose(found([0, 1, 2, 3, 4], chunk=2), together, atol=1e-6)
    assert not torch.allclose(found([0], seed=1), together[:1], atol=1e-3)


def test_the_random_start_is_uniform_in_the_ball() -> None:
    images = 0.5 + 0.1 * torch.rand(600, 1, 2, 2)
    for norm in ("l2", "linf"):
        offset = (random_in_ball(images, image_seeds(images, 0), 0.2, norm) - images).flatten(1) / 0.2
        radius = offset.norm(dim=1) if norm == "l2" else offset.abs().amax(dim=1)
        inside = [float((radius**4 < share).float().mean()) for share in (0.25, 0.5, 0.75, 1.00001)]
        assert inside == pytest.approx([0.25, 0.5, 0.75, 1], abs=0.06)  # three standard errors
        assert offset.mean(dim=0).abs().max() < 0.09


def test_a_broken_image_costs_no_more_gradients() -> None:
    model, images, labels, _ = linear_model([0.01, 0.9], classes=2)
    with open_model(model, images) as calls:
        pgd(calls, images[:1], labels[:1], epsilon=0.3, norm="l2", step_size=0.1, random_start=False)
        assert calls.gradients == 2  # at the image, and at the first step, which is across
        pgd(calls, images[1:], labels[1:], epsilon=0.3, norm="l2", random_start=False)
        assert calls.gradients == 2 + 20


def test_nothing_of_the_caller_changes() -> None:
    model = small_network().train()
    images, labels = torch.rand(3, 3, 8, 8), torch.tensor([0, 1, 2])
    before, states = images.clone(), (torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate())  # type: ignore[index]
    statistics = model[1].running_mean.clone()  # type: ignore[index]
    pgd(model, images, labels, 0.1)
    assert torch.equal(images, before)
    assert model.training
    assert model[1].training  # type: ignore[index]
    assert torch.equal(model[1].running_mean, statistics)  # type: ignore[index]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # type: ignore[index]
    assert random.getstate() == states[2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epsilon": 0}, "`epsilon` must be a positive distance"),
        ({"epsilon": float("nan")}, "`epsilon` must be a positive distance"),
        ({"epsilon": "4/255"}, "`epsilon` must be a positive distance"),
        ({"epsilon": 4}, r"did you mean 4/255\?"),
        ({"norm": "l1"}, "`norm` must be one of l2, linf, got 'l1'"),
        ({"loss": "dlr"}, "`loss` must be one of ce, margin, got 'dlr'"),
        ({"steps": 0}, "`steps` must be a whole number"),
        ({"step_size": -1.0}, "`step_size` must be a positive length"),
        ({"labels": torch.tensor([0.0])}, "`labels` must be a tensor of 1 whole class numbers"),
        ({"labels": torch.tensor([0, 1])}, "`labels` must be a tensor of 1 whole class numbers"),
        ({"labels": torch.tensor([-1])}, "`target` must be a class from 0 to 4, got -1"),
        ({"images": torch.full((1, 3, 8, 8), 2.0)}, r"`images` must be in \[0, 1\]"),
    ],
)
def test_bad_input(options: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {"images": torch.rand(1, 3, 8, 8), "labels": torch.tensor([0]), "epsilon": 0.1}
    with pytest.raises(ValueError, match=sentence):
        pgd(small_network(), **(good | options))
