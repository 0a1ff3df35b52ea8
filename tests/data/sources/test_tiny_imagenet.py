import shutil
from pathlib import Path

import pytest
import torch

from locality import load_dataset
from locality.data.sources.tiny_imagenet import tiny_imagenet
from locality.errors import ArgumentError, DataError
from locality.types import Box, ModelSpec


@pytest.fixture(params=["folder", "folder above", "zip"])
def place(request: pytest.FixtureRequest, small_tiny_imagenet: Path) -> Path:
    if request.param == "folder":
        return small_tiny_imagenet / "tiny-imagenet-200"
    if request.param == "zip":
        return Path(shutil.make_archive(str(small_tiny_imagenet / "tiny"), "zip", small_tiny_imagenet, "tiny-imagenet-200"))
    return small_tiny_imagenet


def test_splits_are_by_number_and_boxes_inclusive(place: Path) -> None:
    train, evaluation = tiny_imagenet(place, "train"), tiny_imagenet(place, "eval")
    assert train.classes == ("n02000002", "n01000001")  # as in wnids.txt, not sorted
    assert (len(train.manifest), len(evaluation.manifest)) == (800, 4 + 3)
    names = set(train.manifest.images["id"])
    assert {"n01000001_0", "n01000001_399"} <= names
    assert set(evaluation.manifest.images["id"]) >= {"n01000001_400", "n01000001_401", "val_0"}
    assert evaluation.manifest.boxes(4).tolist() == [[10, 20, 11, 21]]  # one pixel, inclusive in the file
    data = load_dataset(f"tiny-imagenet:{place}", max_box_share=None)
    assert [sample.label for sample in data] == [0, 0, 1, 1, 1, 0, 0]
    assert data[0].boxes == (Box(0, 0, 32, 64),)
    assert data[0].mask.float().mean() == 0.5


def test_boxes_of_80_percent_are_left_out(place: Path) -> None:
    data = load_dataset(f"tiny-imagenet:{place}")
    assert [sample.id for sample in data][-2:] == ["val_0", "val_2"]  # val_1 fills the image, val_2 has 78 %
    assert "1 with a box of 80% or more" in str(data)


def edit(place: Path, name: str, old: str, new: str) -> None:
    file = place / "tiny-imagenet-200" / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("new", "kind", "word"),
    [
        ("val_0.JPEG\tn01000001\t20\t20\t10\t30", "bad box", "swapped"),
        ("val_0.JPEG\tn01000001\t0\t0\t64\t30", "bad box", "leaves the image"),
        ("val_0.JPEG\tn01000001\t0\t0\tnan\t30", "bad box", "four whole numbers"),
        ("val_0.JPEG\tn01000001\t0\t0", "bad box", "four whole numbers"),
        ("val_0.JPEG\tn09999999\t0\t0\t4\t30", "unknown label", "wnids.txt"),
        ("../../evil.JPEG\tn01000001\t0\t0\t4\t30", "bad row", "val_12.JPEG"),
        ("val_1.JPEG\tn02000002\t0\t0\t4\t30", "duplicate id", "val_1"),
    ],
)
def test_bad_lines_are_named(small_tiny_imagenet: Path, new: str, kind: str, word: str) -> None:
    edit(small_tiny_imagenet, "val/val_annotations.txt", "val_0.JPEG\tn01000001\t10\t20\t10\t20", new)
    source = tiny_imagenet(small_tiny_imagenet)
    assert [fault.kind for fault in source.faults] == [kind]
    assert word in str(source.faults[0])
    assert "row " in str(source.faults[0])
    with pytest.raises(DataError, match=r"val"):
        load_dataset(f"tiny-imagenet:{small_tiny_imagenet}")
    assert len(load_dataset(f"tiny-imagenet:{small_tiny_imagenet}", skip_bad=True, max_box_share=None)) == 6


def test_a_missing_file_names_file_and_row(small_tiny_imagenet: Path) -> None:
    (small_tiny_imagenet / "tiny-imagenet-200/val/images/val_2.JPEG").unlink()
    data = load_dataset(f"tiny-imagenet:{small_tiny_imagenet}", max_box_share=None)
    with pytest.raises(DataError, match=r"val/val_annotations\.txt, row 3: file '.*val_2.JPEG' is missing"):
        data[6]
    good = load_dataset(f"tiny-imagenet:{small_tiny_imagenet}", max_box_share=None, skip_bad=True)
    assert len(good) == 6
    assert [fault.kind for fault in good.faults] == ["missing file"]


def test_what_is_not_tiny_imagenet(tmp_path: Path, small_tiny_imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no wnids\.txt"):
        tiny_imagenet(tmp_path / "empty")
    with pytest.raises(ArgumentError, match="`split` must be one of train, eval"):
        tiny_imagenet(small_tiny_imagenet, "test")
    (small_tiny_imagenet / "tiny-imagenet-200/val/val_annotations.txt").unlink()
    with pytest.raises(DataError, match="incomplete"):
        tiny_imagenet(small_tiny_imagenet)
    monkeypatch.delenv("LOCALITY_TINY_IMAGENET", raising=False)
    monkeypatch.setenv("LOCALITY_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match="not on this machine: pass `tiny-imagenet:PATH`, set LOCALITY_TINY_IMAGENET"):
        load_dataset("tiny-imagenet")


def test_the_real_photographs(tiny_imagenet_path: Path) -> None:
    """The counts the study rests on: 4,000 and 1,500 photographs of ten classes, 1,065 with a box below 80 %."""
    train = load_dataset(f"tiny-imagenet:{tiny_imagenet_path}", split="train")
    everything = load_dataset(f"tiny-imagenet:{tiny_imagenet_path}", max_box_share=None)
    small = load_dataset(f"tiny-imagenet:{tiny_imagenet_path}")
    assert (len(train), len(everything), len(small)) == (4000, 1500, 1065)
    assert set(train.counts().values()) == {400}
    assert set(everything.counts().values()) == {150}
    assert train.classes[:3] == ("n01443537", "n02279972", "n04146614")
    batch = small.batch(range(0, 1065, 50))
    assert batch.images.shape == (22, 3, 64, 64)
    assert 0 <= batch.images.min() < 0.1
    assert 0.9 < batch.images.max() <= 1
    assert (batch.masks.float().mean((1, 2, 3)) < 0.8).all()
    # Fitted to a model of 64 pixels nothing changes.
    fitted = load_dataset(f"tiny-imagenet:{tiny_imagenet_path}", spec=ModelSpec("m", (64, 64), 64), limit=5)
    same = load_dataset(f"tiny-imagenet:{tiny_imagenet_path}", limit=5)
    assert torch.equal(fitted[2].image, same[2].image)
