"""What a calibration says: which methods and scores show what a network uses, where that is known in advance.

Two twins see the same held-out images, which have stickers. One was trained to name the stickers, about which the rest of
the image tells nothing; the other was never trained on stickers. So attributions of the first belong on the sticker,
those of the second on the object. Scores are taken above chance: (s − c)/(1 − c̄) with c the score of a random map on the
same image and region, and c̄ its mean. Lift is so by definition (c = 0), and so is the reliance of region tests, which
need no attribution.

- Finds the cue: in the sticker twin, the score on the sticker is above chance and above that on the object; and it is above
  that of the clean twin on the same stickers, so that it is not the picture alone.
- Finds the object: in the clean twin, the score on the object is above chance and above that on the sticker.

Above: significant as in `results.verdict`, by the 95 % interval of the mean difference, image by image, and by Wilcoxon's p,
Holm-corrected for the number of methods.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd

from locality.results.schema import Schema
from locality.results.verdict import FEWEST_IMAGES, significant_sides
from locality.results.wording import listed
from locality.statistics import Paired, Summary, paired, share, summary
from locality.types import Region

STICKER, CLEAN = "sticker", "clean"  # the twins
CUE: Region = "cue"
REGION_TESTS, RELIANCE = "region tests", "reliance"  # a method that needs no attribution, and its score
AT_CHANCE_0 = ("lift", RELIANCE)
EDITIONS = ("without", "sticker", "swapped")  # of every image: no sticker, that of its class, that of another class
# One row per twin and image. `right_…` is nan where the label is not known.
PREDICTIONS: Schema = {
    "twin": str,
    "image_id": str,
    "label": int,  # what the twin is to name: the class of the sticker, or of the object; −1 where the twin does not have it
    **dict.fromkeys(EDITIONS, int),  # the prediction
    **dict.fromkeys([f"right_{kind}" for kind in EDITIONS], float),
}
CHANCE = "random"  # the method of the rows whose scores are chance
Column: TypeAlias = tuple[str, str]  # twin and region


@dataclass(frozen=True)
class Finding:
    """What one score of one method says; None where it cannot be told. Summaries and differences are above chance."""

    method: str
    score: str
    sticker_on_cue: Summary
    sticker_on_object: Summary | None  # None: the data have no objects marked
    clean_on_cue: Summary
    clean_on_object: Summary | None
    cue_over_object: Paired | None  # of the sticker twin: cue − object
    sticker_over_clean: Paired  # on the cue: sticker twin − clean twin
    object_over_cue: Paired | None  # of the clean twin: object − cue
    finds_cue: bool | None
    finds_object: bool | None
    undefined: int  # images on which one of the scores is undefined, which are left out of all

    @property
    def images(self) -> int:
        return self.sticker_on_cue.used


@dataclass(frozen=True)
class Learned:
    """Whether a twin learned what it was to learn: its accuracy on three editions of the same images."""

    without: Summary  # no stickers
    sticker: Summary
    swapped: Summary  # the stickers of another class
    changed: Summary  # share of images whose prediction changes with the class of the sticker
    chance: float  # accuracy of naming the most frequent class
    trained: bool = True  # False: the clean twin is the given model itself

    @property
    def cue(self) -> bool:
        """Whether the sticker decides on more than half of the images (95 %)."""
        return self.sticker.low > max(0.5, self.chance) and self.changed.low > 0.5

    @property
    def object(self) -> bool:
        """Whether the twin knows the images in spite of their stickers, which decide on less than half of them (95 %)."""
        return self.sticker.low > self.chance and self.changed.high < 0.5


def learned_from(predictions: pd.DataFrame, trained: bool = True) -> Learned:
    """What the predictions of one twin say: one row per image with the columns of `PREDICTIONS`."""
    right = {kind: share(predictions[f"right_{kind}"]) for kind in EDITIONS}
    changed = share((predictions["sticker"] != predictions["swapped"]).astype(np.float64))
    labels = predictions.loc[predictions["label"] >= 0, "label"]
    chance = float(labels.value_counts(normalize=True).max()) if len(labels) else math.nan
    return Learned(**right, changed=changed, chance=chance, trained=trained)


def findings(rows: pd.DataFrame, scores: Sequence[str], learned: Mapping[str, Learned], seed: int = 0) -> list[Finding]:
    """One finding per method and score. `rows` have `twin`, `region`, `image_id`, `method` and the scores.

    Where a twin did not learn what it was trained for, its half cannot be told.
    """
    found: list[Finding] = []
    methods, images = [name for name in rows["method"].unique() if name != CHANCE], rows["image_id"].nunique()
    for score in scores:
        having = [name for name in methods if rows.loc[rows["method"] == name, score].notna().any()]
        found += _of_score(score, {method: above_chance(rows, method, score) for method in having}, images, learned, seed)
    return found


def above_chance(rows: pd.DataFrame, method: str, score: str) -> pd.DataFrame:
    """A score above chance: one row per image on which all are defined, one column per (twin, region)."""
    wide = {
        name: rows[rows["method"] == name].pivot(index="image_id", columns=["twin", "region"], values=score)
        for name in (method, CHANCE)
    }
    values = wide[method].astype(np.float64)
    if score in AT_CHANCE_0:
        return values.dropna()
    chance = wide[CHANCE].astype(np.float64).reindex_like(values)
    return ((values - chance) / (1 - chance.mean())).dropna()


def _of_score(
    score: str, tables: Mapping[str, pd.DataFrame], images: int, learned: Mapping[str, Learned], seed: int
) -> list[Finding]:
    region = next((name for table in tables.values() for _, name in table.columns if name != CUE), None)

    def changes(first: Column | None, second: Column) -> list[Paired]:
        """Second − first by method; first None is chance."""
        return [
            paired(np.zeros(len(table)) if first is None else table[first], table[second], seed=seed)
            for table in tables.values()
        ]

    between = changes((CLEAN, CUE), (STICKER, CUE))
    on_cue, on_object = [changes(None, (STICKER, CUE)), between], []
    if region is not None:
        on_cue.append(changes((STICKER, region), (STICKER, CUE)))
        on_object = [changes((CLEAN, CUE), (CLEAN, region)), changes(None, (CLEAN, region))]
    finds_cue = _all_above(on_cue, tables, learned[STICKER].cue)
    finds_object = _all_above(on_object, tables, region is not None and learned[CLEAN].object)
    return [
        Finding(
            method,
            score,
            summary(table[STICKER, CUE], seed=seed),
            None if region is None else summary(table[STICKER, region], seed=seed),
            summary(table[CLEAN, CUE], seed=seed),
            None if region is None else summary(table[CLEAN, region], seed=seed),
            None if region is None else on_cue[2][place],
            between[place],
            None if region is None else on_object[0][place],
            finds_cue[place],
            finds_object[place],
            images - len(table),
        )
        for place, (method, table) in enumerate(tables.items())
    ]


def _all_above(
    tests: Sequence[Sequence[Paired]], tables: Mapping[str, pd.DataFrame], can_be_told: bool
) -> list[bool | None]:
    """Whether every test is above 0, by method; None where it cannot be told or there are too few images."""
    sides = np.array([significant_sides(changes) for changes in tests]).reshape(len(tests), len(tables))
    enough = [len(table) >= FEWEST_IMAGES for table in tables.values()]
    return [bool((sides[:, place] > 0).all()) if can_be_told and enough[place] else None for place in range(len(tables))]


def sentence(found: Sequence[Finding], learned: Mapping[str, Learned], model: str, data: str) -> str:
    """The answer in one sentence, by lift."""
    sticker, clean = learned[STICKER], learned[CLEAN]
    if not sticker.cue:
        return (
            f"Inconclusive: the network did not learn the cue (accuracy {_share(sticker.sticker)} with stickers, "
            f"{_share(sticker.swapped)} with another class's): train longer, or plant larger stickers."
        )
    lifts = [one for one in found if one.score == "lift" and one.finds_cue is not None]
    if not lifts:
        return f"Inconclusive: too few images, {FEWEST_IMAGES} are needed."
    parts = []
    for kind, words in KINDS.items():
        names = [one.method for one in lifts if (one.finds_cue, one.finds_object) == kind]
        if names:
            parts.append(f"{listed(names)} {words.format(s='s' if len(names) == 1 else '')}")
    if all(one.clean_on_object is None for one in lifts):
        reason = "; the object could not be tested, because nobody marked it"
    elif not clean.object:
        reason = (
            f"; the object could not be tested, because the clean twin does not know it (accuracy {_share(clean.sticker)}, "
            f"chance {clean.chance:.0%}; stickers decide {_share(clean.changed)})"
        )
    else:
        reason = ""
    return f"By lift, with {model} on {data}: {'; '.join(parts)}{reason}."


KINDS = {
    (True, True): "find{s} the sticker where the network uses it, and the object where it does not",
    (True, None): "find{s} the sticker where the network uses it",
    (True, False): "find{s} the sticker where the network uses it, but not the object where it does not",
    (False, True): "miss{s} the sticker that the network uses, and show{s} the object where it does not",
    (False, None): "miss{s} the sticker that the network uses",
    (False, False): "show{s} neither",
}


def _share(value: Summary) -> str:
    return "undefined" if value.used == 0 else f"{value.mean:.0%} [{value.low:.0%}, {value.high:.0%}]"
