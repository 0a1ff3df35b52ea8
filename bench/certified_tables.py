"""The tables of docs/certified.md, from stored results; `bench/documents.py` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from stored import markdown, result

Stored = Mapping[str, Any]
Cells = tuple[list[str], list[list[str]]]  # titles and rows
TITLES = {
    "checkpoints": "Checkpoints that ship",
    "radius": "Training and certified radius (Table 5.1)",
    "loss": "Loss (Table 5.2a)",
    "loss, plain convolutions": "Loss, with plain convolutions (Table 5.2a)",
    "depth, linear residual": "Depth, linear residual blocks (Tables 5.2b and C.3)",
    "depth, plain convolutions": "Depth, plain convolutions (Table 5.2b)",
    "depth, residual": "Depth, conventional residual blocks (Table 5.2b)",
    "block": "Block, at depth 6 (Table 5.2b)",
    "power steps": "Power steps in training (thesis, Section 5.1.1)",
    "radius at the end": "Radius during training, in units of the certified one",
    "shapes": "`shapes`, radius in the row's name",
}
NUMBERS = {"clean": "clean", "verified": "verified at 36/255"}


@dataclass(frozen=True)
class Claim:
    """`row` − the first row of `table` in one number; `sign` says what is claimed: 1 more, −1 less, 0 no more."""

    text: str
    table: str
    row: str
    number: str
    sign: int


CLAIMS = (
    Claim("EMMA certifies more than TRADES, LiResNet", "loss", "trades", "verified", -1),
    Claim("EMMA certifies more than TRADES, plain convolutions", "loss, plain convolutions", "conv_trades", "verified", -1),
    Claim("EMMA certifies more than a fixed margin", "loss", "fixed", "verified", -1),
    Claim("logit annealing certifies more than EMMA (Lai et al. 2025)", "loss", "la", "verified", 1),
    Claim("linear residual blocks certify more than plain convolutions", "block", "conv_emma", "verified", -1),
    Claim("linear residual blocks certify more than conventional ones", "block", "res_6", "verified", -1),
    Claim("depth 12 certifies more than 6, linear residual blocks", "depth, linear residual", "lires_12", "verified", 1),
    Claim("depth 12 certifies less than 6, plain convolutions", "depth, plain convolutions", "conv_12", "verified", -1),
    Claim("depth 12 certifies no more than 6, conventional residual blocks", "depth, residual", "res_12", "verified", 0),
    Claim("10 power steps certify no more than 5", "power steps", "power_10", "verified", 0),
    Claim("a radius that ends at 2ε certifies more than one that ends at ε", "radius at the end", "ramp_1", "verified", -1),
)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def direction(change: Stored) -> int:
    """1 more, −1 less, 0 inconclusive: the interval over images must exclude 0, and all seeds must have its sign.

    >>> direction({"low": 1, "high": 3}), direction({"low": -3, "high": -1}), direction({"low": -1, "high": 3})
    (1, -1, 0)
    >>> direction({"low": 1, "high": 3, "by_seed": [4, 1]}), direction({"low": 1, "high": 3, "by_seed": [4, -0.5, 2]})
    (1, 0)
    """
    seeds = change.get("by_seed", [])
    if change["low"] > 0 and all(one > 0 for one in seeds):
        return 1
    return -1 if change["high"] < 0 and all(one < 0 for one in seeds) else 0


def points(change: Stored) -> str:
    """A paired change in points with its interval and its range over several seeds; bold if it has a `direction`."""
    text = f"{100 * change['difference']:+.1f} ({100 * change['low']:+.1f} to {100 * change['high']:+.1f})"
    seeds = change.get("by_seed", [])
    if len(seeds) > 1:
        text += f", by seed {100 * min(seeds):+.1f} to {100 * max(seeds):+.1f}"
    return f"**{text}**" if direction(change) else text


def study_rows(study: Stored, table: str) -> Cells:
    """One row per network: means over its seeds, and the paired changes from the first row."""
    attacked = any("attacked" in one for row in study["tables"][table] for one in _runs(study, row))
    radii = [18 / 255, 36 / 255, 72 / 255, 144 / 255] if table != "shapes" else [0.14, 0.4, 0.8, 1.6]
    named = [f"{255 * radius:.0f}/255" if table != "shapes" else f"{radius:g}" for radius in radii]
    wrong_at = int(table != "shapes")  # the first radius of shapes, the second of photographs
    titles = ["row", "clean", *(f"verified, {name}" for name in named), f"wrong but certified, {named[wrong_at]}", "K"]
    titles += ["under attack, 36/255"] if attacked else []
    compared = study["compared"].get(table)
    titles += ["change of clean", "change of verified, 36/255"] if compared else []
    rows = []
    for row in study["tables"][table]:
        runs = _runs(study, row)
        if not runs:
            continue
        if "diverged" in runs[0]:
            rows.append([f"`{row}`", f"diverged in step {runs[0]['diverged']['step']}", *[""] * (len(titles) - 2)])
            continue
        verified = [mean(_at(run, radius)["mean"] for run in runs) for radius in radii]
        wrong = mean(_at(run, radii[wrong_at])["wrong"] / run["n"] for run in runs)
        seeds = f", {len(runs)} seeds" if len(runs) > 1 else ""
        cells = [f"`{row}`{seeds}", percent(mean(run["clean"]["mean"] for run in runs)), *map(percent, verified)]
        cells += [percent(wrong), f"{mean(run['lipschitz']['margin'] for run in runs):.3g}"]
        if attacked:
            under = [run["attacked"]["robust"]["mean"] for run in runs if "attacked" in run]
            cells.append(percent(mean(under)) if under else "–")
        if compared:
            change = compared.get(row)
            cells += [points(change[number]) for number in NUMBERS] if change else ["", ""]
        rows.append(cells)
    return titles, rows


def claim_rows(study: Stored) -> Cells:
    """What the thesis says, the change, and the verdict, of rows that were trained."""
    rows = []
    for claim in CLAIMS:
        change = study["compared"].get(claim.table, {}).get(claim.row)
        if change is None:
            if any("diverged" in run for run in _runs(study, claim.row)):
                rows.append([claim.text, f"`{claim.row}`", "", "diverged"])
            continue
        value, seeds = change[claim.number], len(change["seeds"])
        rows.append(
            [claim.text, f"`{claim.row}`", f"{points(value)}, {seeds} seed{'s' * (seeds > 1)}", verdict(value, claim.sign)]
        )
    return ["claim", "row", "change of verified accuracy, in points", "verdict"], rows


def verdict(change: Stored, sign: int) -> str:
    """Whether a paired change agrees with the claim.

    >>> verdict({"low": 1, "high": 3}, 1), verdict({"low": -3, "high": -1}, 1), verdict({"low": -1, "high": 1}, 1)
    ('holds', 'contradicted', 'inconclusive')
    >>> verdict({"low": -1, "high": 1}, 0), verdict({"low": 1, "high": 3}, 0), verdict({"low": -3, "high": -1}, 0)
    ('no difference found', 'contradicted', 'holds')
    """
    found = direction(change)
    if sign == 0:
        return "contradicted" if found > 0 else "holds" if found < 0 else "no difference found"
    return "inconclusive" if found == 0 else "holds" if found == sign else "contradicted"


def threat_rows(study: Stored) -> Cells:
    """Figure 5.4: the share of training images whose threatening class changes from one epoch to the next."""
    rows = [
        [classes, f"{one['n']}", *(percent(share) for share in one["changed"])]
        for classes, one in study["threatening_class"].items()
    ]
    epochs = max((len(row) for row in rows), default=2) - 2
    return ["classes", "images", *(f"epochs {first} to {first + 1}" for first in range(1, epochs + 1))], rows


def settings_rows(found: Stored) -> Cells:
    """Settings of `tiny_liresnet` on held-out training photographs."""
    rows = []
    for row, one in found["rows"].items():
        cells = [f"`{row}`", percent(one["clean"]["mean"]), percent(one["verified"]["mean"])]
        changes = [one.get(f"{number} change") for number in NUMBERS]
        rows.append([*cells, *("" if change is None else points(change) for change in changes)])
    return ["row", "clean", "verified, 36/255", "change of clean", "change of verified"], rows


def attack_rows(numbers: Stored) -> Cells:
    """Certified points that were attacked and broken: one row per network, one cell per attack."""
    attacks = list(numbers["total"]["by attack"])
    rows = []
    for name, row in numbers["networks"].items():
        cells = [f"{row[one]['broken']:,} of {row[one]['points']:,}" if one in row else "–" for one in attacks]
        nearest = [row[one]["nearest"] for one in attacks if row.get(one, {}).get("nearest") is not None]
        rows.append([name, *cells, f"{min(nearest):.6f}"])
    total = numbers["total"]["by attack"]
    rows.append(["**all**", *(f"**{total[one]['broken']:,} of {total[one]['points']:,}**" for one in attacks), ""])
    return ["network", *(f"broken by {one}" for one in attacks), "nearest"], rows


def verdict_rows(numbers: Stored) -> Cells:
    """The six hypotheses about certified networks."""
    rows = []
    for one in numbers["hypotheses"]:
        images = sorted({entry["n"] for entry in one["evidence"]})
        count = "–" if not images else f"{images[0]}" if len(images) == 1 else f"{images[0]} to {images[-1]}"
        families = [f"{name}: {text}" for name, text in one["by family"].items()] if one["id"] != "H6" else []
        rows.append([one["id"], one["claim"], f"**{one['verdict']}**", "; ".join(families), count])
    return ["", "claim", "verdict", "comparisons by family", "images"], rows


def causes(numbers: Stored) -> list[str]:
    """What explains a difference, one line each, and the answer."""
    lines = [f"- {name}: {family}, {text}" for name, one in numbers["cause"].items() for family, text in one.items()]
    return [*lines, "", f"**{numbers['answer']}**"]


def model_rows(numbers: Stored) -> Cells:
    """Accuracy, locality and certificates of the networks behind the verdicts."""
    rows = []
    for name, one in numbers["models"].items():
        shares = [f"{100 * one[key]:.0f} %" for key in ("accuracy", "under attack", "verified")]
        lifts = [f"{one[f'lift {method}']:+.3f}" for method in ("SM", "IG", "BIG")]
        cue = numbers["cue"].get(name)
        used = "–" if cue is None else f"{100 * cue['without cue']:.0f} %, {100 * cue['follows a swapped cue']:.0f} %"
        rows.append([f"`{name}`", *shares, *lifts, f"{100 * one['radius over distance']:.1f} %", used])
    titles = ["network", "clean", "PGD-20, ℓ2 36/255", "verified, 36/255", "lift SM", "lift IG", "lift BIG"]
    return [*titles, "radius / distance", "right without cue, follows swapped cue"], rows


def dose_rows(found: Stored) -> Cells:
    """Networks for a faint cue: what they follow, what they certify, and where they look."""
    rows, radii = [], (0.05, 0.14, 0.4)
    for row, one in found.items():
        shares = [one[key]["mean"] for key in ("right with cue", "right without cue", "follows a swapped cue")]
        verified = [_at(one, radius)["mean"] for radius in radii]
        above = [one[f"certified above {words}"]["mean"] for words in ("half the distance", "the distance")]
        lifts = [f"{lift['mean']:+.3f} ({lift['low']:+.3f} to {lift['high']:+.3f})" for lift in one["lift"].values()]
        rows.append([f"`{row}`", *map(percent, (*shares, *verified, *above)), *lifts])
    titles = [
        "network",
        "right with cue",
        "right without",
        "follows a swapped cue",
        *(f"verified, {r}" for r in (0.05, 0.14, 0.4)),
    ]
    titles += ["certified above D/2", "certified above D", *(f"lift {method}" for method in ("SM", "IG", "BIG"))]
    return titles, rows


def certified_table(rows: Callable[[Any], Cells], name: str) -> Callable[[], str]:
    """A table from a stored result, as Markdown."""
    return lambda: markdown(*rows(result(name)))


def certified_study() -> str:
    """Every table of the study under its title."""
    study = result("certified_study.json")
    parts = []
    for table, title in TITLES.items():
        titles, rows = study_rows(study, table)
        if len(rows) < 2:
            continue  # nothing was compared
        parts += [f"**{title}**", "", markdown(titles, rows), ""]
    return "\n".join(parts[:-1])


def certified_verdicts() -> str:
    """The six hypotheses about certified networks, what explains a difference, and the answer."""
    numbers = result("certified_locality/verdicts.json")
    return "\n".join([markdown(*verdict_rows(numbers)), "", *causes(numbers)])


def _runs(study: Stored, row: str) -> Sequence[Stored]:
    return [one for name, one in study["rows"].items() if name.rpartition("_")[0] == row]


def _at(run: Stored, radius: float) -> Stored:
    found: Stored = next(one for one in run["verified"] if abs(one["radius"] - radius) < 1e-9)
    return found
