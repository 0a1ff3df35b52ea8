"""Accuracy under attack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from locality.errors import ArgumentError, Problem, unknown_choice
from locality.results.schema import Schema
from locality.robustness import check_request, check_surrogate, parse_attack, stored_name
from locality.robustness.robust_accuracy import robust_accuracy
from locality.robustness.transfer import transfer_accuracy
from locality.runner.measurement import Block, Measurement, Part, Tables, as_json
from locality.runner.suite import Suite
from locality.runner.work import Work
from locality.types import Norm

# One row per model × image × threat.
TABLE: Schema = {
    "model": str,
    "image_id": str,
    "attack": str,
    "norm": str,
    "epsilon": float,
    "clean": bool | None,  # missing where the model does not know the label
    "robust": bool | None,
}
# Attacks stop early where they succeed: these are upper bounds.
ATTACK_WORK = {"paper": Work(203, 15), "standard": Work(1903, 5000)}
EXAMINATION_WORK = Work(2, 15)  # besides the steps of a PGD: predictions, signs of masked gradients, a second evaluation


@dataclass(frozen=True)
class RobustSettings:
    """One attack, on the model itself or on a surrogate from which it transfers.

    The random numbers of AutoAttack depend on `batch_size`, which is also the size of a unit.
    """

    norm: Norm = "linf"
    epsilon: float = 4 / 255
    attack: str = "paper"
    surrogate: str | None = None  # a model of the suite that is attacked instead; None: the model itself
    limit: int | None = None
    batch_size: int = 32
    models: tuple[str, ...] = ()


def parts(suite: Suite) -> Iterator[Part]:
    """One part per attack."""
    for index, settings in enumerate(suite.requested("robust")):
        own = {key: value for key, value in asdict(settings).items() if key not in ("limit", "models", "surrogate")}
        own |= {} if settings.surrogate is None else {"surrogate": settings.surrogate}
        yield Part(
            f"robust {index + 1}",
            "robust",
            settings,
            as_json(own | {"seed": suite.seed}),
            limit=settings.limit,
            block=settings.batch_size,
            models=settings.models,
            surrogate=settings.surrogate or "",
        )


def rows(block: Block) -> Tables:
    """One row per image. The block is attacked as one batch."""
    settings: RobustSettings = block.settings
    request: dict[str, Any] = {"norm": settings.norm, "epsilon": settings.epsilon, "attack": settings.attack}
    request |= {"batch_size": len(block.batch), "seed": block.suite.seed}
    attacked = (
        robust_accuracy(block.model, block.batch, **request)
        if block.surrogate is None
        else transfer_accuracy(block.model, block.surrogate, block.batch, **request)
    ).rows
    table = pd.DataFrame(
        {
            "model": block.name,
            "image_id": attacked["image_id"],
            "attack": stored_name(settings.attack, settings.surrogate),
            "norm": settings.norm,
            "epsilon": settings.epsilon,
            "clean": attacked["correct"],
            "robust": attacked["robust"],
        }
    )
    return {"robust": table[list(TABLE)]}


def problems(suite: Suite) -> list[Problem]:
    """Attacks that do not exist, and attacks that would count an image twice."""
    found: list[Problem] = []
    places = list(suite.located("robust"))
    for where, settings in places:
        try:
            check_request(settings.norm, settings.epsilon, settings.attack, settings.batch_size)
            if settings.surrogate is not None:
                check_surrogate(settings.attack)
        except (ValueError, TypeError) as error:
            key = f"{where}.{error.argument}" if isinstance(error, ArgumentError) else where
            found.append(Problem.of(key, error))
    names = [model.name for model in suite.models]
    for where, settings in places:
        if settings.surrogate is not None and settings.surrogate not in names:
            found.append(Problem.of(f"{where}.surrogate", unknown_choice("surrogate", settings.surrogate, names)))
    for index, (where, settings) in enumerate(places):
        for first, other in places[:index]:
            if _same_attack(settings, other) and _share_models(settings, other):
                found.append(Problem(where, f"must not repeat the attack of `{first}`: change or remove it"))
    return found


def _same_attack(one: RobustSettings, other: RobustSettings) -> bool:
    first, second = ((each.norm, each.epsilon, each.attack, each.surrogate) for each in (one, other))
    return first == second


def _share_models(one: RobustSettings, other: RobustSettings) -> bool:
    return not one.models or not other.models or bool(set(one.models) & set(other.models))


def work(suite: Suite, part: Part) -> Work:
    """Of the attack."""
    name: str = part.settings.attack
    if part.surrogate:
        return Work(parse_attack(name).count or 0, 5)
    if name in ATTACK_WORK:
        return ATTACK_WORK[name]
    attack = parse_attack(name)
    count = attack.count or 0
    return Work(0, count) + Work(0, 4) if attack.attacks == ("rays",) else Work(count) + EXAMINATION_WORK


ROBUST = Measurement("robust", RobustSettings, {"robust": TABLE}, parts, rows, problems, work)
