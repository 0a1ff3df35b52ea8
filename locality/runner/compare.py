"""`compare`: two models on the same images, and what their difference means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from locality.results.verdict import FEWEST_IMAGES, seen
from locality.runner.evaluation import Evaluation
from locality.statistics import SIGNIFICANT, Paired, paired
from locality.types import Region

Differences = dict[str, dict[str, Paired]]  # method ↦ score ↦ second minus first


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two evaluations on the same images, and the paired difference of each score."""

    first: Evaluation
    second: Evaluation
    differences: Differences

    @property
    def verdicts(self) -> list[str]:
        """One sentence per method."""
        names = self.first.model, self.second.model
        region = self.second.verdict.region
        return [verdict(*names, method, scores["f1"], scores["lift"], region) for method, scores in self.differences.items()]

    def to_json(self) -> dict[str, Any]:
        """The differences as plain values; undefined is None."""
        methods = {
            method: {score: _plain(value) for score, value in scores.items()} for method, scores in self.differences.items()
        }
        both = self.first, self.second
        return {
            "first": self.first.model,
            "second": self.second.model,
            "data": self.second.data,
            "n": max((scores["f1"].used for scores in self.differences.values()), default=0),
            "methods": methods,
            "verdicts": self.verdicts,
            "provenance": {evaluation.model: evaluation.provenance for evaluation in both},
        }


def compare(first: Evaluation, second: Evaluation) -> Comparison:
    """Compare two evaluations image by image; ValueError where no image is defined for both."""
    differences = paired_differences(first.rows, second.rows)
    if not any(score.used for scores in differences.values() for score in scores.values()):
        raise ValueError(
            f"`{first.model}` and `{second.model}` have no image in common that is defined for both: pass --data"
        )
    return Comparison(first, second, differences)


def paired_differences(
    first: pd.DataFrame, second: pd.DataFrame, scores: Sequence[str] = ("f1", "lift"), seed: int = 0
) -> Differences:
    """Second minus first on the images that both rows have, with intervals."""
    methods = [name for name in first["method"].unique() if name in set(second["method"])]
    differences: Differences = {}
    for method in methods:
        one, other = (rows[rows["method"] == method].set_index("image_id") for rows in (first, second))
        differences[str(method)] = {score: paired(one[score], other[score], seed=seed) for score in scores}
    return differences


def verdict(first: str, second: str, method: str, f1: Paired, lift: Paired, region: Region = "box") -> str:
    """One sentence on which of two models has the higher locality by one method.

    A difference counts if its 95 % interval excludes 0 and Wilcoxon's test agrees (p < 0.05); fewer than 10 images have no
    verdict. F1 and lift can disagree: F1 rewards maps with few negative values, lift corrects for that.

    >>> higher = Paired(0.2, 0.1, 0.3, 0.01, 0.8, 0.2, 50, 0, 0)
    >>> verdict("a", "b", "IG", higher, higher)
    'IG: b looks at the object more than a: F1 +0.200 [+0.100, +0.300], lift +0.200 [+0.100, +0.300], on 50 images.'
    """
    numbers = f"F1 {change_text(f1)}, lift {change_text(lift)}, on {f1.used:,} images."
    if f1.used < 2:
        return f"{method}: too few images to compare: {f1.used} are defined for both."
    if min(f1.used, lift.used) < FEWEST_IMAGES:
        return f"{method}: too few images for a verdict on {first} and {second} ({FEWEST_IMAGES} are needed): {numbers}"
    if not (interval_and_test_agree(f1) and interval_and_test_agree(lift)):
        return f"{method}: inconclusive, interval and test disagree on {first} and {second}: {numbers}"
    match _sign(f1), _sign(lift):
        case 1, 1:
            return f"{method}: {second} looks at {seen(region)} more than {first}: {numbers}"
        case -1, -1:
            return f"{method}: {first} looks at {seen(region)} more than {second}: {numbers}"
        case 0, 0:
            return f"{method}: no significant difference between {first} and {second}: {numbers}"
        case _:
            return f"{method}: inconclusive, F1 and lift disagree on {first} and {second}: {numbers}"


def interval_and_test_agree(change: Paired) -> bool:
    """Whether the 95 % interval and Wilcoxon's test both see a difference, or neither does.

    >>> interval_and_test_agree(Paired(0.2, 0.1, 0.3, 0.25, 1.0, 0.0, 12, 0, 0))
    False
    """
    return (_sign(change) != 0) == (change.p < SIGNIFICANT)


def has_verdict(f1: Paired, lift: Paired) -> bool:
    """Whether `verdict` names one of the models."""
    changes = f1, lift
    enough = all(change.used >= FEWEST_IMAGES and interval_and_test_agree(change) for change in changes)
    return enough and _sign(f1) == _sign(lift) != 0


def change_text(change: Paired) -> str:
    """The difference and its 95 % interval."""
    return f"{change.difference:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"


def _sign(change: Paired) -> int:
    return (change.low > 0) - (change.high < 0)


def _plain(value: Paired) -> dict[str, Any]:
    return {key: None if isinstance(part, float) and math.isnan(part) else part for key, part in asdict(value).items()}
