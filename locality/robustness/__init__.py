"""Accuracy under attack, the attacks themselves, and signs that gradients mislead them.

`ATTACKS` is the table of what `attack=` may name. This module does not import torch, so that `locality robust --help` can
list the attacks at once.
"""

from __future__ import annotations

from typing import Literal

from locality.errors import ArgumentError, unknown_choice
from locality.types import Threat

Attack = Literal["paper", "standard", "pgd20", "cw20"]

# Name ↦ the attacks that run, in this order, each on the images that are still classified correctly.
ATTACKS: dict[Attack, tuple[str, ...]] = {
    "paper": ("apgd-ce", "apgd-dlr"),
    "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "pgd20": ("pgd-ce",),
    "cw20": ("pgd-margin",),
}


def check_request(norm: str, epsilon: float, attack: str, batch_size: int) -> None:
    """Raise if these settings make no sense; quick, before a model is loaded."""
    Threat(norm, epsilon)  # type: ignore[arg-type]  # checks both
    if attack not in ATTACKS:
        raise unknown_choice("attack", attack, ATTACKS)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ArgumentError("batch_size", "a whole number of images", batch_size)
