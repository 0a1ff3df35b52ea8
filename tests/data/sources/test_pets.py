import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from locality import load_dataset
from locality.data.sources.pets import pets
from locality.errors import ArgumentError, DataError

WriteImage = Callable[..., str]
BOX = "<xmin>3</xmin><ymin>2</ymin><xmax>8</xmax><ymax>6</ymax>"


@pytest.fixture
def layout(tmp_path: Path, write_image: WriteImage) -> Path:
    """Ten animals of two breeds in the official layout; the animal of each is at (4, 2), its edge one pixel around it."""
    lines = ["#Image CLASS-ID SPECIES BREED ID"]
    for breed, (name, species) in enumerate([("Bengal", 1), ("english_setter", 2)], start=1):
        for number in (1, 2, 3, 10, 20):
            write_image(tmp_path / f"images/{name}_{number}.jpg", 20, 10, form="JPEG")
            levels = np.full((10, 20), 2, np.uint8)
            levels[1:8, 3:12] = 3
            levels[2:7, 4:11] = 1
            path = tmp_path / f"annotations/trimaps/{name}_{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(levels).save(path)
            lines.append(f"{name}_{number} {breed} {species} 1")
    (tmp_path / "annotations/list.txt").write_text("\n".join(lines))
    (tmp_path / "annotations/xmls").mkdir()
    (tmp_path / "annotations/xmls/Bengal_20.xml").write_text(
        f"<annotation><object><name>cat</name><bndbox>{BOX}</bndbox></object></annotation>"
    )
    return tmp_path


def test_boxes_and_masks_of_the_animal(layout: Path) -> None:
    data = load_dataset(f"pets:{layout}", region="object")
    assert [sample.id for sample in data] == ["Bengal_20", "english_setter_20"]  # by number, not by name
    assert data.source.classes == ("cat", "dog")
    assert [sample.label for sample in data] == [0, 1]
    (box,) = data[0].boxes
    assert (box.x0, box.y0, box.x1, box.y1) == (3, 1, 12, 8)
    assert data[0].mask.sum() == 7 * 9
    assert len(load_dataset(f"pets:{layout}", split="train")) == 8
    breeds = pets(layout, classes="breeds")
    assert breeds.classes == ("Bengal", "english_setter")
    assert breeds.manifest.images["label"].tolist() == [0, 1]


def test_boxes_of_the_head_and_official_lists(layout: Path) -> None:
    heads = pets(layout, boxes="head")
    assert heads.manifest.corners.tolist() == [[2, 1, 8, 6]]
    assert [(fault.kind, fault.image) for fault in heads.faults] == [("no box", "english_setter_20")]
    (layout / "annotations/test.txt").write_text("Bengal_1 1 1 1\n")
    assert pets(layout).manifest.images["id"].tolist() == ["Bengal_1"]
    with pytest.raises(ArgumentError, match="`boxes` must be one of animal, head"):
        pets(layout, boxes="face")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`classes` must be one of species, breeds"):
        pets(layout, classes="breed")  # type: ignore[arg-type]


def test_bad_files_are_named(layout: Path) -> None:
    Image.fromarray(np.full((5, 5), 1, np.uint8)).save(layout / "annotations/trimaps/Bengal_20.png")
    Image.fromarray(np.full((10, 20), 7, np.uint8)).save(layout / "annotations/trimaps/english_setter_20.png")
    Image.fromarray(np.full((10, 20), 2, np.uint8)).save(layout / "annotations/trimaps/Bengal_3.png")
    names = ["Bengal_20", "english_setter_20", "Bengal_1", "Bengal_3", "../../etc/passwd_1", "Bengal_1", "Bengal_99"]
    (layout / "annotations/test.txt").write_text("".join(f"{name} 1 1 1\n" for name in names))
    source = pets(layout)
    problems = [str(fault) for fault in source.faults]
    words = ["got '../../etc", "listed twice", "is 5 × 5", "levels from 7 to 7", "Bengal_99 has no photograph"]
    words.append("the trimap of Bengal_3 has no animal")
    for word in words:
        assert sum(word in problem for problem in problems) == 1, (word, problems)
    with pytest.raises(DataError, match=r"has no annotations/list\.txt"):
        pets(layout / "images")


def test_the_real_layout() -> None:
    place = os.environ.get("LOCALITY_PETS")
    if not place or not Path(place).exists():
        pytest.skip("real photographs are not here: set LOCALITY_PETS to pets-128.zip to run this test")
    data = load_dataset("pets", limit=20, region="object")
    assert data.counts() == {"cat": 10, "dog": 10}
    for sample in data:
        (box,) = sample.boxes
        assert sample.outline is not None
        rows, columns = sample.outline[0].nonzero().T
        assert (box.x0, box.y0, box.x1, box.y1) == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)


def test_a_missing_trimap_is_named(layout: Path) -> None:
    (layout / "annotations/trimaps/Bengal_20.png").unlink()
    with pytest.raises(DataError, match=r"Bengal_20 has no trimap, annotations/trimaps/Bengal_20.png: add it, or remove"):
        load_dataset(f"pets:{layout}")


def test_a_breed_of_two_has_one_for_each_split(layout: Path) -> None:
    (layout / "annotations/list.txt").write_text("".join(f"Bengal_{number} 1 1 1\n" for number in (1, 2)))
    assert [pets(layout, split).manifest.images["id"].tolist() for split in ("train", "eval")] == [
        ["Bengal_1"],
        ["Bengal_2"],
    ]
