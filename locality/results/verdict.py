"""The verdict: does a model look at the object? It looks, it does not, or it cannot be told; with the reason.

Lift is compared image by image with two references. Chance, a lift of 0, is what the same values score when shuffled over
the image. The other is the best of the maps that depend on neither the model nor the image: where objects are in the middle,
even random weights are above chance, because the borders of an image have little influence on a network.

- Looks: at least one method is significantly above the best model-free map, and none is significantly below chance.
- Does not look: no method is significantly above chance, and all are significantly below the best model-free map.
- Cannot be told: anything else, or fewer than 10 images that have a lift by every method.

Significant: the 95 % interval of the mean difference excludes 0, and Wilcoxon's p, Holm-corrected for the number of methods,
is below 0.05.

Region tests, which use no attribution, are asked too, if they were made on 10 images or more. If the reliance on the region
is significantly below chance where the lift says that the model looks, or above it where the lift says that it does not, the
two disagree and it cannot be told. They never decide alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.results.region_tests import reliance
from locality.results.wording import listed
from locality.statistics import SIGNIFICANT, Paired, holm, paired
from locality.types import Region

FEWEST_IMAGES = 10  # a verdict on fewer would be a guess
# How a sentence names the model-free map; others are named by their own name.
REFERENCES = {
    "centred Gaussian": "a Gaussian in the middle of the image",
    "uniform": "a uniform map",
    "random": "a random map",
}


@dataclass(frozen=True)
class Verdict:
    """Whether a model looks at the object; None where it cannot be told."""

    looks: bool | None
    reason: str
    region: Region = "box"

    def sentence(self, model: str) -> str:
        """The verdict in one sentence.

        >>> Verdict(None, "only 4 images").sentence("net")
        'It cannot be told whether net looks at the object: only 4 images.'
        """
        if self.looks is None:
            return f"It cannot be told whether {model} looks at {seen(self.region)}: {self.reason}."
        return f"{model} {'looks' if self.looks else 'does not look'} at {seen(self.region)}: {self.reason}."

    def to_json(self, model: str) -> dict[str, Any]:
        """The answer (None where it cannot be told) and the sentence."""
        key = "looks_at_cue" if self.region == "cue" else "looks_at_object"
        return {key: self.looks, "sentence": self.sentence(model)}


def seen(region: Region) -> str:
    """What a model looks at, if its attributions are in the region.

    >>> seen("box"), seen("cue")
    ('the object', 'the planted cue')
    """
    return "the planted cue" if region == "cue" else "the object"


def verdict(
    rows: pd.DataFrame,
    model_free: pd.DataFrame,
    seed: int = 0,
    region: Region = "box",
    tests: pd.DataFrame | None = None,
) -> Verdict:
    """The verdict on one model, from its rows and those of the model-free maps on the same images, against the region.

    `tests` are its region tests, without which the lift decides alone.

    >>> table = {"image_id": range(12), "method": "BIG"}
    >>> free = pd.DataFrame({**table, "method": "uniform", "lift": 0.0})
    >>> print(verdict(pd.DataFrame({**table, "lift": [0.3 + 0.01 * i for i in range(12)]}), free).sentence("net"))
    net looks at the object: the lift of BIG (0.355) is significantly above that of a uniform map (0.000); 12 images.
    """
    looks, reason = _judged(rows, model_free, seed)
    if tests is not None and len(tests):
        looks, reason = _with_tests(looks, reason, tests, region, seed)
    return Verdict(looks, reason, region)


def _with_tests(looks: bool | None, reason: str, tests: pd.DataFrame, region: Region, seed: int) -> tuple[bool | None, str]:
    """The answer of the lift, and what the region tests say to it."""
    values = reliance(tests).dropna().to_numpy(dtype=np.float64)
    if len(values) < FEWEST_IMAGES:
        return looks, reason
    [side] = significant_sides([paired(np.zeros(len(values)), values, seed=seed)])
    number = f"reliance {_text(values)}"
    if side == 0:
        return looks, f"{reason}; region tests are inconclusive ({number})"
    if looks is None:
        than = "more" if side > 0 else "less"
        name = seen(region)
        return looks, f"{reason}; by region tests it relies on {name} {than} than on an equal area elsewhere ({number})"
    if looks == (side > 0):
        return looks, f"{reason}; region tests agree ({number})"
    where = "below" if side < 0 else "above"
    return None, f"attribution and region tests disagree: {reason}, but by region tests the {number} is {where} chance"


def _judged(rows: pd.DataFrame, model_free: pd.DataFrame, seed: int) -> tuple[bool | None, str]:
    """Whether the lift shows that the model looks at the region, and why."""
    lifts, free = (
        table.drop_duplicates(["image_id", "method"])
        .pivot(index="image_id", columns="method", values="lift")
        .reindex(columns=table["method"].unique())
        for table in (rows, model_free)
    )
    defined = lifts.dropna().index.intersection(free.dropna().index)
    if len(defined) < FEWEST_IMAGES:
        count = "1 image has" if len(defined) == 1 else f"{len(defined):,} images have"
        return None, f"{count} a lift by every method, {FEWEST_IMAGES} are needed"
    methods = list(lifts.columns)
    measured = [lifts.loc[defined, name].to_numpy(dtype=np.float64) for name in methods]
    references = {str(name): free.loc[defined, name].to_numpy(dtype=np.float64) for name in free.columns}
    best = max(references, key=lambda name: float(references[name].mean()))
    chance, reference = (
        significant_sides([paired(other, values, seed=seed) for values in measured])
        for other in (np.zeros(len(defined)), references[best])
    )
    named = f"{REFERENCES.get(best, best)} ({_text(references[best])})"
    above = [index for index, side in enumerate(reference) if side > 0]
    below_chance = [index for index, side in enumerate(chance) if side < 0]
    all_lifts = ", ".join(f"{name} {_text(numbers)}" for name, numbers in zip(methods, measured, strict=True))
    images = f"; {len(defined):,} images"

    def those(indices: Sequence[int]) -> str:
        return listed([f"{methods[index]} ({_text(measured[index])})" for index in indices])

    if above and not below_chance:
        return True, f"the lift of {those(above)} is significantly above that of {named}{images}"
    if above:
        low = f"that of {those(below_chance)} is below chance"
        return None, f"methods disagree: the lift of {those(above)} is above that of {named}, {low}{images}"
    if any(side > 0 for side in chance):
        reason = f"the lift is above chance ({all_lifts}), but not significantly above that of {named}"
        return None, reason + images
    if all(side < 0 for side in reference):
        reason = f"no method is significantly above chance (lift {all_lifts}), and all are significantly below {named}"
        return False, reason + images
    return None, f"the lift is neither significantly above chance nor below {named}: {all_lifts}{images}"


def significant_sides(changes: Sequence[Paired]) -> list[int]:
    """1 where a difference is significantly above 0, −1 where it is below, else 0; p is corrected for their number."""
    p_values = holm([1.0 if math.isnan(change.p) else change.p for change in changes])
    return [((change.low > 0) - (change.high < 0)) * (p < SIGNIFICANT) for change, p in zip(changes, p_values, strict=True)]


def _text(values: NDArray[np.float64]) -> str:
    return f"{round(float(values.mean()), 3) + 0.0:.3f}".replace("-", "−")
