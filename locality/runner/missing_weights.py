"""Weights that a suite needs and this machine lacks: one problem per model, printed as one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from locality.errors import Problem


@dataclass(frozen=True, slots=True)
class MissingWeights(Problem):
    """Weights of the catalog that `--download` would fetch."""

    verifiable: bool  # their sha256 is known


def with_weights_joined(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """The problems, with the missing weights of several models in one sentence in place of the first of them.

    >>> print(*with_weights_joined([MissingWeights(name, "…", name < "c") for name in "abc"]))  # doctest: +ELLIPSIS
    `models` need weights that are not on this machine (a, b, c): add --download --trust-first-download (no sha256 of c ...
    """
    missing = [problem for problem in problems if isinstance(problem, MissingWeights)]
    if len(missing) < 2:
        return tuple(problems)
    names, unknown = (
        [problem.where for problem in several]
        for several in (missing, [problem for problem in missing if not problem.verifiable])
    )
    whose = "theirs" if unknown == names else ", ".join(unknown)
    trust = f" --trust-first-download (no sha256 of {whose} is published)" if unknown else ""
    text = (
        f"need weights that are not on this machine ({', '.join(names)}): add --download{trust}, or get the files "
        "elsewhere and put them where `locality models show NAME` says"
    )
    joined = [Problem("models", text) if problem is missing[0] else problem for problem in problems]
    return tuple(problem for problem in joined if not isinstance(problem, MissingWeights))
