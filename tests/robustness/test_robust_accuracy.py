"""Robust accuracy against the closed form of linear models, with a store that is killed, damaged and misused."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from known_models import linear_model, small_network
from torch import Tensor, nn

from locality import load_dataset
from locality.robustness import attack_batches
from locality.robustness.autoattack import Threat
from locality.robustness.robust_accuracy import robust_accuracy
from locality.types import Batch


@dataclass(frozen=True)
class Case:
    """A linear model, images, their labels, and for each the ℓ∞ distance to the nearest other class."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    limits: Tensor

    def epsilon_breaking(self, count: int) -> float:
        return float(self.limits.sort().values[count - 1 : count + 1].mean())


@pytest.fixture(scope="module")
def case() -> Case:
    """Robust iff the margin to every class j exceeds ε‖w_y − w_j‖₁; no pixel is near 0 or 1."""
    generator = torch.Generator().manual_seed(6)
    model = nn.Sequential(nn.Flatten(), nn.Linear(75, 5))
    images = 0.3 + 0.4 * torch.rand(10, 3, 5, 5, generator=generator)
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(5, 75, generator=generator))
        model[1].bias.copy_(-(images.flatten(1) @ model[1].weight.T).mean(0))
        logits = model(images)
        weights = model[1].weight
        labels = logits.argmax(1)
        margins = logits.gather(1, labels[:, None]) - logits
        reach = (weights[labels][:, None] - weights[None]).abs().sum(2)
        limits = (margins / reach).scatter(1, labels[:, None], torch.inf).amin(1)
    return Case(model, images, labels, limits)


@pytest.mark.parametrize(("attack", "fallen"), [("paper", 6), ("pgd20", 5), ("cw20", 5)])
def test_linf_follows_the_closed_form(case: Case, attack: Any, fallen: int) -> None:
    epsilon = case.epsilon_breaking(fallen)
    result = robust_accuracy(case.model, case.images, case.labels, epsilon=epsilon, attack=attack, batch_size=4)
    assert result.clean.all()
    assert result.robust.tolist() == (case.limits > epsilon).tolist()
    assert result.accuracy == pytest.approx(1 - fallen / 10)
    assert sum(result.broken.values()) == fallen
    assert result.warnings == ()
    assert (result.attack, result.epsilon, result.norm, result.batch_size, result.seed) == (attack, epsilon, "linf", 4, 0)


@pytest.mark.usefixtures("short_attacks")
def test_the_whole_of_autoattack_follows_the_closed_form(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    epsilon = case.epsilon_breaking(3)
    chosen = case.limits.argsort()[1:5]
    result = robust_accuracy(case.model, case.images[chosen], case.labels[chosen], epsilon=epsilon, attack="standard")
    assert result.robust.tolist() == [False, False, True, True]
    assert result.attacks == ("apgd-ce", "apgd-t", "fab-t", "square")
    assert sum(result.broken.values()) == 2
    assert result.broken["square"] == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("attack", ["paper", "pgd20", "cw20"])
def test_l2_breaks_what_is_nearer_than_epsilon(attack: Any) -> None:
    model, images, labels, _ = linear_model([0.1, 0.2, 0.28, 0.32, 0.4])
    result = robust_accuracy(model, images, labels, "l2", 0.3, attack)
    assert result.robust.tolist() == [False, False, False, True, True]


def test_wrong_and_unknown_images_are_not_attacked(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = case.labels.clone()
    labels[0] = (labels[0] + 1) % 5
    labels[1] = -1
    seen: list[int] = []
    original = attack_batches.attacked

    def counted(calls: Any, name: str, images: Tensor, *rest: Any) -> Tensor:
        seen.append(len(images))
        return original(calls, name, images, *rest)

    monkeypatch.setattr(attack_batches, "attacked", counted)
    result = robust_accuracy(case.model, case.images, labels, epsilon=1e-4, attack="pgd20")
    assert seen == [8]
    assert result.clean.tolist() == [False, False] + [True] * 8
    assert result.robust.tolist() == [False, False] + [True] * 8
    assert result.undefined == 1
    assert result.clean_accuracy == result.accuracy == pytest.approx(8 / 9)


def test_later_attacks_see_what_is_left(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a point outside the ball, outside [0, 1], or of an accepted class is no success, whatever an attack says."""
    labels, images = case.labels[:4], case.images[:4]
    others = torch.stack([case.images[(case.labels != label).nonzero()[0, 0]] for label in labels])  # of another class
    seen: list[tuple[str, int]] = []

    def scripted(calls: Any, name: str, given: Tensor, *_: Any) -> Tensor:
        seen.append((name, len(given)))
        points = given.clone()
        if name == "apgd-ce":
            points[0], points[2] = others[0], others[2]
        else:
            points[0] = others[1] + 2.0  # not a pixel
        return points

    monkeypatch.setattr(attack_batches, "attacked", scripted)
    far = float((others - images).abs().amax()) + 0.1
    result = robust_accuracy(case.model, images, labels, epsilon=min(far, 1.0))
    assert seen == [("apgd-ce", 4), ("apgd-dlr", 2)]
    assert result.broken_by.tolist() == [0, -1, 0, -1]
    assert result.robust.tolist() == [False, True, False, True]
    near = float((others - images).flatten(1).abs().amax(1)[[0, 2]].min()) * 0.99
    assert robust_accuracy(case.model, images, labels, epsilon=near).robust.all()


class Several:
    """A data set whose images accept several labels, or none."""

    def __init__(self, case: Case, accepted: list[tuple[int, ...]]) -> None:
        self.case, self.accepted = case, accepted

    def __len__(self) -> int:
        return len(self.accepted)

    def batch(self, places: Any) -> Batch:
        rows = list(places)
        accepted = tuple(self.accepted[row] for row in rows)
        labels = torch.tensor([labels[0] if labels else -1 for labels in accepted])
        names = tuple(f"image {row}" for row in rows)
        return Batch(names, self.case.images[rows], labels, torch.zeros(len(rows), 1, 5, 5), ((),) * len(rows), accepted)


def test_an_image_may_accept_several_labels(case: Case) -> None:
    own = case.labels.tolist()
    with torch.no_grad():
        epsilon = float(case.limits.max()) * 1.3
        single = robust_accuracy(case.model, case.images, case.labels, epsilon=epsilon, attack="cw20")
        assert not single.robust.any()
        # Nothing leaves all five classes; and a prediction that is the second label accepted is correct.
        accepted: list[tuple[int, ...]] = [(0, 1, 2, 3, 4), ((own[1] + 1) % 5, own[1]), (), ((own[3] + 1) % 5,)]
        data: Any = Several(case, accepted)
        result = robust_accuracy(case.model, data, epsilon=epsilon, attack="cw20", batch_size=3)
    assert result.ids == ("image 0", "image 1", "image 2", "image 3")
    assert result.clean.tolist() == [True, True, False, False]
    assert result.robust.tolist()[0] is True
    assert result.labels.tolist() == [0, (own[1] + 1) % 5, -1, (own[3] + 1) % 5]
    assert result.undefined == 1


def test_a_data_set_and_its_tensors_give_the_same() -> None:
    data = load_dataset("shapes", limit=6, count=20)
    batch = data.batch(range(6))
    model = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(192, 10, bias=False))
    with torch.no_grad():
        features = model[:2](batch.images)
        model[2].weight.zero_().index_add_(0, batch.labels, features - features.mean(0))  # right, or nearly so
    given: Any = {"epsilon": 0.02, "attack": "pgd20", "batch_size": 4}
    one, other = robust_accuracy(model, data, **given), robust_accuracy(model, batch.images, batch.labels, **given)
    assert one.ids == batch.ids
    assert one.clean.any()
    assert torch.equal(one.predictions, other.predictions)
    assert torch.equal(one.broken_by, other.broken_by)
    assert torch.equal(one.labels, batch.labels)


def test_nothing_of_the_caller_changes() -> None:
    model: Any = small_network().train()
    images, labels = torch.rand(4, 3, 8, 8), torch.arange(4)
    copy = images.clone()
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index,union-attr]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    robust_accuracy(model, images, labels, epsilon=0.1)
    assert torch.equal(images, copy)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # type: ignore[index]
    assert random.getstate() == before[2]
    assert model[1].training
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.fixture
def attacks_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images of every attack that really ran."""
    seen: list[int] = []
    original = attack_batches.attacked

    def counted(calls: Any, name: str, images: Tensor, *rest: Any) -> Tensor:
        seen.append(len(images))
        return original(calls, name, images, *rest)

    monkeypatch.setattr(attack_batches, "attacked", counted)
    return seen


def test_a_killed_run_goes_on_where_it_stopped(case: Case, tmp_path: Path, attacks_run: list[int]) -> None:
    given: Any = {"epsilon": case.epsilon_breaking(5), "attack": "pgd20", "batch_size": 3}
    whole = robust_accuracy(case.model, case.images, case.labels, **given)
    assert attacks_run == [3, 3, 3, 1]
    attacks_run.clear()

    def killed(done: int, total: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        robust_accuracy(case.model, case.images, case.labels, store=tmp_path, progress=killed, **given)
    assert attacks_run == [3, 3]
    done: list[tuple[int, int]] = []
    again = robust_accuracy(
        case.model, case.images, case.labels, store=tmp_path, progress=lambda *numbers: done.append(numbers), **given
    )
    assert attacks_run == [3, 3, 3, 1]
    assert done == [(3, 10), (6, 10), (9, 10), (10, 10)]
    assert torch.equal(again.broken_by, whole.broken_by)
    assert torch.equal(again.robust, whole.robust)
    stored = [json.loads(path.read_text()) for path in tmp_path.glob("*.json") if "examination" not in path.name]
    assert len(stored) == 4
    assert {tuple(one["ids"]) for one in stored} == {("0", "1", "2"), ("3", "4", "5"), ("6", "7", "8"), ("9",)}
    assert all(one["settings"]["epsilon"] == given["epsilon"] for one in stored)
    # More images of the same kind need only the new ones; a damaged file is done again.
    extended = torch.cat([case.images[:9], case.images[:2].flip(0)]), torch.cat([case.labels[:9], case.labels[:2].flip(0)])
    next(path for path in tmp_path.glob("*.json") if json.loads(path.read_text()).get("ids") == ["3", "4", "5"]).write_text(
        "{"
    )
    attacks_run.clear()
    robust_accuracy(case.model, *extended, store=tmp_path, **given)
    assert attacks_run == [3, 2]


def test_any_other_setting_starts_anew(case: Case, tmp_path: Path, attacks_run: list[int]) -> None:
    other = nn.Sequential(nn.Flatten(), nn.Linear(75, 5))
    other.load_state_dict(case.model.state_dict())
    with torch.no_grad():
        other[1].weight[0, 0] += 1e-6
    moved = case.images.clone()
    moved[0, 0, 0, 0] += 1e-6
    given: dict[str, Any] = {"model": case.model, "images": case.images, "labels": case.labels, "epsilon": 1e-3}
    given |= {"attack": "pgd20", "batch_size": 10, "store": tmp_path}
    robust_accuracy(**given)
    robust_accuracy(**given)
    assert len(attacks_run) == 1
    changes: list[dict[str, Any]] = [
        {"epsilon": 1.0001e-3},
        {"norm": "l2"},
        {"attack": "cw20"},
        {"seed": 1},
        {"batch_size": 11},
        {"model": other},
        {"images": moved},
        {"labels": torch.cat([case.labels[:9], torch.tensor([-1])])},
    ]
    for number, change in enumerate(changes):
        robust_accuracy(**(given | change))
        assert len(attacks_run) == number + 2, change


class Switched(nn.Module):
    """A model whose answer depends on something that no hash of it sees."""

    sign = 1.0

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits * Switched.sign


def test_other_predictions_are_never_taken_for_the_same(
    case: Case, tmp_path: Path, attacks_run: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Switched(case.model)
    first = robust_accuracy(model, case.images, case.labels, epsilon=1e-4, attack="pgd20", store=tmp_path)
    assert first.clean.all()
    monkeypatch.setattr(Switched, "sign", -1.0)
    second = robust_accuracy(model, case.images, case.labels, epsilon=1e-4, attack="pgd20", store=tmp_path)
    assert not second.clean.any()


def test_the_device_is_the_caller_s_choice(case: Case) -> None:
    result = robust_accuracy(case.model, case.images, case.labels, epsilon=1e-4, attack="pgd20", device="cpu")
    assert result.provenance["device"] == "cpu"
    assert len(result.provenance["model"]) == 64
    doubled = robust_accuracy(lambda images: 2 * case.model(images), case.images, case.labels, epsilon=1e-4, attack="pgd20")
    assert doubled.provenance["model"] == ""
    assert doubled.clean.all()


def test_doubts_are_kept_with_the_result_and_told_again(case: Case, tmp_path: Path) -> None:
    class Saturated(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = case.model(images)
            return logits * 1e6

    for _ in range(2):  # the second time from the store
        with pytest.warns(UserWarning, match="exactly zero at 10 of 10 images"):
            result = robust_accuracy(
                Saturated(), case.images, case.labels, epsilon=1e-3, attack="pgd20", store=tmp_path / "saturated"
            )
        assert len(result.warnings) == 1
    soft = nn.Sequential(case.model, nn.Softmax(dim=1))
    with pytest.warns(UserWarning, match="returns probabilities") as caught:
        result = robust_accuracy(soft, case.images, case.labels, epsilon=1e-3, attack="pgd20")
    assert len(caught) == 1
    assert result.warnings == ("the model returns probabilities, not logits: gradients vanish behind a softmax, remove it",)


def test_two_classes_say_what_runs() -> None:
    model, images, labels, _ = linear_model([0.1, 0.3], classes=2)
    with pytest.warns(UserWarning, match="`attack` paper runs as apgd-ce: the DLR loss of paper needs more than 2 classes"):
        result = robust_accuracy(model, images, labels, "l2", 0.2)
    assert result.attacks == ("apgd-ce",)
    assert result.robust.tolist() == [False, True]


def test_square_breaking_more_is_a_doubt(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    other = case.images[(case.labels != case.labels[0]).nonzero()[0, 0]]

    def scripted(calls: Any, name: str, images: Tensor, labels: Tensor, threat: Threat, note: Any, holds: Any) -> Tensor:
        return other.expand_as(images) if name == "square" else images

    monkeypatch.setattr(attack_batches, "attacked", scripted)
    with pytest.warns(UserWarning, match="the Square attack, which needs no gradients, broke 1 of 1 images"):
        result = robust_accuracy(case.model, case.images[:1], case.labels[:1], epsilon=1.0, attack="standard")
    assert result.broken["square"] == 1


def test_too_large_a_batch_says_so(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")

    monkeypatch.setattr(attack_batches, "attacked", full)
    with pytest.raises(ValueError, match="`batch_size` must fit into memory, got 7: pass a smaller one"):
        robust_accuracy(case.model, case.images, case.labels, epsilon=1e-3, batch_size=7)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"epsilon": -1.0}, "`epsilon` must be a positive distance"),
        ({"epsilon": 8}, r"did you mean 8/255\?"),
        ({"norm": "l1"}, "`norm` must be one of linf, l2"),
        (
            {"attack": "standart"},
            "`attack` must be one of paper, standard, pgd20, cw20, got 'standart': did you mean 'standard'",
        ),
        ({"batch_size": 0}, "`batch_size` must be a whole number"),
        ({"labels": None}, "`labels` must be a tensor of 10 whole class numbers"),
        ({"labels": torch.zeros(10)}, "`labels` must be a tensor of 10 whole class numbers"),
        ({"labels": torch.zeros(9, dtype=torch.int64)}, "`labels` must be a tensor of 10 whole class numbers"),
        ({"labels": torch.full((10,), 5)}, "must be a class from 0 to 4, got 5"),
        ({"images": torch.full((10, 3, 5, 5), 2.0)}, r"`images` must lie in \[0, 1\]"),
        ({"images": torch.rand(0, 3, 5, 5), "labels": torch.zeros(0, dtype=torch.int64)}, "at least one image"),
        ({"model": lambda images: images.flatten(1), "store": "somewhere"}, "`store` needs a model that can be hashed"),
    ],
)
def test_bad_input(case: Case, change: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"model": case.model, "images": case.images, "labels": case.labels, "attack": "pgd20"}
    with pytest.raises(ValueError, match=sentence):
        robust_accuracy(**(given | change))
    data: Any = Several(case, [(0,)])
    with pytest.raises(ValueError, match="`labels` are part of the data set"):
        robust_accuracy(case.model, data, case.labels)
