"""A contact sheet: rows of images with their boxes, to check the boxes by eye."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from locality.types import Sample

BOX_COLOUR = (255, 140, 0)
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
            tile = _tile(sample, cell)
            sheet.paste(tile, (left + (cell - tile.width) // 2, line_top + cell - tile.height))
            caption = row.captions[index] if row.captions is not None else _caption(sample, row.classes)
            draw.text((left, line_top + cell + 2), caption, fill=INK, font=ImageFont.load_default(12))
        top += GAP + count * (cell + CAPTION + GAP)
    return sheet


def _caption(sample: Sample, classes: Sequence[str]) -> str:
    known = 0 <= sample.label < len(classes)
    return classes[sample.label] if known else sample.id


def _tile(sample: Sample, cell: int) -> Image.Image:
    """The image scaled into a square of `cell` pixels, with its boxes."""
    pixels = (sample.image * 255).round().byte().permute(1, 2, 0).numpy()
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    scale = cell / max(picture.size)
    # Small images are not smoothed: that would hide what the model sees.
    resampling = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
    picture = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))), resampling)
    draw = ImageDraw.Draw(picture)
    for box in sample.boxes:
        x0, y0 = box.x0 * scale, box.y0 * scale
        corners = [x0, y0, max(x0, box.x1 * scale - 1), max(y0, box.y1 * scale - 1)]
        draw.rectangle(corners, outline=(0, 0, 0), width=3)
        draw.rectangle(corners, outline=BOX_COLOUR, width=2)
    return picture
