"""`calibrate` finds the answer that was planted, and says so where it cannot be told."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from small_cifar10 import write_batches
from striped_images import small_classifier, striped
from torch import nn
from toy_training import weights_of

from locality import calibrate, load_dataset, load_model
from locality.attribution import METHODS, SM
from locality.data.cues import Sticker, of_stickers, with_sticker
from locality.data.dataset import ImageDataset
from locality.errors import ArgumentError
from locality.results.calibration import CLEAN, CUE, STICKER, learned_from
from locality.runner.calibration import Calibration
from locality.runner.twins import check_folder, halves, knows_classes, split_images
from locality.training.fine_tune import fine_tune

EVERY = striped(208)
DATA, TRAIN = EVERY.take(np.arange(48)), EVERY.take(np.arange(48, 208))


class Blind(SM):
    """A method that does not look at the model."""

    def attribute(self, inputs: Any, target: Any = None, *arguments: Any, **options: Any) -> Any:
        return torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0))


def brief(model: nn.Module, data: ImageDataset = DATA, train: ImageDataset | None = TRAIN, **changes: Any) -> Calibration:
    options: dict[str, Any] = {"methods": ["SM"], "epochs": 8, "learning_rate": 0.01, "points": 10, "progress": False}
    return calibrate(model, data, train, **(options | changes))


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    """The whole of it once: our methods, and one that is blind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "Blind", Blind)
        return brief(small_classifier(), methods=["SM", "IG", "BIG", "Blind"])


def test_the_planted_answer_is_found_by_what_looks_at_the_model(calibration: Calibration) -> None:
    learned = calibration.summary.learned
    assert learned[STICKER].sticker.mean > 0.95
    assert learned[STICKER].swapped.mean < 0.05  # another class's sticker decides
    assert learned[STICKER].without.low < 0.5 < learned[STICKER].without.high  # without any, it can only guess
    assert min(learned[CLEAN].without.mean, learned[CLEAN].sticker.mean, learned[CLEAN].swapped.mean) > 0.9
    for method in ("SM", "IG", "BIG"):
        one = calibration.summary.finding(method)
        assert (one.finds_cue, one.finds_object) == (True, True), method
        assert one.cue_over_object is not None
        assert one.object_over_cue is not None
        assert min(one.cue_over_object.low, one.object_over_cue.low, one.sticker_over_clean.low) > 0
        assert one.images + one.undefined == 48
        assert one.undefined <= 2  # maps that are 0
    blind = calibration.summary.finding("Blind")
    assert (blind.finds_cue, blind.finds_object) == (False, False)
    tests = calibration.summary.finding("region tests", "reliance")
    assert (tests.finds_cue, tests.finds_object) == (True, True)
    assert calibration.sentence == (
        "By lift, with small on striped: SM, IG and BIG find the sticker where the network uses it, and the object where it "
        "does not; Blind shows neither."
    )


def test_its_rows_files_and_json_agree(calibration: Calibration, tmp_path: Path) -> None:
    rows = calibration.rows
    assert len(rows) == 48 * 2 * 2 * (4 + 2)  # images, twins, regions; methods, chance and region tests
    calibration.write(tmp_path)
    assert len(pd.read_csv(tmp_path / "rows.csv")) == len(rows)
    assert len(pd.read_csv(tmp_path / "predictions.csv")) == 96
    found = json.loads((tmp_path / "calibration.json").read_text(encoding="utf-8"))
    assert found == json.loads(json.dumps(calibration.to_json()))
    lifts = rows[rows["method"] == "BIG"].pivot(index="image_id", columns=["twin", "region"], values="lift").dropna()
    assert found["methods"]["BIG"]["lift"]["sticker_on_cue"]["mean"] == pytest.approx(lifts[STICKER, CUE].mean())
    assert found["methods"]["BIG"]["lift"]["undefined"] == 48 - len(lifts)
    assert found["n"] == 48
    assert found["learned"]["sticker"]["uses_sticker"] is True
    assert found["region_tests"]["finds_cue"] is True
    assert set(found["provenance"]["calibration"]) == {"sticker", "training", "twins"}
    assert calibration.sentence in calibration._repr_html_()
    assert len(calibration.table()) == 4 * 5 + 1


def test_the_masks_are_those_of_the_stickers(calibration: Calibration) -> None:
    drawn = Sticker(random_of=2)
    planted = DATA.on(with_sticker(DATA.source, drawn), CUE)
    shares = {sample.id: float(sample.mask.float().mean()) for sample in planted}
    cue = calibration.rows[(calibration.rows["region"] == CUE) & (calibration.rows["method"] == "SM")]
    assert (cue["box_share"] == cue["image_id"].map(shares)).all()
    box = calibration.rows[(calibration.rows["region"] == "box") & (calibration.rows["method"] == "SM")]
    whole = {sample.id: float(sample.mask.float().mean()) for sample in DATA}
    assert (box["box_share"] <= box["image_id"].map(whole)).all()
    assert (box["box_share"] < box["image_id"].map(whole)).any()  # where the sticker hides a part


def test_the_class_of_the_stickers_is_independent_of_the_object() -> None:
    drawn = Sticker(random_of=2)
    stickers = of_stickers(EVERY.source, drawn)
    shown, own = stickers.manifest.images["label"].to_numpy(), EVERY.source.manifest.images["label"].to_numpy()
    assert stickers.classes == ("sticker_0", "sticker_1")
    assert 80 < (shown == own).sum() < 128  # 208 fair coins, 3.3 standard deviations
    assert torch.equal(
        EVERY.on(with_sticker(stickers, drawn))[5].image, EVERY.on(with_sticker(EVERY.source, drawn))[5].image
    )


def test_a_network_that_did_not_learn_passes_nothing() -> None:
    calibration = brief(small_classifier(), DATA.take(np.arange(24)), epochs=0)
    one = calibration.summary.finding("SM")
    assert (one.finds_cue, one.finds_object) == (None, None)
    assert calibration.sentence.startswith("Inconclusive: the network did not learn the cue (accuracy ")
    assert calibration.to_json()["learned"]["sticker"]["uses_sticker"] is False


def test_data_without_boxes_and_few_images() -> None:
    plain = striped(208, has_boxes=False)
    calibration = brief(small_classifier(), plain.take(np.arange(48)), plain.take(np.arange(48, 208)))
    one = calibration.summary.finding("SM")
    assert (one.finds_cue, one.finds_object, one.clean_on_object) == (True, None, None)
    assert calibration.sentence.endswith("; the object could not be tested, because nobody marked it.")
    few = replace(calibration, rows=calibration.rows[calibration.rows["image_id"].isin([f"striped-{n}" for n in range(9)])])
    assert few.sentence == "Inconclusive: too few images, 10 are needed."


def test_model_and_data_stay_as_they_are_and_twins_are_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_classifier().train()
    before, state = copy.deepcopy(model), torch.get_rng_state()
    few: dict[str, Any] = {"data": DATA.take(np.arange(12)), "train": TRAIN.take(np.arange(32)), "epochs": 2}
    first = brief(model, folder=tmp_path, **few)
    assert torch.equal(weights_of(model), weights_of(before))
    assert model.training
    assert model.spec == before.spec
    assert not any(value.grad is not None for value in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    files = sorted(path.name.partition("_twin_")[0] for path in tmp_path.glob("*.safetensors"))
    assert files == ["clean", "sticker"]
    trained: list[int] = []

    def counted(model: nn.Module, data: ImageDataset, epochs: int, **options: Any) -> nn.Module:
        trained.append(epochs)
        return fine_tune(model, data, epochs, **options)

    monkeypatch.setattr("locality.runner.twin_training.fine_tune", counted)
    again = brief(model, folder=tmp_path, **few)
    assert trained == [0, 0]
    pd.testing.assert_frame_equal(again.rows, first.rows)
    next(tmp_path.glob("sticker*")).write_bytes(b"damaged")
    pd.testing.assert_frame_equal(brief(model, folder=tmp_path, **few).rows, first.rows)
    assert (trained[2], set(trained[3:-1]), trained[-1]) == (0, {2}, 0)  # the clean twin is read
    trained.clear()
    brief(model, folder=tmp_path, **few | {"cue_size": 0.3})  # other stickers, other twin
    assert (set(trained[:-1]), trained[-1]) == ({2}, 0)


@pytest.mark.slow
def test_the_defaults_suit_a_small_robust_network() -> None:
    """It needs larger steps than the first round's, which suit pretrained networks."""
    data, train = split_images("shapes:none", 30, 400)
    calibration = calibrate(load_model("shapes_cnn_robust"), data, train, ["SM", "IG", "BIG"], points=10, progress=False)
    assert calibration.summary.learned[STICKER].cue
    for one in (
        *map(calibration.summary.finding, ("SM", "IG", "BIG")),
        calibration.summary.finding("region tests", "reliance"),
    ):
        assert (one.finds_cue, one.finds_object) == (True, True), one.method


def test_a_model_that_knows_the_classes_is_the_clean_twin(calibration: Calibration) -> None:
    model = calibration.twins[CLEAN]
    assert knows_classes(model, DATA)
    assert not knows_classes(small_classifier(), DATA)
    assert not knows_classes(small_classifier(("across", "up")), DATA)
    own = brief(model, DATA.take(np.arange(24)))
    assert own.twins[CLEAN] is model
    assert own.trained == (STICKER,)
    assert own.summary.finding("SM").finds_object is True


def test_halves_are_even_and_have_nothing_in_common() -> None:
    parts = halves(EVERY.take(np.arange(50)))
    assert [sorted(part.counts().values()) for part in parts] == [[12, 13], [12, 13]]
    ids = [set(part.manifest.images["id"]) for part in parts]
    assert not ids[0] & ids[1]
    held_out, train = split_images("shapes:none", 20, 30, count=40)
    assert (len(held_out), len(train)) == (20, 30)
    assert not set(held_out.manifest.images["id"]) & set(train.manifest.images["id"])


def test_one_split_is_halved(tmp_path: Path, write_image: Any) -> None:
    for number in range(24):
        write_image(tmp_path / f"{'ab'[number % 2]}/{number}.png", 20, 20, seed=number)
    held_out, train = split_images(f"folder:{tmp_path}", 8, None)
    assert [sorted(part.counts().values()) for part in (held_out, train)] == [[4, 4], [6, 6]]
    assert not set(held_out.manifest.images["id"]) & set(train.manifest.images["id"])
    with pytest.raises(ArgumentError, match="`folder` must be outside of the data, which stay as they are"):
        calibrate(small_classifier(), held_out, train, folder=tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ArgumentError, match="`data` must be at least 20 images to train on, got '12 of folder"):
        calibrate(small_classifier(), held_out, train, progress=False)


@pytest.mark.parametrize("kind", ["cifar10", "hf", "csv"])
def test_no_kind_of_data_is_written_into(kind: str, tmp_path: Path, write_image: Any) -> None:
    place, outside = tmp_path / "data", tmp_path / "data2"
    if kind == "cifar10":
        write_batches(place)
    elif kind == "hf":
        place.mkdir()
        write_image(tmp_path / "one.png", 20, 20)
        pixels = (tmp_path / "one.png").read_bytes()
        boxes = {"bbox": [[2.0, 2.0, 9.0, 9.0]], "category": [0]}
        cells = [{"image": {"bytes": pixels, "path": "one.png"}, "objects": boxes}] * 4
        pq.write_table(pa.Table.from_pylist(cells), place / "test-00000-of-00001.parquet")
    else:
        for number in range(4):
            write_image(place / f"{number}.png", 20, 20, seed=number)
        rows = "".join(f"{number}.png,2,2,9,9,a\n" for number in range(4))
        (place / "boxes.csv").write_text(f"filename,xmin,ymin,xmax,ymax,label\n{rows}")
    before = sorted(place.rglob("*"))
    data = load_dataset(f"{kind}:{place}")
    for folder in (place, place / "a" / "b", outside / ".." / "data"):
        for given, train in ((data, None), (DATA, data)):
            with pytest.raises(ArgumentError, match="`folder` must be outside of the data, which stay as they are"):
                brief(small_classifier(), given, train, folder=folder)
    check_folder(outside, data)
    assert sorted(place.rglob("*")) == before


def test_a_method_that_cannot_explain_the_model_is_named_before_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*arguments: object, **options: object) -> None:
        raise AssertionError("the twins are trained")

    monkeypatch.setattr("locality.runner.twin_training.fine_tune", train)
    with pytest.raises(ArgumentError, match=r"`model` must be a transformer .*, got 'no attention in small'"):
        brief(small_classifier(), methods=["SM", "Rollout"])


def test_mistakes_are_one_sentence() -> None:
    model = small_classifier()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"train": DATA}, "`train` must be other images than `data`, got 'striped'"),
        ({"scores": ["lft"]}, "`scores` must be one of .*did you mean 'lift'"),
        ({"methods": ["SMM"]}, "did you mean 'SM'"),
        ({"cue_size": 2}, "`cue_size` must be a share"),
        ({"data": load_dataset("shapes", count=30)}, "`data` must be images without a cue, which is planted here"),
        ({"train": TRAIN.take(np.arange(0, 100, 2))}, "`data` must be images of at least two classes to train on"),
    ]
    for changes, sentence in wrong:
        with pytest.raises(ArgumentError, match=sentence):
            brief(model, **({"data": DATA} | changes))


def test_what_a_twin_learned_is_judged_by_its_predictions() -> None:
    def learned(sticker: float, swapped: float, changed: float, count: int = 100) -> tuple[bool, bool]:
        """Shares of right predictions with stickers and with others, and of predictions that change."""
        label = np.arange(count) % 2
        moves = np.arange(count) < changed * count
        table = {"label": label, "without": label, "sticker": label, "swapped": np.where(moves, 1 - label, label)}
        right = {"right_without": 1.0, "right_sticker": np.arange(count) < sticker * count, "right_swapped": swapped}
        one = learned_from(pd.DataFrame({**table, **right}).astype(float))
        return one.cue, one.object

    assert learned(0.95, 0.05, 0.95) == (True, False)
    assert learned(0.95, 0.9, 0.05) == (False, True)
    assert learned(0.55, 0.5, 0.95) == (False, False)  # the interval of 55 of 100 contains chance
    assert learned(0.95, 0.5, 0.5) == (False, False)
