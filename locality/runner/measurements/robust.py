"""Accuracy under attack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pandas as pd

from locality.errors import ArgumentError, Problem
from locality.results.schema import Schema
from locality.robustness import check_request, parse_attack
from locality.robustness.robust_accuracy import robust_accuracy
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
    """One attack. The random numbers of AutoAttack depend on `batch_size`, which is also the size of a unit."""

    norm: Norm = "linf"
    epsilon: float = 4 / 255
    attack: str = "paper"
    limit: int | None = None
    batch_size: int = 32
    models: tuple[str, ...] = ()


def parts(suite: Suite) -> Iterator[Part]:
    """One part per attack."""
    for index, settings in enumerate(suite.requested("robust")):
        own = {key: value for key, value in asdict(settings).items() if key not in ("limit", "models")}
        yield Part(
            f"robust {index + 1}",
            "robust",
            settings,
            as_json(own | {"seed": suite.seed}),
            limit=settings.limit,
            block=settings.batch_size,
            models=settings.models,
        )


def rows(block: Block) -> Tables:
    """One row per image. The block is attacked as one batch."""
    settings: RobustSettings = block.settings
    attacked = robust_accuracy(
        block.model,
        block.batch,
        norm=settings.norm,
        epsilon=settings.epsilon,
        attack=settings.attack,
        batch_size=len(block.batch),
        seed=block.suite.seed,
    ).rows
    table = pd.DataFrame(
        {
            "model": block.name,
            "image_id": attacked["image_id"],
            "attack": settings.attack,
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
        except (ValueError, TypeError) as error:
            key = f"{where}.{error.argument}" if isinstance(error, ArgumentError) else where
            found.append(Problem.of(key, error))
    for index, (where, settings) in enumerate(places):
        for first, other in places[:index]:
            if _same_attack(settings, other) and _share_models(settings, other):
                found.append(Problem(where, f"must not repeat the attack of `{first}`: change or remove it"))
    return found


def _same_attack(one: RobustSettings, other: RobustSettings) -> bool:
    return (one.norm, one.epsilon, one.attack) == (other.norm, other.epsilon, other.attack)


def _share_models(one: RobustSettings, other: RobustSettings) -> bool:
    return not one.models or not other.models or bool(set(one.models) & set(other.models))


def work(suite: Suite, part: Part) -> Work:
    """Of the attack."""
    name: str = part.settings.attack
    if name in ATTACK_WORK:
        return ATTACK_WORK[name]
    attack = parse_attack(name)
    count = attack.count or 0
    return Work(0, count) + Work(0, 4) if attack.attacks == ("rays",) else Work(count) + EXAMINATION_WORK


ROBUST = Measurement("robust", RobustSettings, {"robust": TABLE}, parts, rows, problems, work)
