"""Locality against what it takes no model to score: chance, a uniform map, random weights."""

from __future__ import annotations

from locality.report.aggregates import Aggregates, panel_methods, uniform_scores
from locality.report.estimates import estimates, floats
from locality.report.findings.wording import CORRECTED, significantly_above
from locality.report.pairs import Pair, paired_differences
from locality.report.views import place
from locality.results.results import Results
from locality.results.wording import counted, listed

NAMED = 3  # models named in a sentence


def above_chance(results: Results, means: Aggregates) -> list[str]:
    """Which trained models have more attribution in the box than the same values shuffled over the image."""
    counts = []
    single: dict[str, bool] = {}  # method ↦ whether the only model is above chance
    for method in panel_methods(means.methods):
        trained = [
            model for model in means.models if model.kind != "random" and (model.name, method, "lift") in means.scores
        ]
        rows = results.rows[results.rows["method"] == method]
        lifts = [floats(rows.loc[rows["model"] == model.name, "lift"]) for model in trained]
        above = significantly_above([means.scores[model.name, method, "lift"] for model in trained], lifts)
        below = [model.name for model, significant in zip(trained, above, strict=True) if not significant]
        if len(trained) == 1:
            single[method] = not below
        if trained:
            names = [_with_accuracy(means, name) for name in below[:NAMED]]
            if len(below) > NAMED:
                names.append(f"{len(below) - NAMED} more")
            exceptions = f", not {listed(names)}" if names else ""
            counts.append(f"{method} for {len(trained) - len(below)} of {counted(len(trained), 'model')}{exceptions}")
    if not counts:
        return []
    text = _of_one_model(single) if len(single) == len(counts) else "; ".join(counts)
    return [f"More attribution lies in the box than by chance (lift significantly above 0, {CORRECTED}): {text}."]


def above_uniform_map(results: Results, means: Aggregates) -> list[str]:
    """Which trained models beat a map of ones on the same images."""
    views = list(dict.fromkeys(view for view, _ in means.uniform))
    uniform = [
        f"{mean.mean:.3f}{place(view, views) or (f' on {view.data}' if view.data else '')}"
        for (view, score), mean in means.uniform.items()
        if score == "f1" and mean.used
    ]
    trained = {model.name for model in means.models if model.kind != "random"}
    groups = results.rows[results.rows["model"].isin(trained)].groupby(["method", "model"], sort=False)
    keys = [key for key, _ in groups]
    columns = [floats(group["f1"]) - uniform_scores(group)["f1"] for _, group in groups]
    differences = estimates(columns)
    counts = []
    single: dict[str, bool] = {}
    for method in panel_methods(means.methods):
        own = [index for index, (name, _) in enumerate(keys) if name == method]
        if own:
            above = significantly_above([differences[index] for index in own], [columns[index] for index in own])
            if len(own) == 1:
                single[method] = above[0]
            counts.append(f"{method} for {sum(above)} of {counted(len(own), 'model')}")
    if not uniform or not counts:
        return []
    text = _of_one_model(single) if len(single) == len(counts) else listed(counts)
    return [
        f"A uniform map, independent of model and image, has F1 {listed(uniform)}. "
        f"Significantly above it ({CORRECTED}): {text}."
    ]


def above_random_weights(results: Results, means: Aggregates) -> list[str]:
    """Whether standard models are better than a model that has learned nothing, on the same images."""
    parts = []
    for score, title in (("f1", "F1"), ("lift", "lift")):
        counts = []
        for method in panel_methods(means.methods):
            pairs = _with_floors(means, method, score)
            rows = results.rows[results.rows["method"] == method]
            changes = list(paired_differences(rows, [score], pairs).values())
            if changes:
                above = significantly_above(estimates(changes), changes)
                counts.append(f"{sum(above)} of {len(above)} for {method}")
        if counts:
            parts.append(f"by {title} {listed(counts)}")
    if not parts:
        return []
    return [f"Standard models above random weights on the same images ({CORRECTED}): {'; '.join(parts)}."]


def _of_one_model(above: dict[str, bool]) -> str:
    """The methods by which the only model is above; "SM for 1 of 1 model" would be long-winded."""
    return listed([method for method, is_above in above.items() if is_above] or ["no method"])


def _with_floors(means: Aggregates, method: str, score: str) -> list[Pair]:
    """Each standard model after the model with random weights that scores highest on the same data."""
    scored = [
        model
        for model in means.models
        if (model.name, method, score) in means.scores and means.scores[model.name, method, score].used
    ]
    pairs = []
    for model in scored:
        floors = [floor for floor in scored if floor.kind == "random" and floor.data == model.data]
        if model.kind == "standard" and floors:
            pairs.append((max(floors, key=lambda floor: means.scores[floor.name, method, score].mean), model))
    return pairs


def _with_accuracy(means: Aggregates, name: str) -> str:
    accuracy = means.accuracy.get(name)
    return f"{name} (accuracy {accuracy.mean:.1%})" if accuracy is not None and accuracy.used else name
