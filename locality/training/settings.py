"""Settings of a recipe: frozen dataclasses, some of them chosen by name from a table, read from TOML, checked, written back.

A field with `metadata=chosen_from(TABLE)` holds the settings of one entry of the table, and has a default. In TOML it is a
table with the entry's name and its settings: `average = { name = "ema", decay = 0.99 }`. A settings class may have a method
`problems`, which lists what is wrong with its values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from locality.errors import ArgumentError, Problem, unknown_choice
from locality.toml_settings import settings_from

CHOICES = "choices"  # key of a field's metadata: the table that its value is chosen from


def chosen_from(table: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a dataclass field that holds an entry of a table."""
    return {CHOICES: table}


def read_settings(kind: Any, table: Mapping[str, Any], where: str, problems: list[Problem], **fallback: Any) -> Any:
    """`kind` made of a TOML table; mistakes go to `problems`, and their fields take the default or the `fallback`.

    None where a field without either is missing or wrong.
    """
    tables = {entry.name: entry.metadata[CHOICES] for entry in fields(kind) if CHOICES in entry.metadata}
    plain = {key: value for key, value in table.items() if key not in tables}
    settings = settings_from(kind, plain, where, problems, fallback)
    chosen = {
        key: read_choice(choices, table[key], path(where, key), problems) for key, choices in tables.items() if key in table
    }
    if settings is None:
        return None
    return replace(settings, **{key: value for key, value in chosen.items() if value is not None})


def read_choice(choices: Mapping[str, Any], table: Any, where: str, problems: list[Problem]) -> Any:
    """The settings of the entry that a TOML table names, or None where a problem was listed.

    >>> from locality.training.schedules import SCHEDULES
    >>> problems = []
    >>> read_choice(SCHEDULES, {"name": "linear", "until": 0.5}, "schedule", problems)
    Linear(begin=0.0, end=1.0, until=0.5)
    >>> read_choice(SCHEDULES, {"name": "liner"}, "schedule", problems)
    >>> print(*problems)
    `schedule.name` must be one of constant, linear, warm_up, multistep, got 'liner': did you mean 'linear'?
    """
    if not isinstance(table, Mapping):
        problems.append(Problem(where, f'must be a table such as {{ name = "{next(iter(choices))}" }}, got {table!r}'))
        return None
    if "name" not in table:
        problems.append(Problem(where, "must have the key 'name'"))
        return None
    if table["name"] not in list(choices):  # a list, since what TOML has there may not be hashable
        problems.append(problem_of(unknown_choice(path(where, "name"), table["name"], choices)))
        return None
    settings = {key: value for key, value in table.items() if key != "name"}
    return read_settings(choices[table["name"]], settings, where, problems)


def table_of(settings: Any) -> dict[str, Any]:
    """The settings as a TOML table, which `read_settings` reads back; what is None is left out.

    >>> from locality.training.schedules import Multistep
    >>> table_of(Multistep(milestones=(0.5,), factors=(0.1, 1.0)))
    {'milestones': [0.5], 'factors': [0.1, 1.0]}
    """
    table = {}
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        choices = entry.metadata.get(CHOICES)
        if value is not None:
            table[entry.name] = _plain(value) if choices is None else {"name": name_in(choices, value), **_plain(value)}
    return table


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return table_of(value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def name_in(choices: Mapping[str, Any], settings: Any) -> str:
    """The name under which a table has the class of these settings.

    >>> from locality.training.schedules import SCHEDULES, WarmUp
    >>> name_in(SCHEDULES, WarmUp(0.3))
    'warm_up'
    """
    for name, kind in choices.items():
        if type(settings) is kind:
            return name
    raise ArgumentError("settings", f"one of {', '.join(choices)}", type(settings).__name__, "add a line to the table")


def problems_in(settings: Any, where: str = "") -> list[Problem]:
    """What is wrong with the values of settings and of all settings inside them."""
    own = settings.problems() if hasattr(settings, "problems") else []
    problems = [Problem(path(where, problem.where), problem.text) for problem in own]
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        parts = value if isinstance(value, Mapping) else {"": value}
        for key, part in parts.items():
            if is_dataclass(part):
                problems += problems_in(part, path(where, entry.name, key))
    return problems


def path(*keys: str) -> str:
    """Keys joined by dots, without the empty ones."""
    return ".".join(key for key in keys if key)


def problem_of(error: ArgumentError, where: str | None = None) -> Problem:
    """The error as a problem of a file, under the name `where` or its own."""
    hint = f": {error.hint}" if error.hint else ""
    return Problem(error.argument if where is None else where, f"must be {error.expected}, got {error.got!r}{hint}")


# Comparisons are written so that nan fails them, too.


def positive(name: str, number: float) -> list[Problem]:
    """A problem unless the number is above 0 and finite."""
    return [] if 0 < number < math.inf else [Problem(name, f"must be above 0 and finite, got {number}")]


def at_least_0(name: str, number: float) -> list[Problem]:
    """A problem unless the number is at least 0 and finite."""
    return [] if 0 <= number < math.inf else [Problem(name, f"must be at least 0 and finite, got {number}")]


def below_1(name: str, number: float) -> list[Problem]:
    """A problem unless the number is at least 0 and below 1."""
    return [] if 0 <= number < 1 else [Problem(name, f"must be at least 0 and below 1, got {number}")]


def from_0_to_1(name: str, number: float) -> list[Problem]:
    """A problem unless the number is a share."""
    return [] if 0 <= number <= 1 else [Problem(name, f"must be a share from 0 to 1, got {number}")]
