"""Options of every command that loads a model: how its images are prepared, and which classes it has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from locality.cli.printing import note, say
from locality.errors import ArgumentError
from locality.toml_settings import number_from
from locality.types import Interpolation

PANEL = "How the model is loaded (by default as its card or architecture says)"


def _parsed(
    input_size: Annotated[
        str | None, typer.Option(help="Size of the crop: 224, or 224x192 for height and width.", rich_help_panel=PANEL)
    ] = None,
    resize: Annotated[
        int | None,
        typer.Option(
            help="Short side that images are resized to (default with --input-size: no crop).", rich_help_panel=PANEL
        ),
    ] = None,
    interpolation: Annotated[
        Interpolation | None, typer.Option(help="How images are resized.", rich_help_panel=PANEL)
    ] = None,
    mean: Annotated[
        str | None, typer.Option(help="Mean of pixels in [0, 1]: 0.5, or 0.485,0.456,0.406.", rich_help_panel=PANEL)
    ] = None,
    std: Annotated[str | None, typer.Option(help="Standard deviation, like --mean.", rich_help_panel=PANEL)] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            help="File with the names or WordNet ids of the model's classes, one per line, in the order of its logits.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    multi_label: Annotated[
        str | None,
        typer.Option(
            help="Label of a multi-label network, its name or number: the boundary is where its logit is 0.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    trust_code: Annotated[
        bool,
        typer.Option(
            "--trust-code", help="Load a TorchScript or torch.export file, which can run code.", rich_help_panel=PANEL
        ),
    ] = False,
) -> dict[str, Any]:
    """The arguments of `load_model` that the options stand for."""
    from locality.zoo.preprocessing import GivenPreprocessing

    given: dict[str, Any] = {
        "input_size": None if input_size is None else _sides(input_size),
        "resize": resize,
        "interpolation": interpolation,
        "mean": None if mean is None else _numbers("--mean", mean),
        "std": None if std is None else _numbers("--std", std),
        "classes": classes,
    }
    try:
        GivenPreprocessing(**given)
    except ArgumentError as error:
        raise error.renamed(f"--{error.argument.replace('_', '-')}") from None
    given |= {"multi_label": multi_label, "trust_code": trust_code or None}
    return {name: value for name, value in given.items() if value is not None}


def with_preprocessing(command: Callable[..., None]) -> Callable[..., None]:
    """The command with options in place of its parameter `preprocessing`, which becomes arguments of `load_model`."""
    added = inspect.signature(_parsed, eval_str=True).parameters

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        preprocessing = _parsed(**{name: given.pop(name) for name in added if name in given})
        command(**given, preprocessing=preprocessing)

    own = inspect.signature(command, eval_str=True).parameters
    listed: list[inspect.Parameter] = []
    for parameter in own.values():
        listed += added.values() if parameter.name == "preprocessing" else [parameter]
    # What typer reads; the annotations of the signature are evaluated already.
    with_options.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    with_options.__annotations__ = {}
    del with_options.__wrapped__
    return with_options


def say_preprocessing(*models: object) -> None:
    """Print how the images of each model are prepared."""
    from locality.zoo.preprocessing import is_guessed, model_preprocessing

    lines = {model_preprocessing(model): getattr(getattr(model, "spec", None), "name", "") for model in models}
    for line, name in lines.items():
        say(f"preprocessing{f' of {name}' if len(lines) > 1 else ''}: {line}")
    if any(is_guessed(model) for model in models):
        note("If the network was trained otherwise: --input-size, --resize, --interpolation, --mean and --std.")


def check_expected(text: str | None) -> float | None:
    """The share that `--expect-accuracy` names.

    >>> check_expected("0.76"), check_expected("76%"), check_expected(None)
    (0.76, 0.76, None)
    """
    if text is None:
        return None
    share = number_from(text.removesuffix("%"))
    if share is not None and text.endswith("%"):
        share /= 100
    if share is None or not 0 < share <= 1:
        raise ArgumentError("--expect-accuracy", "a share such as 0.76 or 76%", text)
    return share


def warn_if_inaccurate(model: str, data: str, right: int, known: int, expected: float | None = None) -> None:
    """Print a warning if the accuracy is far below the expected one, or below that of the card if it is for this data."""
    from locality.zoo.expected_accuracy import low_accuracy_text, published_accuracy

    source = "--expect-accuracy"
    if expected is None:
        expected, source = published_accuracy(model, data), "its card"
    sentence = None if expected is None else low_accuracy_text(model, right, known, expected, source)
    if sentence:
        say(f"locality: warning: {sentence}", error=True)


def _sides(text: str) -> tuple[int, int]:
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) not in (1, 2) or not all(part.strip().isdecimal() for part in parts):
        raise ArgumentError("--input-size", "a number of pixels, such as 224 or 224x192", text)
    return int(parts[0]), int(parts[-1])


def _numbers(option: str, text: str) -> tuple[float, ...]:
    numbers = [number_from(part) for part in text.strip("()[] ").split(",")]
    if len(numbers) not in (1, 3) or None in numbers:
        raise ArgumentError(option, "one number or three, such as 0.5 or 0.485,0.456,0.406", text)
    return tuple(number for number in numbers if number is not None) * (3 if len(numbers) == 1 else 1)
