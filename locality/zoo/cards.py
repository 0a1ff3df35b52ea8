"""A card says what a checkpoint is: how it was made, from which data, and what it measured afterwards.

The training command writes it beside the weights, `NAME.json` beside `NAME.safetensors`; the catalog reads it.
This module does not import torch.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

CHECKPOINTS = Path(__file__).parent / "checkpoints"


@dataclass(frozen=True)
class Card:
    """What there is to know about a checkpoint."""

    name: str
    net: str  # a key of zoo.nets.NETS
    classes: tuple[str, ...]  # in the order of the logits
    input_size: tuple[int, int]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    training: str  # "standard", "at", "fast_at", "trades", "random"
    norm: str | None  # of the attack trained against
    epsilon: float | None
    data: str  # "tiny-imagenet", "shapes"
    data_hash: str  # of the manifest trained on
    accuracy: dict[str, float]  # what was measured after the half-precision round trip, by the name of the measurement
    parameters: int
    weights_sha256: str  # of the file of weights
    recipe: dict[str, Any]
    seed: int
    minutes: float
    versions: dict[str, str]
    licence: str = "Apache-2.0"


def write_card(card: Card, path: Path) -> None:
    """Write the card as JSON, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(asdict(card), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(part, path)


def read_card(path: Path) -> Card:
    """The card at `path`; an error says what is wrong with it."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise ValueError(f"`{path}` is not a model card ({problem}): train the model again, or pass --arch") from None
    names = {field.name for field in fields(Card)}
    if not isinstance(table, dict) or set(table) | {"licence"} != names:
        given = set(table) if isinstance(table, dict) else set()
        raise ValueError(
            f"`{path}` is not a model card of this version: missing {sorted(names - given) or 'nothing'}, "
            f"unknown {sorted(given - names) or 'nothing'}: train the model again, or pass --arch"
        )
    for name in ("classes", "input_size", "mean", "std"):
        table[name] = tuple(table[name])
    return Card(**table)


def shipped_cards() -> dict[str, Card]:
    """The cards of the checkpoints inside the package, by name."""
    return {path.stem: read_card(path) for path in sorted(CHECKPOINTS.glob("*.json"))}
