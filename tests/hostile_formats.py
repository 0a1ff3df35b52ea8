"""Hostile files in the formats of annotated images: VOC, YOLO, tables, Hugging Face, pets, class folders."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile_data import XMLS, entity, photograph, zipped
from hostile_file import Hostile, folder, holding, link_to, pipe

MEASURE = "eval --model shapes_cnn --methods SM --data"
HEADER = "filename,xmin,ymin,xmax,ymax,label\n"
Make = Callable[[Path], object]


def beside(make: Make, **texts: str) -> Make:
    """The hostile file together with a good image a.png and some texts, in its folder or the one above."""

    def both(path: Path) -> None:
        top = next(parent for parent in path.parents if parent.name == "folder")
        (top / "a.png").write_bytes(photograph())
        for name, text in texts.items():
            (top / name.replace("_", ".")).write_text(text)
        make(path)

    return both


YOLOS: dict[str, Make] = {
    "YOLO of noise": holding(bytes(range(256))),
    "YOLO of nan": holding("0 nan nan nan nan"),
    "YOLO of infinity": holding("0 inf 0.5 0.1 0.1"),
    "YOLO of 10^400": holding("0 1e400 0.5 0.1 0.1"),
    "a class of YOLO of 10^30": holding(f"1{'0' * 30} 0.5 0.5 0.1 0.1"),
    "a polygon of 100,000 corners": holding("0" + " 0.5" * 200_000),
    "YOLO of two million bytes": holding("0 0.5 0.5 0.1 0.1\n" * 120_000),
    "a thousand boxes of YOLO and one": holding("0 0.5 0.5 0.1 0.1\n" * 1_001),
    "a pipe as YOLO": pipe,
    "an endless device as YOLO": link_to("/dev/zero"),
    "YOLO that links out": link_to("/etc/passwd"),
    "a folder as YOLO": folder,
}
YAMLS: dict[str, Make] = {
    "a YAML of laughs": holding("a: &a [x]\nb: &b [*a, *a]\nnames: [*b]"),
    "a YAML that runs code": holding("names: !!python/object/apply:os.system ['touch canary']"),
    "a YAML 90,000 deep": holding("[" * 90_000),
    "a YAML of 40,000 dashes": holding("- " * 40_000),
    "a YAML of noise": holding(bytes(range(256))),
    "a YAML of two million bytes": holding("names: [cat]\n" + "#" * 2_000_000),
    "a pipe as YAML": pipe,
}
TABLES: dict[str, Make] = {
    "a table of noise": holding(bytes(range(256)) * 20),
    "a table of headers alone": holding(HEADER),
    "a table with a quote that never ends": holding(f'{HEADER}"a,' + "x" * 1_000_000),
    "a table with a field of a million characters": holding(f"{HEADER}{'x' * 1_000_000},1,1,5,5,cat\n"),
    "a table with a label of 100,000 characters": holding(f"{HEADER}a.png,1,1,5,5,{'x' * 100_000}\nb.png,1,1,500,5,c\n"),
    "a table with a path that climbs": holding(f"{HEADER}../../../etc/passwd,1,1,5,5,cat\n"),
    "a table with an absolute path": holding(f"{HEADER}/etc/passwd,1,1,5,5,cat\n"),
    "a table with a zero byte": holding(f"{HEADER}a\0.png,1,1,5,5,cat\n"),
    "a table with a box of nan": holding(f"{HEADER}a.png,nan,1,5,5,cat\n"),
    "a table with a box of 10^400": holding(f"{HEADER}a.png,1,1,1e400,5,cat\n"),
    "a table that moves the cursor": holding(f"{HEADER}a.png,1,1,500,5,\x1b[2J\n"),
    "a table in UTF-16": holding(f"{HEADER}a.png,1,1,5,5,cat\n".encode("utf-16")),
    "a table with 100,000 columns": holding(HEADER.strip() + "".join(f",c{n}" for n in range(100_000)) + "\na.png,1\n"),
    "a pipe as a table": pipe,
    "an endless device as a table": link_to("/dev/zero"),
}


def arrow(cells: dict[str, Any], features: str = "{}") -> bytes:
    """A stream of one row with other cells."""
    import pyarrow as pa

    row = {"image": [{"bytes": photograph(), "path": None}], "objects": [{"bbox": [[1, 1, 5, 5]], "category": ["cat"]}]}
    table = pa.table(row | cells).replace_schema_metadata({"huggingface": features})
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def written(cells: dict[str, Any], features: str = "{}", cut: int | None = None, flip: int | None = None) -> Make:
    """Makes an arrow file when it is needed: damaged by a cut, or by bytes that are flipped."""

    def make(path: Path) -> None:
        data = bytearray(arrow(cells, features))
        if flip is not None:
            data[flip : flip + 8] = b"\xff" * 8
        path.write_bytes(bytes(data[:cut]))

    return make


ARROWS: dict[str, Make] = {
    "arrow of noise": holding(bytes(range(256)) * 20),
    "an empty arrow": holding(b""),
    "half an arrow": written({}, cut=600),
    "an arrow of flipped offsets": written({}, flip=900),
    "an arrow that claims 2^63 bytes": written({}, flip=4),
    "an arrow with a path instead of an image": written({"image": [{"bytes": None, "path": "/etc/passwd"}]}),
    "an arrow with a damaged image": written({"image": [{"bytes": b"\xff\xd8\xff", "path": None}]}),
    "an arrow with texts for boxes": written({"objects": [{"bbox": [["a", "b", "c", "d"]], "category": ["cat"]}]}),
    "an arrow with boxes of nan": written({"objects": [{"bbox": [[float("nan")] * 4], "category": ["cat"]}]}),
    "an arrow with a number for the image": written({"image": [7]}),
    "an arrow with classes 100,000 deep": written({"image": [7]}, features="[" * 100_000),
    "an arrow with names of numbers": written({"image": [7]}, features=json.dumps({"info": {"features": {"objects": 7}}})),
    "a pipe as arrow": pipe,
    "an endless device as arrow": link_to("/dev/zero"),
}
PETS: dict[str, Make] = {
    "a list of pets that climbs": zipped({"annotations/list.txt": b"../../etc/passwd_1 1 1 1\n"}),
    "a list of pets of noise": zipped({"annotations/list.txt": bytes(range(256))}),
    "a list of pets of ten million bytes": zipped({"annotations/list.txt": b"a" * 10_000_000}),
    "a pet with a trimap of noise": zipped(
        {
            "annotations/list.txt": b"a_1 1 1 1\n",
            "images/a_1.jpg": photograph("JPEG"),
            "annotations/trimaps/a_1.png": bytes(range(256)),
        }
    ),
    "a pet with a trimap of another size": zipped(
        {
            "annotations/list.txt": b"a_1 1 1 1\n",
            "images/a_1.jpg": photograph("JPEG"),
            "annotations/trimaps/a_1.png": photograph(size=(9, 9)),
        }
    ),
}
CLASSES: dict[str, Make] = {
    "a class folder with half an image": holding(photograph()[:20]),
    "a class folder with a pipe": pipe,
    "a class folder with an endless device": link_to("/dev/zero"),
    "a class folder with a link out": link_to("/etc/passwd"),
}
FORMATS: dict[str, Hostile] = {
    **{
        f"{name} in VOC": Hostile(
            f"{MEASURE} voc:{{folder}}", beside(holding(xml) if isinstance(xml, str) else xml), "a.xml"
        )
        for name, xml in XMLS.items()
    },
    **{
        name: Hostile(f"{MEASURE} yolo:{{folder}}", beside(make, classes_txt="cat"), "a.txt") for name, make in YOLOS.items()
    },
    **{
        name: Hostile(f"{MEASURE} yolo:{{folder}}", beside(make, a_txt="0 0.5 0.5 0.2 0.2"), "data.yaml")
        for name, make in YAMLS.items()
    },
    **{name: Hostile(f"{MEASURE} csv:{{folder}}", beside(make), "boxes.csv") for name, make in TABLES.items()},
    **{f"{name}, guessed": Hostile(f"{MEASURE} {{folder}}", beside(make), "boxes.csv") for name, make in TABLES.items()},
    **{name: Hostile(f"{MEASURE} hf:{{folder}}", make, "a.arrow") for name, make in ARROWS.items()},
    **{name: Hostile(f"{MEASURE} pets:{{file}}", make, "hostile.zip") for name, make in PETS.items()},
    **{name: Hostile(f"{MEASURE} folder:{{folder}}", beside(make), "cat/b.png") for name, make in CLASSES.items()},
    "a guess among laughs": Hostile(f"{MEASURE} {{folder}}", beside(holding(entity())), "a.xml"),
}
