"""The verdict's rule, on lifts whose answer is known."""

import math

import numpy as np
import pandas as pd
import pytest

from locality.results.region_tests import INSIDE, OUTSIDE
from locality.results.verdict import Verdict, verdict

COUNT = 24
NOISE = np.random.default_rng(0).normal(0, 0.05, COUNT)


def lifts(**levels: float) -> pd.DataFrame:
    """One row per image × method, around a mean per method."""
    ids = [f"i{index}" for index in range(COUNT)]
    tables = [pd.DataFrame({"image_id": ids, "method": name, "lift": level + NOISE}) for name, level in levels.items()]
    return pd.concat(tables, ignore_index=True)


def free(gaussian: float) -> pd.DataFrame:
    ids = [f"i{index}" for index in range(COUNT)]
    maps = {"uniform": np.zeros(COUNT), "centred Gaussian": gaussian + NOISE[::-1]}
    tables = [pd.DataFrame({"image_id": ids, "method": name, "lift": values}) for name, values in maps.items()]
    return pd.concat(tables, ignore_index=True)


@pytest.mark.parametrize(
    ("levels", "gaussian", "looks", "reason"),
    [
        ({"SM": 0.1, "BIG": 0.6}, 0.2, True, "the lift of BIG (0.594) is significantly above that of a Gaussian"),
        (
            {"SM": 0.5, "IG": 0.6, "BIG": 0.7},
            0.2,
            True,
            "the lift of SM (0.494), IG (0.594) and BIG (0.694) is significantly",
        ),
        ({"SM": -0.1, "BIG": -0.2}, 0.2, False, "no method is significantly above chance"),
        ({"SM": 0.0, "BIG": 0.0}, 0.2, False, "no method is significantly above chance"),  # a precise zero is an answer
        ({"SM": 0.05, "BIG": 0.1}, 0.2, None, "the lift is above chance (SM 0.0"),  # as random weights do
        ({"SM": -0.1, "BIG": 0.6}, 0.2, None, "methods disagree"),
        ({"SM": 0.0, "BIG": 0.0}, -0.3, None, "neither significantly above chance nor below a uniform map"),
        ({"SM": 0.1, "BIG": 0.1}, -0.3, True, "above that of a uniform map (0.000)"),  # objects are not in the middle
        ({"SM": -0.1, "BIG": -0.1}, -0.3, False, "significantly below a uniform map (0.000)"),
    ],
)
def test_the_rule(levels: dict[str, float], gaussian: float, looks: bool | None, reason: str) -> None:
    found = verdict(lifts(**levels), free(gaussian))
    assert found.looks is looks, found
    assert reason in found.reason


def test_too_few_images_have_no_verdict() -> None:
    rows = lifts(SM=0.6, BIG=0.6)
    rows.loc[(rows["method"] == "BIG") & (rows["image_id"] > "i16"), "lift"] = math.nan
    used = int(rows[rows["method"] == "BIG"]["lift"].notna().sum())
    assert used == 9
    assert verdict(rows, free(0.2)) == Verdict(None, "9 images have a lift by every method, 10 are needed")
    assert verdict(rows[rows["method"] == "SM"], free(0.2)).looks is True


def removals(inside: float, elsewhere: float, images: int = COUNT) -> pd.DataFrame:
    """Removals: the share of images whose decision is lost without the region, and without another place."""
    tables = []
    for test in (*INSIDE, *OUTSIDE):
        lost, lost_there = (np.arange(images) < round(share * images) for share in (inside, elsewhere))
        kept, kept_there = (~lost, ~lost_there) if test in INSIDE else (lost, lost_there)
        columns = {"test": test, "kept": kept.astype(float), "kept_elsewhere": kept_there.astype(float)}
        tables.append(pd.DataFrame({"image_id": [f"i{index}" for index in range(images)], **columns}))
    return pd.concat(tables, ignore_index=True)


LOOKS, LOOKS_NOT, UNKNOWN = {"BIG": 0.6}, {"BIG": -0.2}, {"BIG": 0.1}


@pytest.mark.parametrize(
    ("levels", "inside", "elsewhere", "looks", "said"),
    [
        (LOOKS, 1.0, 0.2, True, "24 images; region tests agree (reliance 0.792)"),
        (LOOKS, 0.5, 0.5, True, "24 images; region tests are inconclusive (reliance 0.000)"),
        (LOOKS, 0.2, 1.0, None, "attribution and region tests disagree: the lift of BIG (0.594)"),
        (LOOKS_NOT, 0.2, 1.0, False, "region tests agree (reliance −0.792)"),
        (LOOKS_NOT, 1.0, 1.0, False, "inconclusive (reliance 0.000)"),  # a region that any other place does as well
        (LOOKS_NOT, 1.0, 0.2, None, "but by region tests the reliance 0.792 is above chance"),
        (UNKNOWN, 1.0, 0.2, None, "it relies on the object more than on an equal area elsewhere (reliance 0.792)"),
        (UNKNOWN, 0.2, 1.0, None, "it relies on the object less than on an equal area elsewhere (reliance −0.792)"),
    ],
)
def test_region_tests_agree_or_make_it_unknown(
    levels: dict[str, float], inside: float, elsewhere: float, looks: bool | None, said: str
) -> None:
    found = verdict(lifts(**levels), free(0.2), tests=removals(inside, elsewhere))
    assert found.looks is looks, found
    assert said in found.reason
    assert verdict(lifts(**levels), free(0.2), tests=removals(inside, elsewhere, 9)) == verdict(lifts(**levels), free(0.2))


def test_sentences_and_json() -> None:
    assert Verdict(True, "r").sentence("a") == "a looks at the object: r."
    assert Verdict(False, "r").sentence("a") == "a does not look at the object: r."
    assert Verdict(None, "r").to_json("a") == {
        "looks_at_object": None,
        "sentence": "It cannot be told whether a looks at the object: r.",
    }
    planted = Verdict(True, "r", "cue").to_json("a")
    assert planted == {"looks_at_cue": True, "sentence": "a looks at the planted cue: r."}


def test_many_methods_are_corrected_for() -> None:
    """One of twelve noisy methods above the Gaussian by luck is no evidence."""
    random = np.random.default_rng(1)
    rows = pd.concat([lifts(**{f"M{index}": 0.0}).assign(lift=random.normal(0.2, 0.3, COUNT)) for index in range(12)])
    single = [verdict(part, free(0.2)).looks for _, part in rows.groupby("method")]
    assert True in single or None in single
    assert verdict(rows, free(0.2)).looks is None
