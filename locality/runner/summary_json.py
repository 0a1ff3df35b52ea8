"""Means and their intervals as JSON has them: undefined is None."""

from __future__ import annotations

import math
from typing import Any

from locality.statistics import Summary


def summary_json(value: Summary) -> dict[str, Any]:
    """Mean, interval and counts as plain values; undefined is None.

    >>> from locality.statistics import summary
    >>> summary_json(summary([float("nan")]))
    {'mean': None, 'low': None, 'high': None, 'used': 0, 'undefined': 1}
    """
    return {
        "mean": defined_number(value.mean),
        "low": defined_number(value.low),
        "high": defined_number(value.high),
        "used": value.used,
        "undefined": value.undefined,
    }


def defined_number(value: float) -> float | None:
    """The number, None where it is undefined."""
    return None if math.isnan(value) else value
