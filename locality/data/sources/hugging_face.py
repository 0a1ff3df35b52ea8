"""`hf`: a Hugging Face data set with boxes or masks: a folder of `save_to_disk`, or parquet files. No code of it is run.

Columns are found by their names, or given: `image`, `objects` (a struct with boxes and classes), `label`, `mask`. A data set
does not say what the four numbers of a box are: `box_format` is "xywh" (COCO's, the default) or "xyxy", in pixels, or with
an `n` at the end in shares of the sides. In a mask everything but 0 is the object; boxes are drawn around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locality.data.annotated import Annotation, annotated_source
from locality.data.arrow_rows import Rows, chosen_column, class_names, table_files
from locality.data.boxes import MAX_BOXES, Array
from locality.data.decode import decode_levels
from locality.data.manifest import Manifest
from locality.data.source import Source
from locality.errors import DataError, Fault, unknown_choice

BoxFormat = Literal["xywh", "xyxy", "xywhn", "xyxyn"]
# What columns and fields may be called, in this order of preference.
OBJECTS = ("objects", "annotations", "object")
BOXES = ("bbox", "bboxes", "boxes", "box")
CLASSES = ("category", "label", "categories", "labels", "class", "category_id", "name")
MASK = ("mask", "segmentation_mask", "annotation", "segmentation")


def hugging_face(
    path: str | Path,
    split: str = "eval",
    image: str = "",
    objects: str = "",
    label: str = "",
    mask: str = "",
    box_format: BoxFormat = "xywh",
    categories: Sequence[str] | str = (),
) -> Source:
    """The source of a saved data set. `eval` is its split validation (else test), `train` its split train."""
    if box_format not in get_args(BoxFormat):
        raise unknown_choice("box_format", box_format, get_args(BoxFormat))
    place = Path(path).expanduser()
    rows = Rows(place, table_files(place, split), image)
    columns = rows.table.column_names
    _ = rows.column  # raises if there is none
    within = chosen_column("objects", objects, OBJECTS, columns) or ""
    masks = chosen_column("mask", mask, MASK, columns) or ""
    labels = chosen_column("label", label, CLASSES, columns) or ""
    boxes = "" if within else chosen_column("objects", objects, BOXES, columns) or ""
    if not within and not boxes and not masks:
        raise DataError(
            f"`{path}` has neither boxes nor masks among its columns ({', '.join(columns)[:300]}): name the column, "
            "for example --data-option objects=COLUMN or mask=COLUMN"
        )
    classes = class_names(rows.table.schema, within, labels)
    reader = _Reader(rows, within, boxes, labels, masks, box_format, classes)
    faults: list[Fault] = []
    annotations = list(reader.annotations(faults))
    outline = (lambda manifest: Masks(rows, masks, manifest)) if masks else None
    return annotated_source("hf", rows, annotations, faults, classes, categories, outline)


@dataclass(frozen=True, eq=False)
class Masks:
    """Gives the object's pixels of image i."""

    rows: Rows
    column: str
    manifest: Manifest

    def __call__(self, index: int) -> Tensor:
        image = self.manifest.images.iloc[index]
        inside = decode_levels(self.rows.bytes_of(self.column, int(image["path"]))) > 0
        if inside.shape != (image["height"], image["width"]):
            raise DataError(f"the mask is {inside.shape[1]} × {inside.shape[0]}, not of the image's size")
        return torch.from_numpy(inside)[None]


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads the boxes and classes of rows."""

    rows: Rows
    objects: str
    boxes: str
    label: str
    mask: str
    box_format: BoxFormat
    classes: list[str] | None  # the names of the classes in their order, if the data set states them

    def annotations(self, faults: list[Fault]) -> Iterator[Annotation]:
        """The annotation of each row."""
        file = str(self.rows.path)
        table = self.rows.table.select([name for name in (self.objects, self.boxes, self.label) if name])
        for row in range(self.rows.table.num_rows):
            cells = {name: table.column(name)[row].as_py() for name in table.column_names}
            try:
                numbers, classes = self._objects(cells)
                names = tuple(self._class_name(one) for one in classes)
                corners, relative = self._corners(numbers), self.box_format.endswith("n")
                if not self.objects and not self.boxes:
                    corners, relative = self._around_mask(row), False
                    names = names[:1] * len(corners)
                if len(names) != len(corners):
                    raise DataError(f"{len(corners)} boxes, but {len(names)} classes")
            except (DataError, ValueError, TypeError, OverflowError) as error:
                faults.append(Fault(file, row + 1, f"{row:08d}", "bad row", f"row {row + 1}: {error}"))
                continue
            yield Annotation(f"{row:08d}", file, row + 1, names, corners, relative=relative)

    def _class_name(self, value: Any) -> str:
        names = self.classes
        if isinstance(value, str):
            return value.strip()
        if isinstance(value, bool) or not isinstance(value, int):
            raise DataError(f"a class is a name or a number, got {str(value)[:40]!r}")
        if names is None:
            return str(value)
        if not 0 <= value < len(names):
            raise DataError(f"class {value} is not one of the {len(names)} classes")
        return names[value]

    def _objects(self, cells: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """Boxes and classes of a row."""
        found = cells.get(self.objects) if self.objects else {BOXES[0]: cells.get(self.boxes)}
        if isinstance(found, list):  # a list of objects instead of an object of lists
            keys = [key for one in found if isinstance(one, dict) for key in one]
            found = {key: [one.get(key) if isinstance(one, dict) else None for one in found] for key in dict.fromkeys(keys)}
        found = found if isinstance(found, dict) else {}
        boxes: list[Any] = next((found[name] for name in BOXES if found.get(name) is not None), [])
        if boxes and not isinstance(boxes[0], list | tuple):
            boxes = [boxes]  # a single box
        classes = next((found[name] for name in CLASSES if found.get(name) is not None), None)
        if classes is None:
            classes = [] if cells.get(self.label) is None else cells[self.label]
        classes = classes if isinstance(classes, list) else [classes] * max(1, len(boxes))
        if len(boxes) > MAX_BOXES:
            raise DataError(f"{len(boxes):,} boxes on one image, at most {MAX_BOXES:,} are allowed")
        return boxes, classes

    def _corners(self, boxes: list[Any]) -> Array:
        corners = np.array(boxes, dtype=np.float64).reshape(-1, 4) if boxes else np.empty((0, 4))
        if len(corners) != len(boxes):
            raise DataError("a box needs four numbers")
        return np.hstack([corners[:, :2], corners[:, :2] + corners[:, 2:]]) if "wh" in self.box_format else corners

    def _around_mask(self, row: int) -> Array:
        inside: NDArray[np.bool_] = decode_levels(self.rows.bytes_of(self.mask, row)) > 0
        rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
        if not len(rows):
            return np.empty((0, 4))
        return np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], dtype=np.float64)
