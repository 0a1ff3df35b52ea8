"""Region tests: what models rely on without any attribution, and whether attribution says the same."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.report.aggregates import Aggregates, NotMeasuredError, panel_methods
from locality.report.estimates import Estimate, estimates, floats
from locality.report.findings.trends import rank_correlations
from locality.report.findings.wording import CORRECTED, significantly_above
from locality.report.models import COMPARED
from locality.report.pairs import paired_differences
from locality.report.regions import RegionTested, region_tested
from locality.results.results import Results
from locality.results.wording import counted, listed

NAMED = 4  # models named in a sentence


def relied_on(results: Results, means: Aggregates) -> list[str]:
    """Which models rely on the region more, and which less, than on the same shape elsewhere."""
    tested = _tested(results)
    if not tested:
        return []
    sides = _reliance_sides(tested)
    parts = []
    for words, wanted in (("more than chance", 1), ("less than chance", -1)):
        names = [name for name, side in zip(tested, sides, strict=True) if side == wanted]
        shown = [*names[:NAMED], *([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])]
        parts.append(f"{len(names)} {words}{f' ({listed(shown)})' if names else ''}")
    return [
        f"By region tests, without attribution, decisions of {counted(len(tested), 'model')} rely on the region: "
        f"{', '.join(parts)} (reliance significantly above or below 0, {CORRECTED})."
    ]


def higher_reliance_than_counterpart(results: Results, means: Aggregates) -> list[str]:
    """Finding I without attribution: reliance of robust models against their standard counterparts, on the same images."""
    tested = _tested(results)
    columns = [one.reliances.rename_axis("image_id").reset_index().assign(model=name) for name, one in tested.items()]
    sentences = []
    for kind in COMPARED if columns else ():
        changes = list(paired_differences(pd.concat(columns, ignore_index=True), ["reliance"], means.pairs([kind])).values())
        if changes:
            sides = _sides(estimates(changes), changes)
            higher = sum(bool(np.nanmean(values) > 0) for values in changes)
            sentences.append(
                f"Reliance (region tests) of {kind} models is above that of their standard counterparts in {higher} of "
                f"{counted(len(changes), 'pair')}, significantly ({CORRECTED}) in {sides.count(1)}, and significantly below "
                f"it in {sides.count(-1)}."
            )
    return sentences


def attribution_and_intervention(results: Results, means: Aggregates) -> list[str]:
    """Whether lift and reliance order the trained models alike, and put them on the same side of chance."""
    tested = _tested(results)
    trained = [model for model in means.models if model.kind != "random" and model.name in tested]
    numbers = {name: one.reliance.mean for name, one in tested.items() if one.reliance.used}
    models = [model for model in trained if model.name in numbers]
    sentences = rank_correlations(means, models, numbers, "trained", "reliance (region tests)", "lift")
    sides = dict(zip(tested, _reliance_sides(tested), strict=True))
    agreements = []
    for method in panel_methods(means.methods):
        rows = results.rows[results.rows["method"] == method]
        names = [model.name for model in trained if (model.name, method, "lift") in means.scores]
        lifts = [floats(rows.loc[rows["model"] == name, "lift"]) for name in names]
        own = _sides([means.scores[name, method, "lift"] for name in names], lifts)
        if names:
            same = sum(side == sides[name] for name, side in zip(names, own, strict=True))
            agreements.append(f"{method} for {same} of {counted(len(names), 'model')}")
    if agreements:
        sentences.append(
            "Lift and reliance are on the same side of chance (both significantly above it, both below or neither, "
            f"{CORRECTED}): {'; '.join(agreements)}."
        )
    return sentences


def _tested(results: Results) -> dict[str, RegionTested]:
    try:
        return region_tested(results)
    except NotMeasuredError:
        return {}


def _reliance_sides(tested: dict[str, RegionTested]) -> list[int]:
    return _sides([one.reliance for one in tested.values()], [floats(one.reliances) for one in tested.values()])


def _sides(means: list[Estimate], columns: list[NDArray[np.float64]]) -> list[int]:
    """1 where a mean is significantly above 0, −1 where it is below, else 0."""
    above = significantly_above(means, columns)
    mirrored = [_mirrored(mean) for mean in means]
    below = significantly_above(mirrored, [-column for column in columns])
    return [int(up) - int(down) for up, down in zip(above, below, strict=True)]


def _mirrored(mean: Estimate) -> Estimate:
    return Estimate(-mean.mean, -mean.high, -mean.low, -mean.median, mean.standard_error, mean.used, mean.undefined)
