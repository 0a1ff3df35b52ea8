"""The models of results: how each was trained, and which standard model it is compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from locality.results.results import Results
from locality.types import Threat
from locality.zoo.trainings import UNKNOWN, KindOrUnknown, kind_of, title_of

Kind = KindOrUnknown
KINDS: tuple[Kind, ...] = ("standard", "robust", "certified", "random", "unknown")
COMPARED: tuple[Kind, ...] = ("robust", "certified")  # with their standard counterparts


@dataclass(frozen=True)
class Model:
    """One model of the results."""

    name: str
    family: str
    training: str = UNKNOWN  # an id of `zoo.trainings.TRAININGS`
    kind: Kind = "unknown"
    threat: Threat | None = None  # trained against
    counterpart: str | None = None  # the standard model that it is compared with
    data: str = ""

    @property
    def training_text(self) -> str:
        """Training and threat, as tables and figures print them.

        >>> Model("a", "resnet", "trades", "robust", Threat("linf", 8 / 255)).training_text
        'TRADES ℓ∞ 8/255'
        """
        title = title_of(self.training)
        return title if self.threat is None else f"{title} {self.threat}"


def models_of(results: Results) -> tuple[Model, ...]:
    """The models that were measured, in the order of the suite; a model that is not described has only a name."""
    tables = [table for name, table in results.items() if name not in ("models", "faults", "gallery") and "model" in table]
    measured = dict.fromkeys(str(name) for table in tables for name in table["model"].unique())
    described = {str(row["model"]): _described(row) for row in results.models.to_dict("records")}
    ordered = [name for name in described if name in measured] + [name for name in measured if name not in described]
    return tuple(described.get(name, Model(name, name)) for name in ordered)


def pairs_of(models: Iterable[Model], kinds: Iterable[Kind] = COMPARED) -> list[tuple[Model, Model]]:
    """Pairs of a standard model and a robust or certified one that is compared with it."""
    by_name = {model.name: model for model in models}
    wanted = tuple(kinds)
    return [
        (by_name[model.counterpart], model)
        for model in by_name.values()
        if model.kind in wanted and model.counterpart in by_name
    ]


def _described(row: dict[Any, Any]) -> Model:
    training = _text(row["training"]) or UNKNOWN
    # Results of earlier versions have no column `kind`.
    kind = _text(row.get("kind")) or kind_of(training)
    norm, epsilon = _text(row["norm"]), row["epsilon"]
    return Model(
        name=str(row["model"]),
        family=_text(row["family"]) or str(row["model"]),
        training=training,
        kind=kind if kind in KINDS else "unknown",
        threat=None if norm is None or pd.isna(epsilon) else Threat(norm, float(epsilon)),  # type: ignore[arg-type]
        counterpart=_text(row["counterpart"]),
        data=_text(row["data"]) or "",
    )


def _text(value: Any) -> str | None:
    return None if value is None or pd.isna(value) or value == "" else str(value)
