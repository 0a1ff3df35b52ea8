"""Transfer: a model as its own surrogate is PGD; linear models have a closed form; both models must see the same pixels."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from known_models import linear_model, small_network
from torch import Tensor, nn

from locality.errors import ArgumentError
from locality.model_calls import open_model
from locality.perturbation import length, margin
from locality.robustness import transfer
from locality.robustness.pgd import LOSSES, pgd
from locality.robustness.robust_accuracy import robust_accuracy
from locality.robustness.transfer import most_adversarial, transfer_accuracy
from locality.statistics import wilson_interval
from locality.types import Batch, ModelSpec, Threat
from locality.zoo.pixel_model import PixelModel


def network_case() -> tuple[nn.Module, Tensor, Tensor]:
    model = small_network().eval()
    images = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        labels = model(images).argmax(1)
    labels[:4] = (labels[:4] + 1) % 5  # wrong without attack
    return model, images, labels


@pytest.mark.parametrize("attack", ["pgd20", "cw20", "pgd3"])
@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.01), ("l2", 0.15)])
def test_a_model_as_its_own_surrogate_is_pgd(attack: str, norm: Any, epsilon: float) -> None:
    model, images, labels = network_case()
    own = robust_accuracy(model, images, labels, norm, epsilon, attack)
    other = transfer_accuracy(model, model, images, labels, norm, epsilon, attack, batch_size=7)
    assert other.clean.equal(own.clean)
    assert other.kept.equal(own.robust)
    assert other.robust.equal(other.surrogate_robust)
    assert 0 < own.robust.sum() < own.clean.sum()


def weighted(*rows: list[float]) -> nn.Module:
    """A linear model of two classes and two pixels."""
    linear = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(rows))
    return nn.Sequential(nn.Flatten(), linear)


@pytest.mark.parametrize("attack", ["pgd20", "cw20"])
def test_linear_models_follow_the_closed_form(attack: str) -> None:
    """The surrogate's attack on a − b ends at (a − ε, b + ε): a margin of a + b does not change, 3a − b falls by 4ε."""
    surrogate = weighted([1.0, 0.0], [0.0, 1.0])
    orthogonal = weighted([1.0, 1.0], [0.0, 0.0])
    steep = weighted([3.0, 0.0], [0.0, 1.0])
    images = torch.tensor([[0.6, 0.5], [0.3, 0.5], [0.5, 0.7]]).view(3, 1, 1, 2)  # 3a − b: 1.3, 0.4, 0.8
    labels = torch.zeros(3, dtype=torch.long)
    fixed = transfer_accuracy(orthogonal, surrogate, images, labels, epsilon=0.15, attack=attack)
    assert fixed.robust.all()
    moved = transfer_accuracy(steep, surrogate, images, labels, epsilon=0.15, attack=attack)
    assert moved.robust.tolist() == [True, False, True]  # 4ε = 0.6
    assert moved.surrogate_clean.tolist() == [True, False, False]
    assert moved.surrogate_robust.tolist() == [False, False, False]
    assert moved.clean.all()
    assert (moved.accuracy, moved.interval) == (2 / 3, wilson_interval(2, 3))


def test_an_image_may_become_right() -> None:
    """Counted in the accuracy, as the paper does, but not among the images that were right before."""
    surrogate, model = weighted([1.0, 0.0], [0.0, 1.0]), weighted([0.0, 1.0], [1.0, 0.0])  # opposites
    images = torch.tensor([[0.6, 0.5], [0.4, 0.5]]).view(2, 1, 1, 2)
    result = transfer_accuracy(model, surrogate, images, torch.zeros(2, dtype=torch.long), epsilon=0.2)
    assert result.clean.tolist() == [False, True]
    assert result.robust.tolist() == [True, True]
    assert result.kept.tolist() == [False, True]
    assert result.shares["robust"] == (2, 2)
    assert result.shares["robust_among_clean"] == (1, 1)


def test_the_walk_goes_on_and_the_smallest_margin_counts() -> None:
    model, images, labels = network_case()
    threat = Threat("linf", 0.02)
    with open_model(model, images) as calls:
        points = most_adversarial(calls, images, labels, threat, LOSSES["ce"], 20)
        assert (calls.gradients, calls.forwards) == (20 * 40, 40)
        stopped = pgd(calls, images, labels, 0.02)
        ours, stopping = (margin(calls.logits(point), labels) for point in (points, stopped))
    assert (ours <= stopping + 1e-6).all()
    crossed = stopping < 0
    assert crossed.sum() > 20
    assert ours[crossed].mean() < 2 * stopping[crossed].mean()  # well beyond the boundary
    assert (length(points - images, "linf") <= 0.02 + 1e-6).all()
    assert points.min() >= 0
    assert points.max() <= 1


def test_unknown_classes_and_several_labels() -> None:
    model, images, labels, _ = linear_model([0.2, 0.2, 0.2])
    accepted = ((int(labels[0]), (int(labels[0]) + 1) % 4), (), (int(labels[2]),))
    batch = Batch(("a", "b", "c"), images, labels, images[:, :1] > 2, ((), (), ()), accepted)
    result = transfer_accuracy(model, model, batch, norm="l2", epsilon=0.3)
    assert result.labels.tolist() == [0, -1, 2]
    assert result.known.tolist() == [True, False, True]
    assert result.robust.tolist() == [True, False, False]  # the next class is accepted for the first
    assert result.rows["robust"].isna().tolist() == [False, True, False]
    assert result.to_json()["undefined"] == 1


def test_files_and_resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, labels = network_case()
    other = small_network().eval()
    with torch.no_grad():
        next(other.parameters()).mul_(1.5)
    given: Any = {"epsilon": 0.01, "batch_size": 16, "store": tmp_path / "batches", "name": "other"}
    first = transfer_accuracy(model, other, images, labels, **given)
    paths = first.write(tmp_path, model="mine")
    assert [path.name for path in paths] == ["transfer.csv", "transfer.parquet", "transfer.json"]
    assert len(pd.read_parquet(paths[1])) == 40
    summary = json.loads(paths[2].read_text())
    assert (summary["surrogate"], summary["model"], summary["attack"]) == ("other", "mine", "pgd20")
    assert summary["robust_among_clean"]["mean"] == int(first.kept.sum()) / int(first.clean.sum())
    assert summary["surrogate_robust"]["mean"] < summary["surrogate_clean"]["mean"]
    monkeypatch.setattr(transfer, "most_adversarial", lambda *_, **__: pytest.fail("attacked again"))
    again = transfer_accuracy(model, other, images, labels, **given)
    assert again.rows.equals(first.rows)
    with pytest.raises(pytest.fail.Exception, match="attacked again"):  # another surrogate
        transfer_accuracy(model, model, images, labels, **given)


def specified(**changes: Any) -> PixelModel:
    given: dict[str, Any] = {"input_size": (8, 8), "resize": 8, "classes": ("a", "b", "c", "d", "e")}
    return PixelModel(small_network(), ModelSpec("net", **(given | changes)))


@pytest.mark.parametrize(
    ("surrogate", "given", "sentence"),
    [
        (specified(input_size=(4, 4)), {}, "`surrogate` must be a model of the same `input_size`, (8, 8), got (4, 4): both"),
        (specified(resize=9), {}, "`surrogate` must be a model of the same `resize`, 8, got 9"),
        (specified(classes=("a", "b", "c", "e", "d")), {}, "`surrogate` must be a model of the same classes as net"),
        (weighted([1.0, 0.0], [0.0, 1.0]), {}, "`surrogate` must be a model of 5 classes, as many as the model has, got 2"),
        (specified(), {"attack": "paper"}, "`attack` must be pgdN or cwN with a surrogate, got 'paper': try pgd20"),
        (specified(), {"attack": "rays"}, "`attack` must be pgdN or cwN with a surrogate"),
        (lambda images: images, {"store": "x"}, "`store` must be None for models that cannot be hashed"),
    ],
)
def test_bad_input_is_one_sentence(surrogate: Any, given: dict[str, Any], sentence: str) -> None:
    if isinstance(surrogate, nn.Sequential):
        surrogate = nn.Sequential(nn.AdaptiveAvgPool2d((1, 2)), nn.Conv2d(3, 1, 1), surrogate)
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ArgumentError) as caught:
        transfer_accuracy(specified(mean=(0.0, 0.0, 0.0)), surrogate, images, torch.tensor([0, 1]), **given)
    assert str(caught.value).startswith(sentence)
