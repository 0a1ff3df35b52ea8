"""A contact sheet: rows of images with their boxes, to check the boxes by eye."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from locality.pictures import boxed_picture
from locality.types import Sample

INK, PAPER = (30, 30, 30), (255, 255, 255)
GAP, CAPTION, TITLE = 8, 18, 26


@dataclass(frozen=True)
class SheetRow:
    """Images under one title; captions are `captions`, or the names in `classes` by label."""

    title: str
    samples: Sequence[Sample]
    classes: Sequence[str] = ()
    captions: Sequence[str] | None = None


def contact_sheet(rows: Sequence[SheetRow], cell: int = 160, columns: int = 10) -> Image.Image:
    """All rows in one picture; each row wraps after `columns` images."""
    columns = min(columns, max(len(row.samples) for row in rows))
    lines = [-(-len(row.samples) // columns) for row in rows]
    width = columns * (cell + GAP) + GAP
    height = sum(TITLE + GAP + count * (cell + CAPTION + GAP) for count in lines) + GAP
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    top = GAP
    for row, count in zip(rows, lines, strict=True):
        draw.text((GAP, top), row.title, fill=INK, font=ImageFont.load_default(17))
        top += TITLE
        for index, sample in enumerate(row.samples):
            left = GAP + (index % columns) * (cell + GAP)
            line_top = top + (index // columns) * (cell + CAPTION + GAP)
            tile = boxed_picture(sample.image, sample.boxes, cell)
            sheet.paste(tile, (left + (cell - tile.width) // 2, line_top + cell - tile.height))
            caption = row.captions[index] if row.captions is not None else _caption(sample, row.classes)
            draw.text((left, line_top + cell + 2), caption, fill=INK, font=ImageFont.load_default(12))
        top += GAP + count * (cell + CAPTION + GAP)
    return sheet


def _caption(sample: Sample, classes: Sequence[str]) -> str:
    known = 0 <= sample.label < len(classes)
    return classes[sample.label] if known else sample.id
