"""`Evaluation`: what `evaluate` measured, its summary, verdict and files."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from locality.errors import ArgumentError
from locality.files import write_atomically, write_csv
from locality.results.folder import RunFolder, write_results
from locality.results.gallery import GALLERY
from locality.results.localisation import LOCALISATION, pooled_scores
from locality.results.region_tests import REGIONS
from locality.results.results import Results, empty_table
from locality.results.schema import MODEL_FREE, ROWS
from locality.results.verdict import Verdict, verdict
from locality.runner.summary import ModelSummary, model_summary
from locality.statistics import Summary

SHOWN = ("precision", "recall", "f1", "lift")


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What `evaluate` measured. A notebook displays it as a table with the verdict.

    `rows` has one row per image × method, with the columns of `results.schema.ROWS` and those of further scores:

    - `label`, `prediction`, `target` and `crossed_to` index the model's classes; −1 is none.
    - `correct` is <NA> where the model does not know the label. An abstention has `abstained` True, prediction −1 and
      `correct` False: it is not a right answer, and not a wrong one either (a wrong one has neither flag). Accuracy is
      right / all images with known labels; the share of abstentions stands beside it.
    - Scores are `nan` where they are undefined, as for abstentions, which are never attributed.

    `model_free` has the same scores of maps that know neither the model nor the image, for comparison. `gaps` has the
    completeness gap of IG and BIG, |Σ map − (f(x) − f(b))| / |f(x) − f(b)|, one row per image × method. `brackets` has the
    certified radius and the distance of each boundary point, between which the nearest boundary lies; it has rows for
    networks made for small Lipschitz constants, such as `liresnet`. `regions` has the region tests, one row per
    image × test. `models` describes the model, and `gallery` has the maps of some images. These three are as in the results
    of a benchmark. `localisation` has the parts of the scores named `pooled`.
    """

    model: str
    data: str
    rows: pd.DataFrame
    model_free: pd.DataFrame
    gaps: pd.DataFrame
    brackets: pd.DataFrame
    provenance: dict[str, Any]
    models: pd.DataFrame
    gallery: pd.DataFrame = field(default_factory=functools.partial(empty_table, GALLERY))
    regions: pd.DataFrame = field(default_factory=functools.partial(empty_table, REGIONS))
    localisation: pd.DataFrame = field(default_factory=functools.partial(empty_table, LOCALISATION))
    pooled: tuple[str, ...] = ()  # scores of the whole data set, of which `localisation` has the parts

    @functools.cached_property
    def summary(self) -> ModelSummary:
        """Means with 95 % intervals."""
        found = model_summary(self.rows, self.model_free, gaps=self.gaps, brackets=self.brackets, regions=self.regions)
        return found.with_pooled(pooled_scores(self.localisation, self.pooled)) if self.pooled else found

    @functools.cached_property
    def verdict(self) -> Verdict:
        """Whether the model looks at the object: yes, no, or None where it cannot be told; with the reason."""
        return verdict(self.rows, self.model_free, region=self.provenance["region"], tests=self.regions)

    @property
    def results(self) -> Results:
        """The tables as a benchmark has them, for tables, figures and reports."""
        tables = {"rows": self.rows, "models": self.models, "model_free": self.model_free}
        tables |= {"gallery": self.gallery, "regions": self.regions}
        if len(self.localisation):
            tables["localisation"] = self.localisation
        return Results(f"{self.model} on {self.data}", tables, self.provenance)

    def to_json(self) -> dict[str, Any]:
        """The verdict, the summary and the provenance as plain values; undefined is None."""
        about = {"model": self.model, "data": self.data, "verdict": self.verdict.to_json(self.model)}
        return {**about, **self.summary.to_json(), "provenance": self.provenance}

    def write(self, folder: str | Path) -> None:
        """Write summary.json, rows.csv and `tables`, which `locality table`, `figures` and `report` read."""
        out = Path(folder)
        refuse_benchmark(out)
        results = self.results
        further = {column: float for column in self.rows.columns if column not in ROWS}
        schemas = {"rows": {**ROWS, **further}, "model_free": {**MODEL_FREE, **further}, "gallery": GALLERY}
        schemas["regions"] = REGIONS
        if len(self.localisation):
            schemas["localisation"] = LOCALISATION
        write_results(results, out, schemas)
        write_csv(out / "rows.csv", self.rows)
        write_atomically(out / "summary.json", json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False))

    def __repr__(self) -> str:
        scores = self.summary.methods.items()
        lifts = ", ".join(f"{name} {score['lift'].mean:.3f}" for name, score in scores)
        return f"<Evaluation of {self.model} on {self.data}: {self.summary.images:,} images, mean lift {lifts}>"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("method", *SHOWN))
        methods = self.summary.methods | {f"model-free: {name}": one for name, one in self.summary.model_free.items()}
        body = "".join(
            f"<tr><td>{escape(name)}</td>{''.join(f'<td>{_mean_text(scores[score])}</td>' for score in SHOWN)}</tr>"
            for name, scores in methods.items()
        )
        about = f"{self.model} on {self.data}, {self.summary.images:,} images, accuracy {_mean_text(self.summary.accuracy)}"
        return (
            f"<p><strong>{escape(self.verdict.sentence(self.model))}</strong></p>"
            f"<table><caption>{escape(about)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def refuse_benchmark(folder: Path) -> None:
    """Raise if the folder is that of a benchmark, whose tables would be overwritten."""
    if RunFolder(folder).plan_path.exists():
        raise ArgumentError("out", "a folder without the results of a benchmark", str(folder), "name another one")


def _mean_text(value: Summary) -> str:
    if value.used == 0:
        return "undefined"
    interval = "" if value.used == 1 else f" [{value.low:.3f}, {value.high:.3f}]"
    return f"{value.mean:.3f}{interval}".replace("-", "−")
