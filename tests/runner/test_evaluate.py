"""Rows against the pieces they are made of, on models whose answer is known."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from suite_examples import EVERYTHING
from torch import Tensor, nn

from locality import model_calls
from locality.attribution import integrated_gradients, saliency_map
from locality.boundary import find_boundary
from locality.data.dataset import ImageDataset, load_dataset
from locality.data.defaults import default_data
from locality.model_calls import Model
from locality.report.explanation import explain_image
from locality.results.folder import read_results
from locality.results.schema import ROWS
from locality.runner.evaluate import batches, evaluate, fitted
from locality.runner.explain_batch import Settings
from locality.runner.plan import make_plan
from locality.runner.unit import measure
from locality.scores.locality import locality_scores
from locality.types import ModelSpec, Sample
from locality.zoo.pixel_model import PixelModel


@pytest.fixture(scope="module")
def data() -> ImageDataset:
    return load_dataset("shapes", limit=6, count=20)


@pytest.fixture(scope="module")
def model() -> PixelModel:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 20 * 20, 10))
    classes = load_dataset("shapes", limit=1, count=10).classes
    return PixelModel(net, ModelSpec("little", (64, 64), 64, classes=classes)).eval()


def test_rows_are_the_scores_of_the_maps(model: nn.Module, data: ImageDataset) -> None:
    rows = evaluate(model, data, methods=["SM", "IG", "BIG"], progress=False).rows
    assert tuple(rows.columns) == tuple(ROWS)
    assert rows["method"].tolist() == ["SM", "IG", "BIG"] * 6
    batch = data.batch(range(6))
    assert rows["image_id"].tolist() == [name for name in batch.ids for _ in range(3)]
    maps = {"SM": saliency_map(model, batch.images), "IG": integrated_gradients(model, batch.images).maps}
    for name, found in maps.items():
        expected = locality_scores(found, batch.masks)
        part = rows[rows["method"] == name]
        assert part["precision"].tolist() == pytest.approx(expected.precision.tolist(), rel=1e-4)
        assert part["recall"].tolist() == pytest.approx(expected.recall.tolist(), rel=1e-4)
        assert part["f1"].tolist() == pytest.approx(expected.f1.tolist(), rel=1e-4)
    edge = find_boundary(model, batch.images)
    first = rows.drop_duplicates("image_id")
    assert first["distance"].tolist() == pytest.approx(edge.distance.tolist(), rel=1e-5)
    assert first["crossed_to"].tolist() == edge.crossed_to.tolist()
    predictions = model(batch.images).argmax(1)
    assert first["prediction"].tolist() == first["target"].tolist() == predictions.tolist()
    assert first["correct"].tolist() == (predictions == batch.labels).tolist()
    assert first["box_share"].tolist() == pytest.approx(batch.masks.float().mean((1, 2, 3)).tolist())


def test_batch_size_changes_nothing(model: nn.Module, data: ImageDataset) -> None:
    whole = evaluate(model, data, methods=["SM", "BSM"], progress=False).rows
    single = evaluate(model, data, methods=["SM", "BSM"], batch_size=1, progress=False).rows
    pd.testing.assert_frame_equal(whole, single, rtol=1e-4)


def test_target_label(model: nn.Module, data: ImageDataset) -> None:
    rows = evaluate(model, data, methods=["SM"], target="label", search=None, progress=False).rows
    batch = data.batch(range(6))
    expected = locality_scores(saliency_map(model, batch.images, batch.labels), batch.masks)
    assert rows["target"].tolist() == batch.labels.tolist()
    assert rows["f1"].tolist() == pytest.approx(expected.f1.tolist(), rel=1e-4)
    assert rows["distance"].isna().all()
    assert not rows["found"].any()


class Constant(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :10] * 0 + torch.arange(10.0)


def test_undefined_is_nan_and_kept(data: ImageDataset) -> None:
    with pytest.warns(UserWarning, match="gradients of exactly 0|saliency map"):
        rows = evaluate(Constant(), data, methods=["SM", "BIG"], progress=False).rows
    assert len(rows) == 12
    assert rows["f1"].isna().all()
    assert not rows["found"].any()
    assert (rows["distance"] == math.inf).all()
    assert (rows["crossed_to"] == -1).all()
    assert rows["model"].unique().tolist() == ["Constant"]


def test_classes_the_model_does_not_know(data: ImageDataset) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 3))
    model = PixelModel(net, ModelSpec("three", (64, 64), 64, classes=("circle", "cat", "dog")))
    with pytest.warns(UserWarning, match="classes that three does not know"):
        rows = evaluate(model, data, methods=["SM"], search=None, progress=False).rows
    known = rows["label"] == 0
    assert rows["correct"].isna().tolist() == (~known).tolist()
    assert rows["f1"].notna().all()
    with pytest.warns(UserWarning, match="classes that three does not know"):
        rows = evaluate(model, data, methods=["SM"], search=None, target="label", progress=False).rows
    assert rows["f1"].isna().tolist() == (~known).tolist()
    assert (rows.loc[~known, "target"] == -1).all()


def test_labels_that_a_model_cannot_have_are_undefined(data: ImageDataset) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 5))
    model = PixelModel(net, ModelSpec("five", (64, 64), 64, num_classes=5))
    with pytest.warns(UserWarning, match="five has 5 classes, but shapes has labels up to .* its accuracy is undefined"):
        evaluation = evaluate(model, data, methods=["SM"], search=None, progress=False)
    assert evaluation.rows["correct"].isna().all()
    assert (evaluation.rows["label"] == -1).all()
    assert evaluation.summary.accuracy.used == 0
    with pytest.warns(UserWarning, match="labels that a model of 5 classes cannot have"):  # a model without a spec
        rows = evaluate(net, data, methods=["SM"], search=None, target="label", progress=False).rows
    impossible = rows["label"] == -1
    assert impossible.any()
    assert rows["correct"].isna().tolist() == impossible.tolist()
    assert rows["f1"].isna().tolist() == impossible.tolist()


def test_images_are_fitted_to_the_model() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
    model = PixelModel(net, ModelSpec("small", (32, 32), 36))
    rows = evaluate(model, load_dataset("shapes", limit=2, count=10), methods=["SM"], search=None, progress=False).rows
    assert len(rows) == 2


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry each time that a model is prepared for calls; an open one that is passed on does not count."""
    seen: list[object] = []
    prepare = model_calls._runner

    def counted(model: Model, *rest: Any) -> Model:
        seen.append(model)
        return prepare(model, *rest)

    monkeypatch.setattr(model_calls, "_runner", counted)
    return seen


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each image is decoded."""
    seen: Counter[str] = Counter()
    read = ImageDataset.__getitem__

    def counted(data: ImageDataset, index: int) -> Sample:
        sample = read(data, index)
        seen[sample.id] += 1
        return sample

    monkeypatch.setattr(ImageDataset, "__getitem__", counted)
    return seen


def test_the_model_is_opened_once_per_batch(model: nn.Module, data: ImageDataset, openings: list[object]) -> None:
    evaluate(model, data, ["SM", "IG", "BSM", "BIG", "SmoothGrad"], batch_size=4, progress=False)
    assert openings == [model, model]


@pytest.mark.parametrize("spec", [True, False])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_each_image_is_decoded_once(
    model: PixelModel, data: ImageDataset, readings: Counter[str], spec: bool, batch_size: int | None
) -> None:
    evaluated = model if spec else model.net
    evaluation = evaluate(evaluated, data, ["SM"], batch_size=batch_size, progress=False, region_tests=batch_size is None)
    assert readings == dict.fromkeys(evaluation.rows["image_id"], 1)
    assert evaluation.provenance["data_sha256"] == fitted(evaluated, data).fingerprint()
    assert set(evaluation.summary.model_free) == {"uniform", "random", "centred Gaussian"}


def test_units_decode_each_image_once_and_open_the_model_once_per_block(
    readings: Counter[str], openings: list[object]
) -> None:
    """Faithfulness opens the model for the maps and all noises; layer randomisation reads its reference images.

    Layer randomisation compares several networks, and curvature differentiates copies of the weights.
    """
    suite = replace(EVERYTHING, models=EVERYTHING.models[:1], data=replace(EVERYTHING.data, limit=2))
    plan = make_plan(suite)
    measure(plan.task(plan.units[0], 1))  # loads the model, which is then cached
    for unit in plan.units:
        readings.clear()
        openings.clear()
        measured = measure(plan.task(unit, 1))
        assert not measured.faults, measured.faults
        assert set(readings.values()) == {1}, unit
        if unit.part not in ("layer_randomisation", "curvature"):
            assert len(openings) == 1, unit


def test_an_evaluation_is_written_and_read_back(model: nn.Module, data: ImageDataset, tmp_path: Path) -> None:
    evaluation = evaluate(model, data, ["SM"], progress=False)
    evaluation.write(tmp_path / "new/folder")
    back = read_results(tmp_path / "new/folder").rows
    pd.testing.assert_frame_equal(back, evaluation.rows, check_dtype=False)
    assert len(pd.read_csv(tmp_path / "new/folder/rows.csv")) == 6
    assert json.loads((tmp_path / "new/folder/summary.json").read_text(encoding="utf-8")) == evaluation.to_json()
    assert evaluation.to_json()["n"] == 6
    assert not list(tmp_path.rglob("*.part"))


def test_progress_is_reported(model: nn.Module, data: ImageDataset) -> None:
    reported: list[tuple[int, int | None]] = []
    evaluate(model, data, ["SM"], None, batch_size=4, progress=lambda done, total: reported.append((done, total)))
    assert reported == [(0, 6), (4, 6), (6, 6)]


def test_the_first_batch_is_small_so_that_the_time_left_is_known_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_dataset("shapes", limit=9, count=10)
    for spec in (None, ModelSpec("a", (64, 64), 64)):
        fitted_data = load_dataset("shapes", limit=9, count=10, spec=spec)
        monkeypatch.setattr("locality.runner.evaluate.FIRST_BATCH_PIXELS", 2 * 64 * 64)
        monkeypatch.setattr("locality.runner.evaluate.MAX_BATCH_PIXELS", 4 * 64 * 64)
        found = list(batches(fitted_data))
        assert [len(batch) for batch in found] == [2, 4, 3]
        assert [name for batch in found for name in batch.ids] == [sample.id for sample in data]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ()}, "at least one method"),
        ({"methods": ("BIIG",)}, "did you mean 'BIG'"),
        ({"search": "fsat"}, "did you mean 'fast'"),
        ({"search": None, "methods": ("BIG",)}, "`search` must be a boundary search for BIG"),
        ({"target": "best"}, "`target` must be"),
        ({"channels": "mean"}, "`channels` must be"),
    ],
)
def test_bad_settings(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**arguments)  # type: ignore[arg-type]


def test_a_single_method_is_not_taken_apart(model: nn.Module, data: ImageDataset) -> None:
    for call in (lambda: evaluate(model, data, "SM"), lambda: explain_image(model, torch.rand(3, 8, 8), "SM")):
        with pytest.raises(TypeError, match=r"`methods` must be a list of names, got 'SM': pass \['SM'\]"):
            call()


def test_default_data(monkeypatch: pytest.MonkeyPatch) -> None:
    from locality.imagenet_classes import imagenet_wnids

    assert default_data(ModelSpec("a", classes=imagenet_wnids())) == "photos"
    with pytest.raises(ValueError, match="`data` must be given for a"):
        default_data(ModelSpec("a", classes=("cat",)))
    with pytest.raises(ValueError, match="`data` must be given for a"):
        default_data(ModelSpec("a"))
    monkeypatch.delenv("LOCALITY_TINY_IMAGENET", raising=False)
    monkeypatch.setenv("LOCALITY_CACHE", "/nowhere")
    with pytest.raises(ValueError, match=r"a is evaluated on tiny-imagenet by default, but .* is not on this machine"):
        default_data(ModelSpec("a", classes=("n01443537", "n02124075")))
