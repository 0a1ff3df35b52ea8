"""Errors with fields: what is wrong, where, and what to do about it. No behaviour depends on the text of a message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Modules that do not come with `pip install locality`, and the extra that installs them. pyproject.toml lists the packages.
EXTRAS = {
    **dict.fromkeys(
        ("torchvision", "foolbox", "timm", "scipy", "pandas", "pyarrow", "PIL", "matplotlib", "skimage"), "bench"
    ),
    **dict.fromkeys(
        ("typer", "rich", "platformdirs", "filelock", "defusedxml", "pyautoattack", "huggingface_hub", "yaml"), "bench"
    ),
    "accelerate": "train",
    "tensorboard": "tensorboard",
    "ray": "ray",
    "transformers": "hf",
    "robustbench": "robustbench",
}


class ArgumentError(ValueError):
    """An argument that cannot be used; the sentence is made of its fields.

    >>> print(ArgumentError("steps", "a whole number of at least 1", -3, "the default is 100"))
    `steps` must be a whole number of at least 1, got -3: the default is 100
    """

    def __init__(self, argument: str, expected: str, got: object, hint: str = "") -> None:
        self.argument, self.expected, self.got, self.hint = argument, expected, got, hint
        super().__init__(f"`{argument}` must be {expected}, got {got!r}{f': {hint}' if hint else ''}")

    def renamed(self, argument: str) -> ArgumentError:
        """The same error with the caller's name for the argument."""
        return type(self)(argument, self.expected, self.got, self.hint)

    def __reduce__(self) -> tuple[type[ArgumentError], tuple[Any, ...]]:
        return type(self), (self.argument, self.expected, self.got, self.hint)  # errors cross process borders


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a wrong type; caught as a TypeError, with the fields of an ArgumentError."""


def unknown_choice(argument: str, got: object, choices: Iterable[str], also: str = "") -> ArgumentError:
    """The error for a name that is not one of the choices; `also` says what else is allowed.

    >>> print(unknown_choice("search", "fats", ["fast", "paper"], also="foolbox:NAME"))
    `search` must be one of fast, paper or foolbox:NAME, got 'fats': did you mean 'fast'?
    """
    names = list(choices)
    expected = f"one of {', '.join(names)}{f' or {also}' if also else ''}"
    return ArgumentError(argument, expected, got, did_you_mean(str(got), names))


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A question that suggests the known name most similar to `name`, ignoring case; empty if none is similar.

    >>> did_you_mean("vit_b16_rob", ["vit_b16_robust", "resnet50"])
    "did you mean 'vit_b16_robust'?"
    >>> did_you_mean("zebra", ["vit_b16_robust"])
    ''
    """
    names = {one.lower(): one for one in reversed(list(known))}
    near = difflib.get_close_matches(name.lower(), names, 1, cutoff)
    return f"did you mean {names[near[0]]!r}?" if near else ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in a file of settings: the key or name it is about, and what is wrong with it.

    >>> print(Problem("robust[0].epsilon", "must be a number, got 'x'"))
    `robust[0].epsilon` must be a number, got 'x'
    """

    where: str  # a path of keys, such as "models[2].arch"; "" for the whole file
    text: str

    def __str__(self) -> str:
        return f"`{self.where}` {self.text}" if self.where else self.text

    @staticmethod
    def of(where: str, error: Exception) -> Problem:
        """The problem that a check of the value at `where` raised.

        >>> print(Problem.of("searches.names", unknown_choice("search", "fats", ["fast", "paper"])))
        `searches.names` must be one of fast, paper, got 'fats': did you mean 'fast'?
        """
        if not isinstance(error, ArgumentError):
            return Problem(where, f"is wrong: {error}")
        return Problem(where, f"must be {error.expected}, got {error.got!r}{f': {error.hint}' if error.hint else ''}")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a data set: where it is, which image it is about, and what is wrong."""

    file: str
    row: int | None  # line of `file`, counted from 1, the header included; None if there are no rows
    image: str  # the image's id, or "" if it is not known
    kind: str  # for counting: "missing file", "bad box", …
    problem: str

    def __str__(self) -> str:
        where = self.file if self.row is None else f"{self.file}, row {self.row}"
        return f"{where}: {self.problem}"


class DataError(ValueError):
    """Data that cannot be used as it is; `faults` lists every reason."""

    def __init__(self, message: str, faults: tuple[Fault, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults

    @classmethod
    def of(cls, faults: list[Fault] | tuple[Fault, ...]) -> DataError:
        more = f" (and {len(faults) - 1:,} more; `locality data check` lists them all)" if len(faults) > 1 else ""
        return cls(f"{faults[0]}{more}", tuple(faults))

    def __reduce__(self) -> tuple[type[DataError], tuple[str, tuple[Fault, ...]]]:
        return type(self), (str(self), self.faults)  # errors cross process borders in data loaders


class ModelError(ValueError):
    """A model that cannot be loaded."""


class DamagedFileError(ModelError):
    """A checkpoint that is not as it was saved."""


class NeedsCodeError(ModelError):
    """An intact checkpoint that only a full unpickler can load; `code` names what it would import, as far as is known."""

    def __init__(self, message: str, code: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[NeedsCodeError], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.code)


class MissingWeightsError(ModelError):
    """Weights that are not on this machine: `need` says what to do about it, `available` what can be loaded now."""

    def __init__(self, need: str, available: tuple[str, ...] = ()) -> None:
        super().__init__(f"{need}; these models can be loaded now: {', '.join(available)}" if available else need)
        self.need, self.available = need, available

    def __reduce__(self) -> tuple[type[MissingWeightsError], tuple[str, tuple[str, ...]]]:
        return type(self), (self.need, self.available)


@contextmanager
def needing(what: str) -> Iterator[None]:
    """Inside the block, a package of an extra that is not installed is an error that says how to install it.

    >>> with needing("`evaluate`"):
    ...     raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
    Traceback (most recent call last):
    ...
    ImportError: `evaluate` needs pandas, which is not installed: pip install 'locality[bench]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        advice = f"pip install 'locality[{EXTRAS[package]}]'"
        raise ImportError(f"{what} needs {package}, which is not installed: {advice}", name=package) from error
