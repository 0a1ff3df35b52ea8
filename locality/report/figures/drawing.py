"""The record that describes a figure, and the figure it draws with what can be seen in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import Figure

from locality.report.figures.options import FigureOptions
from locality.report.figures.style import Width
from locality.report.models import Kind
from locality.results.results import Results

# What some figures show and others of the same kind do not.
Element = (
    Kind
    | Literal["random weights", "pair arrows", "trend arrow", "correlation", "several panels", "quarters", "abstentions"]
)


@dataclass(frozen=True, eq=False)
class Plot:
    """A drawn figure. `elements` are what its caption must explain."""

    figure: Figure
    elements: frozenset[Element] = frozenset()
    points: int | None = None  # models with a point of their own, in a figure that compares models


@dataclass(frozen=True)
class If:
    """A sentence of a caption for figures that show an element."""

    element: Element
    text: str


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn: a line of `catalogue.FIGURES`."""

    file: str  # its name, without a suffix
    title: str
    sentences: tuple[str | If, ...]  # of its caption
    draw: Callable[[Results, FigureOptions, Width], Plot]
    needs_results: bool = True  # False: it is the same for all results

    def caption(self, plot: Plot, data: str = "") -> str:
        """The caption; it explains only what is drawn."""
        texts = []
        for sentence in self.sentences:
            if isinstance(sentence, str):
                texts.append(sentence)
            elif sentence.element in plot.elements:
                texts.append(sentence.text)
        if data and self.needs_results:
            texts.append(f"Data: {data}.")
        return " ".join(texts)
