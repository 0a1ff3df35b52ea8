"""What a run reports while it goes on, and the line that a person reads at the end of each epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from locality.data.dataset import ImageDataset
from locality.progress import duration_text
from locality.training.schedules import Moment
from locality.training.validation import best_text
from locality.zoo.pixel_model import PixelModel

Line = Mapping[str, Any]  # of log.jsonl or monitor.jsonl


@dataclass(frozen=True, eq=False)
class Report:
    """A line of the log and, at the end of an epoch that the monitor measures, its line."""

    moment: Moment
    logged: Line
    measured: Line | None
    seconds: float  # since this sitting began
    monitor_seconds: float = 0.0  # of them, for `measured`


Listener = Callable[[Report], None]  # called in the main process only


def say_nothing(text: str) -> None:
    """Say nothing: the default of `say` arguments."""


def beginning_text(data: ImageDataset, held_out: ImageDataset | None, start: str, model: PixelModel) -> str:
    """What a new run begins with, in one line."""
    planted = "" if data.source.cue is None else ", each with a sticker"
    held = "" if held_out is None else f", {len(held_out):,} more held out"
    parameters = sum(value.numel() for value in model.parameters())
    size = "×".join(map(str, model.spec.input_size))
    return (
        f"training on {len(data):,} images of {len(model.spec.classes):,} classes at {size} pixels{planted}{held}; "
        f"{parameters:,} parameters, {start}"
    )


@dataclass
class EpochLines:
    """Listens to a run and says one line per epoch: means over its lines of the log, and what the monitor measured."""

    say: Callable[[str], None]
    began: float = 0.0  # seconds, of the epoch
    lines: list[Line] = field(default_factory=list)

    def __call__(self, report: Report) -> None:
        self.lines.append(report.logged)
        if report.moment.ends_epoch:
            self.say(epoch_text(report, self.lines, report.seconds - self.began))
            self.began, self.lines = report.seconds, []


@dataclass
class LastLoss:
    """Listens to a run; called without a report, it gives the loss of the last line of the log, for a progress bar.

    >>> loss = LastLoss()
    >>> loss.text(), loss(Report(Moment(5, 12, 1, 3), {"loss": 1.23456}, None, 9.0)), loss.text()
    ('', None, 'loss 1.235')
    """

    loss: float | None = None

    def __call__(self, report: Report) -> None:
        self.loss = float(report.logged["loss"])

    def text(self) -> str:
        """The loss in words; nothing before the first line."""
        return "" if self.loss is None else f"loss {self.loss:.3f}"


def epoch_text(report: Report, lines: list[Line], seconds: float) -> str:
    """An epoch in one line; `lines` are those of the log.

    >>> lines = [{"loss": 1.0, "clean_accuracy": 0.5, "learning_rate": 0.1}, {"loss": 2.0, "clean_accuracy": 0.7}]
    >>> print(epoch_text(Report(Moment(5, 12, 1, 3), lines[0], None, 9.0), lines, 4.5))
    epoch 2 of 3: loss 1.500, clean 60.0%, learning rate 0.1, 4.5 s
    """
    parts = [f"loss {_mean(lines, 'loss'):.3f}"]
    for name, word in (("clean_accuracy", "clean"), ("attacked_accuracy", "attacked")):
        if name in report.logged:
            parts.append(f"{word} {_mean(lines, name):.1%}")
    parts.append(f"learning rate {report.logged['learning_rate']:.3g}")
    if "best_epoch" in report.logged:
        parts.append(best_text(report.logged))
    if report.measured is not None:
        parts += _measured_text(report.measured)
    parts.append(duration_text(seconds))
    if report.measured is not None:
        parts[-1] += f" ({report.monitor_seconds / max(seconds, 1e-9):.0%} for the monitor)"
    return f"epoch {report.moment.epoch + 1} of {report.moment.epochs}: {', '.join(parts)}"


def _measured_text(measured: Line) -> list[str]:
    return [
        f"eval robust {1 - measured['eval_robust_error']:.1%}",
        f"gap {measured['error_gap']:+.1%}{_error_text(measured.get('error_gap_error'), '.1%')}",
        f"WCI {measured['wci']:.4g}{_error_text(measured['wci_error'], '.2g')}"
        if measured["wci"] is not None
        else "WCI undefined",
    ]


def _error_text(error: float | None, form: str) -> str:
    """A standard error; nothing if it is undefined."""
    return "" if error is None else f" ± {error:{form}}"


def _mean(lines: list[Line], name: str) -> float:
    values = [line[name] for line in lines if name in line]
    return float(sum(values) / len(values))
