"""Differences in words, as far as the numbers carry them and no further."""

from __future__ import annotations

from locality.statistics import Paired


def verdict(first: str, second: str, method: str, f1: Paired, lift: Paired) -> str:
    """One sentence on which of two models has the higher locality by one method.

    A difference counts where its 95 % interval leaves out 0. F1 and lift can disagree: F1 rewards maps with few negative
    values, lift takes that away.

    >>> higher = Paired(0.2, 0.1, 0.3, 0.01, 0.8, 0.2, 50, 0, 0)
    >>> verdict("a", "b", "IG", higher, higher)
    'IG: b looks at the object more than a: F1 +0.200 [+0.100, +0.300], lift +0.200 [+0.100, +0.300], on 50 images.'
    """
    numbers = f"F1 {_change(f1)}, lift {_change(lift)}, on {f1.used:,} images."
    signs = _sign(f1), _sign(lift)
    if f1.used < 2:
        return f"{method}: nothing can be said, {f1.used} images are defined for both."
    if signs == (1, 1):
        return f"{method}: {second} looks at the object more than {first}: {numbers}"
    if signs == (-1, -1):
        return f"{method}: {first} looks at the object more than {second}: {numbers}"
    if signs == (0, 0):
        return f"{method}: no difference between {first} and {second} can be told: {numbers}"
    return f"{method}: F1 and lift do not agree on {first} and {second}: {numbers}"


def _sign(change: Paired) -> int:
    return (change.low > 0) - (change.high < 0)


def _change(change: Paired) -> str:
    return f"{change.difference:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"
