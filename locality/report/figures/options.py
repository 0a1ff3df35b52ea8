"""Options of figures: methods, a score, an attack; and results split by data set, which no figure mixes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from locality.errors import ArgumentError, unknown_choice
from locality.report.aggregates import Budget, NotMeasuredError, panel_methods
from locality.report.models import models_of
from locality.results.results import Results, of_data
from locality.results.schema import SCORES
from locality.robustness import attack_title
from locality.toml_settings import number_from
from locality.types import NORMS, Threat


@dataclass(frozen=True)
class FigureOptions:
    """What to draw; None is what the paper draws."""

    methods: tuple[str, ...] | None = None
    score: str | None = None  # of Figures 3.2, 3.4, distance, regions, wci, trh and gap; B.1 and B.2 have their own
    budget: Budget | None = None  # of Figure 3.4


def figure_options(
    results: Results, methods: Sequence[str] | None = None, score: str | None = None, attack: str | None = None
) -> FigureOptions:
    """The options, checked against the results."""
    measured = measured_methods(results)
    for name in methods or ():
        if name not in measured:
            raise unknown_choice("methods", name, measured or ["none"])
    if score is not None and score not in SCORES:
        raise unknown_choice("score", score, SCORES)
    budget = None if attack is None else named_budget(_budgets(results), attack)
    return FigureOptions(tuple(methods) if methods else None, score, budget)


def measured_methods(results: Results) -> list[str]:
    """Every method with scores, layer randomisation or stored maps, those with scores first."""
    tables = [results[name] for name in ("rows", "layer_randomisation", "gallery") if name in results]
    return list(dict.fromkeys(str(method) for table in tables for method in table["method"].unique()))


def shown_methods(wanted: Sequence[str] | None, measured: Sequence[str], every: bool = False) -> tuple[str, ...]:
    """The methods of a figure: the wanted ones, which must be measured; by default the paper's, or with `every` all.

    >>> shown_methods(None, ["AGI", "SM", "IG"]), shown_methods(["AGI"], ["AGI", "SM", "IG"])
    (('SM', 'IG'), ('AGI',))
    """
    if not wanted:
        return tuple(measured) if every else panel_methods(measured)
    missing = [name for name in wanted if name not in measured]
    if missing:
        raise NotMeasuredError(f"not measured for {', '.join(missing)}")
    return tuple(wanted)


def named_budget(known: Iterable[Budget], text: str) -> Budget:
    """The one budget that matches every word of the text: a norm, a radius, an attack, in any order.

    >>> four, eight = (Budget("paper", Threat("linf", levels / 255)) for levels in (4, 8))
    >>> named_budget([four, eight], "linf 8/255") == eight
    True
    """
    budgets = sorted(set(known))
    words = text.replace(",", " ").split()
    matching = [budget for budget in budgets if words and all(_matches(word, budget) for word in words)]
    if len(matching) != 1:
        names = [f"{budget.threat.norm} {budget.threat.radius_text} {budget.attack}" for budget in budgets]
        expected = f"one of: {'; '.join(names)}" if names else "left out, as no attack was measured"
        raise ArgumentError("attack", expected, text)
    return matching[0]


def by_data(results: Results) -> dict[str, Results]:
    """The results per data set: F1 depends on the size of the boxes, so models of two data sets are not compared.

    The key is empty where the data set is unknown.
    """
    names = list(dict.fromkeys(model.data for model in models_of(results) if model.data))
    if len(names) < 2:
        return {"".join(names): results}
    return {name: of_data(results, name) for name in names}


def file_words(names: Sequence[str]) -> dict[str, str]:
    """A distinct part of a file's name for each data set.

    >>> file_words(["shapes", "imagenet:/a b", "imagenet:/a_b"])
    {'shapes': 'shapes', 'imagenet:/a b': 'imagenet_a_b', 'imagenet:/a_b': 'imagenet_a_b_3'}
    """
    words: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        word = re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("_.")[-60:] or "data"
        words[name] = f"{word}_{number}" if word in words.values() else word
    return words


def _budgets(results: Results) -> list[Budget]:
    if "robust" not in results:
        return []
    rows = results["robust"].drop_duplicates(["attack", "norm", "epsilon"])
    columns = (rows["attack"], rows["norm"], rows["epsilon"])
    return [Budget(str(attack), Threat(norm, float(radius))) for attack, norm, radius in zip(*columns, strict=True)]


def _matches(word: str, budget: Budget) -> bool:
    norm = budget.threat.norm
    names = {norm, NORMS[norm], budget.attack, *attack_title(budget.attack).split()}
    if word.lower() in {name.lower() for name in names}:
        return True
    radius = number_from(word)
    return radius is not None and abs(radius - budget.threat.radius) < 1e-6
