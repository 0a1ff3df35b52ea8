"""Reads a suite from a TOML file and checks it: every mistake is listed at once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from locality.attribution.all_at_once import AT_BOUNDARY, check_method
from locality.boundary import SEARCHES
from locality.boundary.search import resolve_search
from locality.data.kinds import check_name
from locality.errors import MissingWeightsError, Problem, did_you_mean, unknown_choice
from locality.files import PACKAGE, PACKAGED, packaged_file
from locality.runner.measurements import MEASUREMENTS
from locality.runner.missing_weights import MissingWeights, with_weights_joined
from locality.runner.suite import DataChoice, ModelChoice, Suite, trained
from locality.toml_settings import read_toml, settings_from
from locality.zoo.architectures import is_function
from locality.zoo.catalog import model_cards
from locality.zoo.model_card import CHECKPOINT_SUFFIXES
from locality.zoo.trainings import TRAININGS, UNKNOWN, kind_of
from locality.zoo.weight_files import MISSING, can_be_fetched, weights_path, where

# Keys that `data.options` must not have, because they are set elsewhere.
RESERVED = {
    "name": "set `data.name`",
    "path": 'set `data.name` = "imagenet:PATH"',
    "seed": "set `data.seed`",
    "split": "a suite measures the evaluation split",
}


class SuiteError(ValueError):
    """A suite that cannot run; `problems` lists every reason, and missing weights of several models as one."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.name, self.problems = name, with_weights_joined(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(f"`{name}` cannot run, {count}: {'; '.join(map(str, self.problems))}")

    def __reduce__(self) -> tuple[type[SuiteError], tuple[str, tuple[Problem, ...]]]:
        return type(self), (self.name, self.problems)


@dataclass(frozen=True)
class Draft:
    """A suite as far as it could be read, and what is wrong with it."""

    name: str
    suite: Suite  # with defaults in place of what is wrong
    problems: tuple[Problem, ...]


def read_suite(path: str | Path) -> Suite:
    """The suite in a file, or the one that ships under a name; SuiteError lists everything that is wrong with it.

    >>> read_suite("nothing")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: `suite` must be a TOML file or one of certified, cifar, curvature, demo, imagenet, paper, pets, ...
    """
    draft = draft_suite(path)
    if draft.problems:
        raise SuiteError(draft.name, draft.problems)
    return draft.suite


def draft_suite(path: str | Path, download: bool = False, trust_first: bool = False) -> Draft:
    """The suite with its names checked, and whether the weights of the catalog are here; the plan opens models and data.

    With `download`, weights that can be fetched and verified are no problem; with `trust_first`, those of no known sha256.

    >>> draft_suite("demo").suite.methods
    ('SM', 'IG', 'BIG')
    """
    file = _file(str(path))
    try:
        table = read_toml(file)
    except ValueError as error:
        raise SuiteError(str(path), [Problem("", str(error))]) from None
    full = _in_full(table, file.stem)
    typing: list[Problem] = []
    measurements = {name: _measurement(name, full.pop(name), typing) for name in MEASUREMENTS if full.get(name) is not None}
    unknown = [key for key in full if key not in SUITE_KEYS]
    for key in unknown:
        known = [*SUITE_KEYS, *MEASUREMENTS]
        hint = did_you_mean(key, known) or f"it may have {', '.join(known)}"
        typing.append(Problem(file.name, f"has an unknown key {key!r}: {hint}"))
        del full[key]
    # Without models or with a wrong name, the rest is checked all the same.
    suite: Suite = settings_from(Suite, full, "", typing, {"name": file.stem, "models": ()})
    suite = replace(suite, measurements=measurements)
    has_models = isinstance(full.get("models"), list)
    problems = [*typing, *problems_of(suite, download, trust_first, check_models=has_models)]
    located = [replace(problem, where=problem.where or file.name) for problem in problems]
    return Draft(file.name, suite, tuple(dict.fromkeys(located)))


SUITE_KEYS = tuple(entry.name for entry in fields(Suite) if entry.name != "measurements")


def problems_of(suite: Suite, download: bool = False, trust_first: bool = False, check_models: bool = True) -> list[Problem]:
    """Names that nothing has, weights that are not here, and numbers that make no sense."""
    problems: list[Problem] = []
    if not re.fullmatch(r"[\w][\w.-]*", suite.name):
        problems.append(Problem("name", f"must be usable as the name of a folder, got {suite.name!r}"))
    if check_models:
        problems += _models_problems(suite, download, trust_first)
    if not suite.methods:
        problems.append(Problem("methods", "must name at least one method, such as SM, IG, BIG"))
    problems += _method_problems(suite)
    if suite.search != "none":
        problems += _tried("search", resolve_search, suite.search, SEARCHES)
    problems += data_problems(suite.data)
    for key, value in (("data.limit", suite.data.limit), ("block", suite.block)):
        problems += _at_least_one(key, value)
    if not 0 <= suite.rho < math.inf:
        problems.append(Problem("rho", f"must be 0 or larger, got {suite.rho}"))
    for name, measurement in MEASUREMENTS.items():
        problems += _limit_and_model_problems(suite, name)
        problems += measurement.problems(suite)
    names = {choice.name for choice in suite.models}
    for name in dict.fromkeys(name for pair in suite.pairs for name in pair):
        if names and name not in names:
            problems.append(Problem("pairs", f"must name models of the suite, got {name!r}"))
    return problems + _pair_problems(suite)


def _models_problems(suite: Suite, download: bool, trust_first: bool) -> Iterator[Problem]:
    names = [choice.name for choice in suite.models]
    if not names:
        yield Problem("models", "must name at least one model: `locality models` lists them")
    if "" in names:
        yield Problem("models", "must give every model a name, got an empty one: results show it")
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem("models", f"names {name!r} twice: give one of them another name")
    for choice in suite.models:
        yield from _model_problems(choice, download, trust_first)
        trainings = (*TRAININGS, UNKNOWN)
        if choice.training is not None and choice.training not in trainings:
            error = unknown_choice("training", choice.training, trainings)
            yield Problem.of("models.training", error)
        expected = choice.expect_accuracy
        if expected is not None and not 0 < expected <= 1:
            yield Problem(choice.name, f"must have an `expect_accuracy` such as 0.76, got {expected}")


def _method_problems(suite: Suite) -> Iterator[Problem]:
    """Methods that do not exist, or need a boundary where none is searched, of the suite and of its measurements."""
    places = [("methods", suite.methods)]
    for name in MEASUREMENTS:
        places += [(f"{key}.methods", getattr(settings, "methods", ())) for key, settings in suite.located(name)]
    for key, methods in places:
        for name in methods:
            yield from _tried(key, check_method, name)
            if suite.search == "none" and name in AT_BOUNDARY:
                yield Problem("search", f"must not be 'none' where {name} is requested, which starts at the boundary")


def _limit_and_model_problems(suite: Suite, measurement: str) -> Iterator[Problem]:
    names = {choice.name for choice in suite.models}
    for key, settings in suite.located(measurement):
        yield from _at_least_one(f"{key}.limit", getattr(settings, "limit", None))
        for name in getattr(settings, "models", ()):
            if names and name not in names:
                yield Problem(f"{key}.models", f"must name models of the suite, got {name!r}")


def _at_least_one(key: str, value: int | None) -> list[Problem]:
    return [Problem(key, f"must be at least 1, got {value}")] if value is not None and value < 1 else []


def _tried(key: str, check: Callable[..., object], *arguments: object) -> list[Problem]:
    try:
        check(*arguments)
    except (ValueError, TypeError) as error:
        return [Problem.of(key, error)]
    return []


def data_problems(choice: DataChoice) -> list[Problem]:
    """What is wrong with the choice of images, as far as it can be judged without opening the source.

    >>> print(*data_problems(DataChoice("shapes", options=(("count", 20), ("seed", 1)))))
    `data.options.seed` must not be given: set `data.seed`
    """
    problems = _tried("data.name", check_name, choice.name) if choice.name else []
    if not 0 < choice.max_box_share <= 1:
        problems.append(Problem("data.max_box_share", f"must be a share such as 0.8, got {choice.max_box_share}"))
    for key, value in choice.options:
        if not isinstance(value, str | int | float):
            problems.append(Problem(f"data.options.{key}", f"must be a text or a number, got {value!r}"))
        if key in RESERVED:
            problems.append(Problem(f"data.options.{key}", f"must not be given: {RESERVED[key]}"))
    return problems


def with_images(draft: Draft, data: str | None = None, boxes: str | Path | None = None, limit: int | None = None) -> Draft:
    """The draft with other images, other boxes or fewer images; None keeps what its suite says."""
    if data is None and boxes is None and limit is None:
        return draft
    choice = draft.suite.data
    options = tuple(pair for pair in choice.options if boxes is None or pair[0] != "boxes")
    choice = replace(
        choice,
        name=choice.name if data is None else data,
        limit=choice.limit if limit is None else limit,
        options=options if boxes is None else (*options, ("boxes", str(boxes))),
    )
    # Only problems with the images can have appeared or gone.
    others = [problem for problem in draft.problems if problem.where.partition(".")[0] != "data"]
    fresh = [*data_problems(choice), *_at_least_one("data.limit", choice.limit)]
    return replace(draft, suite=replace(draft.suite, data=choice), problems=(*others, *fresh))


def _file(name: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    try:
        return packaged_file(f"suites/{name}.toml")
    except FileNotFoundError:
        folders = (PACKAGE / "shipped_files/suites", PACKAGE.parent / PACKAGED["suites"])
        known = sorted({path.stem for folder in folders for path in folder.glob("*.toml")})
        raise ValueError(f"`suite` must be a TOML file or one of {', '.join(known) or 'nothing'}, got {name!r}") from None


def _in_full(table: Mapping[str, Any], stem: str) -> dict[str, Any]:
    """The table with short forms written in full: a model's name alone, the data's name alone, pairs as a table."""
    full = {"name": stem} | dict(table)
    if isinstance(full.get("models"), list):
        full["models"] = [{"name": model} if isinstance(model, str) else model for model in full["models"]]
    if isinstance(full.get("data"), str):
        full["data"] = {"name": full["data"]}
    if isinstance(full.get("pairs"), dict):
        full["pairs"] = [list(pair) for pair in full["pairs"].items()]
    if isinstance(full.get("data"), dict) and isinstance(full["data"].get("options"), dict):
        full["data"] = full["data"] | {"options": [list(pair) for pair in full["data"]["options"].items()]}
    return full


def _measurement(name: str, value: Any, problems: list[Problem]) -> tuple[Any, ...]:
    """The settings of a measurement: a table, a list of tables, true for the defaults, or a number of images."""
    kind = MEASUREMENTS[name].settings
    has_limit = "limit" in {entry.name for entry in fields(kind)}
    if isinstance(value, bool):
        return (kind(),) if value else ()
    if isinstance(value, int) and has_limit:
        value = {"limit": value}
    tables = value if isinstance(value, list) else [value]
    several = []
    for index, table in enumerate(tables):
        key = name if len(tables) == 1 else f"{name}[{index}]"
        if not isinstance(table, dict):
            expected = "a table, true, false or a number of images" if has_limit else "a table, true or false"
            problems.append(Problem(key, f"must be {expected}, got {table!r}"))
            continue
        settings = settings_from(kind, table, key, problems)
        if settings is not None:
            several.append(settings)
    return tuple(several)


def _model_problems(choice: ModelChoice, download: bool, trust_first: bool) -> list[Problem]:
    known = model_cards()
    source = choice.source
    if source in known:
        if where(known[source]) not in MISSING or (download and can_be_fetched(known[source], trust_first)):
            return []
        try:
            weights_path(known[source], download_it=download)
        except MissingWeightsError as error:
            text = f"cannot be loaded: {error.need}"
            if where(known[source]) != "to fetch":
                return [Problem(choice.name, text)]
            return [MissingWeights(choice.name, text, can_be_fetched(known[source]))]
    if source.startswith(("timm:", "hf:", "robustbench:")) or is_function(source) or Path(source).expanduser().is_dir():
        return []
    if Path(source).suffix in CHECKPOINT_SUFFIXES or "/" in source:
        missing = not Path(source).expanduser().is_file()
        return [Problem(choice.name, f"must be the path of a checkpoint, but `{source}` is not a file")] if missing else []
    hint = did_you_mean(source, known)
    listing = "`locality models` lists all"
    text = f"{hint} ({listing})" if hint else f"{listing}, and `load` takes the path of a checkpoint"
    return [Problem(choice.name, f"is not a model: {text}")]


def _pair_problems(suite: Suite) -> list[Problem]:
    """Tables and figures compare robust models with standard ones; another pair would be ignored."""
    choices = {choice.name: choice for choice in suite.models}
    problems = []
    for name, _ in suite.pairs:
        training = trained(choices[name]) if name in choices else "at"
        if kind_of(training) not in ("robust", "certified"):
            text = f"must pair robust models with standard ones, got {name!r} of {training} training"
            problems.append(Problem("pairs", f'{text}: give its training, {{name = …, training = "at"}}'))
    return problems
