"""The tables of docs/training_study.md, from stored results; `bench/documents.py` writes them."""

from __future__ import annotations

from collections.abc import Callable

from stored import markdown, result

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
