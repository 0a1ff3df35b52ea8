"""A TOML table as a frozen dataclass, with every mistake in it told at once rather than the first one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from fractions import Fraction
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

BAD = object()  # in place of a value that a problem was told about


def typed_table(
    kind: Any, table: dict[str, Any], where: str, problems: list[str], instead: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """`kind` made of the table; what is wrong goes to `problems` and falls back to the field's default or to `instead`.

    None where a field without either is missing or wrong. Numbers may be fractions in quotes, "4/255".

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Attack:
    ...     epsilon: float
    ...     steps: int = 10
    >>> problems = []
    >>> typed_table(Attack, {"epsilon": "1/4", "stpes": 3}, "robust", problems).epsilon, problems
    (0.25, ["`robust` has an unknown key 'stpes': did you mean 'steps'?"])
    """
    known = {entry.name: entry for entry in fields(kind)}
    hints = get_type_hints(kind)
    found = {}
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it may have {', '.join(known)}"
            problems.append(f"`{where}` has an unknown key {key!r}: {hint}")
            continue
        typed = _value(hints[key], value, f"{where}.{key}", problems)
        if typed is not BAD:
            found[key] = typed
    missing = [name for name, entry in known.items() if name not in found and not _has_default(entry)]
    problems += [f"`{where}` must have the key {name!r}" for name in missing if name not in table]
    return None if set(missing) - set(instead) else kind(**{name: instead[name] for name in missing} | found)


def _has_default(entry: Field[Any]) -> bool:
    return entry.default is not MISSING or entry.default_factory is not MISSING


def _value(kind: Any, value: Any, where: str, problems: list[str]) -> Any:
    origin, options = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        if isinstance(value, dict):
            made = typed_table(kind, value, where, problems)
            return BAD if made is None else made
        expected = "a table"
    elif origin is Literal:
        if value in options:
            return value
        near = difflib.get_close_matches(str(value), [str(option) for option in options], 1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        problems.append(f"`{where}` must be one of {', '.join(map(str, options))}, got {value!r}{hint}")
        return BAD
    elif origin in (Union, UnionType):  # only `… | None` occurs, and TOML has no None
        return _value(next(option for option in options if option is not NoneType), value, where, problems)
    elif origin is tuple:
        kinds = (options[0],) * len(value) if isinstance(value, list) and options[-1] is Ellipsis else options
        if isinstance(value, list) and len(value) == len(kinds):
            parts = [
                _value(one, part, f"{where}[{place}]", problems)
                for place, (one, part) in enumerate(zip(kinds, value, strict=True))
            ]
            good = tuple(part for part in parts if part is not BAD)
            return good if options[-1] is Ellipsis or len(good) == len(parts) else BAD
        expected = "a list" if options[-1] is Ellipsis else f"a list of {len(options)}"
    elif kind is float:
        number = _number(value)
        if number is not None:
            return number
        expected = "a number"
    elif kind is Any or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    else:
        expected = {"str": "a text", "int": "a whole number", "bool": "true or false"}.get(kind.__name__, kind.__name__)
    problems.append(f"`{where}` must be {expected}, got {value!r}")
    return BAD


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return float(Fraction(value.replace(" ", "")))
        except (ValueError, ZeroDivisionError):
            return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
