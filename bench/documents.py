"""Write the tables of docs/ and CONTRIBUTING.md from bench/results and the cards of the shipped models.

    python bench/documents.py

Each table is between `<!-- NAME -->` and `<!-- end -->`. A test checks that the documents are up to date.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # for tests, which load this file by its path

import certified_tables
from certified_tables import Cells

from locality.progress import duration_text
from locality.report.aggregates import aggregate
from locality.report.findings import sentences
from locality.report.tables.build import TABLES as REPORTED
from locality.report.tables.formats import markdown_text
from locality.results.folder import read_results
from locality.results.results import Results, of_data
from locality.results.schema import SCORES
from locality.statistics import correlation, holm
from locality.zoo.catalog import shipped_cards

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results"


def markdown(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def result(name: str) -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return numbers


def boundary_table() -> str:
    """Every boundary bench: one row per model × search."""
    rows = []
    for path in sorted((RESULTS / "boundary").glob("*.json")):
        for search, row in result(f"boundary/{path.name}")["searches"].items():
            # A reference from an earlier run has no times.
            paper, seconds = row.get("times_faster_than_paper"), row.get("seconds_per_image")
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
        "s per image",
        "speed relative to `paper`",
    ]
    return markdown(titles, rows)


def held_out_table(folder: str, steps: int) -> str:
    """`fast` beside DDN on images, or networks, that it was not tuned on: one row per model."""
    rows = []
    for path in sorted((RESULTS / "boundary" / folder).glob("*.json")):
        searches = result(f"boundary/{folder}/{path.name}")["searches"]
        row, reference = searches["fast"], searches[f"DDN-{steps}"]
        both = [(d, r) for d, r in zip(row["distances"], reference["distances"], strict=True) if max(d, r) < float("inf")]
        hardest = max(d - r for d, r in both) / sum(r for _, r in both)
        success, work = f"{row['success']:.0%}", f"{row['gradients']:.1f} + {row['forwards']:.1f}"
        name = f"[`{path.stem}`](bench/results/boundary/{folder}/{path.name})"
        rows.append((name, row["images"], success, f"{row['mean']:.3f}", f"{row['ratio']:.3f}", f"{hardest:.3f}", work))
    titles = [
        "model",
        "images",
        "found",
        "mean ℓ2",
        f"ratio to DDN-{steps}",
        "share added by the hardest image",
        "gradients + forwards",
    ]
    return markdown(titles, rows)


def attribution_table() -> str:
    """SM, IG, BSM and BIG by `attribute_all` and by Captum."""
    rows = [
        (name, f"{row['seconds']:.1f}", f"{row['times_ours']:.2f} ×", f"{row['peak_mb']:,}", f"{row['more_mb']:,}")
        for name, row in result("attribution.json")["rows"].items()
    ]
    return markdown(["method", "s", "relative to ours", "peak MB", "MB above the loaded model"], rows)


def certified_table(rows: Callable[[Any], Cells], name: str) -> Callable[[], str]:
    """A table of certified_tables from a stored result."""
    return lambda: markdown(*rows(result(name)))


def certified_study() -> str:
    """Every table of the study under its title."""
    study = result("certified_study.json")
    parts = []
    for table, title in certified_tables.TITLES.items():
        titles, rows = certified_tables.study_rows(study, table)
        if len(rows) < 2:
            continue  # nothing was compared
        parts += [f"**{title}**", "", markdown(titles, rows), ""]
    return "\n".join(parts[:-1])


def certified_verdicts() -> str:
    """The six hypotheses about certified networks, what explains a difference, and the answer."""
    numbers = result("certified_locality/verdicts.json")
    return "\n".join([markdown(*certified_tables.verdict_rows(numbers)), "", *certified_tables.causes(numbers)])


def runner_table() -> str:
    """Images per second of the runner and of stock libraries, and the runner's overhead."""
    numbers = result("runner.json")
    cost = numbers["overhead"]
    rows = [
        ("bare calls, one process", f"{cost['bare_images_per_second']:.1f} images per second", ""),
        (
            "the same work as units",
            f"{cost['unit_images_per_second']:.1f} images per second",
            f"{cost['overhead_percent']:+.1f} % time",
        ),
    ]
    stock = numbers["stock libraries"]["images_per_second"]
    for name in ("local, 1 process", "local, 2 processes", "ray, 2 workers"):
        rate = numbers[name]["images_per_second"]
        rows.append((name, f"{rate:.1f} images per second", f"{rate / stock:.0f} × the stock loop"))
    rows.append(("a loop over stock Captum and Foolbox, paper search", f"{stock:.3g} images per second", ""))
    for name, row in numbers.items():
        if name.startswith("memory"):
            peaks = f"{row['worker_peak_mb']:,} MB in a worker, {row['writer_peak_mb']:,} MB in the writer"
            rows.append((f"peak {name}", peaks, ""))
    return markdown(["measurement", "result", "comparison"], rows)


def models_table() -> str:
    """The shipped models: the accuracies of their cards, and the measurements of bench/zoo.py."""
    measured = {row["model"]: row for row in csv.DictReader((RESULTS / "zoo.csv").read_text(encoding="utf-8").splitlines())}
    rows = []
    for name, card in sorted(shipped_cards().items()):
        attacked = next(one for one in card.attacked if one.attack == "pgd10" and one.threat.norm == "linf")
        under = f"{100 * attacked.share:.1f} % at {attacked.threat.radius_text}"
        certified = [f"{100 * share:.1f} %" for key, share in card.accuracy.items() if key.startswith("certified")]
        clean = f"{100 * card.accuracy['clean']:.1f} %"
        row = measured.get(name)  # None for models that are newer than the measurement
        era = ["", ""] if row is None else [f"{100 * float(row[f'era_linf_{levels}_255']):.1f} %" for levels in (4, 8)]
        distance = "" if row is None else f"{float(row['distance']):.2f}"
        rows.append((f"`{name}`", card.data, card.trained, clean, "".join(certified), under, *era, distance))
    titles = ["name", "data", "training", "clean", "certified", "under PGD-10", "ERA 4/255", "ERA 8/255", "distance"]
    return markdown(titles, rows)


def predicted_table() -> str:
    """The time that the dry run predicted for suites, and the time they took."""
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
    titles = ["suite", "models", "images per model", "methods", "processes", "load before", "calibration"]
    return markdown([*titles, "predicted", "measured", "difference"], rows)


def coverage_table() -> str:
    """How often 95 % intervals contain the true value, by kind of number and number of images."""
    numbers = result("coverage.json")
    sizes = list(next(iter(numbers["coverage"].values())))
    rows = [
        (kind, *(f"{row[size]['mean']:.1%} ({row[size]['lowest']:.0%} to {row[size]['highest']:.0%})" for size in sizes))
        for kind, row in numbers["coverage"].items()
    ]
    return markdown(["mean of", *(f"{size} images" for size in sizes)], rows)


STUDIED = ("clean", "robust", "loss gap", "wci", "top trace", "distance", "lift SM", "lift IG", "lift BIG")
SWEPT = ("clean", "robust", "lift SM", "lift IG")
SIGNS = {"higher": " ↑", "lower": " ↓", "inconclusive": ""}


def training_table() -> str:
    """Means of every row of the training study, with the verdicts of its paired comparison with the base."""
    numbers = result("training_study/verdicts.json")
    rows = []
    for row, means in numbers["means"].items():
        signs = {name: SIGNS[changes[row]["verdict"]] for name, changes in numbers["changes"].items() if row in changes}
        texts = []
        for name in STUDIED:
            text = f"{means[name]:.0f}" if name in ("wci", "top trace") else f"{means[name]:.3f}"
            texts.append(text + signs.get(name, ""))
        rows.append((f"`{row}`", *texts))
    titles = ["clean", "ERA", "gap of the loss", "WCI", "TrH", "distance", "lift SM", "lift IG", "lift BIG"]
    return markdown(["row", *titles], rows)


def association_table() -> str:
    """Rank correlations over the rows of the training study."""
    numbers = result("training_study/verdicts.json")["associations"]
    titles = {"robust": "ERA", "loss gap": "gap of the loss"}
    outcomes = list(next(iter(numbers.values())))
    rows = [
        (flat, *(f"{several[name]['spearman']:+.2f} (p = {several[name]['p']:.2g})" for name in outcomes))
        for flat, several in numbers.items()
    ]
    return markdown(["change of", *(titles.get(name, name) for name in outcomes)], rows)


def overfitting_table() -> str:
    """Final numbers of the runs that overfit, one row per run."""
    numbers = result("overfitting.json")
    rows = []
    for name, curves in numbers["curves"].items():
        accuracy = numbers["accuracy"][name]
        best = 1 - min(curves["eval_robust_error"])
        robust = next(share for key, share in accuracy.items() if key.startswith("linf 8/255"))
        rows.append(
            (
                f"`{name}`",
                f"{accuracy['clean']:.1%}",
                f"{robust:.1%}",
                f"{best:.1%}",
                f"{curves['loss_gap'][-1]:.2f}",
                f"{curves['wci'][-1]:.0f}",
            )
        )
    titles = ["clean", "PGD-10, final", "best of the monitor", "gap of the loss", "WCI"]
    return markdown(["run", *titles], rows)


def follower_table() -> str:
    """How well each number follows the gap over the epochs of a run: rank correlations, one per seed."""
    numbers = result("overfitting.json")["follows the gap"]
    names = list(next(iter(numbers.values())))

    def listed(name: str, kind: str) -> str:
        values = [seed[name][kind] for seed in numbers.values()]
        return ", ".join("–" if value is None else f"{value:+.2f}" for value in values)

    rows = [(name, listed(name, "values"), listed(name, "changes")) for name in names]
    return markdown(["number", "with the gap", "of changes between measurements"], rows)


def sweep_table(sweep: str) -> Callable[[], str]:
    """One sweep: means of every point, with the verdicts of its paired comparison with the base."""

    def table() -> str:
        numbers = result("training_sweeps/sweeps.json")
        one = numbers["sweeps"][sweep]
        rows = []
        for point in one["points"]:
            texts = [
                f"{point['means'][name]:.3f}"
                + SIGNS[point["changes"][name]["verdict"] if point["changes"] else "inconclusive"]
                for name in SWEPT
            ]
            change = point["changes"].get("robust")
            interval = "" if change is None else f"{change['difference']:+.3f} [{change['low']:+.3f}, {change['high']:+.3f}]"
            rows.append((f"{point['value']:g}", texts[0], texts[1], interval, *texts[2:]))
        return markdown([one["setting"], "clean", "ERA", "change of ERA", "lift SM", "lift IG"], rows)

    return table


def suite(name: str, data: str | None = None) -> Results:
    """Committed results of a suite, all or those on one data set."""
    results = read_results(RESULTS / name)
    return results if data is None else of_data(results, data)


def reported(table: str, name: str, data: str | None = None) -> Callable[[], str]:
    """A table of the report."""
    return lambda: markdown_text(REPORTED[table](suite(name, data))).strip()


def trends(name: str) -> Callable[[], str]:
    """Rank correlations of every score with accuracy over the standard models of a suite, Holm-corrected together."""

    def table() -> str:
        means = aggregate(suite(name))
        models = [model.name for model in means.models if model.kind == "standard"]
        accuracy = [means.accuracy[model].mean for model in models]
        found = {
            (method, score): correlation(accuracy, [means.scores[model, method, score].mean for model in models])
            for method in means.methods
            for score in SCORES
        }
        corrected = dict(zip(found, holm([one.spearman_p for one in found.values()]), strict=True))
        rows = [
            (method, *(f"{found[method, score].spearman:+.2f} (p = {corrected[method, score]:.2g})" for score in SCORES))
            for method in means.methods
        ]
        return markdown([f"over {len(models)} networks", *(score.replace("f1", "F1") for score in SCORES)], rows)

    return table


def faithfulness_of(name: str, models: Sequence[str]) -> Callable[[], str]:
    """The table of some models; each has ten rows."""

    def table() -> str:
        results = suite(name)
        few = results.with_tables(faithfulness=results["faithfulness"][results["faithfulness"]["model"].isin(models)])
        return markdown_text(REPORTED["faithfulness"](few)).strip()

    return table


def said_of(name: str, word: str, data: str) -> Callable[[], str]:
    """The findings on one data set that have a word, as a list of sentences."""
    return lambda: "\n".join(f"- {sentence}" for sentence in sentences(suite(name, data)) if word in sentence)


def said(name: str) -> Callable[[], str]:
    """The findings as a list of sentences."""
    return lambda: "\n".join(f"- {sentence}" for sentence in sentences(suite(name)))


def walk() -> str:
    """The files that `locality eval` passes; in a process of its own, where nothing is imported yet."""
    command = [sys.executable, str(ROOT / "bench/walk.py"), "eval", "--model", "shapes_cnn", "--limit", "8"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


DOCUMENTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/speed.md": {
        "boundary": boundary_table,
        "held_out": partial(held_out_table, "held_out", 400),
        "other_networks": partial(held_out_table, "other_networks", 300),
        "attribution": attribution_table,
        "runner": runner_table,
    },
    "docs/models.md": {"models": models_table},
    "docs/reproduction.md": {
        "imagenet_said": said("imagenet"),
        "imagenet_locality": reported("locality", "imagenet"),
        "imagenet_trends": trends("imagenet"),
        "cifar_similarity": reported("similarity", "cifar"),
        "cifar_robust": reported("robust", "cifar"),
        "cifar_searches": reported("searches", "cifar"),
        "said": said("tiny"),
        "overview": reported("overview", "tiny"),
        "pairs": reported("pairs", "tiny"),
        "shapes_pairs": reported("pairs", "zoo", "shapes"),
        "regions": reported("regions", "regions"),
        "regions_tiny": said_of("regions", "eliance", "tiny-imagenet"),
        "regions_shapes": said_of("regions", "eliance", "shapes"),
        "similarity": reported("similarity", "similarity"),
        "searches": reported("searches", "tiny"),
        "faithfulness": faithfulness_of("tiny", ("tiny_resnet", "tiny_resnet_robust")),
    },
    "docs/curvature.md": {"curvature": reported("curvature", "curvature")},
    "docs/training_study.md": {
        "training": training_table,
        "associations": association_table,
        "overfitting": overfitting_table,
        "followers": follower_table,
        **{sweep: sweep_table(sweep) for sweep in ("trh_at", "trh_trades", "rat_labels", "smoothing")},
    },
    "docs/certified.md": {
        "certified study": certified_study,
        "certified claims": certified_table(certified_tables.claim_rows, "certified_study.json"),
        "certified threats": certified_table(certified_tables.threat_rows, "certified_study.json"),
        "certified settings": certified_table(certified_tables.settings_rows, "certified_settings.json"),
        "certified dose": certified_table(certified_tables.dose_rows, "certified_dose.json"),
        "certified attacks": certified_table(certified_tables.attack_rows, "certified_attacks.json"),
        "certified verdicts": certified_verdicts,
        "certified models": certified_table(certified_tables.model_rows, "certified_locality/verdicts.json"),
    },
    "docs/scores.md": {"coverage": coverage_table},
    "docs/scaling.md": {"predicted": predicted_table},
    "CONTRIBUTING.md": {"walk": walk},
}


def written(text: str, tables: dict[str, Callable[[], str]], folders: int = 0) -> str:
    """The document with up-to-date tables; links lead up from a document that is some folders below the root."""
    for name, table in tables.items():
        start, marked, rest = text.partition(f"<!-- {name} -->\n")
        _, ended, end = rest.partition("<!-- end -->")
        if not marked or not ended:
            raise ValueError(f"the document must mark the table {name}: <!-- {name} --> … <!-- end -->")
        content = table().replace("](bench/", f"]({'../' * folders}bench/")
        text = f"{start}{marked}{content}\n{ended}{end}"
    return text


def updated(document: str) -> str:
    """The text of a document with up-to-date tables."""
    return written((ROOT / document).read_text(encoding="utf-8"), DOCUMENTS[document], document.count("/"))


if __name__ == "__main__":
    for document in DOCUMENTS:
        (ROOT / document).write_text(updated(document), encoding="utf-8")
