"""A run over several processes: Accelerate's state, and lines of the log that all of them share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from locality.errors import needing
from locality.training.schedules import Moment
from locality.training.step import Terms


def new_accelerator(precision: str, device: str | None) -> Any:
    """Hugging Face's Accelerator of this process."""
    with needing("training"):
        from accelerate import Accelerator
    from accelerate.state import AcceleratorState, is_initialized

    # The first run of a process sets the precision of all later ones, unless its state is reset. The group of processes
    # is not part of that state.
    if is_initialized() and AcceleratorState().mixed_precision != precision:
        AcceleratorState._reset_state()
    return Accelerator(mixed_precision=precision, cpu=device == "cpu")


def log_line(moment: Moment, terms: Terms, accelerator: Any) -> dict[str, float]:
    """A line of the log: the terms of a step, averaged over the processes."""
    measured = {name: value for name, value in terms.items() if isinstance(value, Tensor)}
    stacked = torch.stack([value.float() for value in measured.values()])
    means = dict(zip(measured, accelerator.reduce(stacked, reduction="mean").tolist(), strict=True))
    others = {name: value for name, value in terms.items() if not isinstance(value, Tensor)}
    values = others | means
    return {"step": moment.step + 1, "epoch": moment.epoch + 1} | {name: values[name] for name in terms}
