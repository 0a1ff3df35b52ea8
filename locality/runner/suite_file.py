"""A suite: which models, methods, data and measurements a benchmark consists of, read from a TOML file and checked."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from locality.attribution import method
from locality.boundary import SEARCHES
from locality.boundary.foolbox_attacks import foolbox_search
from locality.data.sources import SOURCES
from locality.errors import MissingWeightsError, Problem, unknown_choice
from locality.files import PACKAGE, PACKAGED, packaged_file
from locality.robustness import check_request
from locality.runner.evaluate import Settings
from locality.runner.suite import DataChoice as DataChoice
from locality.runner.suite import ModelChoice as ModelChoice
from locality.runner.suite import RobustPart, trained
from locality.runner.suite import Suite as Suite
from locality.toml_settings import settings_from
from locality.zoo.architectures import is_function
from locality.zoo.catalog import model_cards, unknown_model
from locality.zoo.load import CHECKPOINT_SUFFIXES
from locality.zoo.trainings import TRAININGS, UNKNOWN, kind_of
from locality.zoo.weight_files import MISSING, weights_path, where

# What `data.options` must not say, because it is said elsewhere.
RESERVED = {
    "name": "say `data.name`",
    "path": 'say `data.name` = "imagenet:PATH"',
    "seed": "say `data.seed`",
    "split": "a suite measures the evaluation split",
}

NO_MODELS = "`models` must name at least one model: `locality models` lists them"


class SuiteError(ValueError):
    """A suite that cannot run; `problems` lists every reason."""

    def __init__(self, name: str, problems: Sequence[str]) -> None:
        self.name, self.problems = name, tuple(problems)
        reasons = "one thing is" if len(problems) == 1 else f"{len(problems)} things are"
        super().__init__(f"`{name}` cannot run, {reasons} wrong: {'; '.join(problems)}")

    def __reduce__(self) -> tuple[type[SuiteError], tuple[str, tuple[str, ...]]]:
        return type(self), (self.name, self.problems)


@dataclass(frozen=True)
class Draft:
    """A suite as far as it could be read, and what is wrong with it."""

    name: str
    suite: Suite  # with defaults in place of what is wrong
    problems: tuple[str, ...]


def read_suite(path: str | Path) -> Suite:
    """The suite in a file, or the one that ships under a name; SuiteError lists everything that is wrong with it.

    >>> read_suite("no such suite")
    Traceback (most recent call last):
    ValueError: `suite` must be a TOML file or one of demo, paper, similarity, tiny, zoo, got 'no such suite'
    """
    draft = draft_suite(path)
    if draft.problems:
        raise SuiteError(draft.name, draft.problems)
    return draft.suite


def draft_suite(path: str | Path, download: bool = False) -> Draft:
    """The suite, its names checked, and whether catalogued weights are here; the rest is left to the plan, which opens them.

    With `download`, weights that can be fetched are no problem.

    >>> draft_suite("demo").suite.methods
    ('SM', 'IG', 'BIG')
    """
    found = _file(str(path))
    try:
        table = tomllib.loads(found.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SuiteError(str(path), [f"`{found}` is not a TOML file: {problem}"]) from None
    problems: list[str] = []
    # Without models or with a wrong name, the rest is checked all the same.
    full = _written_out(table, found.stem)
    typing: list[Problem] = []
    suite: Suite = settings_from(Suite, full, found.name, typing, {"name": found.stem, "models": ()})
    problems += [str(problem) for problem in typing]
    told = not isinstance(full.get("models"), list)
    problems += [problem for problem in problems_of(suite, download) if not (told and problem == NO_MODELS)]
    return Draft(found.name, suite, tuple(dict.fromkeys(problems)))


def problems_of(suite: Suite, download: bool = False) -> list[str]:
    """Names that nothing has, weights that are not here, and numbers that make no sense."""
    problems: list[str] = []

    def tried(check: Callable[..., object], *given: object) -> None:
        try:
            check(*given)
        except (ValueError, TypeError) as error:
            problems.append(str(error))

    if not re.fullmatch(r"[\w][\w.-]*", suite.name):
        problems.append(f"`name` must be good for a folder's name, got {suite.name!r}")
    names = [choice.name for choice in suite.models]
    if not names:
        problems.append(NO_MODELS)
    if "" in names:
        problems.append("`models` must give every model a name, got an empty one: results show it")
    problems += [f"`models` names {name!r} twice: give one of them another name" for name in _repeated(names)]
    problems += [problem for choice in suite.models for problem in _model_problems(choice, download)]
    trainings = (*TRAININGS, UNKNOWN)
    given = {choice.training for choice in suite.models if choice.training is not None}
    problems += [str(unknown_choice("models.training", name, trainings)) for name in sorted(given - {*trainings})]
    if not suite.methods:
        problems.append("`methods` must name at least one method, such as SM, IG, BIG")
    for part in (suite, suite.faithfulness, suite.sanity):
        for name in () if part is None else part.methods:
            tried(method, name)
    for name in (*(suite.searches.names if suite.searches else ()), *(() if suite.search == "none" else (suite.search,))):
        tried(search_function, name)
    asked = {name for part in (suite, suite.faithfulness, suite.sanity) if part is not None for name in part.methods}
    if suite.search == "none" and (suite.similarity or asked & {"BSM", "BIG"}):
        problems.append(
            "`search` must not be 'none' where BSM, BIG or similarity are asked for, which start at the boundary"
        )
    kind = suite.data.name.partition(":")[0]
    is_file = suite.data.name.lower().endswith(".csv") or Path(suite.data.name).exists()
    if suite.data.name and kind not in SOURCES and not is_file:
        problems.append(f"`data.name` must be one of {', '.join(SOURCES)} or a manifest's path, got {suite.data.name!r}")
    problems += option_problems(suite.data)
    for attack in suite.robust:
        tried(check_request, attack.norm, attack.epsilon, attack.attack, attack.batch_size)
    problems += _repeated_attacks(suite.robust) + _number_problems(suite)
    searches = suite.searches.names if suite.searches else ("none",)
    if not searches:
        problems.append("`searches.names` must name at least one search, such as fast")
    problems += [f"`searches.names` names {name!r} twice: once is enough" for name in _repeated(searches)]
    named = [("pairs", name) for pair in suite.pairs for name in pair]
    named += [(f"robust[{place}].models", name) for place, part in enumerate(suite.robust) for name in part.models]
    for key, models in (
        ("faithfulness", suite.faithfulness.models if suite.faithfulness else ()),
        ("sanity", suite.sanity.models if suite.sanity else ()),
        ("searches", suite.searches.models if suite.searches else ()),
    ):
        named += [(f"{key}.models", name) for name in models]
    problems += [
        f"`{key}` must name models of the suite, got {name!r}"
        for key, name in dict.fromkeys(named)
        if names and name not in names
    ]
    return problems + _pair_problems(suite)


def _number_problems(suite: Suite) -> list[str]:
    problems = []
    if not 0 < suite.data.max_box_share <= 1:
        problems.append(f"`data.max_box_share` must be a share such as 0.8, got {suite.data.max_box_share}")
    if not 0 <= suite.rho < math.inf:
        problems.append(f"`rho` must be 0 or larger, got {suite.rho}")
    if suite.faithfulness and not 0 < suite.faithfulness.sigma < math.inf:
        problems.append(f"`faithfulness.sigma` must be above 0, such as 0.03, got {suite.faithfulness.sigma}")
    if suite.gallery < 0:
        problems.append(f"`gallery` must be a number of images, got {suite.gallery}")
    positive = {"data.limit": suite.data.limit, "block": suite.block}
    positive |= {f"robust[{place}].limit": part.limit for place, part in enumerate(suite.robust)}
    if suite.faithfulness:
        positive |= {"faithfulness.limit": suite.faithfulness.limit, "faithfulness.samples": suite.faithfulness.samples}
    if suite.sanity:
        positive |= {"sanity.limit": suite.sanity.limit, "sanity.layers_at_once": suite.sanity.layers_at_once}
    if suite.searches:
        positive["searches.limit"] = suite.searches.limit
    return problems + [
        f"`{key}` must be at least 1, got {value}" for key, value in positive.items() if value is not None and value < 1
    ]


def option_problems(choice: DataChoice) -> list[str]:
    """What is wrong with the options of a source as far as they can be judged without opening it.

    >>> option_problems(DataChoice("shapes", options=(("count", 20), ("seed", 1))))
    ['`data.options.seed` must not be given: say `data.seed`']
    """
    problems = [
        f"`data.options.{key}` must be a text or a number, got {value!r}"
        for key, value in choice.options
        if not isinstance(value, str | int | float)
    ]
    return problems + [
        f"`data.options.{key}` must not be given: {RESERVED[key]}" for key, _ in choice.options if key in RESERVED
    ]


def with_images(draft: Draft, data: str | None = None, boxes: str | Path | None = None, limit: int | None = None) -> Draft:
    """The draft with other images, other boxes or fewer images than its suite says; None leaves what it says."""
    if data is None and boxes is None and limit is None:
        return draft
    choice = draft.suite.data
    given = tuple(pair for pair in choice.options if boxes is None or pair[0] != "boxes")
    choice = replace(
        choice,
        name=choice.name if data is None else data,
        limit=choice.limit if limit is None else limit,
        options=given if boxes is None else (*given, ("boxes", str(boxes))),
    )
    suite = replace(draft.suite, data=choice)
    # Only what was said about the images can have become right or wrong.
    kept = [problem for problem in draft.problems if not problem.startswith("`data.")]
    fresh = [problem for problem in problems_of(suite) if problem.startswith("`data.")]
    return replace(draft, suite=suite, problems=(*kept, *fresh))


def search_function(name: str) -> Callable[..., Any]:
    """The search behind a name; an unknown one is an error that says which there are."""
    if name in SEARCHES:
        return SEARCHES[name]
    if name.startswith("foolbox:"):
        return foolbox_search(name.removeprefix("foolbox:"))
    Settings(search=name)  # raises, with the nearest name
    raise AssertionError(name)


def _file(name: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    try:
        return packaged_file(f"suites/{name}.toml")
    except FileNotFoundError:
        folders = (PACKAGE / "shipped_files/suites", PACKAGE.parent / PACKAGED["suites"])
        there = sorted({path.stem for folder in folders for path in folder.glob("*.toml")})
        raise ValueError(f"`suite` must be a TOML file or one of {', '.join(there) or 'nothing'}, got {name!r}") from None


def _written_out(table: dict[str, Any], stem: str) -> dict[str, Any]:
    """The table with short forms written in full: a model's name alone, one attack alone, pairs as a table."""
    full = {"name": stem} | table
    if isinstance(full.get("models"), list):
        full["models"] = [{"name": one} if isinstance(one, str) else one for one in full["models"]]
    if isinstance(full.get("robust"), dict):
        full["robust"] = [full["robust"]]
    if isinstance(full.get("data"), str):
        full["data"] = {"name": full["data"]}
    if isinstance(full.get("pairs"), dict):
        full["pairs"] = [list(pair) for pair in full["pairs"].items()]
    if isinstance(full.get("data"), dict) and isinstance(full["data"].get("options"), dict):
        full["data"] = full["data"] | {"options": [list(pair) for pair in full["data"]["options"].items()]}
    return full


def _model_problems(choice: ModelChoice, download: bool) -> list[str]:
    known = model_cards()
    source = choice.source
    if source in known:
        if download or where(known[source]) not in MISSING:
            return []
        try:
            weights_path(known[source])
        except MissingWeightsError as error:
            return [error.need]
    if source.startswith("timm:") or is_function(source):
        return []
    if Path(source).suffix in CHECKPOINT_SUFFIXES or "/" in source:
        return [] if Path(source).expanduser().is_file() else [f"`{source}` is no file: which checkpoint is {choice.name}?"]
    return [str(unknown_model(source, known))]


def _pair_problems(suite: Suite) -> list[str]:
    """Tables and figures set robust models beside standard ones; another pair would be passed over without a word."""
    choices = {choice.name: choice for choice in suite.models}
    problems = []
    for name, _ in suite.pairs:
        training = trained(choices[name]) if name in choices else "at"
        if kind_of(training) not in ("robust", "certified"):
            problems.append(
                f"`pairs` must set robust models beside standard ones, got {name!r} of {training} training: "
                'say how it was trained, {name = …, training = "at"}'
            )
    return problems


def _repeated_attacks(parts: Sequence[RobustPart]) -> list[str]:
    """An image under the same attack twice would count twice; for other models it may be asked for again."""
    problems = []
    for place, part in enumerate(parts):
        for first, other in enumerate(parts[:place]):
            same = (part.norm, part.epsilon, part.attack) == (other.norm, other.epsilon, other.attack)
            if same and (not part.models or not other.models or set(part.models) & set(other.models)):
                problems.append(f"`robust[{place}]` must not repeat the attack of `robust[{first}]`: change or remove it")
    return problems


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
