import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from locality import ArgumentError, DataError, load_dataset
from locality.data.build import build_manifest
from locality.data.check import check_source
from locality.data.sources import open_source

WriteCsv = Callable[..., Path]
WriteImage = Callable[..., str]


def test_shapes_are_written_pixel_for_pixel(tmp_path: Path) -> None:
    made = load_dataset("shapes", count=12)
    built = build_manifest(made, tmp_path / "shapes.csv")
    assert (built.images, built.boxes, built.faults, built.root) == (12, 12, [], None)
    read = load_dataset(str(tmp_path / "shapes.csv"))
    for index in range(12):
        assert torch.equal(made[index].image, read[index].image)
        assert made[index].boxes == read[index].boxes
        assert made[index].label == read[index].label
    assert check_source(read.source) == []


def test_a_zip_is_built_in_place(small_tiny_imagenet: Path, tmp_path: Path) -> None:
    data = load_dataset(f"tiny-imagenet:{small_tiny_imagenet}", max_box_share=None)
    out = tmp_path / "elsewhere/tiny.csv"
    built = build_manifest(data, out)
    assert built.root == small_tiny_imagenet
    again = load_dataset(str(out), root=built.root, max_box_share=None)
    assert [s.id for s in again] == [s.id for s in data]
    assert again.manifest.images["sha256"].str.len().eq(64).all()
    # Where the images lie below the manifest, it needs no root.
    build_manifest(data, small_tiny_imagenet / "here.csv")
    assert load_dataset(str(small_tiny_imagenet / "here.csv"), max_box_share=None)[0].id == data[0].id


def test_photographs_inside_packages_can_be_found_again(tmp_path: Path) -> None:
    photos = load_dataset("photos", max_box_share=None)
    built = build_manifest(photos, tmp_path / "photos.csv")
    again = load_dataset(str(tmp_path / "photos.csv"), root=built.root, max_box_share=None)
    assert torch.equal(again[6].image, photos[6].image)
    assert again[6].boxes == photos[6].boxes


def test_a_manifest_is_called_csv(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"`out` must be a file that ends in \.csv"):
        build_manifest(load_dataset("shapes", count=10), tmp_path / "shapes")
    assert list(tmp_path.iterdir()) == []


def test_a_bad_file_stops_the_build_or_is_left_out(small_tiny_imagenet: Path, tmp_path: Path) -> None:
    (small_tiny_imagenet / "tiny-imagenet-200/val/images/val_1.JPEG").write_bytes(b"\xff\xd8\xff")
    data = load_dataset(f"tiny-imagenet:{small_tiny_imagenet}", max_box_share=None)
    out = tmp_path / "tiny.csv"
    with pytest.raises(DataError, match=r"val_1\.JPEG"):
        build_manifest(data, out)
    assert not out.exists()
    built = build_manifest(data, out, skip_bad=True)
    assert (built.images, [fault.image for fault in built.faults]) == (6, ["val_1"])
    assert check_source(open_source(str(out), root=small_tiny_imagenet)) == []


def test_a_changed_file_is_found(write_csv: WriteCsv, write_image: WriteImage, tmp_path: Path) -> None:
    path = write_csv({"sha256": write_image(tmp_path / "a.png", seed=1)})
    assert check_source(open_source(str(path))) == []
    other = write_image(tmp_path / "a.png", seed=2)
    faults = check_source(open_source(str(path)))
    assert [fault.kind for fault in faults] == ["wrong hash"]
    assert other[:12] in str(faults[0])
    assert hashlib.sha256((tmp_path / "a.png").read_bytes()).hexdigest() == other
