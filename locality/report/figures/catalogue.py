"""All figures by number. To add one, write a file beside this one and add a line to FIGURES."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from locality.errors import ArgumentError, unknown_choice
from locality.report.aggregates import NotMeasuredError
from locality.report.figures.accuracy import ACCURACY, PRECISION, RECALL
from locality.report.figures.certified import VERIFIED
from locality.report.figures.curvature import GAP, TRH, WCI
from locality.report.figures.distance import DISTANCE
from locality.report.figures.drawing import Drawing
from locality.report.figures.extremes import EXTREMES
from locality.report.figures.files import write_figure
from locality.report.figures.geometry import GEOMETRY
from locality.report.figures.heatmaps import MODEL_HEATMAPS, PAIR_HEATMAPS
from locality.report.figures.histogram import HISTOGRAM
from locality.report.figures.layer_randomisation import LAYER_RANDOMISATION
from locality.report.figures.means import MEANS
from locality.report.figures.options import FigureOptions, by_data, file_words
from locality.report.figures.regions import REGIONS
from locality.report.figures.robust_accuracy import ROBUST_ACCURACY
from locality.report.figures.style import ACROSS, Width
from locality.results.results import Results

ONE_POINT = "it would have one point; `means` has its numbers"
FIGURES: dict[str, Drawing] = {
    "2.3": GEOMETRY,
    "2.4": LAYER_RANDOMISATION,
    "3.2": ACCURACY,
    "3.3": MODEL_HEATMAPS,
    "3.4": ROBUST_ACCURACY,
    "3.5": PAIR_HEATMAPS,
    "B.1": PRECISION,
    "B.2": RECALL,
    "distance": DISTANCE,
    "regions": REGIONS,
    "extremes": EXTREMES,
    "histogram": HISTOGRAM,
    "means": MEANS,
    "vra": VERIFIED,
    "wci": WCI,
    "trh": TRH,
    "gap": GAP,
}


@dataclass(frozen=True)
class DrawnFiles:
    """Files written, and reasons for figures skipped: by figure, and by data set where there are several."""

    files: dict[str, list[Path]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def draw_figures(
    results: Results,
    folder: Path,
    which: Sequence[str] | None = None,
    formats: Sequence[str] = ("png", "pdf"),
    width: Width = "page",
    options: FigureOptions | None = None,
    prefix: str = "",
) -> DrawnFiles:
    """Draw the named figures into `folder`, or all that the results allow; a named figure that is impossible is an error.

    Each of several data sets has its own figures, with its name in the file's. At `width="column"`, for one column of a
    paper, panels are stacked and text is as large as on a page. `prefix` begins the name of every file.
    """
    if {"/", "\\"} & set(prefix):
        raise ArgumentError("prefix", "the beginning of a file's name", prefix, "the folder is `out`")
    if width not in ACROSS:
        raise unknown_choice("width", width, ACROSS)
    for name in which or ():
        if name not in FIGURES:
            raise unknown_choice("which", name, FIGURES)
    drawn = DrawnFiles()
    possible: set[str] = set()
    parts = by_data(results)
    words = file_words(list(parts))
    for index, (data, part) in enumerate(parts.items()):
        for name in which or FIGURES:
            drawing = FIGURES[name]
            several = drawing.needs_results and len(parts) > 1
            if index and not several:
                continue
            key, file = (f"{name} on {data}", f"{drawing.file}_{words[data]}") if several else (name, drawing.file)
            try:
                plot = drawing.draw(part, options or FigureOptions(), width)
            except NotMeasuredError as reason:
                drawn.skipped[key] = str(reason)
                continue
            if which is None and plot.points == 1:
                drawn.skipped[key] = ONE_POINT
            else:
                drawn.files[key] = write_figure(plot.figure, folder, prefix + file, formats)
                possible.add(name)
    for name in which or ():
        if name not in possible:
            reasons = "; ".join(dict.fromkeys(drawn.skipped.values()))
            raise NotMeasuredError(f"Figure {name} cannot be drawn from {results.name}: {reasons}")
    return drawn
