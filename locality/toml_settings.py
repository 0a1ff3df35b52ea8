"""TOML tables as frozen dataclasses; all mistakes are listed at once."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from locality.errors import Problem, did_you_mean

BAD = object()  # in place of a value with a listed problem
MAX_BYTES = 1 << 20  # of a file of settings or a model card
BLOCK = 1 << 20
MAX_DEPTH = 32
# What may contain brackets and dots that mean nothing: strings and comments.
TOML_STRINGS = re.compile(r"""\"{3}(?:[^\\]|\\.)*?\"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*""", re.DOTALL)
NO_BRACKET = re.compile(r"[^][{}]+")
KEY_CHARACTERS = re.compile(r"[\w \t-]+")
JSON_ESCAPES, JSON_STRINGS = re.compile(rb"\\."), re.compile(rb'"[^"]*"')
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
NUMBER = re.compile(r"[+-]?[\d_.]{1,40}(?:[eE][+-]?\d{1,3}|/[\d_]{1,40})?")  # "1e10000000" would take minutes as a fraction
EXPECTED = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "dict": "a table"}


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; a ValueError if it is not TOML, too large or too deep."""
    try:
        text = read_limited(path).decode("utf-8")
        bare = TOML_STRINGS.sub("", text)
        _check_depth(NO_BRACKET.sub("", bare))
        if "." * MAX_DEPTH in KEY_CHARACTERS.sub("", bare):
            raise ValueError(f"a key has more than {MAX_DEPTH} parts")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"`{path}` is not a TOML file: {problem}") from None


def read_json(path: Path, most_bytes: int = MAX_BYTES, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """The content of a JSON file; a ValueError if it is not JSON, too large or too deep."""
    data = read_limited(path, most_bytes)
    try:
        bare = JSON_STRINGS.sub(b"", JSON_ESCAPES.sub(b"", data) if b"\\" in data else data)
        _check_depth(bare.translate(None, NO_BRACKETS).decode("ascii"))
        return json.loads(data, parse_constant=parse_constant)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from None


def read_limited(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    """A regular file's bytes; a ValueError if it is larger than `most_bytes`, or a pipe or device, which may never end."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is a pipe or a device")
        blocks, left = [], most_bytes + 1
        while left and (block := file.read(min(left, BLOCK))):  # read(n) reserves n bytes, whatever there is to read
            blocks.append(block)
            left -= len(block)
    if not left:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    return b"".join(blocks)


def _check_depth(brackets: str) -> None:
    """Raise if brackets are nested too deeply; the parser reports those that do not match."""
    for _ in range(MAX_DEPTH):  # each pass removes the innermost ones
        brackets = brackets.replace("[]", "").replace("{}", "")
    if brackets.count("[") + brackets.count("{") > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def settings_from(
    kind: Any,
    table: Mapping[str, Any],
    where: str,
    problems: list[Problem],
    fallback: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """An instance of `kind` from the table; mistakes go to `problems`, and their fields take the default or `fallback`.

    None if a field without either is missing or wrong. Numbers may be fractions in quotes, "4/255".

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Attack:
    ...     epsilon: float
    ...     steps: int = 10
    >>> problems = []
    >>> settings_from(Attack, {"epsilon": "1/4", "stpes": 3}, "robust", problems).epsilon
    0.25
    >>> print(*problems)
    `robust` has an unknown key 'stpes': did you mean 'steps'?
    """
    known = {entry.name: entry for entry in fields(kind)}
    hints = get_type_hints(kind)
    values = {}
    for key, value in table.items():
        if key not in known:
            hint = did_you_mean(key, known) or f"it may have {', '.join(known)}"
            problems.append(Problem(where, f"has an unknown key {key!r}: {hint}"))
            continue
        typed = _value(hints[key], value, f"{where}.{key}" if where else key, problems)
        if typed is not BAD:
            values[key] = typed
    missing = [name for name, entry in known.items() if name not in values and not _has_default(entry)]
    problems += [Problem(where, f"must have the key {name!r}") for name in missing if name not in table]
    return None if set(missing) - set(fallback) else kind(**{name: fallback[name] for name in missing} | values)


def setting(default: Any, help: str) -> Any:
    """A dataclass field with a default and a sentence about it, which the command line shows.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Attack:
    ...     steps: int = setting(10, "Gradient steps.")
    >>> Attack().steps, fields(Attack)[0].metadata["help"]
    (10, 'Gradient steps.')
    """
    return field(default=default, metadata={"help": help})


def _has_default(entry: Field[Any]) -> bool:
    return entry.default is not MISSING or entry.default_factory is not MISSING


def _value(kind: Any, value: Any, where: str, problems: list[Problem]) -> Any:
    origin, options = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        if isinstance(value, dict):
            made = settings_from(kind, value, where, problems)
            return BAD if made is None else made
        expected = "a table"
    elif origin is Literal:
        if value in options:
            return value
        hint = did_you_mean(str(value), map(str, options))
        text = f"must be one of {', '.join(map(str, options))}, got {value!r}{hint and f': {hint}'}"
        problems.append(Problem(where, text))
        return BAD
    elif origin in (Union, UnionType):  # TOML has no None
        choices = [option for option in options if option is not NoneType]
        if len(choices) == 1:
            return _value(choices[0], value, where, problems)
        for one in choices:
            attempt: list[Problem] = []
            typed = _value(one, value, where, attempt)
            if not attempt:
                return typed
        expected = " or ".join(_words(one) for one in choices)
    elif origin is tuple:
        kinds = (options[0],) * len(value) if isinstance(value, list) and options[-1] is Ellipsis else options
        if isinstance(value, list) and len(value) == len(kinds):
            parts = [
                _value(one, part, f"{where}[{index}]", problems)
                for index, (one, part) in enumerate(zip(kinds, value, strict=True))
            ]
            good = tuple(part for part in parts if part is not BAD)
            return good if options[-1] is Ellipsis or len(good) == len(parts) else BAD
        expected = _words(kind)
    elif origin is dict:
        if isinstance(value, dict):
            typed = {key: _value(options[1], part, f"{where}.{key}", problems) for key, part in value.items()}
            return {key: part for key, part in typed.items() if part is not BAD}
        expected = "a table"
    elif kind is float:
        number = number_from(value)
        if number is not None:
            return number
        expected = _words(kind)
    elif kind is Any or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    else:
        expected = _words(kind)
    problems.append(Problem(where, f"must be {expected}, got {value!r}"))
    return BAD


def _words(kind: Any) -> str:
    """What a value of the type is called.

    >>> _words(tuple[int, int]), _words(tuple[str, ...]), _words(int)
    ('a list of 2', 'a list', 'a whole number')
    """
    if get_origin(kind) is tuple:
        options = get_args(kind)
        return "a list" if options[-1] is Ellipsis else f"a list of {len(options)}"
    return EXPECTED.get(kind.__name__, str(kind.__name__))


def number_from(value: Any) -> float | None:
    """A number, also written as a fraction in quotes, "4/255"; None for anything else."""
    try:
        if isinstance(value, str):
            text = value.replace(" ", "")
            return float(Fraction(text)) if NUMBER.fullmatch(text) else None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
