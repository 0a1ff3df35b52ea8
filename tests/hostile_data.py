"""Hostile images, manifests, archives and annotations."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from hostile_file import Hostile, folder, holding, link_to, pipe
from PIL import Image, PngImagePlugin

EXPLAIN = "explain {file} --model shapes_cnn --out {folder}/picture.png"
MEASURE = "eval --model shapes_cnn --methods SM"
MANIFEST = f"{MEASURE} --data {{folder}}/images.csv"
ZIP = f"{MEASURE} --data tiny-imagenet:{{file}}"
XML = f"{MEASURE} --data imagenet:{{folder}}/images --boxes {{folder}}/xml"
COCO = f"{MEASURE} --data coco:{{folder}}/images --boxes {{file}}"
HEADER = "id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence"


def photograph(form: str = "PNG", size: tuple[int, int] = (64, 64), **options: Any) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3)).astype(np.uint8)
    Image.fromarray(pixels).save(buffer, form, **options)
    return buffer.getvalue()


def claiming(width: int, height: int) -> bytes:
    """A PNG whose header claims another size."""
    data = photograph()
    header = b"IHDR" + struct.pack(">II", width, height) + data[24:29]
    return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]


def floats(value: float) -> Callable[[Path], object]:
    return lambda path: Image.fromarray(np.full((64, 64), value, np.float32)).save(path, "TIFF")


def with_text(path: Path) -> None:
    """A PNG with a compressed comment of 50 million characters."""
    about = PngImagePlugin.PngInfo()
    about.add_text("Comment", "x" * 50_000_000, zip=True)
    Image.new("RGB", (64, 64)).save(path, "PNG", pnginfo=about)


def manifest(
    make: Callable[[Path], object], fields: Mapping[str, object] = MappingProxyType({})
) -> Callable[[Path], object]:
    """A manifest of one row, with some fields changed, and the image that it names."""
    good = {"id": "a", "path": "a.png", "sha256": "", "label": 0, "wnid": "circle", "x0": 5, "y0": 5, "x1": 40, "y1": 40}
    row = good | {"width": 64, "height": 64, "source": "made", "licence": "CC0-1.0"} | dict(fields)

    def write(path: Path) -> None:
        make(path)
        (path.parent / "images.csv").write_text(f"{HEADER}\n{','.join(map(str, row.values()))}\n")

    return write


def csv(content: bytes | str) -> Callable[[Path], object]:
    return holding(content)


def zipped(entries: dict[str, bytes], compress: int = zipfile.ZIP_STORED) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", compress) as archive:
            for name, data in entries.items():
                archive.writestr(name, data)

    return make


def tiny(image: bytes = b"", boxes: str = "n1_400.JPEG\t5\t5\t40\t40\n", **more: bytes) -> dict[str, bytes]:
    """The entries of a Tiny-ImageNet of one class and one image."""
    top = "tiny-imagenet-200/"
    return {
        f"{top}wnids.txt": b"n1\n",
        f"{top}train/n1/n1_boxes.txt": boxes.encode(),
        f"{top}train/n1/images/n1_400.JPEG": image or photograph("JPEG"),
        f"{top}val/val_annotations.txt": b"",
    } | more


def half(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def cut(path: Path) -> None:
        make(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return cut


def annotated(xml: str | Callable[[Path], object]) -> Callable[[Path], object]:
    """A photograph of ImageNet with this XML."""

    def make(path: Path) -> None:
        photo = path.parents[1] / "images/ILSVRC2012_val_00000001.JPEG"
        photo.parent.mkdir()
        photo.write_bytes(photograph("JPEG"))
        (holding(xml) if isinstance(xml, str) else xml)(path)

    return make


def entity(depth: int = 12) -> str:
    """A billion laughs."""
    names = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, depth))
    return f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a0 "ha">{names}]><annotation>&a{depth - 1};</annotation>'


def box(**numbers: object) -> str:
    corners = {"xmin": 5, "ymin": 5, "xmax": 40, "ymax": 40} | numbers
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in corners.items())
    size = "<size><width>64</width><height>64</height></size>"
    return f"<annotation>{size}<object><name>n01440764</name><bndbox>{inner}</bndbox></object></annotation>"


def coco(**changes: object) -> Callable[[Path], object]:
    annotation = {"image_id": 1, "category_id": 17, "bbox": [2, 1, 40, 40]} | changes
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": 64, "height": 64}],
        "categories": [{"id": 17, "name": "cat"}],
        "annotations": [annotation],
    }
    return in_coco(holding(json.dumps(content)))


def in_coco(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def both(path: Path) -> None:
        (path.parent / "images").mkdir()
        (path.parent / "images/1.png").write_bytes(photograph())
        make(path)

    return both


IMAGES = {
    "half a PNG": holding(photograph()[:5000]),
    "half a JPEG": holding(photograph("JPEG")[:600]),
    "a PNG with a damaged chunk": holding(photograph()[:200] + b"\xff" * 50 + photograph()[250:]),
    "a PNG of 100,000 × 100,000 pixels": holding(claiming(100_000, 100_000)),
    "a PNG of 2^31 × 2^31 pixels": holding(claiming(2**31 - 1, 2**31 - 1)),
    "a PNG without pixels": holding(claiming(0, 0)),
    "a PNG of one row": holding(photograph(size=(60_000, 1))),
    "a comment of 50 million characters": with_text,
    "noise as an image": holding(bytes(range(256)) * 20),
    "an empty image": holding(b""),
    "a text as an image": holding("hello"),
    "a drawing with a billion laughs": holding(entity().replace("annotation", "svg")),
    "a picture of nan": floats(float("nan")),
    "a picture of infinity": floats(float("inf")),
    "a picture of 10^30": floats(1e30),
    "a pipe as an image": pipe,
    "a folder as an image": folder,
    "an endless device as an image": link_to("/dev/zero"),
    "a link in a circle as an image": link_to("hostile"),
}
ROWS: dict[str, dict[str, object]] = {
    "a box of nan": {"x0": "nan"},
    "a box of infinity": {"x1": "inf"},
    "a box of 10^400": {"x1": "1e400"},
    "a box inside out": {"x0": 50, "x1": 10},
    "a box outside": {"x0": -500, "x1": -400},
    "a label of 10^30": {"label": "1" + "0" * 30},
    "a negative label": {"label": -5},
    "a label that is a formula": {"label": "=1+1"},
    "a size of 10^9": {"width": 10**9, "height": 10**9},
    "a size of nan": {"width": "nan"},
    "another size than the file's": {"width": 100, "height": 100},
    "another hash than the file's": {"sha256": "0" * 64},
    "a hash that is none": {"sha256": "xyz"},
    "a path that climbs": {"path": "../../../../etc/passwd"},
    "an absolute path": {"path": "/etc/passwd"},
    "a path with a zero byte": {"path": "a\0.png"},
    "a path of 10,000 characters": {"path": "a" * 10_000},
    "a path that moves the cursor": {"path": "\x1b[2J.png"},
    "an id that moves the cursor": {"id": "\x1b]0;evil\x07", "x0": "nan"},
    "an empty path": {"path": ""},
}
CSVS: dict[str, bytes | str] = {
    "a manifest of noise": bytes(range(256)) * 20,
    "an empty manifest": "",
    "a manifest of headers alone": HEADER,
    "a manifest with a quote that never ends": f'{HEADER}\n"a,' + "x" * 1_000_000,
    "a manifest with a line of ten million characters": f"{HEADER}\n" + "x" * 10_000_000,
    "a manifest with other columns": "a,b,c\n1,2,3",
    "a manifest with 100,000 columns": ",".join(f"c{n}" for n in range(100_000)),
    "a manifest in UTF-16": f"{HEADER}\n".encode("utf-16"),
    "a manifest of zero bytes": bytes(10_000),
}
XMLS: dict[str, str | Callable[[Path], object]] = {
    "a billion laughs": entity(),
    "an entity of another file": '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "XML 100,000 deep": "<a>" * 100_000,
    "XML of two million bytes": "<annotation>" + "<x/>" * 500_000 + "</annotation>",
    "XML of noise": "\x00\x01\x02",
    "an XML box of nan": box(xmin="nan"),
    "an XML box of 10^400": box(xmax="1e400"),
    "an XML box inside out": box(xmin=60, xmax=2),
    "XML without a box": "<annotation></annotation>",
    "a pipe as XML": pipe,
    "an endless device as XML": link_to("/dev/zero"),
}
JSONS = {
    "COCO nested 100,000 deep": in_coco(holding("[" * 100_000)),
    "COCO of noise": in_coco(holding(bytes(range(256)))),
    "COCO that is a list": in_coco(holding("[]")),
    "a pipe as COCO": in_coco(pipe),
    "an endless device as COCO": in_coco(link_to("/dev/zero")),
    "a COCO box of nan": coco(bbox=[float("nan")] * 4),
    "a COCO box of texts": coco(bbox=["a", "b", "c", "d"]),
    "a COCO image that is missing": coco(image_id=10**30),
    "a COCO image that is a table": coco(image_id={"a": [1]}),
}
ZIPS = {
    "noise as a zip": holding(bytes(range(256)) * 20),
    "half a zip": half(zipped(tiny())),
    "a zip of zero bytes": zipped(tiny(image=bytes(300_000_000)), zipfile.ZIP_DEFLATED),
    "a zip of classes that climb": zipped({"wnids.txt": b"../../../etc\n"}),
    "a zip of endless classes": zipped({"wnids.txt": b"n" * 20_000_000}, zipfile.ZIP_DEFLATED),
    "a zip of boxes that are none": zipped(tiny(boxes="n1_400.JPEG\tnan\tinf\t-1\t1e400\n")),
    "a zip with a damaged photograph": zipped(tiny(image=b"\xff\xd8\xff" + bytes(50))),
    "a zip of noise for classes": zipped({"wnids.txt": bytes(range(256))}),
    "a pipe as a zip": pipe,
    "an endless device as a zip": link_to("/dev/zero"),
}


def linked_out(path: Path) -> None:
    """A file outside the folder, which a link inside it points to."""
    os.symlink("/etc/passwd", path)


DATA: dict[str, Hostile] = {
    **{name: Hostile(EXPLAIN, make) for name, make in IMAGES.items()},
    **{
        f"{name} in a manifest": Hostile(MANIFEST, manifest(make), "a.png")
        for name, make in IMAGES.items()
        if make != folder
    },
    **{name: Hostile(MANIFEST, manifest(holding(photograph()), fields), "a.png") for name, fields in ROWS.items()},
    "a link out of the folder": Hostile(MANIFEST, manifest(linked_out), "a.png"),
    **{name: Hostile(MANIFEST, csv(content), "images.csv") for name, content in CSVS.items()},
    "a pipe as a manifest": Hostile(MANIFEST, pipe, "images.csv"),
    "an endless device as a manifest": Hostile(MANIFEST, link_to("/dev/zero"), "images.csv"),
    **{name: Hostile(ZIP, make, "hostile.zip") for name, make in ZIPS.items()},
    **{name: Hostile(XML, annotated(xml), "xml/ILSVRC2012_val_00000001.xml") for name, xml in XMLS.items()},
    **{name: Hostile(COCO, make, "instances.json") for name, make in JSONS.items()},
}
