"""How often the tool's 95 % intervals contain the true value, and how often `compare` sees a difference where there is none.

    python bench/coverage.py

The stored images of bench/results stand for all images: their mean is the true value, and samples of n images are drawn from
them with replacement. The code that computes the intervals is that of the tables. Wilson's coverage is computed exactly. The
result goes to bench/results/coverage.json.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from locality.intervals import CONFIDENCE, wilson_interval
from locality.report.estimates import boundary_distances, estimates, floats
from locality.report.models import models_of, pairs_of
from locality.report.pairs import paired_differences
from locality.results.folder import read_results
from locality.results.schema import SCORES
from locality.runner.compare import has_verdict
from locality.statistics import paired

RESULTS = Path(__file__).resolve().parent / "results"
SUITES = ("tiny", "zoo")
SIZES = (5, 10, 30, 200)
DRAWS = 1000  # samples per population and size
RESAMPLES = 1000  # of the bootstrap; the tool uses 10,000
COMPARED = (4, 10, 30, 200)

Numbers = NDArray[np.float64]


def populations() -> dict[str, list[Numbers]]:
    """Kind of number ↦ all its values over images, one array per model, method or pair; constant ones are left out."""
    kinds: dict[str, list[Numbers]] = defaultdict(list)
    for name in SUITES:
        results = read_results(RESULTS / name)
        for _, rows in results.rows.groupby(["model", "method"], sort=False):
            for score in SCORES:
                kinds[score].append(floats(rows[score]))
        for _, rows in results.rows.groupby("model", sort=False):
            kinds["distance"].append(boundary_distances(rows.drop_duplicates("image_id")))
        for _, rows in results.rows.groupby("method", sort=False):
            for (_, score), values in paired_differences(rows, ("f1", "lift"), pairs_of(models_of(results))).items():
                kinds[f"{score} difference"].append(values)
    defined = {kind: [values[~np.isnan(values)] for values in arrays] for kind, arrays in kinds.items()}
    return {kind: [values for values in arrays if np.ptp(values) > 0] for kind, arrays in defined.items()}


def mean_coverage(values: Numbers, size: int, random: np.random.Generator) -> float:
    """Share of the samples whose interval contains the mean of all values."""
    samples = values[random.integers(0, len(values), (DRAWS, size))]
    true = float(values.mean())
    found = estimates(list(samples), resamples=RESAMPLES)
    return float(np.mean([interval.low - 1e-12 <= true <= interval.high + 1e-12 for interval in found]))


def share_coverage(size: int, interval: Callable[[int, int], tuple[float, float]] = wilson_interval) -> dict[str, float]:
    """Exact coverage over true shares 0.001, 0.002, …, 0.999: the mean, the lowest and the highest."""
    intervals = [interval(successes, size) for successes in range(size + 1)]
    shares = np.arange(1, 1000) / 1000
    covered = []
    for share in shares:
        chances = [math.comb(size, k) * share**k * (1 - share) ** (size - k) for k in range(size + 1)]
        covered.append(sum(chance for chance, (low, high) in zip(chances, intervals, strict=True) if low <= share <= high))
    return _row(covered)


def exact(method: str) -> Callable[[int, int], tuple[float, float]]:
    """An interval of scipy's."""

    def interval(successes: int, size: int) -> tuple[float, float]:
        ends = stats.binomtest(successes, size).proportion_ci(CONFIDENCE, method=method)
        return float(ends.low), float(ends.high)

    return interval


def jeffreys(successes: int, size: int) -> tuple[float, float]:
    low, high = stats.beta.ppf([0.025, 0.975], successes + 0.5, size - successes + 0.5)
    return (0.0 if successes == 0 else float(low)), (1.0 if successes == size else float(high))


def agresti_coull(successes: int, size: int) -> tuple[float, float]:
    z = float(stats.norm.ppf(0.975))
    count = size + z * z
    centre = (successes + z * z / 2) / count
    half = z * math.sqrt(centre * (1 - centre) / count)
    return max(0.0, centre - half), min(1.0, centre + half)


def mid_p(successes: int, size: int) -> tuple[float, float]:
    def tail(share: float, above: int) -> float:
        beyond = stats.binom.sf(successes, size, share) if above else stats.binom.cdf(successes - 1, size, share)
        return float(beyond + stats.binom.pmf(successes, size, share) / 2 - 0.025)

    tiny = 1e-12
    low = 0.0 if successes == 0 else optimize.brentq(tail, tiny, 1 - tiny, args=(1,))
    return low, 1.0 if successes == size else optimize.brentq(tail, tiny, 1 - tiny, args=(0,))


# What else a share could have. Ours is Wilson's interval with continuity correction.
OTHERS = {
    "Wilson": exact("wilson"),
    "Jeffreys": jeffreys,
    "Agresti–Coull": agresti_coull,
    "mid-P": mid_p,
    "Clopper–Pearson": exact("exact"),
}


def false_verdicts(size: int, pairs: list[tuple[Numbers, Numbers]], random: np.random.Generator, draws: int = 20) -> float:
    """Share of comparisons with a verdict where F1 and lift are equal on average."""
    wrong = []
    for f1, lift in pairs:
        for _ in range(draws):
            rows = random.integers(0, len(f1), size)
            none = np.zeros(size)
            changes = [paired(none, values[rows] - values.mean(), resamples=RESAMPLES) for values in (f1, lift)]
            wrong.append(has_verdict(*changes))
    return float(np.mean(wrong))


def _row(covered: list[float]) -> dict[str, float]:
    """Coverage over populations: its mean, lowest and highest."""
    numbers = {"mean": float(np.mean(covered)), "lowest": float(min(covered)), "highest": float(max(covered))}
    return {name: round(number, 4) for name, number in numbers.items()}


def other_shares() -> dict[str, dict[str, dict[str, float]]]:
    return {name: {str(size): share_coverage(size, interval) for size in SIZES} for name, interval in OTHERS.items()}


def main() -> None:
    """Print the coverage of every kind of interval and write it down."""
    random = np.random.default_rng(0)
    kinds = populations()
    table: dict[str, dict[str, dict[str, float]]] = {}
    for kind, arrays in kinds.items():
        table[kind] = {str(size): _row([mean_coverage(values, size, random) for values in arrays]) for size in SIZES}
        print(kind, len(arrays), table[kind], flush=True)
    table["share (Wilson)"] = {str(size): share_coverage(size) for size in SIZES}
    print("share (Wilson)", table["share (Wilson)"], flush=True)
    pairs = list(zip(kinds["f1 difference"], kinds["lift difference"], strict=True))
    wrong = {str(size): round(false_verdicts(size, pairs, random), 4) for size in COMPARED}
    print("false verdicts", wrong)
    numbers = {
        "populations": {kind: len(arrays) for kind, arrays in kinds.items()},
        "draws": DRAWS,
        "resamples": RESAMPLES,
        "coverage": table,
        "other intervals of shares": other_shares(),
        "false verdicts": wrong,
    }
    (RESULTS / "coverage.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
