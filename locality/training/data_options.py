"""Options of the images of a recipe, which TOML has beside their name: those that `load_dataset` passes to the source.

data = { name = "pets", size = 112, cue = "sticker" }
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from locality.data.cues import sticker_of
from locality.data.sources import SOURCES, options_of, split_options
from locality.errors import ArgumentError, Problem
from locality.toml_settings import settings_from
from locality.training.settings import problem_of

OWN = ("name", "limit", "size")  # keys that are no options
PLAIN = (str, int, float, list, dict)  # what TOML and JSON have, and the card can store
CUE_TYPES = {"cue": str, "cue_size": float, "cue_seed": int}


def data_table(table: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """The table of a recipe's data with its options in a table of their own.

    >>> problems = []
    >>> data_table({"name": "pets", "cue": "sticker", "cue_sise": 0.3}, problems)
    {'name': 'pets', 'options': {'cue': 'sticker'}}
    >>> print(*problems)
    `data` has an unknown key 'cue_sise': did you mean 'cue_size'?
    """
    options = {key: value for key, value in table.items() if key not in OWN}
    return {key: table[key] for key in OWN if key in table} | {"options": _typed(table.get("name"), options, problems)}


def option_problems(name: str, options: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the values of options, on any machine."""
    expected = "must be a text, a number, a list or a table"
    wrong = [Problem(key, f"{expected}, got {value!r}") for key, value in options.items() if not isinstance(value, PLAIN)]
    try:
        _, planted = split_options(name, options)
        sticker_of(**planted)
    except ArgumentError as error:
        wrong.append(problem_of(error))
    return wrong


def _typed(name: Any, options: dict[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """Options checked against the arguments of their source; those of a path whose kind is guessed are checked later."""
    source = SOURCES.get(name.partition(":")[0]) if isinstance(name, str) else None
    if source is None:
        return options
    hints = get_type_hints(source) | CUE_TYPES | {"limit": int, "size": int}
    known = [(key, _plain_type(hints[key]), field(default=None)) for key in (*OWN[1:], *options_of(source))]
    settings = settings_from(make_dataclass("Options", known), options, "data", problems)
    return {key: getattr(settings, key) for key in options if hasattr(settings, key)}


def _plain_type(hint: Any) -> Any:
    """The one type of TOML that an argument takes; Any if there are several, which the source checks.

    >>> _plain_type(str | Path | None), _plain_type(dict[str, str] | str)
    (<class 'str'>, typing.Any)
    """
    union = get_origin(hint) in (Union, types.UnionType)
    kinds = [kind for kind in (get_args(hint) if union else (hint,)) if kind not in (types.NoneType, Path)]
    simple = len(kinds) == 1 and (kinds[0] in (str, int, float, bool) or get_origin(kinds[0]) is Literal)
    return kinds[0] if simple else Any
