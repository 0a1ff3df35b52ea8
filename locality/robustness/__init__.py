"""Accuracy under attack, the attacks themselves, and signs that gradients mislead them.

`ATTACKS` and `COUNTED` are the tables of what `attack=` may name. This module does not import torch, so that
`locality robust --help` can list the attacks at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from locality.errors import ArgumentError, did_you_mean
from locality.types import NORMS, Norm, Threat

Space = Literal["input", "weights"]  # of a loss landscape


@dataclass(frozen=True)
class Attack:
    """What a name such as "paper" or "pgd50" stands for."""

    title: str  # as readers know it
    attacks: tuple[str, ...]  # in this order, each on the images that are still classified correctly
    count: int | None = None  # the number in the name: gradient steps, or queries
    norms: tuple[Norm, ...] = tuple(NORMS)


@dataclass(frozen=True)
class Counted:
    """Attacks whose name ends in a number, which is at most `most`; `{}` in the title is its place."""

    title: str
    attack: str
    most: int
    norms: tuple[Norm, ...] = tuple(NORMS)


ATTACKS = {
    "paper": Attack("APGD-CE + APGD-DLR", ("apgd-ce", "apgd-dlr")),
    "standard": Attack("AutoAttack", ("apgd-ce", "apgd-t", "fab-t", "square")),
    "rays": Attack("RayS, 10,000 queries", ("rays",), 10_000, ("linf",)),
}
COUNTED = {
    "pgd": Counted("PGD-{}", "pgd-ce", most=10_000),
    "cw": Counted("CW-{}", "pgd-margin", most=10_000),
    "rays": Counted("RayS, {} queries", "rays", most=1_000_000, norms=("linf",)),
}
ON_SURROGATES = ("pgd-ce", "pgd-margin")  # attacks that give a point also where they fail
ATTACK_NAMES = (*ATTACKS, *(f"{kind}N" for kind in COUNTED))
FROM = " from "  # between an attack and the surrogate that it was made on
NUMBERED = re.compile(r"([a-z]+)([1-9][0-9]{0,9})")


def parse_attack(name: str) -> Attack:
    """The attack behind a name: one of ATTACKS, or one of COUNTED followed by a number.

    >>> parse_attack("pgd50")
    Attack(title='PGD-50', attacks=('pgd-ce',), count=50, norms=('l2', 'linf'))
    """
    if name in ATTACKS:
        return ATTACKS[name]
    match = NUMBERED.fullmatch(name) if isinstance(name, str) else None
    kind = COUNTED.get(match[1]) if match else None
    if match is None or kind is None:
        hint = f"give a number, such as {name}20" if name in COUNTED else did_you_mean(str(name), ATTACK_NAMES)
        raise ArgumentError("attack", f"one of {', '.join(ATTACK_NAMES)}", name, hint)
    count = int(match[2])
    if count > kind.most:
        raise ArgumentError("attack", f"{match[1]}N with N from 1 to {kind.most:,}", name)
    return Attack(kind.title.format(f"{count:,}"), (kind.attack,), count, kind.norms)


def stored_name(attack: str, surrogate: str | None) -> str:
    """An attack as tables store it, with the surrogate that it was made on.

    >>> stored_name("pgd20", None), stored_name("pgd20", "tiny_resnet")
    ('pgd20', 'pgd20 from tiny_resnet')
    """
    return attack if surrogate is None else f"{attack}{FROM}{surrogate}"


def attack_title(name: str) -> str:
    """An attack by the name that readers know; one that is not ours as it is stored.

    >>> attack_title("cw20"), attack_title("own"), attack_title("pgd20 from tiny_resnet")
    ('CW-20', 'own', 'PGD-20 from tiny_resnet')
    """
    name, from_, surrogate = name.partition(FROM)
    if from_:
        return f"{attack_title(name)}{FROM}{surrogate}"
    try:
        return parse_attack(name).title
    except ArgumentError:
        return name


def check_surrogate(attack: str) -> None:
    """Raise if this attack cannot run on another model than the one that is measured."""
    if parse_attack(attack).attacks[0] not in ON_SURROGATES:
        raise ArgumentError("attack", "pgdN or cwN with a surrogate", attack, "try pgd20")


def check_request(norm: str, epsilon: float, attack: str, batch_size: int) -> None:
    """Raise if these settings make no sense; quick, before a model is loaded."""
    Threat(norm, epsilon)  # type: ignore[arg-type]  # checks both
    norms = parse_attack(attack).norms
    if norm not in norms:
        raise ArgumentError("norm", f"{' or '.join(map(repr, norms))} for attack={attack!r}", norm)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ArgumentError("batch_size", "a whole number of images", batch_size)
