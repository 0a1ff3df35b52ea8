"""Commands that take the settings of what one option names, such as a certificate, as options of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, Literal, get_type_hints

import typer

from locality.toml_settings import number_from


class CommandWithSettings:
    """`function` as typer reads it: the option `choice` lists the names in `table`; their fields are options, too.

    `table` has a frozen dataclass of settings by name. `function` takes its own options, and the settings that were given
    as `**settings`; others are None. The signature is computed at each call, so a new name needs nothing but its line in the
    table.
    """

    def __init__(self, function: Callable[..., None], choice: str, choice_help: str, table: Mapping[str, type[Any]]) -> None:
        self.function, self.choice, self.choice_help, self.table = function, choice, choice_help, table
        # What typer reads besides the signature.
        self.__name__, self.__doc__, self.__annotations__ = function.__name__, function.__doc__, {}

    def __call__(self, **given: Any) -> None:
        self.function(**given)

    @property
    def __signature__(self) -> inspect.Signature:
        own = dict(inspect.signature(self.function, eval_str=True).parameters)
        del own["settings"]
        names = Annotated[Literal[tuple(self.table)], typer.Option(help=self.choice_help)]  # type: ignore[valid-type]
        own[self.choice] = own[self.choice].replace(annotation=names)
        return inspect.Signature([*own.values(), *self._setting_options(set(own))])

    def _setting_options(self, taken: set[str]) -> list[inspect.Parameter]:
        """One option per name of a setting; settings of the same name share it."""
        parameters: dict[str, inspect.Parameter] = {}
        for name, kind in self.table.items():
            hints = get_type_hints(kind)
            for field in fields(kind):
                if field.name not in taken | set(parameters):
                    panel = f"Options of --{self.choice} {name}"
                    parameters[field.name] = _parameter(field, hints[field.name], panel)
        return list(parameters.values())


def option_name(field: str) -> str:
    """The option of a field.

    >>> option_name("selection_samples")
    '--selection-samples'
    """
    return f"--{field.replace('_', '-')}"


def _parameter(field: Field[Any], kind: Any, panel: str) -> inspect.Parameter:
    help = field.metadata.get("help", "")
    default = "" if field.default in (MISSING, None) else f"Default: {field.default}."
    parser = _number if kind is float else None
    option = typer.Option(option_name(field.name), help=f"{help} {default}".strip(), parser=parser, rich_help_panel=panel)
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _number(text: str) -> float:
    number = number_from(text)
    if number is None:
        raise typer.BadParameter(f"a number such as 0.25 or 1/4 is expected, got {text!r}")
    return number
