"""Figures as files: PNG, PDF or SVG, the same bytes for the same figure."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from locality.errors import unknown_choice
from locality.files import write_atomically
from locality.report.figures.style import STYLE

# Format ↦ metadata without the time of writing.
FORMATS: dict[str, dict[str, Any]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def figure_bytes(figure: Figure, form: str) -> bytes:
    """The figure as a PNG, PDF or SVG file."""
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes; a name should not stop a figure.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format=form, metadata=FORMATS[form])
    return buffer.getvalue()


def write_figure(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write the figure in each format; each file is complete or absent."""
    for form in formats:
        if form not in FORMATS:
            raise unknown_choice("format", form, FORMATS)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for form in formats:
        path = folder / f"{name}.{form}"
        write_atomically(path, figure_bytes(figure, form))
        paths.append(path)
    return paths
