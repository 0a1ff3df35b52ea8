"""What a person may ask of figures: methods, a score, an attack; and results split so that no figure mixes data sets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from locality.report.aggregates import ATTACKS, NORMS, Budget, NotMeasuredError, models_of, panel_methods
from locality.results.results import Results, empty_table, of_data

SCORES = ("f1", "precision", "recall", "lift")


@dataclass(frozen=True)
class Choice:
    """What to draw where a figure leaves it open; nothing means what the paper draws."""

    methods: tuple[str, ...] | None = None
    score: str | None = None  # of Figures 3.2, 3.4 and of the distance; B.1 and B.2 have their own
    budget: Budget | None = None  # of Figure 3.4


def checked_choice(
    results: Results, methods: Sequence[str] | None = None, score: str | None = None, attack: str | None = None
) -> Choice:
    """The choice, if the results have what it names."""
    there = all_methods(results)
    unknown = [name for name in methods or () if name not in there]
    if unknown:
        raise ValueError(f"`methods` must be among {', '.join(there) or 'none'}, got {', '.join(unknown)}")
    if score is not None and score not in SCORES:
        raise ValueError(f"`score` must be one of {', '.join(SCORES)}, got {score!r}")
    table = results.get("robust", empty_table({"attack": str, "norm": str, "epsilon": float})).drop_duplicates(
        ["attack", "norm", "epsilon"]
    )
    known = [
        Budget(str(a), str(b), float(c)) for a, b, c in zip(table["attack"], table["norm"], table["epsilon"], strict=True)
    ]
    return Choice(tuple(methods) if methods else None, score, None if attack is None else named_budget(known, attack))


def all_methods(results: Results) -> list[str]:
    """Every method that has scores, maps or a sanity check, the scored ones first."""
    stored = [method for image in results.gallery for _, method in image.maps]
    randomised = results["layer_randomisation"]["method"].unique() if "layer_randomisation" in results else ()
    return list(dict.fromkeys(map(str, [*results.rows["method"].unique(), *randomised, *stored])))


def shown_methods(asked: Sequence[str] | None, there: Sequence[str], every: bool = False) -> tuple[str, ...]:
    """The methods of a figure: those asked for, which must be there, or else the paper's three; with `every`, all.

    >>> shown_methods(None, ["AGI", "SM", "IG"]), shown_methods(["AGI"], ["AGI", "SM", "IG"])
    (('SM', 'IG'), ('AGI',))
    """
    if not asked:
        return tuple(there) if every else panel_methods(there)
    missing = [name for name in asked if name not in there]
    if missing:
        raise NotMeasuredError(f"it was not measured for {', '.join(missing)}")
    return tuple(asked)


def named_budget(known: Iterable[Budget], words: str) -> Budget:
    """The one budget that all the words fit: a norm, a radius, an attack, in any order.

    >>> four, eight = (Budget("paper", "linf", levels / 255) for levels in (4, 8))
    >>> named_budget([four, eight], "linf 8/255") == eight
    True
    """
    budgets = sorted(set(known))
    given = words.replace(",", " ").split()
    fitting = [budget for budget in budgets if given and all(_fits(word, budget) for word in given)]
    if len(fitting) != 1:
        names = (
            "; ".join(f"{each.norm} {_radius(each)} {each.attack}" for each in budgets) or "none, as nothing was attacked"
        )
        raise ValueError(f"`attack` must name one of: {names}, got {words!r}")
    return fitting[0]


def by_data(results: Results) -> dict[str, Results]:
    """The results of each data set: boxes of another size make another F1, so that models of two are not compared.

    The name is empty where it is not known.
    """
    names = list(dict.fromkeys(model.data for model in models_of(results) if model.data))
    if len(names) < 2:
        return {"".join(names): results}
    return {name: of_data(results, name) for name in names}


def file_words(names: Sequence[str]) -> dict[str, str]:
    """What stands for each data set in a file's name; two never share one.

    >>> file_words(["shapes", "imagenet:/a b", "imagenet:/a_b"])
    {'shapes': 'shapes', 'imagenet:/a b': 'imagenet_a_b', 'imagenet:/a_b': 'imagenet_a_b_3'}
    """
    found: dict[str, str] = {}
    for place, name in enumerate(names, 1):
        word = re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("_.")[-60:] or "data"
        found[name] = f"{word}_{place}" if word in found.values() else word
    return found


def _fits(word: str, budget: Budget) -> bool:
    names = {budget.norm, NORMS.get(budget.norm, budget.norm), budget.attack, *ATTACKS.get(budget.attack, "").split()}
    if word.lower() in {name.lower() for name in names}:
        return True
    try:
        return abs(float(Fraction(word)) - budget.epsilon) < 1e-6
    except (ValueError, ZeroDivisionError):
        return False


def _radius(budget: Budget) -> str:
    return f"{budget.epsilon * 255:.3g}/255" if budget.norm == "linf" else f"{budget.epsilon:g}"
