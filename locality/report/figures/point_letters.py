"""Letters for models that neither marker nor colour tells from others of their family, and the key to them."""

from __future__ import annotations

import math
import string
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from locality.report.aggregates import Measure, Model
from locality.report.figures.point_labels import Polyline, place_labels
from locality.report.figures.style import Width, plain

KEY_LENGTH: dict[Width, int] = {"page": 145, "column": 72}  # letters of a line


@dataclass(frozen=True)
class Point:
    """A model in a panel: where it is, and how sure that is."""

    model: Model
    x: Measure
    y: Measure


def model_letters(models: Sequence[Model]) -> dict[str, str]:
    """A letter for each model that looks like another one.

    >>> one, other = (Model(name, "net", "at", None, None, None, "") for name in ("first", "second"))
    >>> model_letters([one, other]), model_letters([one])
    ({'first': 'a', 'second': 'b'}, {})
    """
    looks = [(model.family, model.kind) for model in models]
    shared = [model.name for model, look in zip(models, looks, strict=True) if looks.count(look) > 1]
    return dict(zip(shared, string.ascii_letters, strict=False))


def letter_key(models: Sequence[Model], width: Width) -> str | None:
    """Whose letters they are, in lines of the figure's width."""
    known = {model.name: model for model in models}
    words = [f"{letter} {plain(_variant(known[name]), 36)}" for name, letter in model_letters(models).items()]
    whole = "   ".join(word.replace(" ", "\N{NO-BREAK SPACE}") for word in words)
    return "\n".join(textwrap.wrap(whole, KEY_LENGTH[width])) or None


def write_letters(panel: Axes, points: Sequence[Point], letters: dict[str, str], lines: Sequence[Polyline] = ()) -> None:
    """The letters beside their points, clear of error bars and `lines`; call it when limits and layout are final."""
    marked = [point for point in points if point.model.name in letters]
    bars = [(point.x.low, point.y.mean, point.x.high, point.y.mean) for point in points]
    bars += [(point.x.mean, point.y.low, point.x.mean, point.y.high) for point in points]
    place_labels(
        panel,
        [(point.x.mean, point.y.mean) for point in marked],
        [letters[point.model.name] for point in marked],
        [bar for bar in bars if not any(map(math.isnan, bar))],
        [*lines, *([(point.x.mean, point.y.mean)] for point in points)],
        fontsize=7,
        fontweight="bold",
        zorder=6,
    )


def _variant(model: Model) -> str:
    """What tells a model from others of its family."""
    return model.name if model.kind != "robust" else f"{model.family} {model.trained}"
