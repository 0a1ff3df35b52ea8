"""`locality bench --no-code`: a suite from a stranger must not name functions or programs, which would run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from locality.errors import Problem
from locality.runner.suite_file import Draft
from locality.zoo.architectures import is_function
from locality.zoo.programs import program_kind


def without_code(draft: Draft) -> Draft:
    """The draft without the models that `package.module:function` would make or that need `trust_code`: each is a problem.

    >>> from locality.runner.suite_file import draft_suite
    >>> without_code(draft_suite("demo")).problems
    ()
    """
    kept, problems = [], list(draft.problems)
    for choice in draft.suite.models:
        code = [text for text in (choice.source, choice.arch or "") if is_function(text)]
        if choice.trust_code or program_kind(Path(choice.source).expanduser()):
            code.append(choice.source)
        if code:
            problems.append(Problem(choice.name or draft.name, f"runs code, {code[0]}, which --no-code refuses"))
        else:
            kept.append(choice)
    return replace(draft, suite=replace(draft.suite, models=tuple(kept)), problems=tuple(problems))
