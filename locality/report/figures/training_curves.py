"""Curves of training runs over epochs: loss, accuracy, learning rate, robust gap and curvature, from their logs alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from locality.errors import ArgumentError
from locality.report.figures.drawing import Plot
from locality.report.figures.style import ACROSS, BLUE, INK, METHOD_LOOKS, STYLE, Width, panels, plain

HEIGHT = 1.75  # inches
NORMAL_95 = 1.96
LOG_SCALE = 20  # largest over smallest learning rate from which its axis is logarithmic
Columns = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Run:
    """The log of a run, averaged over each epoch, and what its monitor measured; numbers by column."""

    name: str
    log: Columns
    monitor: Columns  # empty without a monitor

    def columns(self, panel: Panel) -> Columns:
        """Those that a panel shows."""
        return self.log if panel.source == "log" else self.monitor


@dataclass(frozen=True)
class Curve:
    """A column and how it is drawn."""

    column: str
    train: bool = False  # of training images: dashed
    clean: bool = False  # without attack, beside one under attack: pale

    @property
    def style(self) -> dict[str, Any]:
        return {"linestyle": (0, (4, 1.5)) if self.train else "-", "alpha": 0.4 if self.clean else 1.0}


@dataclass(frozen=True)
class Panel:
    """Curves that share a scale."""

    title: str
    curves: tuple[Curve, ...]
    source: Literal["log", "monitor"] = "monitor"


RATE = Panel("learning rate", (Curve("learning_rate"),), "log")
LOGGED = (
    Panel("loss", (Curve("loss", train=True),), "log"),
    Panel("accuracy", (Curve("clean_accuracy", train=True, clean=True), Curve("attacked_accuracy", train=True)), "log"),
    RATE,
)
MEASURED = (
    Panel("cross-entropy under attack", (Curve("train_robust_loss", train=True), Curve("eval_robust_loss"))),
    Panel(
        "accuracy",
        (
            Curve("train_accuracy", train=True, clean=True),
            Curve("eval_accuracy", clean=True),
            Curve("train_robust_accuracy", train=True),
            Curve("eval_robust_accuracy"),
        ),
    ),
    RATE,
    Panel("robust gap, cross-entropy", (Curve("loss_gap"),)),
    Panel("robust gap, error", (Curve("error_gap"),)),
    Panel("WCI", (Curve("wci"),)),
    Panel("Σ ‖W‖²", (Curve("squared_norm"),)),
    Panel("Σ Tr H over the layers", (Curve("trace"),)),
    Panel("Tr H of the last layer", (Curve("top_trace"),)),
)


def is_run(folder: Path) -> bool:
    """Whether `locality train` wrote this folder."""
    return (folder / "log.jsonl").is_file()


def read_run(folder: Path) -> Run:
    """The curves of a run, which may still be going on."""
    lines, monitor = (_columns(folder / name) for name in ("log.jsonl", "monitor.jsonl"))
    if not lines:
        raise ArgumentError("RUN", "the folder of a run whose log has a line", str(folder), "wait until it has one")
    epochs, owner = np.unique(lines["epoch"], return_inverse=True)
    log = {name: np.array([values[owner == one].mean() for one in range(len(epochs))]) for name, values in lines.items()}
    if monitor:
        variance = np.zeros(len(monitor["epoch"]))
        for split in ("train", "eval"):
            error = monitor[f"{split}_robust_error"]
            monitor |= {f"{split}_accuracy": 1 - monitor[f"{split}_error"], f"{split}_robust_accuracy": 1 - error}
            variance = variance + error * (1 - error) / monitor.get(f"{split}_images", np.nan)
        monitor["error_gap_error"] = np.sqrt(variance)
    return Run(folder.resolve().name, log, monitor)


def _columns(path: Path) -> Columns:
    """The numbers of a file of lines, by name; nan where one is undefined."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            lines.append(dict(json.loads(text)))
        except (ValueError, TypeError):
            continue  # the line is being written
    names = dict.fromkeys(name for line in lines for name in line if name != "layers")
    return {name: np.array([line.get(name) for line in lines], dtype=np.float64) for name in names}


@mpl.rc_context(STYLE)
def training_curves_plot(runs: Sequence[Run], width: Width = "page") -> Plot:
    """One panel per quantity, against epochs; one colour per run. Bands are 95 % intervals."""
    monitored = all(run.monitor for run in runs)
    drawn = MEASURED if monitored else LOGGED
    looks = [BLUE] if len(runs) == 1 else [METHOD_LOOKS[index % len(METHOD_LOOKS)][0] for index in range(len(runs))]
    figure, axes = panels(len(drawn), HEIGHT, width)
    for axis, panel in zip(axes, drawn, strict=True):
        for run, colour in zip(runs, looks, strict=True):
            _draw(axis, panel, run.columns(panel), colour)
        _scale(axis, panel)
    for axis in axes[-ACROSS[width] :]:
        axis.set_xlabel("epoch")
    seen = {curve for panel in drawn for curve in panel.curves for run in runs if curve.column in run.columns(panel)}
    figure.legend(**_legend({plain(run.name): colour for run, colour in zip(runs, looks, strict=True)}, seen, width))
    return Plot(figure)


def _draw(axis: Axes, panel: Panel, columns: Columns, colour: str) -> None:
    for curve in panel.curves:
        if curve.column not in columns:
            continue  # not every loss makes a pass without attack
        epochs, values = columns["epoch"], columns[curve.column]
        marker: dict[str, Any] = {"marker": "o", "markersize": 2} if len(epochs) < 3 else {}  # one epoch has no line
        axis.plot(epochs, values, color=colour, linewidth=1.1, **curve.style, **marker)
        error = columns.get(f"{curve.column}_error")
        if error is not None and np.isfinite(error).any():
            spread = NORMAL_95 * error
            axis.fill_between(epochs, values - spread, values + spread, color=colour, alpha=0.15, linewidth=0)


def _scale(axis: Axes, panel: Panel) -> None:
    axis.set_title(panel.title)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if "accuracy" in panel.title or "error" in panel.title:
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    rates = np.concatenate([line.get_ydata() for line in axis.get_lines()]) if panel is RATE else np.ones(1)
    if rates.min() > 0 and rates.max() / rates.min() > LOG_SCALE:
        axis.set_yscale("log")


def _legend(colours: Mapping[str, str], curves: Collection[Curve], width: Width) -> dict[str, Any]:
    """What the styles of these curves mean, and the runs if there are several."""
    styles = {"training images": Curve("", train=True)}
    if any(curve.column.startswith("eval") for curve in curves):
        styles["eval images"] = Curve("")
    if any(curve.clean for curve in curves):
        styles["without attack"] = Curve("", clean=True)
    entries = {name: Line2D([], [], color=INK, **curve.style) for name, curve in styles.items()}
    if len(colours) > 1:
        entries |= {name: Line2D([], [], color=colour) for name, colour in colours.items()}
    columns = min(len(entries), (3 if len(entries) > 5 else 5) if width == "page" else 2)
    return {"handles": list(entries.values()), "labels": list(entries), "loc": "outside lower center", "ncols": columns}
