"""Which means are significant, for findings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from locality.report.estimates import Estimate
from locality.statistics import SIGNIFICANT, holm, signed_rank_p

CORRECTED = "95 %, Holm-corrected"


def positive(differences: Sequence[Estimate]) -> int:
    """How many means are above 0."""
    return sum(difference.mean > 0 for difference in differences)


def significantly_above(means: Sequence[Estimate], columns: Sequence[NDArray[np.float64]]) -> list[bool]:
    """Which means are above 0: by their 95 % interval and by Wilcoxon's test, Holm-corrected for their number.

    >>> from locality.report.estimates import estimates
    >>> columns = [np.arange(12.0) - 1, np.arange(12.0) - 5]
    >>> significantly_above(estimates(columns), columns)
    [True, False]
    """
    p_values = holm([signed_rank_p(values[~np.isnan(values)]) for values in columns])
    return [mean.low > 0 and p < SIGNIFICANT for mean, p in zip(means, p_values, strict=True)]
