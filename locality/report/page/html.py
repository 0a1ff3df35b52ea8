"""The report: one self-contained HTML file that needs no network.

Names and paths are untrusted. In the page they are escaped text or JSON, and the script writes them with `textContent` only.
The content security policy allows only the page's own script and style sheet, by their hashes, and embedded pictures: a name
that was not escaped could not run either.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from locality import __version__
from locality.files import write_atomically
from locality.report.aggregates import NotMeasuredError
from locality.report.figures.catalogue import FIGURES
from locality.report.figures.files import figure_bytes
from locality.report.figures.options import FigureOptions, by_data
from locality.report.findings import sentences
from locality.report.findings.verdicts import answer
from locality.report.models import models_of
from locality.report.page.gallery import gallery_data
from locality.report.page.images import image_table
from locality.report.tables.build import tables
from locality.report.tables.formats import csv_text
from locality.report.tables.table import Cell, Column, Table
from locality.results.results import Results
from locality.results.verdict import seen

SHOWN_FIGURES = ("3.4", "3.5", "3.2", "distance", "means", "histogram", "extremes", "2.4", "3.3", "B.1", "B.2")
PIXELS = 140  # per inch of a figure
FEW = 4  # rows of a table that needs no filter
LONG = 24  # characters of a text cell that may be wrapped


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str
    title: str
    content: str


def write_report(results: Results, path: Path) -> Path:
    """Write the page to `path`; the file is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, report_page(results))
    return path


def report_page(results: Results) -> str:
    """The whole page.

    >>> page = report_page(Results("<b>"))
    >>> "<h1>&lt;b&gt;</h1>" in page, "<b>" in page
    (True, False)
    """
    gallery, images, built = gallery_data(results), image_table(results), tables(results)
    sections = [
        Section("summary", "Summary", _list(sentences(results))),
        Section("figures", "Figures", "".join(_figures(results))),
        Section("gallery", "Gallery", _gallery(gallery)),
        Section("tables", "Tables", "".join(_table(table) for table in built)),
        Section("images", "Images", _images(images)),
        Section("provenance", "Provenance", _provenance(results)),
    ]
    shown = [section for section in sections if section.content]
    style, script = (
        files("locality.report.page").joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    page = Template(files("locality.report.page").joinpath("page.html").read_text(encoding="utf-8"))
    return page.substitute(
        policy=_policy(style, script),
        title=escape(results.name),
        question=_question(results),
        answer=escape(answer(results)),
        style=style,
        script=script,
        navigation=" ".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in shown),
        sections="\n".join(
            f'<section id="{section.name}">\n<h2>{escape(section.title)}</h2>\n{section.content}\n</section>'
            for section in shown
        ),
        version=escape(__version__),
        data=json_in_html({"gallery": gallery, "images": images, "csv": {one.name: csv_text(one) for one in built}}),
    )


def json_in_html(value: Any) -> str:
    r"""JSON that cannot end the script element it stands in.

    >>> json_in_html("</script><!--&")
    '"\\u003c/script\\u003e\\u003c!--\\u0026"'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _question(results: Results) -> str:
    models = "Does this model" if len(models_of(results)) == 1 else "Do these models"
    return f"{models} look at {seen(results.region)}?"


def _policy(style: str, script: str) -> str:
    """The Content-Security-Policy of the page."""
    rules = {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": _digest(style),
        "script-src": _digest(script),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {rule}" for name, rule in rules.items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _figures(results: Results) -> list[str]:
    """The figures that the results allow; each of several data sets has its own, under its name."""
    parts = by_data(results)
    content = []
    for data, part in parts.items():
        # The best and worst images of a single model are shown instead of its first ones.
        shown = [name for name in SHOWN_FIGURES if name != "3.3" or len(models_of(part)) > 1]
        drawn = [figure for name in shown for figure in _figure(part, name, data)]
        content += [f"<h3>{escape(data)}</h3>"] if drawn and len(parts) > 1 else []
        content += drawn
    return content


def _figure(results: Results, name: str, data: str) -> list[str]:
    drawing = FIGURES[name]
    try:
        plot = drawing.draw(results, FigureOptions(), "page")
    except NotMeasuredError:
        return []
    if plot.points == 1:
        return []  # `means` has the numbers of all figures that would have one point
    picture = base64.b64encode(figure_bytes(plot.figure, "svg")).decode()
    number = f"Figure {name}. " if name[-1].isdigit() else ""
    words = f"<strong>{escape(number + drawing.title)}.</strong> {escape(drawing.caption(plot, data))}"
    # Text has one size in all figures, so a figure of half the width is half as wide here too.
    width = round(PIXELS * float(plot.figure.get_size_inches()[0]))
    image = f'<img src="data:image/svg+xml;base64,{picture}" width="{width}" alt="{escape(drawing.title)}">'
    return [f"<figure>{image}<figcaption>{words}</figcaption></figure>"]


def _table(table: Table) -> str:
    head = "".join(_head(column) for column in table.columns)
    body = "".join(
        f"<tr>{''.join(_cell(cell, column) for cell, column in zip(row, table.columns, strict=True))}</tr>\n"
        for row in table.rows
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.note_texts())
    return (
        f'<h3 id="table-{escape(table.name)}">{escape(table.title)}</h3>\n{_tools(table.name, len(table.rows))}'
        '<div><p class="hint" aria-hidden="true">More columns on the right: scroll →</p><div class="wide" tabindex="0">'
        f'<table class="sortable" aria-labelledby="table-{escape(table.name)}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div></div>\n{notes}\n"
    )


def _tools(name: str, rows: int) -> str:
    """The filter of a table, if it is long, and the button that saves it as a CSV file."""
    search = '<input type="search" class="filter" placeholder="Filter rows" aria-label="Filter rows">' if rows > FEW else ""
    return f'<p class="tools">{search}<button type="button" class="csv" data-table="{escape(name)}">CSV</button></p>\n'


def _images(images: dict[str, Any] | None) -> str:
    """The table image by image, which the script fills."""
    if images is None:
        return ""
    columns = [
        Column(title, title, "text" if place < images["text"] else "number") for place, title in enumerate(images["columns"])
    ]
    omitted = f" {images['omitted']:,} more rows are stored; this page has the first ones." if images["omitted"] else ""
    return (
        '<p class="note">One row per image and model. A name that is a link shows the image in the gallery.'
        f"{omitted}</p>\n{_tools('images', len(images['rows']))}"
        '<div><p class="hint" aria-hidden="true">More columns on the right: scroll →</p><div class="wide" tabindex="0">'
        f'<table id="image-table" aria-label="Images"><thead><tr>{"".join(map(_head, columns))}</tr></thead>'
        "<tbody></tbody></table></div></div>\n"
        '<p class="note"><span id="image-count" role="status"></span> '
        '<button type="button" id="more-images">Show more</button></p>'
    )


def _head(column: Column) -> str:
    kind = "text" if column.type == "text" else "number"
    return f'<th scope="col" class="{kind}" data-type="{kind}"><button type="button">{escape(column.title)}</button></th>'


def _cell(cell: Cell, column: Column) -> str:
    kinds = [kind for kind in ("text" if column.type == "text" else "", cell.mark) if kind]
    kinds += ["long"] if column.type == "text" and len(cell.text) > LONG else []
    look = f' class="{" ".join(kinds)}"' if kinds else ""
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    return f"<td{look}{value}>{escape(cell.text)}</td>"


def _gallery(gallery: dict[str, Any] | None) -> str:
    if gallery is None:
        return ""
    omitted = gallery["omitted"]
    boxes = "; the box is the annotation" if any(image["boxes"] for image in gallery["images"]) else ""
    note = f'<p class="note">{omitted:,} more images are stored; this page shows the first ones.</p>' if omitted else ""
    return (
        '<p class="note">Choose an image (by mouse, or with the arrow keys in the list), models and methods. Red supports '
        f"the predicted class, blue opposes it{boxes}. One colour scale per row.</p>"
        f'{note}<div class="gallery"><ul id="pictures" class="pictures" role="listbox" aria-label="Images"></ul><div>'
        '<div class="choices"><fieldset id="models"><legend>Models</legend></fieldset>'
        '<fieldset id="methods"><legend>Methods</legend></fieldset>'
        '<fieldset><legend>Full colour</legend><label>above <input type="range" id="contrast" min="90" max="100" step="0.5" '
        'value="99.5"><output for="contrast">99.5 %</output> of a row\'s values</label></fieldset></div>'
        '<p class="scale">opposes <canvas id="scale" width="176" height="12" role="img" '
        'aria-label="Colour scale from blue, opposes, to red, supports"></canvas> supports the class</p>'
        '<p id="shown" class="note" role="status" aria-live="polite"></p><div id="sheet" class="sheet"></div></div></div>'
    )


def _provenance(results: Results) -> str:
    if not results.provenance:
        return ""
    text = json.dumps(results.provenance, ensure_ascii=False, indent=2, default=str, sort_keys=True)
    return f"<details><summary>Versions, weights, data and settings</summary><pre>{escape(text)}</pre></details>"
