import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from locality import load_dataset
from locality.data.sources.imagenet import imagenet, xml_annotation
from locality.errors import DataError
from locality.imagenet_classes import imagenet_wnids

WriteImage = Callable[..., str]
TENCH, SPRINGER = "n01440764", "n02102040"


def xml(*boxes: tuple[object, ...], wnid: str = TENCH, size: tuple[int, int] = (40, 30)) -> str:
    objects = "".join(
        f"<object><name>{wnid}</name><bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox>"
        "</object>"
        for x0, y0, x1, y1 in boxes
    )
    return f"<annotation><size><width>{size[0]}</width><height>{size[1]}</height></size>{objects}</annotation>"


@pytest.fixture
def folder(tmp_path: Path, write_image: WriteImage) -> Path:
    """Three flat validation photographs with XML files."""
    for number, boxes in enumerate([[(5, 5, 20, 25)], [(0, 0, 40, 30)], [(1, 1, 11, 11), (6, 1, 16, 11)]], start=1):
        write_image(tmp_path / f"images/ILSVRC2012_val_0000000{number}.JPEG", 40, 30, form="JPEG")
        path = tmp_path / f"xml/val/ILSVRC2012_val_0000000{number}.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(xml(*boxes))
    return tmp_path


def test_the_thousand_classes_are_in_logit_order() -> None:
    wnids = imagenet_wnids()
    assert len(wnids) == 1000
    assert list(wnids) == sorted(wnids)
    assert wnids[207] == "n02099601"  # golden retriever


def test_flat_photographs_with_xml(folder: Path) -> None:
    source = imagenet(folder / "images", boxes=folder / "xml")
    assert source.faults == ()
    assert source.manifest.images["id"].tolist() == [f"ILSVRC2012_val_0000000{n}" for n in (1, 2, 3)]
    assert source.manifest.boxes(2).tolist() == [[1, 1, 11, 11], [6, 1, 16, 11]]
    data = load_dataset(f"imagenet:{folder / 'images'}", boxes=folder / "xml")
    assert len(data) == 2  # the second photograph's box fills it
    assert data[1].mask.sum() == 150
    assert data[0].label == 0
    assert data.classes[0] == TENCH


def test_kaggle_csv_gives_the_same(folder: Path) -> None:
    (folder / "LOC_val_solution.csv").write_text(
        "ImageId,PredictionString\n"
        f"ILSVRC2012_val_00000003,{TENCH} 1 1 11 11 {TENCH} 6 1 16 11 \n"
        f"ILSVRC2012_val_00000001,{TENCH} 5 5 20 25\n"
        f"ILSVRC2012_val_00000002,{TENCH} 0 0 40 30\n"
        "ILSVRC2012_val_00009999,n00000000 a b c d\n"  # a photograph that is not here is not looked at
    )
    one, other = (imagenet(folder / "images", boxes=folder / name) for name in ("xml", "LOC_val_solution.csv"))
    assert [(fault.kind, fault.row) for fault in other.faults] == [("no image", 5)]
    order = np.argsort(other.manifest.images["id"].to_numpy())
    assert np.array_equal(one.manifest.corners, other.manifest.take(order).corners)
    named = imagenet(folder, boxes="LOC_val_solution.csv")  # a name inside the data
    assert np.array_equal(named.manifest.corners, other.manifest.corners)


def test_imagenette_folders_and_scaled_boxes(tmp_path: Path, write_image: WriteImage) -> None:
    """The 320-pixel edition is half as large as the original that the boxes were drawn on."""
    write_image(tmp_path / f"imagenette2-320/val/{TENCH}/{TENCH}_1.JPEG", 40, 30, form="JPEG")
    write_image(tmp_path / f"imagenette2-320/train/{SPRINGER}/{SPRINGER}_2.JPEG", 40, 30, form="JPEG")
    (tmp_path / f"xml/{TENCH}").mkdir(parents=True)
    (tmp_path / f"xml/{TENCH}/{TENCH}_1.xml").write_text(xml((20, 10, 60, 30), size=(80, 60)))
    (tmp_path / f"xml/{SPRINGER}_2.xml").write_text(xml((0, 0, 10, 10), wnid=SPRINGER))
    evaluation = imagenet(tmp_path / "imagenette2-320", boxes=tmp_path / "xml")
    train = imagenet(tmp_path / "imagenette2-320", "train", boxes=tmp_path / "xml")
    assert evaluation.manifest.corners.tolist() == [[10, 5, 30, 15]]
    assert train.manifest.images["wnid"].tolist() == [SPRINGER]


@pytest.mark.parametrize(
    ("content", "kind", "word"),
    [
        (xml((5, 5, 60, 25)), "bad box", "leaves the image of 40 × 30"),
        (xml((20, 5, 5, 25)), "bad box", "swapped"),
        (xml((5, 5, 5, 25)), "bad box", "empty"),
        (xml((40, 5, 40.9, 25)), "bad box", "leaves the image"),
        (xml((5, 5, "nan", 25)), "bad box", "not a number"),
        (xml((5, 5, "", 25)), "bad box", "not a number"),
        (xml(), "bad XML", "no object"),
        (xml((5, 5, 9, 25), wnid="n99999999"), "unknown label", "1,000 classes"),
        (xml((5, 5, 9, 25), size=(40, 90)), "wrong size", "for 40 × 90"),
        ("<annotation>", "bad XML", "not XML"),
        ("", "bad XML", "not XML"),
        (
            '<!DOCTYPE b [<!ENTITY a "ha"><!ENTITY c "&a;&a;&a;&a;">]><annotation>&c;</annotation>',
            "bad XML",
            "declares entities or a DTD",
        ),
        ('<!DOCTYPE annotation SYSTEM "x.dtd"><annotation></annotation>', "bad XML", "declares entities or a DTD"),
        (
            '<!DOCTYPE b [<!ENTITY a SYSTEM "file:///etc/passwd">]><annotation>&a;</annotation>',
            "bad XML",
            "declares entities or a DTD",
        ),
    ],
)
def test_bad_xml_is_named_and_costs_one_photograph(folder: Path, content: str, kind: str, word: str) -> None:
    file = folder / "xml/val/ILSVRC2012_val_00000001.xml"
    file.write_text(content)
    source = imagenet(folder / "images", boxes=folder / "xml")
    assert [(fault.kind, fault.image) for fault in source.faults] == [(kind, "ILSVRC2012_val_00000001")]
    assert word in str(source.faults[0])
    assert str(source.faults[0]).startswith(str(file))
    assert len(source.manifest) == 2
    with pytest.raises(DataError, match="00000001"):
        load_dataset(f"imagenet:{folder / 'images'}", boxes=folder / "xml")
    assert len(load_dataset(f"imagenet:{folder / 'images'}", boxes=folder / "xml", skip_bad=True)) == 1


@pytest.mark.parametrize(
    ("row", "kind", "word"),
    [
        (f"ILSVRC2012_val_00000001,{TENCH} 5 5 20", "bad box", "groups of"),
        (f"ILSVRC2012_val_00000001,{TENCH} 5 5 20 x", "bad box", "groups of"),
        ("ILSVRC2012_val_00000001,", "bad box", "groups of"),
        (f"ILSVRC2012_val_00000001,{TENCH} 5 5 20 20 {SPRINGER} 1 1 9 9", "unknown label", "several classes"),
        ("ILSVRC2012_val_00000001", "bad row", "a comma"),
        (f"ILSVRC2012_val_00000002,{TENCH} 5 5 20 20", "duplicate id", "annotated twice"),
    ],
)
def test_bad_kaggle_rows_are_named(folder: Path, row: str, kind: str, word: str) -> None:
    file = folder / "boxes.csv"
    file.write_text(f"ImageId,PredictionString\nILSVRC2012_val_00000002,{TENCH} 5 5 20 20\n{row}\n")
    faults = [fault for fault in imagenet(folder / "images", boxes=file).faults if fault.kind != "no box"]
    assert [(fault.kind, fault.row) for fault in faults] == [(kind, 3)]
    assert word in str(faults[0])


def test_photographs_without_boxes_are_counted_not_refused(folder: Path) -> None:
    (folder / "xml/val/ILSVRC2012_val_00000001.xml").unlink()
    data = load_dataset(f"imagenet:{folder / 'images'}", boxes=folder / "xml")
    assert data.left_out["without a box"] == 1


def test_boxes_without_photographs_are_counted(folder: Path) -> None:
    (folder / "xml/val/other.xml").write_text("not even XML")
    data = load_dataset(f"imagenet:{folder / 'images'}", boxes=folder / "xml")
    assert data.left_out["with boxes but no file"] == 1


def test_a_zip_with_a_folder_on_top_keeps_its_splits_apart(tmp_path: Path, write_image: WriteImage) -> None:
    for split, number in (("val", 1), ("train", 2)):
        write_image(tmp_path / f"data/imagenette2-320/{split}/{TENCH}/{TENCH}_{number}.JPEG", 40, 30, form="JPEG")
        (tmp_path / f"{TENCH}_{number}.xml").write_text(xml((1, 1, 9, 9)))
    place = shutil.make_archive(str(tmp_path / "toy"), "zip", tmp_path / "data")
    for root in (place, tmp_path / "data"):
        ids = [imagenet(root, split, boxes=tmp_path).manifest.images["id"].tolist() for split in ("eval", "train")]
        assert ids == [[f"{TENCH}_1"], [f"{TENCH}_2"]]


def test_a_damaged_zip_entry_is_a_fault(folder: Path) -> None:
    place = Path(shutil.make_archive(str(folder / "images"), "zip", folder / "images"))
    data = bytearray(place.read_bytes())
    data[100:140] = bytes(40)
    place.write_bytes(data)
    kinds = {fault.kind for fault in imagenet(place, boxes=folder / "xml").faults}
    assert kinds == {"bad image"}


def test_an_endless_width_is_ignored(folder: Path) -> None:
    file = folder / "xml/val/ILSVRC2012_val_00000001.xml"
    file.write_text(file.read_text().replace("<width>40<", "<width>inf<"))
    assert imagenet(folder / "images", boxes=folder / "xml").faults == ()


def test_a_rounded_overhang_is_cut(folder: Path) -> None:
    (folder / "xml/val/ILSVRC2012_val_00000001.xml").write_text(xml((5, 5, 41, 30)))
    assert imagenet(folder / "images", boxes=folder / "xml").manifest.boxes(0).tolist() == [[5, 5, 40, 30]]


def test_wrong_places_say_what_to_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALITY_CACHE", str(folder / "cache"))
    for path, boxes, word in [
        (folder / "images", None, "`boxes` is needed"),
        (folder / "images", folder / "no", "does not exist"),
        (folder / "images", folder / "images", "has no XML"),
        (folder / "xml", folder / "xml", "has no JPEG"),
        (folder / "images/ILSVRC2012_val_00000001.JPEG", folder / "xml", "neither a folder nor a zip"),
    ]:
        with pytest.raises(DataError, match=word):
            imagenet(path, boxes=boxes)
    (folder / "x.csv").write_text("a,b\n")
    with pytest.raises(DataError, match=r"LOC_val_solution\.csv"):
        imagenet(folder / "images", boxes=folder / "x.csv")


def test_a_photograph_in_the_folder_of_another_class(tmp_path: Path, write_image: WriteImage) -> None:
    write_image(tmp_path / f"images/{SPRINGER}/a.JPEG", 40, 30, form="JPEG")
    (tmp_path / "a.xml").write_text(xml((1, 1, 9, 9)))
    assert [fault.kind for fault in imagenet(tmp_path / "images", boxes=tmp_path).faults] == ["unknown label"]


def test_xml_of_a_million_bytes_is_not_parsed() -> None:
    with pytest.raises(DataError, match="too much for an annotation"):
        xml_annotation(b"<annotation>" + b" " * 1_000_001, "x.xml")
