import json
from collections.abc import Callable
from pathlib import Path

import own_images
import pytest

from locality import DataError, load_dataset
from locality.data.build import build_manifest
from locality.data.sources.guess import guess_kind

WriteImage = Callable[..., str]


@pytest.mark.parametrize("kind", own_images.WRITERS)
def test_one_kind_of_boxes_is_recognised(kind: str, tmp_path: Path) -> None:
    made = own_images.pictures(4)
    own_images.write_images(tmp_path, made)
    own_images.WRITERS[kind](tmp_path, made)
    data = load_dataset(tmp_path)
    assert data.source.guess.startswith(f"{tmp_path} is read as {kind}:{tmp_path}, because ")
    assert [[(b.x0, b.y0, b.x1, b.y1) for b in sample.boxes] for sample in data] == [[one.box] for one in made]
    assert guess_kind(str(tmp_path)).kind == kind


def test_boxes_are_chosen_by_name(tmp_path: Path) -> None:
    made = own_images.pictures(4)
    own_images.write_images(tmp_path, made)
    for write in own_images.WRITERS.values():
        write(tmp_path, made)
    with pytest.raises(DataError, match=r"has boxes in several places: .*: choose one .* such as --boxes Annotations"):
        load_dataset(tmp_path)
    for boxes, kind in {"Annotations": "voc", "labels": "yolo", "instances.json": "coco", "boxes.csv": "csv"}.items():
        for given in (boxes, tmp_path / boxes):
            data = load_dataset(tmp_path, boxes=given)
            assert data.name == f"{kind}:{tmp_path.name}"
            assert len(data) == 4
    assert load_dataset(tmp_path / "boxes.csv").name == f"csv:{tmp_path.name}"
    with pytest.raises(DataError, match="must be a JSON of COCO, a CSV, or a folder of XML files"):
        load_dataset(tmp_path, boxes="images")


def test_images_alone_ask_for_boxes(tmp_path: Path, write_image: WriteImage) -> None:
    with pytest.raises(DataError, match="has no images"):
        load_dataset(tmp_path)
    write_image(tmp_path / "1.png")
    (tmp_path / "notes.json").write_text(json.dumps({"images": 3}))
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"has 1 images, but neither boxes nor class folders: pass the boxes with --boxes"):
        load_dataset(tmp_path)


def test_other_layouts_are_recognised(tmp_path: Path, write_image: WriteImage, small_tiny_imagenet: Path) -> None:
    assert guess_kind(str(small_tiny_imagenet)).kind == "tiny-imagenet"
    for name in ("cat/1.png", "dog/2.png"):
        write_image(tmp_path / "classes" / name)
    assert guess_kind(str(tmp_path / "classes")).kind == "folder"
    assert not load_dataset(tmp_path / "classes").has_regions


def test_a_manifest_is_read_where_it_is_all_there_is(tmp_path: Path) -> None:
    made = own_images.pictures(4)
    own_images.write_images(tmp_path, made)
    own_images.write_table(tmp_path, made)
    build_manifest(load_dataset(tmp_path), tmp_path / "mine.csv", origin="my camera", licence="CC0-1.0")
    assert load_dataset(tmp_path).name == f"csv:{tmp_path.name}"  # what the manifest was built from
    (tmp_path / "boxes.csv").unlink()
    read = load_dataset(tmp_path)
    assert read.name == "mine"
    assert set(read.manifest.images["source"]) == {"my camera"}
    assert set(read.manifest.images["licence"]) == {"CC0-1.0"}


def test_a_folder_with_the_name_of_a_data_set_is_pointed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_dataset("photos").source.guess == ""
    for name in ("photos", "coco"):
        (tmp_path / name).mkdir()
    assert load_dataset("photos").source.guess == "photos is the data set of that name: for the folder photos write ./photos"
    monkeypatch.delenv("LOCALITY_COCO", raising=False)
    monkeypatch.setenv("LOCALITY_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"run `locality data get coco`, or write `./coco` for the folder of that name"):
        load_dataset("coco")
