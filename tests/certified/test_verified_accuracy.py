"""Verified accuracy of a data set: abstentions apart from wrong answers, unknown classes apart from both."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from locality import certify
from locality.certified import verified_accuracy as module
from locality.certified.certificate import Certificate
from locality.certified.smoothing import Smoothing
from locality.certified.verified_accuracy import VerifiedAccuracy, verified_accuracy
from locality.data.dataset import load_dataset
from locality.progress import Progress, no_progress
from locality.statistics import wilson_interval
from locality.types import ABSTAINED, Batch


@dataclass(frozen=True)
class ByBrightness:
    """Class 0 where the image is bright, 1 where it is dark, no decision in between; the radius is how far that is."""

    gap: float = 0.1

    def __call__(self, model: Any, images: Tensor, progress: Progress = no_progress) -> Certificate:
        progress(0, len(images))
        brightness = images.flatten(1).double().mean(1) - 0.5
        prediction = torch.where(brightness > 0, 0, 1)
        abstained = brightness.abs() < self.gap
        radius = torch.where(abstained, 0.0, brightness.abs() - self.gap)
        progress(len(images), len(images))
        return Certificate(torch.where(abstained, ABSTAINED, prediction), radius, torch.zeros(len(images)).double())


class Greys:
    """Images of one grey each, with the labels accepted for them."""

    name = "greys"

    def __init__(self, greys: list[float], accepted: list[tuple[int, ...]]) -> None:
        self.greys, self.accepted = greys, accepted

    def __len__(self) -> int:
        return len(self.greys)

    def fingerprint(self) -> str:
        return "greys"

    def batch(self, indices: Any) -> Batch:
        rows = list(indices)
        images = torch.stack([torch.full((3, 2, 2), self.greys[row]) for row in rows])
        accepted = tuple(self.accepted[row] for row in rows)
        labels = torch.tensor([labels[0] if labels else -1 for labels in accepted])
        ids = tuple(f"grey {row}" for row in rows)
        return Batch(ids, images, labels, torch.ones(len(rows), 1, 2, 2).bool(), ((),) * len(rows), accepted)


GREYS = [0.9, 0.65, 0.2, 0.55, 0.95]
ACCEPTED: list[tuple[int, ...]] = [(0,), (1, 0), (0,), (1,), ()]


def greys_certified(**more: Any) -> VerifiedAccuracy:
    data: Any = Greys(GREYS, ACCEPTED)
    return verified_accuracy(nn.Flatten(), data, ByBrightness(), radii=(0, 0.1, 0.25, 0.5), **more)


def test_right_wrong_abstained_and_unknown_are_counted_apart() -> None:
    result = greys_certified()
    assert result.correct.tolist() == [True, True, False, False, False]
    assert (result.wrong, result.abstained, result.undefined) == (1, 1, 1)
    assert [result.verified(radius) for radius in result.radii] == [2, 1, 1, 0]
    assert [result.accuracy(radius) for radius in result.radii] == [0.5, 0.25, 0.25, 0]
    assert [result.wrong_but_certified(radius) for radius in result.radii] == [1, 1, 0, 0]
    assert result.interval(0.1) == wilson_interval(1, 4)
    assert result.median_radius == pytest.approx((0.2 + 0.3) / 2)  # of 0.05, 0.2, 0.3 and 0.35; the unknown class is decided
    assert result.failure_probability == 0


def test_one_row_per_image() -> None:
    rows = greys_certified().rows
    columns = ["image_id", "label", "prediction", "abstained", "correct", "radius", "norm", "failure_probability"]
    assert rows.columns.tolist() == columns
    assert rows["prediction"].tolist() == [0, 0, 1, -1, 0]
    assert rows["abstained"].tolist() == [False, False, False, True, False]
    assert rows["correct"].isna().tolist() == [False, False, False, False, True]
    assert rows["radius"].tolist() == pytest.approx([0.3, 0.05, 0.2, 0, 0.35], abs=1e-7)


def test_files_and_json(tmp_path: Path) -> None:
    result = greys_certified()
    paths = result.write(tmp_path / "new", model="m", by="toy")
    assert [path.name for path in paths] == ["certified.csv", "certified.parquet", "certified.json"]
    assert sorted((tmp_path / "new").iterdir()) == sorted(paths)
    assert pd.read_parquet(paths[1]).equals(result.rows)
    assert len(pd.read_csv(paths[0])) == 5
    summary = json.loads(paths[2].read_text(encoding="utf-8"))
    assert summary == result.to_json(model="m", by="toy")
    low, high = wilson_interval(1, 4)
    assert summary["verified"]["0.1"] == {"radius": 0.1, "mean": 0.25, "low": low, "high": high}
    assert list(summary["verified"]) == ["0", "0.1", "0.25", "0.5"]
    assert [entry["mean"] for entry in summary["rejected"].values()] == [0.25, 0.5, 0.75, 1.0]
    assert [entry["mean"] for entry in summary["wrong_but_certified"].values()] == [0.25, 0.25, 0, 0]
    assert summary["clean"]["mean"] == 0.5
    assert (summary["abstained"]["mean"], summary["wrong"]["mean"], summary["undefined"]) == (0.25, 0.25, 1)
    assert summary["settings"] == {"gap": 0.1}


def test_nothing_decided_and_nothing_known() -> None:
    data: Any = Greys([0.5, 0.5], [(0,), ()])
    result = verified_accuracy(nn.Flatten(), data, ByBrightness())
    assert result.accuracy(0) == 0
    assert math.isnan(result.median_radius)
    assert result.to_json()["median_radius"] is None
    unknown: Any = Greys([0.9], [()])
    nothing = verified_accuracy(nn.Flatten(), unknown, ByBrightness())
    assert math.isnan(nothing.accuracy(0))
    assert nothing.to_json()["verified"]["36/255"]["mean"] is None


def test_blocks_do_not_change_the_result_and_progress_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = greys_certified()
    monkeypatch.setattr(module, "BLOCK", 2)
    done: list[tuple[int, int | None]] = []
    parts = greys_certified(progress=lambda *report: done.append(report))
    assert parts.rows.equals(whole.rows)
    assert done == [(0, 5), (2, 5), (2, 5), (4, 5), (4, 5), (5, 5)]


def test_a_data_set_by_smoothing_is_its_tensors_by_smoothing() -> None:
    data = load_dataset("shapes", limit=4, count=10)
    model = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(48, 10))
    smoothing = Smoothing(sigma=0.1, samples=50, selection_samples=10)
    result = verified_accuracy(model, data, smoothing)
    batch = data.batch(range(4))
    expected = smoothing(model, batch.images)
    assert torch.equal(result.certificate.radius, expected.radius)
    assert result.ids == batch.ids
    assert result.verified(0.05) == int(expected.holds(batch.labels, 0.05).sum())
    assert set(result.provenance) == {"weights_sha256", "preprocessing", "data_sha256", "device", "locality", "torch"}
    with pytest.raises(ValueError, match="`radii` must be distances"):
        verified_accuracy(model, data, smoothing, radii=[-1])


def test_without_a_certificate_it_is_that_of_the_model() -> None:
    model, data = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 10)), load_dataset("shapes", limit=2, count=10)
    result = verified_accuracy(model, data, radii=(0.1,))
    assert torch.equal(result.certificate.radius, certify(model, data.batch(range(2)).images).radius)
    assert result.settings == {"slack": 0.0, "tight": False}
    with pytest.raises(TypeError, match="`by` must be a certificate with its settings"):
        verified_accuracy(model, data, "lipschitz")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`radii` must be several distances"):
        verified_accuracy(model, data, radii=0.1)  # type: ignore[arg-type]
