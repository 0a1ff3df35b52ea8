"""The whole measurement of a model: its parts agree with the functions they come from, and files hold all of it."""

import json
import math
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from locality import layer_traces, load_dataset, robust_gap, weight_curvature
from locality.curvature import TraceMethod
from locality.curvature.attacked_losses import attacked_split
from locality.curvature.model_curvature import NO_TOP_LAYER, ModelCurvature, model_curvature
from locality.curvature.traces import TRACES
from locality.curvature.training_run import splits_of
from locality.errors import ArgumentError
from locality.types import Batch, ModelSpec, Threat

KEYS = ["n", "wci", "upper", "top_trace", "layers", "gap", "bound", "provenance"]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, 4, 4, generator=generator), torch.randint(0, 3, (count,), generator=generator)


@pytest.fixture(scope="module")
def result() -> ModelCurvature:
    return model_curvature(network(), images(20, 1), images(30, 2), steps=3, training_images=100)


def test_the_parts_are_those_of_the_functions(result: ModelCurvature) -> None:
    model, train, test = network(), images(20, 1), images(30, 2)
    split = attacked_split(model, train, Threat("linf", 8 / 255), 3)
    traces = layer_traces(model, split.images, split.labels, "exact")
    assert torch.allclose(result.traces.traces, traces.traces)
    index = weight_curvature(traces)
    gap = robust_gap(model, train, test, steps=3)
    described = result.to_json()
    assert list(described) == KEYS
    assert described["wci"] == pytest.approx(index.index)
    assert described["upper"] == pytest.approx(index.upper)
    assert described["gap"] == gap.to_json()
    assert described["top_trace"] == pytest.approx(float(traces.traces[-1]), rel=1e-5)
    assert described["bound"]["weight_curvature"] == pytest.approx(index.index, rel=1e-5)
    assert described["bound"]["training_images"] == 100
    assert [layer["name"] for layer in described["layers"]] == ["0.weight", "3.weight"]
    assert list(described["layers"][0]) == ["name", "trace", "error", "norm"]
    assert described["layers"][1]["trace"] == pytest.approx(float(traces.traces[1]))
    assert described["provenance"]["gradients"] == {"attacks": 50 * 3, "traces": 20 * 3}
    assert result.rows["share"].sum() == pytest.approx(1.0)


def test_files(result: ModelCurvature, tmp_path: Path) -> None:
    paths = result.write(tmp_path / "new", model="mine")
    assert all(path.is_file() for path in paths)
    stored = json.loads((tmp_path / "new/curvature.json").read_text())
    assert stored == result.to_json(model="mine")
    assert stored["provenance"]["model"] == "mine"
    layers = pd.read_parquet(tmp_path / "new/curvature_layers.parquet")
    assert layers["trace"].tolist() == result.traces.traces.tolist()
    rows = pd.read_csv(tmp_path / "new/curvature_images.csv")
    assert rows["split"].value_counts().to_dict() == {"test": 30, "train": 20}
    assert rows.loc[rows["split"] == "train", "top_trace"].mean() == pytest.approx(stored["top_trace"])
    assert rows.loc[rows["split"] == "test", "robust_loss"].mean() == pytest.approx(
        stored["gap"]["test"]["robust_loss"]["mean"]
    )
    assert rows.loc[rows["split"] == "test", "top_trace"].isna().all()


def test_a_network_without_a_linear_head_has_a_note() -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 4), nn.Flatten())
    result = model_curvature(model, images(4, 1), images(4, 2), steps=1)
    described = result.to_json()
    assert described["top_trace"] is None
    assert described["bound"] is None
    assert described["provenance"]["notes"] == [NO_TOP_LAYER]
    json.dumps(described, allow_nan=False)


def test_a_single_probe_has_no_error_and_negative_traces_are_counted() -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    for weight in model.parameters():
        weight.data *= 4
    result = model_curvature(model, images(6, 1), images(4, 2), steps=5, probes=1, epsilon=0.3)
    described = result.to_json()
    assert described["provenance"]["method"] == "probed"
    assert described["layers"][0]["error"] is None
    assert described["provenance"]["wci_error"] is None
    assert result.index.clipped > 0
    assert result.notes[0].startswith(f"traces below 0, which count as 0 in WCI: {result.index.clipped} of 3, 0 of them")


def test_images_of_unknown_classes_are_no_part_of_the_traces() -> None:
    pixels, labels = images(6, 1)
    labels[2] = -1
    model = network()
    result = model_curvature(model, (pixels, labels), images(4, 2), steps=1)
    assert result.traces.images == 5
    assert result.top is not None
    assert result.top.isnan().tolist() == [False, False, True, False, False, False]
    kept = labels >= 0
    same = model_curvature(model, (pixels[kept], labels[kept]), images(4, 2), steps=1)
    assert torch.allclose(result.traces.traces, same.traces.traces)
    assert result.to_json()["top_trace"] == pytest.approx(same.to_json()["top_trace"])
    with pytest.raises(ArgumentError, match="`train` must be images of classes that the model knows, got 'none'"):
        model_curvature(model, (pixels, torch.full_like(labels, -1)), images(4, 2), steps=1)


def test_progress_counts_all_passes() -> None:
    counted: list[tuple[int, int | None]] = []
    model_curvature(
        network(), images(5, 1), images(3, 2), steps=1, training_images=9, progress=lambda *now: counted.append(now)
    )
    assert counted[0] == (0, 5 + 3 + 5 + 5 + 40)
    assert counted[-1] == (58, 58)
    assert [done for done, _ in counted] == sorted(done for done, _ in counted)


def test_batches_work() -> None:
    data = load_dataset("shapes", limit=4, count=20).batch(range(4))
    assert isinstance(data, Batch)
    model = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(48, 10))
    assert model_curvature(model, data, data, steps=1).gap.loss.mean == 0.0


def test_the_methods_of_the_command_are_those_of_the_table() -> None:
    assert sorted(get_args(TraceMethod)) == sorted(TRACES)


def test_which_images_are_used(tmp_path: Path) -> None:
    spec = ModelSpec("mine", (64, 64), 64, classes=load_dataset("shapes", count=10).classes)
    told = splits_of(None, spec, "shapes", "shapes:none", limit=10, count=40)
    assert told.stated
    assert told.training_images == 40
    assert (len(told.train), len(told.test)) == (10, 10)
    assert not set(told.train.batch(range(10)).ids) & set(told.test.batch(range(10)).ids)
    assumed = splits_of(None, spec, limit=10, count=40)
    assert not assumed.stated
    assert assumed.train.batch(range(10)).ids == told.train.batch(range(10)).ids
    with pytest.raises(ArgumentError, match="`train` must be other images than the test images"):
        splits_of(None, spec, test=str(tmp_path / "own.csv"))


def test_undefined_numbers_are_none() -> None:
    pixels, labels = images(4, 1)
    described = model_curvature(network(), (pixels, labels), (pixels, torch.full_like(labels, -1)), steps=1).to_json()
    assert described["gap"]["loss"]["mean"] is None
    assert math.isfinite(described["wci"])
