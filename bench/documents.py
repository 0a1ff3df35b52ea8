"""Writes measured numbers into README.md and docs/, from bench/results and the cards of the models that ship.

    python bench/documents.py

Each table stands between `<!-- NAME -->` and `<!-- end -->`. A test checks that the documents are what this writes, so that
no number there is older than its result.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from locality.progress import duration_text
from locality.report.findings import sentences
from locality.report.tables.build import TABLES as REPORTED
from locality.report.tables.formats import markdown_text
from locality.results.folder import read_results
from locality.results.results import Results, of_data
from locality.zoo.catalog import shipped_cards

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results"


def markdown(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return found


def boundary_table() -> str:
    """Every boundary bench: one row per model × search."""
    rows = []
    for path in sorted((RESULTS / "boundary").glob("*.json")):
        for search, row in result(f"boundary/{path.name}")["searches"].items():
            paper, seconds = (
                row.get("times_faster_than_paper"),
                row.get("seconds_per_image"),
            )  # not of a reference known before
            rows.append(
                (
                    f"[`{path.stem}`](bench/results/boundary/{path.name})",
                    search,
                    row["images"],
                    f"{row['success']:.0%}",
                    f"{row['mean']:.3f}",
                    f"{row['ratio']:.3f}",
                    f"{row['gradients']:.1f} + {row['forwards']:.1f}",
                    "" if seconds is None else f"{seconds:.3f}",
                    "" if paper is None else f"{paper:g} ×",
                )
            )
    titles = [
        "model",
        "search",
        "images",
        "found",
        "mean ℓ2",
        "ratio",
        "gradients + forwards",
        "s an image",
        "of `paper`'s speed",
    ]
    return markdown(titles, rows)


def held_out_table() -> str:
    """`fast` on other images than it was tuned on, as far as the README says: one row a model that ships."""
    rows = []
    for path in sorted((RESULTS / "boundary/held_out").glob("*.json")):
        searches = result(f"boundary/held_out/{path.name}")["searches"]
        row, reference = searches["fast"], searches["DDN-400"]
        both = [(d, r) for d, r in zip(row["distances"], reference["distances"], strict=True) if max(d, r) < float("inf")]
        hardest = max(d - r for d, r in both) / sum(r for _, r in both)
        found, work = f"{row['success']:.0%}", f"{row['gradients']:.1f} + {row['forwards']:.1f}"
        name = f"[`{path.stem}`](bench/results/boundary/held_out/{path.name})"
        rows.append((name, row["images"], found, f"{row['mean']:.3f}", f"{row['ratio']:.3f}", f"{hardest:.3f}", work))
    titles = [
        "model",
        "images",
        "found",
        "mean ℓ2",
        "ratio to DDN-400",
        "added by the hardest image",
        "gradients + forwards",
    ]
    return markdown(titles, rows)


def attribution_table() -> str:
    """SM, IG, BSM and BIG by `attribute_all` and by Captum."""
    rows = [
        (name, f"{row['seconds']:.1f}", f"{row['times_ours']:.2f} ×", f"{row['peak_mb']:,}", f"{row['more_mb']:,}")
        for name, row in result("attribution.json")["rows"].items()
    ]
    return markdown(["way", "s", "of ours", "peak MB", "MB above the loaded model"], rows)


def runner_table() -> str:
    """Images a second of the runner and of stock libraries, and what it costs."""
    found = result("runner.json")
    cost = found["overhead"]
    rows = [
        ("bare calls, one process", f"{cost['bare_images_per_second']:.1f} images a second", ""),
        (
            "the same as units",
            f"{cost['unit_images_per_second']:.1f} images a second",
            f"{cost['overhead_percent']:+.1f} % time",
        ),
    ]
    stock = found["stock libraries"]["images_per_second"]
    for name in ("local, 1 process", "local, 2 processes", "ray, 2 workers"):
        rate = found[name]["images_per_second"]
        rows.append((name, f"{rate:.1f} images a second", f"{rate / stock:.0f} × the stock loop"))
    rows.append(("a loop over stock Captum and Foolbox, paper search", f"{stock:.3g} images a second", ""))
    for name, row in found.items():
        if name.startswith("memory"):
            peaks = f"{row['worker_peak_mb']:,} MB where it is measured, {row['writer_peak_mb']:,} MB where it is written"
            rows.append((f"peak {name}", peaks, ""))
    return markdown(["what", "measured", "that is"], rows)


def models_table() -> str:
    """The models that ship: the accuracies of their cards, and what bench/zoo.py measured."""
    measured = {row["model"]: row for row in csv.DictReader((RESULTS / "zoo.csv").read_text(encoding="utf-8").splitlines())}
    rows = []
    for name, card in sorted(shipped_cards().items()):
        attacked = next(one for one in card.attacked if one.attack == "pgd10")
        under = f"{100 * attacked.share:.1f} % at {attacked.threat.radius_text}"
        row = measured[name]
        era = [f"{100 * float(row[f'era_linf_{levels}_255']):.1f} %" for levels in (4, 8)]
        clean = f"{100 * card.accuracy['clean']:.1f} %"
        rows.append((f"`{name}`", card.data, card.trained, clean, under, *era, f"{float(row['distance']):.2f}"))
    titles = ["name", "data", "training", "clean", "under PGD-10", "ERA 4/255", "ERA 8/255", "distance"]
    return markdown(titles, rows)


def predicted_table() -> str:
    """What the dry run said of suites, and how long they took."""
    rows = []
    for name, row in result("scaling.json").get("predicted", {}).items():
        images = sorted(set(row["images"].values()))
        searched = "" if row["search"] == "none" else f" + `{row['search']}`"
        rows.append(
            (
                f"`{name}`",
                row["models"],
                " to ".join(f"{count:,}" for count in dict.fromkeys((images[0], images[-1]))),
                f"{' + '.join(row['methods'])}{searched}",
                row["processes"],
                f"{row['load_before']:g}",
                duration_text(row["calibration_seconds"]),
                duration_text(row["predicted_seconds"]),
                duration_text(row["measured_seconds"]),
                f"{100 * row['error']:+.0f} %",
            )
        )
    titles = ["suite", "models", "images each", "methods", "processes", "load before", "calibration"]
    return markdown([*titles, "predicted", "measured", "difference"], rows)


def suite(name: str, data: str | None = None) -> Results:
    """Committed results of a suite, all or those on one data set."""
    found = read_results(RESULTS / name)
    return found if data is None else of_data(found, data)


def reported(table: str, name: str, data: str | None = None) -> Callable[[], str]:
    """A table of the report."""
    return lambda: markdown_text(REPORTED[table](suite(name, data))).strip()


def faithfulness_of(name: str, models: Sequence[str]) -> Callable[[], str]:
    """The table of some models: there are ten rows of each."""

    def table() -> str:
        found = suite(name)
        few = found.with_tables(faithfulness=found["faithfulness"][found["faithfulness"]["model"].isin(models)])
        return markdown_text(REPORTED["faithfulness"](few)).strip()

    return table


def said(name: str) -> Callable[[], str]:
    """What the rows say, in sentences."""
    return lambda: "\n".join(f"- {sentence}" for sentence in sentences(suite(name)))


DOCUMENTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "boundary": boundary_table,
        "held_out": held_out_table,
        "attribution": attribution_table,
        "runner": runner_table,
        "models": models_table,
    },
    "docs/reproduction.md": {
        "said": said("tiny"),
        "overview": reported("overview", "tiny"),
        "pairs": reported("pairs", "tiny"),
        "shapes_pairs": reported("pairs", "zoo", "shapes"),
        "similarity": reported("similarity", "similarity"),
        "searches": reported("searches", "tiny"),
        "faithfulness": faithfulness_of("tiny", ("tiny_resnet", "tiny_resnet_robust")),
    },
    "docs/scaling.md": {"predicted": predicted_table},
}


def written(text: str, tables: dict[str, Callable[[], str]]) -> str:
    """The document with its tables as the results have them."""
    for name, table in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"the document must have a place for the table {name}: <!-- {name} --> … <!-- end -->")
        text = pattern.sub(lambda found, table=table: f"{found[1]}{table()}\n{found[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    for document, tables in DOCUMENTS.items():
        path = ROOT / document
        path.write_text(written(path.read_text(encoding="utf-8"), tables), encoding="utf-8")
