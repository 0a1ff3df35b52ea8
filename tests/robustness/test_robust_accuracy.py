"""Robust accuracy against the closed form of linear models; interrupted runs; a damaged or misused store."""

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
from locality.robustness.autoattack import ZERO_GRADIENTS, run_attack
from locality.robustness.robust_accuracy import RobustAccuracy, robust_accuracy
from locality.statistics import wilson_interval
from locality.types import ABSTAINED, Batch, Threat


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
    linear = nn.Linear(75, 5)
    model = nn.Sequential(nn.Flatten(), linear)
    images = 0.3 + 0.4 * torch.rand(10, 3, 5, 5, generator=generator)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(5, 75, generator=generator))
        linear.bias.copy_(-(images.flatten(1) @ linear.weight.T).mean(0))
        logits = model(images)
        weights = linear.weight
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
    assert (result.attack, result.threat, result.batch_size, result.seed) == (attack, Threat("linf", epsilon), 4, 0)


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

    def counted(calls: Any, name: str, images: Tensor, *rest: Any, **options: Any) -> Tensor:
        seen.append(len(images))
        return run_attack(calls, name, images, *rest, **options)

    monkeypatch.setattr(attack_batches, "run_attack", counted)
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

    def scripted(calls: Any, name: str, given: Tensor, *_: Any, **__: Any) -> Tensor:
        seen.append((name, len(given)))
        points = given.clone()
        if name == "apgd-ce":
            points[0], points[2] = others[0], others[2]
        else:
            points[0] = others[1] + 2.0  # not a pixel
        return points

    monkeypatch.setattr(attack_batches, "run_attack", scripted)
    far = float((others - images).abs().amax()) + 0.1
    result = robust_accuracy(case.model, images, labels, epsilon=min(far, 1.0))
    assert seen == [("apgd-ce", 4), ("apgd-dlr", 2)]
    assert result.broken_by.tolist() == [0, -1, 0, -1]
    assert result.robust.tolist() == [False, True, False, True]
    near = float((others - images).flatten(1).abs().amax(1)[[0, 2]].min()) * 0.99
    assert robust_accuracy(case.model, images, labels, epsilon=near).robust.all()


def batch_of(case: Case, accepted: list[tuple[int, ...]]) -> Batch:
    """The first images, which accept several labels, or none."""
    labels = torch.tensor([labels[0] if labels else -1 for labels in accepted])
    ids = tuple(f"image {row}" for row in range(len(accepted)))
    masks = torch.zeros(len(accepted), 1, 5, 5)
    return Batch(ids, case.images[: len(accepted)], labels, masks, ((),) * len(accepted), tuple(accepted))


def test_an_image_may_accept_several_labels(case: Case) -> None:
    own = case.labels.tolist()
    with torch.no_grad():
        epsilon = float(case.limits.max()) * 1.3
        single = robust_accuracy(case.model, case.images, case.labels, epsilon=epsilon, attack="cw20")
        assert not single.robust.any()
        # Nothing leaves all five classes; and a prediction that is the second label accepted is correct.
        accepted: list[tuple[int, ...]] = [(0, 1, 2, 3, 4), ((own[1] + 1) % 5, own[1]), (), ((own[3] + 1) % 5,)]
        result = robust_accuracy(case.model, batch_of(case, accepted), epsilon=epsilon, attack="cw20", batch_size=3)
    assert result.ids == ("image 0", "image 1", "image 2", "image 3")
    assert result.clean.tolist() == [True, True, False, False]
    assert result.robust.tolist()[0] is True
    assert result.labels.tolist() == [0, (own[1] + 1) % 5, -1, (own[3] + 1) % 5]
    assert result.undefined == 1


def test_a_data_set_and_its_tensors_give_the_same() -> None:
    data = load_dataset("shapes", limit=6, count=20)
    batch = data.batch(range(6))
    model: Any = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(192, 10, bias=False))
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
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index]
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

    def counted(calls: Any, name: str, images: Tensor, *rest: Any, **options: Any) -> Tensor:
        seen.append(len(images))
        return run_attack(calls, name, images, *rest, **options)

    monkeypatch.setattr(attack_batches, "run_attack", counted)
    return seen


def test_an_interrupted_run_resumes(case: Case, tmp_path: Path, attacks_run: list[int]) -> None:
    given: Any = {"epsilon": case.epsilon_breaking(5), "attack": "pgd20", "batch_size": 3}
    whole = robust_accuracy(case.model, case.images, case.labels, **given)
    assert attacks_run == [3, 3, 3, 1]
    attacks_run.clear()

    def killed(done: int, total: int | None) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        robust_accuracy(case.model, case.images, case.labels, store=tmp_path, progress=killed, **given)
    assert attacks_run == [3, 3]
    done: list[tuple[int, int | None]] = []
    again = robust_accuracy(
        case.model, case.images, case.labels, store=tmp_path, progress=lambda *report: done.append(report), **given
    )
    assert attacks_run == [3, 3, 3, 1]
    assert done == [(0, 10), (3, 10), (6, 10), (9, 10), (10, 10)]
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


def test_any_other_setting_starts_from_the_beginning(case: Case, tmp_path: Path, attacks_run: list[int]) -> None:
    other: Any = nn.Sequential(nn.Flatten(), nn.Linear(75, 5))
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


def test_caveats_are_stored_with_the_result_and_repeated(case: Case, tmp_path: Path) -> None:
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


def test_caveats_of_an_attack_are_warnings_once_also_from_the_store(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubtful(calls: Any, name: str, images: Tensor, *_: Any, on_caveat: Any, **__: Any) -> Tensor:
        on_caveat(ZERO_GRADIENTS)
        return images

    monkeypatch.setattr(attack_batches, "run_attack", doubtful)
    for _ in range(2):
        with pytest.warns(UserWarning, match="the gradient is exactly zero at some points") as caught:
            result = robust_accuracy(case.model, case.images, case.labels, epsilon=1e-3, batch_size=4, store=tmp_path)
        assert len(caught) == 1
        assert result.warnings == (ZERO_GRADIENTS.text,)


def test_with_two_classes_a_warning_says_what_runs() -> None:
    model, images, labels, _ = linear_model([0.1, 0.3], classes=2)
    with pytest.warns(UserWarning, match="`attack` paper runs as apgd-ce: the DLR loss of paper needs more than 2 classes"):
        result = robust_accuracy(model, images, labels, "l2", 0.2)
    assert result.attacks == ("apgd-ce",)
    assert result.robust.tolist() == [False, True]


def test_square_breaking_more_is_a_caveat(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    other = case.images[(case.labels != case.labels[0]).nonzero()[0, 0]]

    def scripted(calls: Any, name: str, images: Tensor, *_: Any, **__: Any) -> Tensor:
        return other.expand_as(images) if name == "square" else images

    monkeypatch.setattr(attack_batches, "run_attack", scripted)
    with pytest.warns(UserWarning, match="the Square attack, which needs no gradients, broke 1 of 1 images"):
        result = robust_accuracy(case.model, case.images[:1], case.labels[:1], epsilon=1.0, attack="standard")
    assert result.broken["square"] == 1


def test_too_large_a_batch_says_so(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")

    monkeypatch.setattr(attack_batches, "run_attack", full)
    with pytest.raises(ValueError, match="`batch_size` must be small enough for memory, got 7: pass a smaller one"):
        robust_accuracy(case.model, case.images, case.labels, epsilon=1e-3, batch_size=7)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"epsilon": -1.0}, "`epsilon` must be a positive distance"),
        ({"epsilon": 8}, r"did you mean 8/255\?"),
        ({"norm": "l1"}, "`norm` must be one of l2, linf"),
        (
            {"attack": "standart"},
            "`attack` must be one of paper, standard, rays, pgdN, cwN, raysN, got 'standart': did you mean 'standard'",
        ),
        ({"batch_size": 0}, "`batch_size` must be a whole number"),
        ({"labels": None}, "`labels` must be a tensor of 10 whole class numbers"),
        ({"labels": torch.zeros(10)}, "`labels` must be a tensor of 10 whole class numbers"),
        ({"labels": torch.zeros(9, dtype=torch.int64)}, "`labels` must be a tensor of 10 whole class numbers"),
        ({"labels": torch.full((10,), 5)}, "must be a class from 0 to 4, got 5"),
        ({"images": torch.full((10, 3, 5, 5), 2.0)}, r"`images` must be in \[0, 1\]"),
        ({"images": torch.rand(0, 3, 5, 5), "labels": torch.zeros(0, dtype=torch.int64)}, "at least one image"),
        ({"model": lambda images: images.flatten(1), "store": "somewhere"}, "`store` needs a model that can be hashed"),
    ],
)
def test_bad_input(case: Case, change: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"model": case.model, "images": case.images, "labels": case.labels, "attack": "pgd20"}
    with pytest.raises(ValueError, match=sentence):
        robust_accuracy(**(given | change))
    with pytest.raises(ValueError, match="`labels` are part of the data"):
        robust_accuracy(case.model, batch_of(case, [(0,)]), case.labels)


# --- The result ---


def result(**changes: Any) -> RobustAccuracy:
    given: dict[str, Any] = {
        "ids": ("a", "b", "c", "d"),
        "labels": torch.tensor([0, 1, -1, 2]),
        "predictions": torch.tensor([0, 1, 1, 0]),
        "clean": torch.tensor([True, True, False, False]),
        "broken_by": torch.tensor([-1, 1, -1, -1]),
        "distances": torch.full((4,), torch.nan),
        "attacks": ("apgd-ce", "apgd-dlr"),
        "threat": Threat("linf", 4 / 255),
        "attack": "paper",
        "batch_size": 32,
        "seed": 0,
        "warnings": (),
        "provenance": {"torch": "2"},
    }
    return RobustAccuracy(**(given | changes))


def test_unknown_classes_are_counted_and_left_out() -> None:
    shares = result()
    assert [shares.clean_accuracy, shares.accuracy] == pytest.approx([2 / 3, 1 / 3])
    assert shares.undefined == 1
    assert shares.interval == wilson_interval(1, 3)
    assert shares.clean_interval == wilson_interval(2, 3)
    assert shares.broken == {"apgd-ce": 0, "apgd-dlr": 1}


def test_one_row_per_image() -> None:
    rows = result().rows
    columns = ["image_id", "label", "prediction", "abstained", "correct", "robust", "broken_by"]
    assert rows.columns.tolist() == columns
    assert rows["correct"].isna().tolist() == rows["robust"].isna().tolist() == [False, False, True, False]
    assert rows["robust"].fillna(False).tolist() == [True, False, False, False]
    assert rows["broken_by"].tolist() == ["", "apgd-dlr", "", ""]
    assert not rows["abstained"].any()


def test_the_summary_is_json_even_if_nothing_is_defined() -> None:
    summary = json.loads(json.dumps(result().to_json(), allow_nan=False))
    assert summary["n"] == 4
    assert summary["robust"] == {"mean": 1 / 3, "low": wilson_interval(1, 3)[0], "high": wilson_interval(1, 3)[1]}
    assert summary["clean"]["mean"] == 2 / 3
    nothing = result(labels=torch.full((4,), -1), clean=torch.zeros(4) > 0).to_json()
    assert json.loads(json.dumps(nothing, allow_nan=False))["robust"] == {"mean": None, "low": None, "high": None}
    assert nothing["undefined"] == 4


class Hesitant(nn.Module):
    """Declines to decide where the margin is small."""

    def __init__(self, model: nn.Module, margin: float) -> None:
        super().__init__()
        self.model, self.margin = model, margin

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits

    def abstains(self, logits: Tensor) -> Tensor:
        first, second = logits.topk(2).values.unbind(1)
        return first - second < self.margin


def test_abstentions_are_neither_right_nor_attacked(case: Case) -> None:
    margins = case.model(case.images).topk(2).values.diff(dim=1).abs()[:, 0].detach()
    order = margins.argsort()
    threshold = float(margins[order[2:4]].mean())  # three abstain
    result = robust_accuracy(Hesitant(case.model, threshold), case.images, case.labels, epsilon=1e-5, attack="pgd20")
    assert sorted(result.abstained.nonzero()[:, 0].tolist()) == sorted(order[:3].tolist())
    assert (result.predictions[order[:3]] == ABSTAINED).all()
    assert result.to_json()["abstained"] == 3
    assert result.clean_accuracy == result.accuracy == pytest.approx(0.7)
    assert result.rows["abstained"].sum() == 3
    # An attack that makes the model abstain has broken the image.
    barely = float(margins[order[3]]) * 0.9999
    epsilon = float(case.limits[order[3]]) * 0.5
    attacked = robust_accuracy(Hesitant(case.model, barely), case.images, case.labels, epsilon=epsilon, attack="cw20")
    plain = robust_accuracy(case.model, case.images, case.labels, epsilon=epsilon, attack="cw20")
    assert attacked.clean[order[3]]
    assert plain.robust[order[3]]
    assert not attacked.robust[order[3]]


def test_a_batch_is_attacked_like_its_tensors(case: Case) -> None:
    batch = batch_of(case, [(label,) for label in case.labels.tolist()])
    epsilon = case.epsilon_breaking(5)
    one = robust_accuracy(case.model, batch, epsilon=epsilon, attack="pgd20", batch_size=4)
    other = robust_accuracy(case.model, case.images, case.labels, epsilon=epsilon, attack="pgd20", batch_size=4)
    assert one.ids == batch.ids
    assert torch.equal(one.broken_by, other.broken_by)
    assert 0 < one.accuracy < 1
