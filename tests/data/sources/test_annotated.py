"""VOC, YOLO, tables and class folders: known boxes and classes come out, and every mistake is named."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from locality import DataError, evaluate, load_dataset, load_model
from locality.data.dataset import NOTES
from locality.data.source import Source
from locality.data.sources.boxes_csv import boxes_csv
from locality.data.sources.class_folders import folder
from locality.data.sources.voc import voc
from locality.data.sources.yolo import names_in, yolo
from locality.errors import ArgumentError

WriteImage = Callable[..., str]
HEADER = "filename,xmin,ymin,xmax,ymax,label\n"


def xml(*objects: tuple[str, int, int, int, int], size: tuple[int, int] = (40, 30)) -> str:
    boxes = "".join(
        f"<object><name>{name}</name><bndbox><xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>"
        for name, a, b, c, d in objects
    )
    return f"<annotation><size><width>{size[0]}</width><height>{size[1]}</height></size>{boxes}</annotation>"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def shown(source: Source) -> dict[str, tuple[str, list[list[float]]]]:
    """Class and boxes by id."""
    images = source.manifest.images
    return {name: (images["wnid"][n], source.manifest.boxes(n).tolist()) for n, name in enumerate(images["id"])}


def kinds(source: Source) -> list[tuple[str, str]]:
    return [(fault.kind, fault.image) for fault in source.faults]


@pytest.fixture
def images(tmp_path: Path, write_image: WriteImage) -> Path:
    for name in "abcd":
        write_image(tmp_path / f"JPEGImages/{name}.jpg", 40, 30, form="JPEG")
    return tmp_path


def test_voc_counts_pixels_from_one(images: Path) -> None:
    put(images / "Annotations/a.xml", xml(("dog", 1, 1, 20, 10), ("dog", 5, 5, 40, 30)))
    put(images / "Annotations/b.xml", xml(("traffic light", 3, 4, 12, 14)))
    put(images / "Annotations/c.xml", xml(("dog", 1, 1, 9, 9), ("cat", 11, 1, 19, 9)))
    source = voc(images)
    assert shown(source) == {"a": ("dog", [[0, 0, 20, 10], [4, 4, 40, 30]]), "b": ("traffic_light", [[2, 3, 12, 14]])}
    assert source.classes == ("cat", "dog", "traffic_light")
    assert sorted(kinds(source)) == [("no box", "JPEGImages/d.jpg"), ("several classes", "c")]
    assert {kind for kind, _ in kinds(source)} <= set(NOTES)
    assert shown(voc(images, first_pixel=0))["b"] == ("traffic_light", [[3, 4, 12, 14]])
    assert shown(voc(images, categories="cat"))["c"] == ("cat", [[10, 0, 19, 9]])
    with pytest.raises(DataError, match=r"`categories` horse not in .*: it has cat, dog, traffic light"):
        voc(images, categories=["horse"])
    with pytest.raises(ArgumentError, match="`first_pixel`"):
        voc(images, first_pixel=2)


def test_voc_lists_scaled_files_and_zips(images: Path, tmp_path: Path) -> None:
    put(images / "Annotations/a.xml", xml(("dog", 21, 21, 80, 60), size=(80, 60)))  # of a larger edition of the photograph
    put(images / "Annotations/b.xml", xml(("dog", 1, 1, 9, 9), size=(300, 30)))
    put(images / "ImageSets/Main/val.txt", "a\nb\n")
    put(images / "ImageSets/Main/train.txt", "c 1\n")
    source = voc(images)
    assert shown(source) == {"a": ("dog", [[10, 10, 40, 30]])}
    assert kinds(source) == [("wrong size", "b")]
    assert kinds(voc(images, "train")) == [("no box", "JPEGImages/c.jpg")]
    with zipfile.ZipFile(tmp_path / "voc.zip", "w") as archive:
        for file in [*images.rglob("*.jpg"), *images.rglob("*.xml"), *images.rglob("*.txt")]:
            archive.write(file, f"VOC2012/{file.relative_to(images)}")
    assert shown(voc(tmp_path / "voc.zip")) == shown(source)


def test_voc_without_annotations_asks_for_them(images: Path) -> None:
    with pytest.raises(DataError, match=r"has no XML file: pass the folder of annotations as `boxes`"):
        voc(images)
    put(images.parent / "elsewhere/a.xml", xml(("dog", 1, 1, 9, 9)))
    assert shown(voc(images, boxes=images.parent / "elsewhere")) == {"a": ("dog", [[0, 0, 9, 9]])}
    with pytest.raises(DataError, match=r"`boxes` nowhere is neither a path nor a folder of"):
        voc(images, boxes="nowhere")


def test_yolo_boxes_are_shares_of_the_sides(tmp_path: Path, write_image: WriteImage) -> None:
    for split, name in (("val", "a"), ("val", "b"), ("train", "a")):
        write_image(tmp_path / f"images/{split}/{name}.png", 48, 30)
    put(tmp_path / "data.yaml", "names:\n  0: cat\n  1: traffic light\n")
    put(tmp_path / "labels/val/a.txt", "1 0.500000 0.500000 0.333333 0.666667\n")
    put(tmp_path / "labels/val/b.txt", "0 0.125 0.1 0.5 0.1 0.3 0.4\n")  # a polygon
    put(tmp_path / "labels/train/a.txt", "0 0.5 0.5 1 1\n")
    source = yolo(tmp_path)
    assert shown(source) == {"a": ("traffic_light", [[16, 5, 32, 25]]), "b": ("cat", [[6, 3, 24, 12]])}
    assert source.classes == ("cat", "traffic_light")
    assert not source.assumed_order
    assert shown(yolo(tmp_path, "train")) == {"a": ("cat", [[0, 0, 48, 30]])}
    assert yolo(tmp_path, names=["x", "y"]).classes == ("x", "y")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2 0.5 0.5 0.1 0.1", "class 2 is not one of the 2 named classes"),
        ("0.5 0.5 0.5 0.1 0.1", "class 0.5 is not one"),
        ("0 0.5 0.5 0.1", "class x y width height"),
        ("0 nan 0.5 0.1 0.1", "class x y width height"),
        ("cat 0.5 0.5 0.1 0.1", "class x y width height"),
        ("0 20 15 10 10", "in shares of the image's sides"),
        ("0 0.9 0.5 0.8 0.1", "leaves the image of 20 × 10"),
        ("0 0.5 0.5 0 0.1", "is empty"),
    ],
)
def test_bad_lines_of_yolo_are_named(tmp_path: Path, write_image: WriteImage, line: str, words: str) -> None:
    write_image(tmp_path / "a.png")
    put(tmp_path / "a.txt", f"0 0.5 0.5 0.2 0.2\n{line}\n")
    put(tmp_path / "classes.txt", "cat\ndog\n")
    (fault,) = yolo(tmp_path).faults
    assert (fault.kind, fault.image) == ("bad box", "a")
    assert words in fault.problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("names: &a [cat]\nother: *a", "anchors or aliases"),
        ("names: [cat, cat]", "each once"),
        ("names: {0: cat, 2: dog}", "each once"),
        ("names: cat", "each once"),
        ("- cat", "each once"),
        ("names: [cat", "not YAML"),
        ("[" * 50_000, "not YAML"),
        ("x" * 200_000, "too many"),
        ("!!python/object/apply:os.system ['touch canary']", "not YAML"),
    ],
)
def test_names_of_yolo_are_read_as_data(text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        names_in("data.yaml", text.encode())
    assert names_in("data.yaml", b"nc: 2\nnames: ['cat', 7]\n") == ("cat", "7")


def test_yolo_without_names_asks_for_them(tmp_path: Path, write_image: WriteImage) -> None:
    write_image(tmp_path / "a.png")
    put(tmp_path / "a.txt", "0 0.5 0.5 0.2 0.2\n")
    with pytest.raises(DataError, match=r"data.yaml or classes.txt"):
        yolo(tmp_path)
    put(tmp_path / "classes.txt", "cat\ndog\n")
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match="no text file named like an image"):
        yolo(tmp_path)


def test_a_table_of_boxes(images: Path) -> None:
    rows = "a.jpg,1,2,11,12,dog\nJPEGImages/b.jpg,0,0,40,30,big cat\na.jpg,20,2,31.5,12,dog\nc.jpg,,,,,\nz.jpg,1,1,2,2,dog\n"
    put(images / "boxes.csv", HEADER + rows)
    source = boxes_csv(images)
    assert shown(source) == {"a": ("dog", [[1, 2, 11, 12], [20, 2, 31.5, 12]]), "b": ("big_cat", [[0, 0, 40, 30]])}
    assert sorted(kinds(source)) == [("no box", "JPEGImages/d.jpg"), ("no box", "c"), ("no image", "z.jpg")]
    assert shown(boxes_csv(images / "boxes.csv")) == shown(source)
    put(images / "boxes.csv", "id;Class;x1;y1;x2;y2;picture\n1;dog;1;2;11;12;a.jpg\n")
    assert shown(boxes_csv(images, columns="filename=picture")) == {"a": ("dog", [[1, 2, 11, 12]])}
    with pytest.raises(DataError, match=r"row 1: the first line must name the columns filename,xmin"):
        boxes_csv(images)
    with pytest.raises(ArgumentError, match=r"`columns` must be one of filename, .* did you mean 'filename'"):
        boxes_csv(images, columns={"filenam": "picture"})
    put(images / "more.csv", HEADER)
    with pytest.raises(DataError, match=r"several tables \(boxes.csv, more.csv\), pass one \(--boxes FILE\)"):
        boxes_csv(images)


@pytest.mark.parametrize(
    ("row", "kind", "words"),
    [
        ("a.jpg,1,2,x,12,dog", "bad row", "four numbers, got 1, 2, x, 12"),
        ("a.jpg,1,2,11,dog", "bad row", "has 6 fields, got 5"),
        ("../a.jpg,1,2,11,12,dog", "bad row", "must be a path below"),
        ("a.jpg,11,2,1,12,dog", "bad box", "swapped corners"),
        ("a.jpg,1,2,60,12,dog", "bad box", "leaves the image of 40 × 30"),
        ("a.jpg,1,2,nan,12,dog", "bad box", "not a number"),
        ("a.jpg,1,2,11,12,", "unknown label", "has no class, or one of over 200 letters"),
    ],
)
def test_bad_rows_of_a_table_are_named(images: Path, row: str, kind: str, words: str) -> None:
    put(images / "boxes.csv", f"{HEADER}b.jpg,1,2,11,12,dog\n{row}\n")
    source = boxes_csv(images)
    (fault,) = [fault for fault in source.faults if fault.kind not in NOTES]
    assert (fault.kind, fault.row) == (kind, 3)
    assert words in fault.problem
    assert list(shown(source)) == ["b"]


def test_shares_in_a_table_are_refused(images: Path) -> None:
    put(images / "boxes.csv", f"{HEADER}a.jpg,0.1,0.2,0.5,0.9,dog\n")
    with pytest.raises(DataError, match="must be in pixels, but no corner is above 1"):
        boxes_csv(images)


def test_class_folders_have_no_boxes(tmp_path: Path, write_image: WriteImage) -> None:
    for name in ("train/cat/1.png", "train/dog/1.png", "test/cat/2.png", "test/dog/2.png", "test/Zebra fish/3.png"):
        write_image(tmp_path / "top" / name)
    data = load_dataset(f"folder:{tmp_path}")
    assert data.source.classes == ("Zebra_fish", "cat", "dog")
    assert [(sample.id, sample.label, sample.boxes) for sample in data] == [("3", 0, ()), ("cat-2", 1, ()), ("dog-2", 2, ())]
    assert len(folder(tmp_path, "train").manifest) == 2
    with pytest.raises(ArgumentError, match=r"`data` must be images with boxes, which locality is measured against"):
        evaluate(load_model("shapes_cnn"), data, ["SM"], progress=False)
    planted = load_dataset(f"folder:{tmp_path}", cue="sticker")
    with pytest.raises(ArgumentError, match="measure against the planted cue with --region cue"):
        evaluate(load_model("shapes_cnn"), planted, ["SM"], progress=False)
    with pytest.raises(DataError, match="has no class folders with images"):
        folder(tmp_path / "top/test/cat")


def test_a_folder_named_train_may_be_a_class(tmp_path: Path, write_image: WriteImage) -> None:
    for name in ("train/1.png", "test/2.png"):
        write_image(tmp_path / name)
    assert folder(tmp_path).classes == ("test", "train")
