"""The answer to the question of every report: which models look at the object?"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from locality.report.aggregates import Aggregates
from locality.report.models import models_of
from locality.results.results import Results
from locality.results.verdict import Verdict, seen, verdict
from locality.results.wording import counted, listed

NAMED = 6  # models named per answer


@functools.lru_cache(maxsize=2)
def verdicts(results: Results) -> dict[str, Verdict]:
    """The verdict on each model whose locality was measured together with that of model-free maps."""
    if "model_free" not in results:
        return {}
    rows, free = results.rows, results["model_free"]
    found = {}
    for model in models_of(results):
        own, own_free = rows[rows["model"] == model.name], free[free["model"] == model.name]
        if len(own) and len(own_free):
            tests = results.get("regions")
            own_tests = None if tests is None else tests[tests["model"] == model.name]
            found[model.name] = verdict(own, own_free, region=results.region, tests=own_tests)
    return found


def answer(results: Results) -> str:
    """The answer in one sentence.

    >>> answer(Results("nothing measured"))
    'Locality was not measured.'
    """
    found = verdicts(results)
    if not len(results.rows):
        return "Locality was not measured."
    if not found:
        return "Not answered: the results are of an earlier version, without model-free maps. Run the suite again."
    if len(found) == 1:
        [(name, only)] = found.items()
        return only.sentence(name)
    looking, others, unknown = ([name for name, one in found.items() if one.looks is looks] for looks in (True, False, None))
    parts = [
        f"{len(looking)} of {counted(len(found), 'model')} look{'s' if len(looking) == 1 else ''} at {seen(results.region)}"
    ]
    parts[0] += _names(looking)
    if others:
        parts.append(f"{len(others)} do{'es' if len(others) == 1 else ''} not{_names(others)}")
    if unknown:
        parts.append(f"for {len(unknown)} it cannot be told{_names(unknown)}")
    return f"{'; '.join(parts)}."


def looking_models(results: Results, means: Aggregates) -> list[str]:
    """The verdict on each model, with its reason, if there are several."""
    found = verdicts(results)
    return [one.sentence(name) for name, one in found.items()] if len(found) > 1 else []


def _names(names: Sequence[str]) -> str:
    shown = [*names[:NAMED], *([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])]
    return f" ({listed(shown)})" if names else ""
