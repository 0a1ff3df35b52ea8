"""What region tests say together: the reliance of a model on the region, by removal, and its relative core sensitivity.

Every test was made for the region and, as chance level, for a region of the same shape and size elsewhere in the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.intervals import CONFIDENCE, RESAMPLES
from locality.results.schema import Schema

# One row per model × image × test.
REGIONS: Schema = {
    "model": str,
    "image_id": str,
    "region": str,  # "box", "object" or "cue"
    "share": float,  # of the image
    "overlap": float,  # share of the region elsewhere that lies in the region
    "test": str,
    "before": bool | None,  # the unchanged image is classified correctly; missing where the model does not know the label
    "correct": float,  # the changed image is; between 0 and 1 for several draws of noise
    "kept": float,  # the decision is that on the unchanged image
    "logit_change": float,  # of the class predicted for the unchanged image
    "prediction": int,  # on the changed image, −1 where none
    "correct_elsewhere": float,  # the same, changed at the other place
    "kept_elsewhere": float,
    "logit_change_elsewhere": float,
    "prediction_elsewhere": int,
    "donor": str | None,  # the image whose background is used
    "donor_label": int,  # its label, −1 where none
}
# What a table calls a test; {region} is the region, {rest} what lies outside.
TITLES = {
    "inside_greyed": "{region} greyed",
    "inside_blurred": "{region} blurred",
    "outside_greyed": "{rest} greyed",
    "outside_blurred": "{rest} blurred",
    "outside_swapped": "{rest} swapped",
    "inside_noise": "noise in {region}",
    "outside_noise": "noise in {rest}",
}
OUTSIDE, INSIDE = ("outside_greyed", "outside_blurred"), ("inside_greyed", "inside_blurred")  # of reliance
SUPPORT = (-1.0, 1.0)  # of reliance and of RCS
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class RelativeSensitivity:
    """Relative core sensitivity, with a bootstrap interval over images."""

    value: float
    low: float
    high: float
    used: int


def title_of(test: str, region: str) -> str:
    """The test in words.

    >>> title_of("outside_greyed", "box"), title_of("inside_noise", "cue")
    ('background greyed', 'noise in cue')
    """
    names = ("cue", "rest") if region == "cue" else ("object", "background")
    return TITLES.get(test, test).format(region=names[0], rest=names[1])


def reliance(tests: pd.DataFrame) -> pd.Series:
    """One number per image of one model, by image id: how much its decision depends on the region, above chance.

    ½·[(k(outside removed) − k(inside removed)) − the same elsewhere], the mean of greyed and blurred; k is 1 where the
    decision is kept. 0 is what a region of this shape and size does at any place. 1: the decision is kept as long as the
    region is there and lost without it, and the other place is neither enough nor needed; −1: the reverse. `nan` where a
    test is undefined.

    >>> kept = {"inside_greyed": 0.0, "inside_blurred": 0.0, "outside_greyed": 1.0, "outside_blurred": 1.0}
    >>> table = {"image_id": "a", "test": list(kept), "kept": list(kept.values()), "kept_elsewhere": [1.0, 1.0, 0.0, 1.0]}
    >>> reliance(pd.DataFrame(table)).to_dict()  # ½·[(1 − 0) − (½ − 1)]
    {'a': 0.75}
    """
    above = tests.assign(above=tests["kept"] - tests["kept_elsewhere"])
    by_test = above.drop_duplicates(["image_id", "test"]).pivot(index="image_id", columns="test", values="above")
    by_test = by_test.reindex(index=tests["image_id"].unique(), columns=[*OUTSIDE, *INSIDE]).astype(np.float64)
    difference = by_test[list(OUTSIDE)].mean(axis=1, skipna=False) - by_test[list(INSIDE)].mean(axis=1, skipna=False)
    return (difference / 2).rename("reliance")


def relative_core_sensitivity(tests: pd.DataFrame, elsewhere: bool = False, seed: int = 0) -> RelativeSensitivity:
    """RCS = (a_out − a_in)/(2·min(ā, 1 − ā)), with the accuracies under noise outside and inside, and ā their mean.

    As Singla, Moayeri and Feizi (2022) define it, and Moayeri et al. (2022) as relative foreground sensitivity, with noise
    of equal ℓ2 norm on both sides as in the latter. The accuracy is over images, not a mean over classes. 1: only noise
    inside matters, −1: only noise outside. `nan` where ā is 0 or 1, which is no evidence either way. The catch: where ā is
    near 0 or 1, a few images decide it.

    >>> table = {"image_id": ["a", "b"] * 2, "test": ["inside_noise"] * 2 + ["outside_noise"] * 2, "correct": [0, 0, 1, 0]}
    >>> relative_core_sensitivity(pd.DataFrame(table)).value  # a_in = 0, a_out = ½, ā = ¼
    1.0
    """
    column = "correct_elsewhere" if elsewhere else "correct"
    by_test = tests[tests["test"].isin(["inside_noise", "outside_noise"])].pivot(
        index="image_id", columns="test", values=column
    )
    if by_test.shape[1] < 2:
        return RelativeSensitivity(math.nan, math.nan, math.nan, 0)
    values = by_test[["outside_noise", "inside_noise"]].dropna().to_numpy(dtype=np.float64)
    if not len(values):
        return RelativeSensitivity(math.nan, math.nan, math.nan, 0)
    value = float(_relative(values.mean(0)))
    if len(values) < 2 or math.isnan(value):
        return RelativeSensitivity(value, math.nan, math.nan, len(values))
    # Images have few different pairs of accuracies, so a resample is a number of images for each pair.
    pairs, counts = np.unique(values, axis=0, return_counts=True)
    times = np.random.default_rng(seed).multinomial(len(values), counts / len(values), RESAMPLES)
    tail = (1 - CONFIDENCE) / 2
    low, high = (float(end) for end in np.nanquantile(_relative(times @ pairs / len(values)), [tail, 1 - tail]))
    return RelativeSensitivity(value, low, high, len(values))


def followed(tests: pd.DataFrame) -> Numbers:
    """1 where the background of another image makes the model predict that image's class, else 0; `nan` where unknown."""
    swapped = tests[tests["test"] == "outside_swapped"]
    follows = (swapped["prediction"] == swapped["donor_label"]).to_numpy(dtype=np.float64)
    known = (swapped["donor_label"] >= 0) & swapped["kept"].notna()
    return np.where(known.to_numpy(), follows, math.nan)


def _relative(accuracies: Any) -> Any:
    """RCS of ...×2 accuracies under noise outside and inside."""
    outside, inside = accuracies[..., 0], accuracies[..., 1]
    mean = (outside + inside) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((mean <= 0) | (mean >= 1), np.nan, (outside - inside) / (2 * np.minimum(mean, 1 - mean)))
