"""`Calibration`: what `calibrate` measured, what it says, and its files."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from locality.files import write_atomically, write_csv
from locality.results.calibration import (
    REGION_TESTS,
    RELIANCE,
    Finding,
    Learned,
    findings,
    learned_from,
    sentence,
)
from locality.runner.summary_json import summary_json
from locality.statistics import Paired, Summary


@dataclass(frozen=True)
class CalibrationSummary:
    """What the twins learned, and one finding per method and score."""

    learned: dict[str, Learned]
    findings: tuple[Finding, ...]

    def finding(self, method: str, score: str = "lift") -> Finding:
        """The finding of one method and score."""
        return next(one for one in self.findings if (one.method, one.score) == (method, score))


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """What `calibrate` measured.

    `rows` has one row per twin × region × image × method, with the columns of `Evaluation.rows`; the method "random" is
    chance, and "region tests" have a reliance instead of scores. `predictions` has one row per twin × image. `twins` are the
    networks, by name.
    """

    model: str
    data: str
    rows: pd.DataFrame
    predictions: pd.DataFrame
    provenance: dict[str, Any]
    twins: dict[str, nn.Module] = field(default_factory=dict)
    trained: tuple[str, ...] = ()
    scores: tuple[str, ...] = ("lift",)

    @functools.cached_property
    def summary(self) -> CalibrationSummary:
        """What the twins learned, and what each method and score finds, with 95 % intervals."""
        learned = {
            str(name): learned_from(table, str(name) in self.trained)
            for name, table in self.predictions.groupby("twin", sort=False)
        }
        return CalibrationSummary(learned, tuple(findings(self.rows, [*self.scores, RELIANCE], learned)))

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return sentence(self.summary.findings, self.summary.learned, self.model, self.data)

    def to_json(self) -> dict[str, Any]:
        """The answer, the summary and the provenance as plain values; undefined is None."""
        methods: dict[str, Any] = {}
        for one in self.summary.findings:
            methods.setdefault(one.method, {})[one.score] = finding_json(one)
        tests = methods.pop(REGION_TESTS, {})
        return {
            "model": self.model,
            "data": self.data,
            "n": int(self.rows["image_id"].nunique()),
            "sentence": self.sentence,
            "learned": {name: learned_json(one) for name, one in self.summary.learned.items()},
            "methods": methods,
            "region_tests": tests.get(RELIANCE),
            "provenance": self.provenance,
        }

    def write(self, folder: str | Path) -> None:
        """Write calibration.json, rows.csv and predictions.csv."""
        out = Path(folder)
        write_csv(out / "rows.csv", self.rows)
        write_csv(out / "predictions.csv", self.predictions)
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(out / "calibration.json", text)

    def __repr__(self) -> str:
        return f"<Calibration of {self.model} on {self.data}: {self.sentence}>"

    def _repr_html_(self) -> str:
        return f"<p><strong>{escape(self.sentence)}</strong></p>{self.table().to_html(index=False)}"

    def table(self) -> pd.DataFrame:
        """The findings as a table: means above chance with their intervals, and the answers."""
        return pd.DataFrame([finding_row(one) for one in self.summary.findings])


def finding_row(one: Finding) -> dict[str, str]:
    """One finding in words, as tables print it."""
    return {
        "method": one.method,
        "score": one.score,
        "sticker twin: cue": _mean(one.sticker_on_cue),
        "object": _mean(one.sticker_on_object),
        "cue − object": _change(one.cue_over_object),
        "clean twin: cue": _mean(one.clean_on_cue),
        "object ": _mean(one.clean_on_object),
        "object − cue": _change(one.object_over_cue),
        "finds cue": _answer(one.finds_cue),
        "finds object": _answer(one.finds_object),
    }


def finding_json(one: Finding) -> dict[str, Any]:
    """One finding as plain values."""
    means = {name: getattr(one, name) for name in ("sticker_on_cue", "sticker_on_object", "clean_on_cue", "clean_on_object")}
    changes = {name: getattr(one, name) for name in ("cue_over_object", "sticker_over_clean", "object_over_cue")}
    return {
        **{name: None if value is None else summary_json(value) for name, value in means.items()},
        **{name: None if value is None else _plain(value) for name, value in changes.items()},
        "n": one.images,
        "undefined": one.undefined,
        "finds_cue": one.finds_cue,
        "finds_object": one.finds_object,
    }


def learned_json(one: Learned) -> dict[str, Any]:
    """What a twin learned as plain values."""
    shares = {name: summary_json(getattr(one, name)) for name in ("without", "sticker", "swapped", "changed")}
    chance = None if math.isnan(one.chance) else one.chance
    return {**shares, "chance": chance, "trained": one.trained, "uses_sticker": one.cue, "knows_object": one.object}


def _plain(value: Paired) -> dict[str, Any]:
    return {key: None if isinstance(part, float) and math.isnan(part) else part for key, part in asdict(value).items()}


def _mean(value: Summary | None) -> str:
    return "" if value is None else f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


def _change(value: Paired | None) -> str:
    return "" if value is None else f"{value.difference:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


def _answer(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "cannot be told"}[value]
