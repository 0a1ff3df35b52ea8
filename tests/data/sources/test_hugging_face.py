"""Tables as the library `datasets` writes them: the schemas and metadata here are those of its version 5.2."""

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import image_bytes
from PIL import Image

from locality import DataError, load_dataset
from locality.data.build import build_manifest
from locality.data.sources.hugging_face import hugging_face
from locality.errors import ArgumentError

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
OBJECTS = pa.struct({"bbox": pa.list_(pa.list_(pa.float32(), 4)), "category": pa.list_(pa.int64())})
NAMES = {"feature": {"names": ["cat", "sea dog"], "_type": "ClassLabel"}, "_type": "List"}


def pictures(count: int = 3) -> list[dict[str, Any]]:
    return [{"bytes": image_bytes(20, 10, seed=seed), "path": None} for seed in range(count)]


def table(columns: dict[str, Any], types: dict[str, Any], features: dict[str, Any]) -> pa.Table:
    metadata = {"huggingface": json.dumps({"info": {"features": {"image": {"_type": "Image"}, **features}}})}
    schema = pa.schema([pa.field(name, kind) for name, kind in types.items()], metadata)
    return pa.table(columns, schema=schema)


def with_boxes(boxes: list[Any] | None = None, classes: list[Any] | None = None) -> pa.Table:
    boxes = boxes or [[[2, 1, 8, 6]], [[0, 0, 5, 5], [10, 2, 4, 4]], [[1, 1, 3, 3]]]
    classes = classes or [[0], [1, 1], [0]]
    objects = [{"bbox": box, "category": own} for box, own in zip(boxes, classes, strict=True)]
    columns = {"image": pictures(), "objects": objects}
    return table(columns, {"image": IMAGE, "objects": OBJECTS}, {"objects": {"category": NAMES}})


def save(path: Path, rows: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(rows, path)
        return path
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows, 2)  # in several batches
    return path


@pytest.mark.parametrize("name", ["data-00000-of-00001.arrow", "validation/data.arrow", "data/test-00000-of-00001.parquet"])
def test_boxes_are_those_of_coco(tmp_path: Path, name: str) -> None:
    save(tmp_path / name, with_boxes())
    if "/" in name:  # the other split
        other = name.replace("validation", "train").replace("test", "train")
        save(tmp_path / other, with_boxes().slice(0, 1))
    data = load_dataset(f"hf:{tmp_path}")
    assert data.source.classes == ("cat", "sea_dog")
    assert not data.source.assumed_order
    boxes = [[(box.x0, box.y0, box.x1, box.y1) for box in sample.boxes] for sample in data]
    assert boxes == [[(2, 1, 10, 7)], [(0, 0, 5, 5), (10, 2, 14, 6)], [(1, 1, 4, 4)]]
    assert [sample.label for sample in data] == [0, 1, 0]
    assert load_dataset(tmp_path).source.guess
    again = pickle.loads(pickle.dumps(data.source.read))
    assert torch.equal(again(1).image, data.source.read(1).image)
    if "/" in name:
        assert len(load_dataset(f"hf:{tmp_path}", split="train")) == 1


def test_masks_and_their_boxes(tmp_path: Path) -> None:
    masks = []
    for number in range(3):
        mask = np.zeros((10, 20), np.uint8)
        mask[2:6, 3 + number : 9] = 200
        buffer = io.BytesIO()
        Image.fromarray(mask).save(buffer, "PNG")
        masks.append({"bytes": buffer.getvalue(), "path": None})
    columns = {"image": pictures(), "label": [1, 0, 1], "mask": masks}
    types = {"image": IMAGE, "label": pa.int64(), "mask": IMAGE}
    save(tmp_path / "a.arrow", table(columns, types, {"label": NAMES["feature"]}))
    data = load_dataset(f"hf:{tmp_path}", region="object")
    assert [sample.mask.sum().item() for sample in data] == [24, 20, 16]
    assert data.source.manifest.corners.tolist() == [[3, 2, 9, 6], [4, 2, 9, 6], [5, 2, 9, 6]]
    assert [sample.label for sample in data] == [1, 0, 1]


def test_formats_of_boxes(tmp_path: Path) -> None:
    save(tmp_path / "a.arrow", with_boxes())
    assert hugging_face(tmp_path, box_format="xyxy").manifest.corners.tolist()[0] == [2, 1, 8, 6]
    save(tmp_path / "a.arrow", with_boxes([[[0.25, 0.5, 0.5, 0.25]]] * 3, [[0]] * 3))
    assert hugging_face(tmp_path, box_format="xywhn").manifest.corners.tolist()[0] == [5, 5, 15, 7.5]
    with pytest.raises(DataError, match="must be in pixels"):
        hugging_face(tmp_path)
    with pytest.raises(ArgumentError, match="`box_format`"):
        hugging_face(tmp_path, box_format="yolo")  # type: ignore[arg-type]


def test_a_list_of_objects_with_names(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct({"bbox": pa.list_(pa.float32(), 4), "label": pa.string()}))
    objects = [[{"bbox": [2, 1, 8, 6], "label": "dog"}], [], [{"bbox": [2, 1, 8, 6], "label": "cat"}]]
    save(tmp_path / "a.arrow", table({"image": pictures(), "objects": objects}, {"image": IMAGE, "objects": kind}, {}))
    source = hugging_face(tmp_path)
    assert source.classes == ("cat", "dog")
    assert source.manifest.images["wnid"].tolist() == ["dog", "cat"]
    assert [fault.kind for fault in source.faults] == ["no box"]


def test_a_manifest_has_its_images_as_files(tmp_path: Path) -> None:
    save(tmp_path / "a.arrow", with_boxes())
    data = load_dataset(f"hf:{tmp_path}")
    build_manifest(data, tmp_path / "out/mine.csv", licence="MIT")
    read = load_dataset(tmp_path / "out/mine.csv")
    assert [sample.boxes for sample in read] == [sample.boxes for sample in data]
    assert torch.equal(read[2].image, data[2].image)


def test_bad_rows_and_columns_are_named(tmp_path: Path) -> None:
    save(tmp_path / "a.arrow", with_boxes([[[2, 1, 8, 6]], [[0, 0, 50, 5]], [[1, 1, 3, 3]]], [[7], [0], [0, 1]]))
    faults = [(fault.kind, fault.row) for fault in hugging_face(tmp_path).faults]
    assert sorted(faults) == [("bad box", 2), ("bad row", 1), ("bad row", 3)]
    with pytest.raises(ArgumentError, match="`image` must be one of image, objects, got 'photo'"):
        hugging_face(tmp_path, image="photo")
    columns: dict[str, Any] = {"image": [{"bytes": None, "path": "/etc/passwd"}] * 3, "objects": with_boxes()["objects"]}
    save(tmp_path / "a.arrow", table(columns, {"image": IMAGE, "objects": OBJECTS}, {}))
    assert "only a path" in str(hugging_face(tmp_path).faults[0])
    save(tmp_path / "a.arrow", table({"image": pictures()}, {"image": IMAGE}, {}))
    with pytest.raises(DataError, match=r"neither boxes nor masks among its columns \(image\)"):
        hugging_face(tmp_path)


def test_damaged_tables_are_one_sentence(tmp_path: Path) -> None:
    for name in ("a.arrow", "a.parquet"):
        whole = save(tmp_path / name, with_boxes()).read_bytes()
        for content in (b"", b"noise" * 100, whole[: len(whole) // 2], whole[:-200], bytes(5000)):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(DataError, match=r"cannot be read as a table|neither boxes nor masks|has no column"):
                hugging_face(tmp_path / name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no .arrow or .parquet file"):
        hugging_face(tmp_path / "empty")
