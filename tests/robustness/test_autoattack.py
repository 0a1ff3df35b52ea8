"""AutoAttack: pyautoattack's own settings, its own results on a batch, and nothing of the caller's changed."""

import random
import sys
from typing import Any

import numpy as np
import pytest
import torch
from known_models import small_network
from pyautoattack import AutoAttack  # type: ignore[import-untyped]
from torch import Tensor, nn

from locality.model_calls import open_model
from locality.model_calls.third_party import FoolboxBridge
from locality.robustness import ATTACKS
from locality.robustness.autoattack import ZERO_GRADIENTS, _attack, attacks_of, check_sizes, run_attack
from locality.robustness.gradient_masking import Caveat
from locality.robustness.pgd import Loss, pgd
from locality.types import Norm, Threat

SETTINGS = {
    "apgd-ce": ("n_restarts", "n_iter", "eot_iter", "thr_decr", "use_largereps"),
    "apgd-t": ("n_restarts", "n_iter", "eot_iter", "thr_decr", "use_largereps", "n_target_classes", "loss"),
    "fab-t": ("n_restarts", "n_iter", "alpha_max", "eta", "beta", "n_target_classes"),
    "square": ("n_restarts", "n_queries", "p_init", "loss", "rescale_schedule", "targeted"),
}
ATTRIBUTE = {"apgd-ce": "apgd", "apgd-t": "apgd_targeted", "fab-t": "fab", "square": "square"}


def network(classes: int = 10) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = nn.Sequential(nn.Flatten(), nn.Linear(192, 24), nn.ReLU(inplace=True), nn.Linear(24, classes)).eval()
    with torch.no_grad():
        model[3].bias -= model(some_images()).mean(0)  # so that every class is somebody's
    return model


def some_images(count: int = 8) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", ATTACKS["standard"].attacks)
def test_settings_are_those_of_the_standard_version(name: str, norm: Norm) -> None:
    model, images = network(), some_images(2)
    stock = AutoAttack(model, eps=0.1, norm={"linf": "Linf", "l2": "L2"}[norm], seed=7, version="standard")
    theirs = getattr(stock, ATTRIBUTE[name])
    with open_model(model, images) as calls:
        ours = _attack(FoolboxBridge(calls), name, images, Threat(norm, 0.1), seed=7)
    assert type(ours) is type(theirs)
    for setting in (*SETTINGS[name], "norm", "eps", "seed", "verbose"):
        assert getattr(ours, setting) == getattr(theirs, setting), setting
    assert str(ours.device) == "cpu"


@pytest.mark.parametrize(
    ("name", "norm", "epsilon"),
    [
        ("apgd-ce", "linf", 0.01),
        ("apgd-ce", "l2", 0.12),
        ("apgd-dlr", "linf", 0.01),
        ("apgd-t", "linf", 0.01),
        ("fab-t", "l2", 0.12),
    ],
)
@pytest.mark.usefixtures("short_attacks")
def test_results_are_those_of_pyautoattack(name: str, norm: Norm, epsilon: float) -> None:
    """To the last bit, without convolutions; where APGD breaks an image, ours is the first such point, theirs the last."""
    model, images = network(4), some_images(6)
    labels = model(images).argmax(1)
    stock = AutoAttack(model, eps=epsilon, norm={"linf": "Linf", "l2": "L2"}[norm], seed=3, version="custom", attacks=[name])
    stock.apgd.n_restarts = 1
    stock.apgd_targeted.n_target_classes = stock.fab.n_target_classes = 3
    theirs, _ = stock.run_standard_evaluation(images, labels, batch_size=6)
    with open_model(model, images) as calls:
        ours = run_attack(calls, name, images, labels, Threat(norm, epsilon), seed=3)
    allowed = (ours - images).flatten(1).norm(float("inf") if norm == "linf" else 2, dim=1) <= epsilon * 1.0001
    broken = (model(theirs).argmax(1) != labels) & allowed
    assert 1 <= int(broken.sum()) < 6  # a test in which all or none fall would say little
    assert torch.equal((model(ours).argmax(1) != labels) & allowed, broken)
    kept = ~broken if name in ATTACKS["paper"].attacks else torch.ones_like(broken)
    assert torch.equal(ours[kept], theirs[kept])


@pytest.mark.parametrize("name", ATTACKS["paper"].attacks)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_broken_images_are_not_evaluated_again(name: str, norm: Norm) -> None:
    """The other images' steps do not change, and a broken image costs one gradient per step until it breaks."""
    model, images = network(4), some_images(6)
    labels = model(images).argmax(1)
    threat = Threat(norm, 0.01 if norm == "linf" else 0.12)

    def run(**more: Any) -> tuple[Tensor, int]:
        with open_model(model, images) as calls:
            points = run_attack(calls, name, images, labels, threat, seed=3, **more)
            return points, calls.gradients

    points, gradients = run()
    everything, all_gradients = run(unbroken=lambda predictions: torch.ones_like(predictions, dtype=torch.bool))
    broken = model(points).argmax(1) != labels
    assert torch.equal(broken, model(everything).argmax(1) != labels)
    assert 1 <= int(broken.sum()) < 6
    assert all_gradients == 6 * 101
    held = 6 - int(broken.sum())
    assert held * 101 < gradients < held * 101 + int(broken.sum()) * 101
    assert torch.equal(points[~broken], everything[~broken])


def test_no_gradients_once_all_images_are_broken() -> None:
    model, images = network(4), some_images(6)
    labels = model(images).argmax(1)
    with open_model(model, images) as calls:
        points = run_attack(calls, "apgd-ce", images, labels, Threat("linf", 1.0), seed=3)
        assert calls.gradients < 6 * 5
    assert (model(points).argmax(1) != labels).all()


def test_a_point_must_leave_every_accepted_class() -> None:
    model, images = network(4), some_images(6)
    labels = model(images).argmax(1)
    second = model(images).topk(2).indices[:, 1]

    def unbroken(predictions: Tensor) -> Tensor:
        return torch.stack([predictions == labels, predictions == second]).any(0)

    with open_model(model, images) as calls:
        points = run_attack(calls, "apgd-ce", images, labels, Threat("linf", 1.0), seed=3, unbroken=unbroken)
    assert int((~unbroken(model(points).argmax(1))).sum()) >= 4


@pytest.mark.parametrize(("name", "loss"), [("pgd-ce", "ce"), ("pgd-margin", "margin")])
def test_plain_attacks_are_pgd(name: str, loss: Loss) -> None:
    model, images = network(), some_images(4)
    labels = model(images).argmax(1)
    with open_model(model, images) as calls:
        ours = run_attack(calls, name, images, labels, Threat("l2", 0.02), seed=5)
    assert torch.equal(ours, pgd(model, images, labels, 0.02, "l2", steps=20, loss=loss, seed=5))
    other: Loss = "ce" if loss == "margin" else "margin"
    assert not torch.equal(ours, pgd(model, images, labels, 0.02, "l2", steps=20, loss=other, seed=5))


@pytest.mark.usefixtures("short_attacks")
def test_square_finds_points_without_gradients() -> None:
    model, images = network(), some_images()
    labels = model(images).argmax(1)
    with open_model(model, images) as calls:
        points = run_attack(calls, "square", images, labels, Threat("linf", 0.05), seed=0)
        assert calls.gradients == 0
    assert (model(points).argmax(1) != labels).any()
    assert (points - images).abs().max() <= 0.05001


def test_few_classes_have_no_dlr_loss() -> None:
    assert attacks_of("paper", 3) == (("apgd-ce", "apgd-dlr"), None)
    assert attacks_of("standard", 4) == (ATTACKS["standard"].attacks, None)
    assert attacks_of("pgd20", 2) == (("pgd-ce",), None)
    three, caveat = attacks_of("standard", 3)
    assert three == ("apgd-ce", "apgd-dlr", "fab-t", "square")
    assert caveat is not None
    assert caveat.kind == "few classes"
    assert "needs more than 3 classes" in caveat.text
    assert attacks_of("standard", 2)[0] == ("apgd-ce", "fab-t", "square")
    assert attacks_of("paper", 2)[0] == ("apgd-ce",)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.usefixtures("short_attacks")
def test_targeted_attacks_run_with_few_classes(classes: int) -> None:
    model, images = network(classes), some_images(2)
    labels = model(images).argmax(1)
    names = [name for name in attacks_of("standard", classes)[0] if name != "square"]
    with open_model(model, images) as calls:
        for name in names:
            points = run_attack(calls, name, images, labels, Threat("linf", 0.1), seed=0)
            assert (model(points).argmax(1) != labels).all(), name


def test_no_more_targets_than_there_are_classes() -> None:
    images = some_images(1)
    for classes, targets in ((4, 3), (10, 9), (12, 9)):
        model = network(classes)
        with open_model(model, images) as calls:
            for name in ("apgd-t", "fab-t"):
                attack = _attack(FoolboxBridge(calls), name, images, Threat("linf", 0.1), seed=0)
                assert attack.n_target_classes == targets


def test_small_images_and_square_in_l2() -> None:
    images = torch.rand(1, 3, 4, 8)
    check_sizes(("square",), Threat("linf", 0.1), images)
    check_sizes(("apgd-ce",), Threat("l2", 0.1), images)
    with pytest.raises(ValueError, match="`images` must be 5 pixels high or more for the Square attack in l2"):
        check_sizes(("square",), Threat("l2", 0.1), images)


def test_zero_gradients_are_a_caveat() -> None:
    def flat(images: Tensor) -> Tensor:
        return (images.flatten(1)[:, :4] * 3).round()

    images = some_images(2)
    caveats: list[Caveat] = []
    with open_model(flat, images) as calls:
        run_attack(calls, "apgd-dlr", images, flat(images).argmax(1), Threat("linf", 0.01), on_caveat=caveats.append)
    assert caveats == [ZERO_GRADIENTS]


@pytest.mark.parametrize("name", ["apgd-ce", "apgd-t", "fab-t", "square", "pgd-ce"])
@pytest.mark.usefixtures("short_attacks")
def test_nothing_of_the_caller_changes(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    model: Any = small_network().train()
    images, labels = some_images(3), torch.tensor([0, 1, 2])
    copies = images.clone(), labels.clone()
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate(), sys.gettrace()  # type: ignore[index]
    statistics = model[1].running_mean.clone()
    with open_model(model, images) as calls:
        run_attack(calls, name, images, labels, Threat("linf", 0.05), seed=9)
        assert torch.equal(torch.get_rng_state(), before[0])  # already here, where `open_model` has not restored it yet
    assert (np.random.get_state()[1] == before[1]).all()  # type: ignore[index]
    assert random.getstate() == before[2]
    assert sys.gettrace() is before[3]
    assert model[1].training
    assert torch.equal(model[1].running_mean, statistics)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(images, copies[0])
    assert torch.equal(labels, copies[1])
    assert not images.requires_grad
    assert capfd.readouterr() == ("", "")
