"""Verified accuracy over the radius: one falling line per model, with its accuracy under attack above it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from locality.report.certified import CertifiedImages, certificates
from locality.report.estimates import floats
from locality.report.figures.drawing import Drawing, If, Plot
from locality.report.figures.options import FigureOptions
from locality.report.figures.scatter import KINDS
from locality.report.figures.style import LOOKS, PAGE_WIDTH, STYLE, Width, interval_bars, plain
from locality.report.models import models_of
from locality.results.results import Results
from locality.types import NORMS, Norm

HEIGHT = 2.8  # inches
INCHES: dict[Width, float] = {"page": 0.72 * PAGE_WIDTH, "column": 3.3}
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
FARTHEST = 0.995  # quantile of the radii that the axis shows


@mpl.rc_context(STYLE)
def verified_over_radius(results: Results, width: Width = "page") -> Plot:
    """Share of images that are decided correctly with a certified radius above r, against r.

    The line starts at the accuracy without attack. Markers are accuracies under attack on the same images, which are never
    below the line if the certificates are true.
    """
    known = certificates(results)
    models = {model.name: model for model in models_of(results)}
    drawn = [one for one in known if one.model in models]
    several = len({one.by for one in drawn}) > 1
    figure = Figure(figsize=(INCHES[width], HEIGHT), layout="constrained")
    panel = figure.subplots()
    used: Counter[str] = Counter()
    farthest = max((float(np.quantile(one.rows["radius"], FARTHEST)) for one in drawn), default=0.0) or 1.0
    for one in drawn:
        kind = models[one.model].kind
        colour, dash = LOOKS[kind].colour, DASHES[used[kind] % len(DASHES)]
        used[kind] += 1
        name = plain(one.model) + (f" ({one.by})" if several else "")
        panel.step(*_curve(one, 1.1 * farthest), where="post", color=colour, linestyle=dash, label=name)
        for radius, attacked in _attacked(results, one).items():
            if radius <= 1.1 * farthest:
                panel.errorbar(
                    radius,
                    attacked.mean,
                    yerr=interval_bars(attacked),
                    color=colour,
                    marker="_",
                    markersize=7,
                    elinewidth=0.7,
                )
    norm: Norm = "l2" if all(one.norm == "l2" for one in drawn) else "linf"
    panel.set(xlabel=f"{NORMS[norm]} radius in pixels of [0, 1]", ylabel="verified accuracy", xlim=(0, 1.02 * farthest))
    panel.set_ylim(0, None)
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    figure.legend(loc="outside lower center", ncols=2 if width == "page" else 1)
    return Plot(figure, frozenset(models[one.model].kind for one in drawn))


def _curve(one: CertifiedImages, end: float) -> tuple[list[float], list[float]]:
    """Where the line steps, and its heights: at a radius itself the image no longer counts."""
    correct = one.correct
    radii = np.sort(one.rows["radius"].to_numpy()[correct == 1])
    of = max(1, int((~np.isnan(correct)).sum()))
    heights = len(radii) - np.arange(len(radii) + 1)
    return [0.0, *np.minimum(radii, end).tolist(), end], [*(heights / of).tolist(), float((radii > end).sum() / of)]


def _attacked(results: Results, one: CertifiedImages) -> dict[float, Any]:
    """Accuracy under attack by radius."""
    if "robust" not in results:
        return {}
    radii = np.unique(floats(results["robust"]["epsilon"])).tolist()
    return {radius: mean for radius in radii if (mean := one.attacked(results, radius)) is not None}


def _draw(results: Results, options: FigureOptions, width: Width) -> Plot:
    return verified_over_radius(results, width)


VERIFIED = Drawing(
    "verified_over_radius",
    "Verified accuracy over the radius",
    (
        "Share of images that are decided correctly, provably so within the radius.",
        *(If(one.element, one.text.replace("are", "have lines that are").replace(" and half-filled", "")) for one in KINDS),
        "Horizontal marks with 95 % intervals are accuracies under attack on the same images.",
    ),
    _draw,
)
