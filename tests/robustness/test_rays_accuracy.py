"""Accuracy and mean boundary distance by predicted classes alone: the closed form of a linear model, counts, resuming."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from locality.boundary.rays import TOLERANCE
from locality.errors import ArgumentError
from locality.robustness import attack_batches, attack_title
from locality.robustness.robust_accuracy import robust_accuracy


class HardLabels(nn.Module):
    """Brighter than one half or not; its answers carry no gradient. The ℓ∞ distance is |mean − ½|."""

    def forward(self, images: Tensor) -> Tensor:
        bright = images.detach().mean((1, 2, 3)) > 0.5
        return 3.0 * torch.stack([~bright, bright], dim=1).float()


IMAGES = torch.tensor([0.6, 0.7, 0.8, 0.7, 0.2]).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).clone()
LABELS = torch.tensor([1, 1, 1, 0, -1])  # the fourth is wrong, the fifth of a class that the model does not have


def test_distances_of_correct_images_and_accuracy() -> None:
    result = robust_accuracy(HardLabels(), IMAGES, LABELS, epsilon=0.15, attack="rays")
    assert result.clean.tolist() == [True, True, True, False, False]
    assert result.robust.tolist() == [False, True, True, False, False]
    assert result.accuracy == 2 / 4
    assert result.distances[:3].tolist() == pytest.approx([0.1, 0.2, 0.3], abs=2 * TOLERANCE)
    assert result.distances[3:].isnan().all()  # not 0, which would lower the mean
    distance = result.boundary_distance
    assert distance.mean == pytest.approx(0.2, abs=2 * TOLERANCE)
    assert (distance.used, distance.undefined) == (3, 0)
    assert result.warnings == ()  # zero gradients are no reason to distrust it
    assert result.to_json()["boundary_distance"]["mean"] == distance.mean
    assert result.rows["distance"].isna().tolist() == [False] * 3 + [True] * 2


def test_an_image_without_a_point_is_counted() -> None:
    class Never(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.tensor([[0.0, 3.0]]).repeat(len(images), 1)

    result = robust_accuracy(Never(), IMAGES[:2], LABELS[:2], epsilon=0.15, attack="rays100")
    assert result.robust.all()
    assert (result.boundary_distance.used, result.boundary_distance.undefined) == (0, 2)
    summary = result.to_json()["boundary_distance"]
    assert summary["mean"] is None
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_a_store_keeps_distances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: Any = {"epsilon": 0.15, "attack": "rays200", "batch_size": 2, "store": tmp_path}
    first = robust_accuracy(HardLabels(), IMAGES, LABELS, **given)

    def refused(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("searched again")

    monkeypatch.setattr(attack_batches, "run_attack", refused)
    again = robust_accuracy(HardLabels(), IMAGES, LABELS, **given)
    assert again.rows.equals(first.rows)
    assert again.distances[:3].equal(first.distances[:3])


def test_the_number_limits_the_queries() -> None:
    seen = 0

    class Counted(HardLabels):
        def forward(self, images: Tensor) -> Tensor:
            nonlocal seen
            seen += len(images)
            return super().forward(images)

    robust_accuracy(Counted(), IMAGES[:3], LABELS[:3], epsilon=0.15, attack="rays20")
    # Besides: the number of classes once; per image the prediction, the examination's two, and the second evaluation.
    assert seen <= 3 * 20 + 1 + 3 * 4
    assert attack_title("rays20") == "RayS, 20 queries"


def test_only_in_linf() -> None:
    with pytest.raises(ArgumentError, match="`norm` must be 'linf' for attack='rays', got 'l2'"):
        robust_accuracy(HardLabels(), IMAGES, LABELS, norm="l2", epsilon=0.5, attack="rays")
