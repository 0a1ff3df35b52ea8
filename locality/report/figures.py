"""Every figure by its number: what draws it, what it shows, and what its file is called."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from locality.report.distance import locality_against_distance
from locality.report.geometry import geometry_figure
from locality.report.heatmaps import method_heatmaps, twin_heatmaps
from locality.report.measures import NotMeasuredError
from locality.report.palette import ACROSS, Width, write_figure
from locality.report.sanity_curve import sanity_figure
from locality.report.scatter import locality_against_accuracy, locality_against_robustness
from locality.runner.results import Results

INTERVALS = "Bars and bands are 95 % intervals over images: bootstrap for scores, Wilson for accuracies."


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn from results."""

    file: str  # without a suffix
    title: str
    caption: str
    draw: Callable[..., Figure]  # of results and a width


@dataclass(frozen=True)
class Drawn:
    """What was written, and what was not, with the reason."""

    files: dict[str, list[Path]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def _accuracy(score: str) -> Callable[..., Figure]:
    return functools.partial(locality_against_accuracy, score=score)


FIGURES: dict[str, Drawing] = {
    "2.3": Drawing(
        "fig2_3",
        "The geometry of SM, BSM, IG and BIG",
        "Computed on a ReLU network of two inputs. Left: SM leads to the line H₁ that its own polytope suggests, BSM to the "
        "nearest real boundary, H₂. Right: IG averages over the polytopes between black and x, BIG over those near x. The "
        "network (one of twelve seeds) and x (where SM misses most) were picked to show this; means are over the view.",
        lambda results, width="page": geometry_figure(width=width),
    ),
    "2.4": Drawing(
        "fig2_4",
        "Sanity check",
        "Rank correlation of a method's maps before and after a model's layers are drawn anew, from the top down: "
        f"1 is unchanged, 0 has nothing in common. {INTERVALS}",
        sanity_figure,
    ),
    "3.2": Drawing(
        "fig3_2",
        "Locality against accuracy",
        f"F1 of standard models; dashed: a model with random weights. {INTERVALS} ρ is Spearman's over the models.",
        _accuracy("f1"),
    ),
    "3.3": Drawing(
        "fig3_3",
        "Attributions of a standard model",
        "Red speaks for the predicted class, blue against it; one colour scale a row. The first images of the gallery.",
        method_heatmaps,
    ),
    "3.4": Drawing(
        "fig3_4",
        "Locality against robust accuracy",
        "Standard models are blue and hollow, robust ones green and full; thin arrows lead from a model to its twins, the "
        f"dark one is the least-squares line of the robust ones. {INTERVALS} ρ is Spearman's over the robust models.",
        locality_against_robustness,
    ),
    "3.5": Drawing(
        "fig3_5",
        "Attributions of a standard model and of its robust twin",
        "Red speaks for the predicted class, blue against it; one colour scale a row. The first images of the gallery.",
        twin_heatmaps,
    ),
    "B.1": Drawing(
        "figB_1",
        "Precision against accuracy",
        f"As Figure 3.2: how much of the positive attribution lies in the box. {INTERVALS}",
        _accuracy("precision"),
    ),
    "B.2": Drawing(
        "figB_2",
        "Recall against accuracy",
        f"As Figure 3.2: how much of the attribution in the box is positive. {INTERVALS}",
        _accuracy("recall"),
    ),
    "distance": Drawing(
        "locality_vs_distance",
        "Locality against boundary distance",
        "A marker is a model's mean, its line the quarters of its images, nearest to the boundary first. If distance itself "
        f"went with locality, lines would rise, too. {INTERVALS} ρ is Spearman's: over models, and within them (median).",
        locality_against_distance,
    ),
}


def draw_figures(
    results: Results,
    folder: Path,
    which: Sequence[str] | None = None,
    forms: Sequence[str] = ("png", "pdf"),
    width: Width = "page",
) -> Drawn:
    """Draw the named figures into `folder`, or all that the results allow; what is asked for by name must be possible.

    With `width="column"`, panels stand below each other, for one column of a paper, with letters as large as on a page.
    """
    if width not in ACROSS:
        raise ValueError(f"`width` must be page or column, got {width!r}")
    unknown = [name for name in which or () if name not in FIGURES]
    if unknown:
        raise ValueError(f"`which` must name figures among {', '.join(FIGURES)}, got {', '.join(unknown)}")
    drawn = Drawn()
    for name in which or FIGURES:
        drawing = FIGURES[name]
        try:
            figure = drawing.draw(results, width=width)
        except NotMeasuredError as reason:
            if which:
                raise NotMeasuredError(f"Figure {name} cannot be drawn from {results.name}: {reason}") from None
            drawn.left_out[name] = str(reason)
        else:
            drawn.files[name] = write_figure(figure, folder, drawing.file, forms)
    return drawn
