import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from locality import load_dataset
from locality.data.dataset import NOTES
from locality.data.source import Source
from locality.data.sources.coco import coco, segmentation_mask
from locality.errors import DataError, Fault

WriteImage = Callable[..., str]


@pytest.fixture
def content() -> dict[str, Any]:
    return {
        "images": [{"id": n, "file_name": f"{n}.png", "width": 20, "height": 10} for n in (1, 2, 3)],
        "categories": [{"id": 17, "name": "cat"}, {"id": 18, "name": "dog"}],
        "annotations": [
            {"image_id": 1, "category_id": 17, "bbox": [2, 1, 8, 6], "segmentation": [[2, 1, 10, 1, 2, 7]]},
            {"image_id": 2, "category_id": 17, "bbox": [0, 0, 5, 5]},
            {"image_id": 2, "category_id": 18, "bbox": [5, 0, 5, 5]},
            {"image_id": 3, "category_id": 18, "bbox": [1, 1, 3, 3]},
            {"image_id": 3, "category_id": 18, "bbox": [10, 1, 3.5, 3]},
        ],
    }


@pytest.fixture
def place(tmp_path: Path, write_image: WriteImage) -> Callable[[dict[str, Any]], tuple[Path, Path]]:
    for number in (1, 2, 3):
        write_image(tmp_path / f"val2017/{number}.png", 20, 10)

    def write(content: dict[str, Any]) -> tuple[Path, Path]:
        (tmp_path / "instances.json").write_text(json.dumps(content))
        return tmp_path / "val2017", tmp_path / "instances.json"

    return write


def mistakes(source: Source) -> list[Fault]:
    """Faults without the notes about images that cannot be scored."""
    return [fault for fault in source.faults if fault.kind not in NOTES]


def test_images_of_exactly_one_category(content: dict[str, Any], place: Callable[..., tuple[Path, Path]]) -> None:
    images, boxes = place(content)
    everything = coco(images, boxes=boxes)
    assert everything.manifest.images["id"].tolist() == ["1", "3"]  # 2 shows a cat and a dog
    assert everything.classes == ("cat", "dog")
    assert everything.manifest.boxes(1).tolist() == [[1, 1, 4, 4], [10, 1, 13.5, 4]]
    assert [(fault.kind, fault.image) for fault in everything.faults] == [("several classes", "2")]
    cats = coco(images, boxes=boxes, categories=["cat"])
    assert cats.manifest.images["id"].tolist() == ["1", "2"]  # only cats are asked for: the dog does not count
    assert cats.manifest.boxes(1).tolist() == [[0, 0, 5, 5]]


def test_source_and_licences_are_those_of_the_json(content: dict[str, Any], place: Callable[..., tuple[Path, Path]]) -> None:
    content["info"], content["licenses"] = {"description": "My cats"}, [{"id": 3, "name": "CC-BY-4.0"}]
    content["images"][0]["license"] = 3
    images, boxes = place(content)
    about = coco(images, boxes=boxes).manifest.images
    assert about["source"].tolist() == ["My cats"] * 2
    assert about["licence"].tolist() == ["CC-BY-4.0", "not stated"]


def test_the_only_json_below_the_images_is_found(
    content: dict[str, Any], place: Callable[..., tuple[Path, Path]], tmp_path: Path
) -> None:
    _, boxes = place(content)
    (tmp_path / "captions_val2017.json").write_text("{}")
    assert len(coco(tmp_path).manifest) == 2
    assert len(coco(tmp_path, boxes="instances.json").manifest) == 2  # by its name
    boxes.with_name("others.json").write_text("{}")
    with pytest.raises(DataError, match=r"several JSON files \(instances.json, others.json\)"):
        coco(tmp_path)


def test_boxes_or_masks(content: dict[str, Any], place: Callable[..., tuple[Path, Path]]) -> None:
    images, boxes = place(content)
    by_box = load_dataset(f"coco:{images}", boxes=boxes)[0]
    by_mask = load_dataset(f"coco:{images}", boxes=boxes, region="object")[0]
    assert by_box.mask.sum() == 48
    assert 20 <= by_mask.mask.sum() <= 28  # half of the box: the triangle
    assert (by_box.mask | ~by_mask.mask).all()


@settings(deadline=None, max_examples=50)
@given(st.integers(3, 9), st.integers(0, 9999), st.sampled_from([None, 0, 1]))
def test_polygons_equal_pycocotools(corners: int, seed: int, decimals: int | None) -> None:
    """Any points, also outside the image, on pixel edges, repeated, and of rings that cross themselves."""
    generator = np.random.default_rng(seed)
    points = generator.uniform(-5, 45, (corners, 2))
    points = points if decimals is None else np.round(points, decimals)
    rings = [ring.ravel().tolist() for ring in (points, np.repeat(points[::-1], 2, axis=0) / 2)]
    theirs = coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(rings, 30, 40))).astype(bool)
    assert np.array_equal(segmentation_mask(rings, 30, 40), theirs)


def test_a_polygon_is_filled_by_pixel_centres() -> None:
    mask = segmentation_mask([[1.4, 0.6, 3.4, 0.6, 3.4, 2.6, 1.4, 2.6]], 3, 5)
    assert mask.astype(int).tolist() == [[0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 1, 0, 0]]


@pytest.mark.parametrize("ring", [[0, 0, 1e300, 0, 0, 1e300], [0, 0, 1, 1, float("nan"), 0], [0, 0, 9, 0, 9, 9] * 300_000])
def test_polygons_that_are_no_outline_are_refused(ring: list[float]) -> None:
    with pytest.raises(DataError, match="a polygon"):
        segmentation_mask([ring], 10, 10)


@settings(deadline=None)
@given(st.integers(0, 9999), st.floats(0.05, 0.95))
def test_run_lengths_equal_pycocotools(seed: int, share: float) -> None:
    mask = np.random.default_rng(seed).random((7, 9)) < share
    packed = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    assert np.array_equal(segmentation_mask({"size": [7, 9], "counts": packed["counts"].decode()}, 7, 9), mask)
    flat = mask.T.ravel()
    edges = np.flatnonzero(np.diff(flat, prepend=False)).tolist()
    counts = np.diff([0, *edges, flat.size]).tolist()
    assert np.array_equal(segmentation_mask({"size": [7, 9], "counts": counts}, 7, 9), mask)


def test_run_lengths_that_do_not_add_up_are_refused() -> None:
    for bad in ({"size": [7, 9], "counts": [5]}, {"size": [9, 7], "counts": [63]}, {"size": [7, 9], "counts": [70, -7]}):
        with pytest.raises(DataError, match="add up"):
            segmentation_mask(bad, 7, 9)


@pytest.mark.parametrize(
    ("change", "kind", "word"),
    [
        ({"bbox": [2, 1, 80, 6]}, "bad box", "leaves the image of 20 × 10"),
        ({"bbox": [2, 1, 0, 6]}, "bad box", "empty"),
        ({"bbox": [2, 1, -4, 6]}, "bad box", "empty"),
        ({"bbox": [2, 1, float("nan"), 6]}, "bad box", "four numbers"),
        ({"bbox": [2, 1, 10**400, 6]}, "bad box", "four numbers"),
        ({"bbox": [20, 1, 0.5, 6]}, "bad box", "leaves the image"),
        ({"category_id": [1]}, "unknown label", "[1]"),
        ({"bbox": [2, 1]}, "bad box", "[x, y, width, height]"),
        ({"bbox": None}, "bad box", "[x, y, width, height]"),
        ({"bbox": ["2", 1, 3, 4]}, "bad box", "[x, y, width, height]"),
        ({"category_id": 99}, "unknown label", "99"),
    ],
)
def test_bad_annotations_are_named(
    content: dict[str, Any], place: Callable[..., tuple[Path, Path]], change: dict[str, Any], kind: str, word: str
) -> None:
    content["annotations"][0] |= change
    images, boxes = place(content)
    source = coco(images, boxes=boxes)
    assert [(fault.kind, fault.image) for fault in mistakes(source)] == [(kind, "1")]
    assert word in str(mistakes(source)[0])
    assert source.manifest.images["id"].tolist() == ["3"]


def test_bad_images_are_named(content: dict[str, Any], place: Callable[..., tuple[Path, Path]]) -> None:
    content["images"][0]["file_name"] = "../1.png"
    content["images"][2]["width"] = "wide"
    images, boxes = place(content)
    assert [fault.kind for fault in mistakes(coco(images, boxes=boxes))] == ["unsafe path", "bad size"]


def test_a_duplicate_image_is_named(content: dict[str, Any], place: Callable[..., tuple[Path, Path]]) -> None:
    content["images"].append(content["images"][0])
    images, boxes = place(content)
    assert [fault.kind for fault in mistakes(coco(images, boxes=boxes))] == ["duplicate id"]


@pytest.mark.parametrize("outline", [5, {"counts": 5}, {"counts": [None]}, [{"a": 1}], [[1, 2, 3]], "text"])
def test_outlines_of_strange_types_are_faults(
    content: dict[str, Any], place: Callable[..., tuple[Path, Path]], outline: object
) -> None:
    content["annotations"][0]["segmentation"] = outline
    images, boxes = place(content)
    with pytest.raises(DataError, match=r"instances\.json: '1.png'"):
        load_dataset(f"coco:{images}", boxes=boxes, region="object")[0]


@pytest.mark.parametrize(
    ("key", "item", "words"),
    [
        ("images", None, "images[3] needs an integer"),
        ("images", {"id": "7"}, "images[3] needs an integer"),
        ("images", {"id": float("nan")}, "images[3] needs an integer"),
        ("annotations", None, "annotations[5] needs the `image_id`"),
        ("annotations", {"image_id": 99, "category_id": 17, "bbox": [0, 0, 1, 1]}, "annotations[5] needs the `image_id`"),
        ("annotations", {"image_id": "1", "category_id": 17, "bbox": [0, 0, 1, 1]}, "annotations[5] needs the `image_id`"),
    ],
)
def test_entries_of_strange_types_are_faults(
    content: dict[str, Any], place: Callable[..., tuple[Path, Path]], key: str, item: object, words: str
) -> None:
    content[key].append(item)
    images, boxes = place(content)
    source = coco(images, boxes=boxes)
    assert [words in str(fault) for fault in mistakes(source)] == [True]
    assert len(source.manifest) == 2


@pytest.mark.parametrize("item", [None, {}, {"id": "one", "name": "x"}, {"id": 5}, {"id": 5, "name": 7}])
def test_categories_of_strange_types_are_an_error(
    content: dict[str, Any], place: Callable[..., tuple[Path, Path]], item: object
) -> None:
    content["categories"].append(item)
    images, boxes = place(content)
    with pytest.raises(DataError, match=r"categories\[2\] needs"):
        coco(images, boxes=boxes)


def test_ids_may_be_written_as_floats(content: dict[str, Any], place: Callable[..., tuple[Path, Path]]) -> None:
    content["images"][0]["id"] = 1.0
    images, boxes = place(content)
    assert len(coco(images, boxes=boxes).manifest) == 2


def test_files_of_one_name_in_several_folders(tmp_path: Path, write_image: WriteImage) -> None:
    for number, folder in enumerate("ab"):
        write_image(tmp_path / f"images/{folder}/1.png", 20, 10, seed=number)
    content = {"categories": [{"id": 1, "name": "traffic light"}], "annotations": [], "images": []}
    for number, name in enumerate(["a/1.png", "1.png", "b/1.png"]):
        content["images"].append({"id": number, "file_name": name, "width": 20, "height": 10})
        content["annotations"].append({"image_id": number, "category_id": 1, "bbox": [1, 1, 5, 5]})
    (tmp_path / "c.json").write_text(json.dumps(content))
    source = coco(tmp_path / "images", boxes=tmp_path / "c.json")
    assert source.manifest.images["path"].tolist() == ["a/1.png", "b/1.png"]
    assert [fault.kind for fault in mistakes(source)] == ["bad name"]
    assert source.classes == ("traffic_light",)  # a space would stand between two accepted classes
    assert coco(tmp_path / "images/a", boxes=tmp_path / "c.json").manifest.images["path"].tolist()[1] == "1.png"


def test_wrong_files_say_what_to_pass(
    content: dict[str, Any], place: Callable[..., tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALITY_CACHE", str(tmp_path / "cache"))
    images, boxes = place(content)
    (tmp_path / "captions.json").write_text('{"images": [], "annotations": []}')
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for given_boxes, word in [
        (None, "`boxes` is needed"),
        (images, "is a folder"),
        (tmp_path / "no.json", "does not exist"),
        (tmp_path / "captions.json", "instances JSON"),
        (tmp_path / "text.json", "not JSON"),
        (tmp_path / "deep.json", "nested deeper"),
    ]:
        with pytest.raises(DataError, match=word):
            coco(images, boxes=given_boxes)
    with pytest.raises(DataError, match="`categories` bird not in"):
        coco(images, boxes=boxes, categories="bird")


def test_a_bad_outline_is_named_when_it_is_read(content: dict[str, Any], place: Callable[..., tuple[Path, Path]]) -> None:
    content["annotations"][0]["segmentation"] = {"size": [10, 20], "counts": [3]}
    images, boxes = place(content)
    with pytest.raises(DataError, match=r"instances\.json: '1.png': run lengths do not add up"):
        load_dataset(f"coco:{images}", boxes=boxes, region="object")[0]
    assert load_dataset(f"coco:{images}", boxes=boxes)[0].mask.sum() == 48  # boxes do not need outlines
