"""Curves of a run for TensorBoard: the numbers of the log and of the monitor as event files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from locality.training.reports import Line, Report


class TensorBoardWriter:
    """Listens to a run and writes its numbers to `folder`, by step, under `log/` and `monitor/`.

    The first line that it hears after an interruption is that of the first step with a line that is made again, so from that
    step on TensorBoard discards what an earlier sitting wrote.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError(
                "`--tensorboard` needs TensorBoard, which is not installed: pip install 'locality[tensorboard]'"
            ) from None
        # Not Accelerate's tracker: it opens its writer before the step is known from which earlier events are discarded.
        self.folder, self.make = folder, SummaryWriter
        self.writer: SummaryWriter | None = None

    def __call__(self, report: Report) -> None:
        step = report.logged["step"]
        if self.writer is None:
            self.writer = self.make(str(self.folder), purge_step=step)
        for name, value in (_scalars("log", report.logged) | _scalars("monitor", report.measured or {})).items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def _scalars(group: str, line: Line) -> dict[str, float]:
    """The numbers of a line by their tags; undefined ones are left out.

    >>> _scalars("monitor", {"step": 3, "wci": 2.0, "layers": [{"name": "head", "norm": 1.0, "error": None}]})
    {'monitor/wci': 2.0, 'monitor/head/norm': 1.0}
    """
    numbers: dict[str, Any] = {f"{group}/{name}": value for name, value in line.items() if name not in ("step", "layers")}
    for layer in line.get("layers", ()):
        numbers |= {f"{group}/{layer['name']}/{name}": value for name, value in layer.items() if name != "name"}
    return {name: float(value) for name, value in numbers.items() if value is not None}
