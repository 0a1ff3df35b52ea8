"""What the results say, in sentences: each is computed from the rows, and none says more than they do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from locality.report.aggregates import (
    Measure,
    Measured,
    Model,
    floats,
    measured,
    measures,
    panel_methods,
    uniform_scores,
    usual_budget,
)
from locality.report.pairs import changes
from locality.report.tables.formats import signed_text
from locality.results.results import Results, empty_table, unfinished
from locality.statistics import correlation

SURE = 0.05  # p below which a trend is called one
NAMED = 3  # models named in a sentence


def sentences(results: Results) -> list[str]:
    """The findings, from what was measured to what could not be.

    >>> sentences(Results("nothing"))
    ['No model was measured.']
    """
    found = measured(results)
    missing = unfinished_sentence(results)
    said = [] if missing is None else [missing]
    if not found.models:
        return [*said, "No model was measured."]
    methods = panel_methods(found.methods)
    said.append(_extent(results, found))
    said += _twins(results, found, methods)
    said += _above_all_standard(found, methods)
    said += _better_than_chance(found, methods)
    said += _better_than_uniform(results, found, methods)
    said += _accuracy_trend(found, methods)
    said += _robustness_trend(found, methods)
    said += _floor(found, methods)
    said += _boundary(found)
    said += _similarity(results, found)
    said += _sanity(results)
    if len(results.faults):
        count = len(results.faults)
        said.append(f"{count:,} unit{'s' if count > 1 else ''} of work could not be measured: see the last table.")
    return said


def unfinished_sentence(results: Results) -> str | None:
    """That more is to come, where a benchmark was stopped or still runs: partial numbers look like any others.

        >>> units = {"planned": 15, "finished": 4, "with faults": 0}
    >>> unfinished_sentence(Results("a", provenance={"units": units}))
    'Unfinished: 4 of 15 units of the benchmark are measured; start it again to go on.'
    """
    found = unfinished(results)
    if found is None:
        return None
    return f"Unfinished: {found[0]:,} of {found[1]:,} units of the benchmark are measured; start it again to go on."


def _extent(results: Results, found: Measured) -> str:
    rows = results.rows
    data = list(dict.fromkeys(model.data for model in found.models if model.data))
    kinds = [sum(model.kind == kind for model in found.models) for kind in ("standard", "robust", "random")]
    named = ", ".join(
        f"{count} {kind}" for count, kind in zip(kinds, ("standard", "robust", "random"), strict=True) if count
    )
    parts = [f"{_count(len(found.models), 'model')}{f' ({named})' if named else ''}"]
    if len(rows):
        parts.append(f"{_count(rows['image_id'].nunique(), 'image')}{f' of {_list(data)}' if data else ''}")
        parts.append(f"attributed by {_list(list(found.methods))}")
    undefined = int(np.isnan(floats(rows["f1"])).sum()) if len(rows) else 0
    share = f" {undefined:,} of {len(rows):,} F1 scores are undefined and left out of the means." if undefined else ""
    return f"{'; '.join(parts)}.{share}"


def _twins(results: Results, found: Measured, methods: Sequence[str]) -> list[str]:
    """Finding I: robust models against their standard twins, on the same images."""
    said = []
    for method in methods:
        f1, lift = (
            list(changes(results.rows[results.rows["method"] == method], score, found.pairs()).values())
            for score in ("f1", "lift")
        )
        if f1:
            said.append(
                f"Robust models have higher F1 than their standard twins for {method} in {_of(_rising(f1), f1)} "
                f"(in {_sure(f1)} the 95 % interval of the difference is above 0); higher lift in {_rising(lift)}."
            )
    return said


def _above_all_standard(found: Measured, methods: Sequence[str]) -> list[str]:
    """The other half of Finding I: robust models that are above every standard model of the same data."""
    words = []
    for method in methods:
        scored = [model for model in found.models if (model.name, method, "f1") in found.scores]
        scored = [model for model in scored if found.scores[model.name, method, "f1"].used]
        f1 = {model.name: found.scores[model.name, method, "f1"].mean for model in scored}
        rivals = {
            model.name: [f1[one.name] for one in scored if one.kind == "standard" and one.data == model.data]
            for model in scored
        }
        robust = [model.name for model in scored if model.kind == "robust" and len(rivals[model.name]) > 1]
        if robust:
            above = sum(f1[name] > max(rivals[name]) for name in robust)
            words.append(f"{method} {above} of {len(robust)}")
    return (
        [f"Robust models whose mean F1 is above that of every standard model of the same data: {'; '.join(words)}."]
        if words
        else []
    )


def _better_than_chance(found: Measured, methods: Sequence[str]) -> list[str]:
    """Which models put more on the object than the same values shuffled would; a random one is not asked."""
    words = []
    for method in methods:
        trained = [
            model for model in found.models if model.kind != "random" and (model.name, method, "lift") in found.scores
        ]
        blind = [model.name for model in trained if not found.scores[model.name, method, "lift"].low > 0]
        if trained:
            named = [_with_accuracy(found, name) for name in blind[:NAMED]]
            if len(blind) > NAMED:
                named.append(f"{len(blind) - NAMED} more")
            rest = f", not {_list(named)}" if named else ""
            words.append(f"{method} for {len(trained) - len(blind)} of {_count(len(trained), 'model')}{rest}")
    if not words:
        return []
    return [
        f"More attribution lies in the box than chance would put there (lift above 0, 95 % interval): {'; '.join(words)}."
    ]


def _better_than_uniform(results: Results, found: Measured, methods: Sequence[str]) -> list[str]:
    """Which models beat a map of ones on the same images; a random one is not asked."""
    blind = [
        f"{measure.mean:.3f}{f' on {data}' if data else ''}"
        for (data, score), measure in found.blind.items()
        if score == "f1" and measure.used
    ]
    trained = {model.name for model in found.models if model.kind != "random"}
    groups = results.rows[results.rows["model"].isin(trained)].groupby(["method", "model"], sort=False)
    keys = [key for key, _ in groups]
    changes = measures([floats(group["f1"]) - uniform_scores(group)["f1"] for _, group in groups])
    words = []
    for method in methods:
        own = [change for (name, _), change in zip(keys, changes, strict=True) if name == method]
        if own:
            words.append(f"{method} for {_sure(own)} of {_count(len(own), 'model')}")
    if not blind or not words:
        return []
    return [
        f"A uniform map, which has seen neither model nor image, has F1 {_list(blind)}; above it (95 % interval of the "
        f"difference): {_list(words)}."
    ]


def _with_accuracy(found: Measured, name: str) -> str:
    accuracy = found.accuracy.get(name)
    return f"{name} (accuracy {accuracy.mean:.1%})" if accuracy is not None and accuracy.used else name


def _accuracy_trend(found: Measured, methods: Sequence[str]) -> list[str]:
    heights = {name: measure.mean for name, measure in found.accuracy.items() if measure.used}
    standard = [model for model in found.models if model.kind == "standard" and model.name in heights]
    return _trend(found, standard, heights, methods, "standard", "accuracy")


def _robustness_trend(found: Measured, methods: Sequence[str]) -> list[str]:
    """Finding II: among robust models, does F1 rise with robust accuracy?"""
    if not found.robust:
        return []
    budget = usual_budget(found.robust)
    robust = [model for model in found.models if model.kind == "robust" and (model.name, budget) in found.robust]
    heights = {model.name: found.robust[model.name, budget].mean for model in robust}
    return _trend(found, robust, heights, methods, "robust", f"accuracy under attack ({budget})")


def _trend(
    found: Measured, models: Sequence[Model], heights: dict[str, float], methods: Sequence[str], kind: str, what: str
) -> list[str]:
    """One sentence a data set: boxes of another size make another F1, whatever the model."""
    data = list(dict.fromkeys(model.data for model in found.models))
    named = {name: f" on {name}" if name and len(data) > 1 else "" for name in data}
    return [
        sentence
        for name in data
        for sentence in _trend_on(
            found, [model for model in models if model.data == name], heights, methods, f"{kind} models{named[name]}", what
        )
    ]


def _trend_on(
    found: Measured, models: Sequence[Model], heights: dict[str, float], methods: Sequence[str], kind: str, what: str
) -> list[str]:
    words = []
    count = 0
    for method in methods:
        there = [model.name for model in models if (model.name, method, "f1") in found.scores]
        trend = correlation([heights[name] for name in there], [found.scores[name, method, "f1"].mean for name in there])
        if not math.isnan(trend.spearman):
            count = trend.used
            verdict = "no trend can be told" if trend.spearman_p >= SURE else "rises" if trend.spearman > 0 else "falls"
            words.append(f"{method} {signed_text(trend.spearman)}, p = {trend.spearman_p:.2g}: {verdict}")
    if not words:
        return []
    return [f"F1 against {what}, rank correlation over {count} {kind}: {'; '.join(words)}."]


def _floor(found: Measured, methods: Sequence[str]) -> list[str]:
    """Whether standard models do better than a model that has learned nothing."""
    random = [model for model in found.models if model.kind == "random"]
    data = {model.data for model in random}
    standard = [model for model in found.models if model.kind == "standard" and model.data in data]
    words = []
    for method in methods:
        floors = [found.scores[model.name, method, "f1"] for model in random if (model.name, method, "f1") in found.scores]
        scores = [found.scores[model.name, method, "f1"] for model in standard if (model.name, method, "f1") in found.scores]
        if floors and scores:
            floor = max(floors, key=lambda measure: measure.mean)
            above = sum(score.low > floor.high for score in scores)
            words.append(f"{above} of {len(scores)} for {method}")
    if not words:
        return []
    return [f"Standard models whose F1 is clearly above that of random weights (intervals apart): {_list(words)}."]


def _boundary(found: Measured) -> list[str]:
    ratios = []
    for standard, robust in found.pairs():
        near, far = (found.distance.get(model.name) for model in (standard, robust))
        if near is not None and far is not None and near.used and far.used and near.mean > 0:
            ratios.append(far.mean / near.mean)
    if not ratios:
        return []
    times = f"{float(np.median(ratios)):.1f} times as far as in"
    if len(ratios) == 1:
        return [f"In the robust model the decision boundary is {times} its standard twin."]
    return [f"In robust models the decision boundary is {times} their standard twins (median of {len(ratios)} pairs)."]


def _similarity(results: Results, found: Measured) -> list[str]:
    """Table 3.1: whether a method and its boundary-based counterpart are closer in robust models."""
    words = []
    table = results.get("similarity", empty_table({"pair": str}))
    for pair in dict.fromkeys(table["pair"]):
        own = table[table["pair"] == pair]
        changed = list(changes(own, "l2", found.pairs()).values())
        if changed:
            closer = sum(change.mean < 0 for change in changed)
            words.append(f"{str(pair).replace('-', '–')} in {_of(closer, changed)}")
    return (
        [f"Maps and their boundary-based counterparts are closer (ℓ2) in the robust twin: {_list(words)}."] if words else []
    )


def _sanity(results: Results) -> list[str]:
    if "layer_randomisation" not in results:
        return []
    table = results["layer_randomisation"]
    ends = table[table["layers"] == table.groupby("model")["layers"].transform("max")]
    told = []
    for model, rows in ends.groupby("model", sort=False):
        parts = {str(name): floats(part["spearman"]) for name, part in rows.groupby("method", sort=False)}
        found = dict(zip(parts, measures(list(parts.values())), strict=True))
        words = [f"{name} {signed_text(measure.mean)}" for name, measure in found.items() if measure.used]
        if words:
            told.append(f"{_list(words)} in {model}")
    if not told:
        return []
    return [
        f"With all layers drawn anew, maps keep a rank correlation with those before (1 is unchanged): {'; '.join(told)}."
    ]


def _rising(changes: Sequence[Measure]) -> int:
    return sum(change.mean > 0 for change in changes)


def _sure(changes: Sequence[Measure]) -> int:
    return sum(change.low > 0 for change in changes)


def _of(count: int, every: Sequence[object]) -> str:
    return f"{count} of {len(every)} pair{'s' if len(every) > 1 else ''}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' if number != 1 else ''}"


def _list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
