"""Annotations as Pascal VOC writes them: one XML file per image with its size, and a name and a box per object."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from locality.data.boxes import Array
from locality.errors import DataError, Fault

MAX_XML_BYTES = 1_000_000


@dataclass(frozen=True, eq=False)
class VocFile:
    """The content of one XML file."""

    names: tuple[str, ...]  # K, of the objects' classes
    corners: Array  # K×4 as written, nan where a number is missing
    size: tuple[int, int] | None  # width and height that the boxes refer to, if stated


def read_voc_xml(data: bytes, file: str) -> VocFile:
    """The objects in the bytes of an XML file, of which there may be none; entities and external references are refused."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    if len(data) > MAX_XML_BYTES:
        raise xml_error(file, "bad XML", f"{len(data):,} bytes of XML for one photograph are too much for an annotation")
    try:
        tree: Any = fromstring(data, forbid_dtd=True)
    except DefusedXmlException as refused:
        name = type(refused).__name__
        problem = f"the XML declares entities or a DTD ({name}), refused: use the official file"
        raise xml_error(file, "bad XML", problem) from refused
    except (ParseError, ValueError, LookupError) as invalid:
        raise xml_error(file, "bad XML", f"not XML ({invalid})") from invalid
    objects = tree.findall("object")
    names = tuple((item.findtext("name") or "").strip() for item in objects)
    corners = [[_number(item, f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")] for item in objects]
    width, height = _number(tree, "size/width"), _number(tree, "size/height")
    size = (int(width), int(height)) if 1 <= width < 1e9 and 1 <= height < 1e9 else None
    return VocFile(names, np.array(corners, dtype=np.float64).reshape(-1, 4), size)


def xml_error(file: str, kind: str, problem: str) -> DataError:
    """The error of an XML file that cannot be used."""
    return DataError.of([Fault(file, None, PurePosixPath(file.replace("\\", "/")).stem, kind, problem)])


def _number(element: Any, path: str) -> float:
    try:
        return float(element.findtext(path))
    except (TypeError, ValueError):
        return float("nan")
