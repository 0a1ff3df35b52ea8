"""Short versions of AutoAttack's attacks, in a fifth of the time."""

from collections.abc import Callable
from typing import Any

import pyautoattack.autoattack  # type: ignore[import-untyped]
import pytest

FEWER = {"APGDAttack": "n_iter", "APGDAttack_targeted": "n_iter", "FABAttack_PT": "n_iter", "SquareAttack": "n_queries"}


def shortened(kind: Callable[..., Any], setting: str) -> Callable[..., Any]:
    return lambda *arguments, **given: kind(*arguments, **(given | {setting: 20}))


@pytest.fixture
def short_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty steps instead of 100 or 5,000; another test compares the real settings with AutoAttack's."""
    for name, setting in FEWER.items():
        monkeypatch.setattr(pyautoattack.autoattack, name, shortened(getattr(pyautoattack.autoattack, name), setting))
