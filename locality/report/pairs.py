"""Robust and certified models against their standard counterparts, image by image: Finding I of the thesis."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from locality.report.estimates import Estimate, estimates, floats
from locality.report.models import Model

NO_PAIRS = "no robust or certified model was measured together with its standard counterpart"


def paired_differences(
    rows: pd.DataFrame, column: str, pairs: Sequence[tuple[Model, Model]]
) -> dict[tuple[Model, Model], Estimate]:
    """Second minus first on the images that both models have; pairs with no image where both are defined are left out."""
    by_model = {str(name): part.set_index("image_id") for name, part in rows.groupby("model", sort=False)}
    differences = {}
    for first, second in pairs:
        if first.name in by_model and second.name in by_model:
            one, other = by_model[first.name], by_model[second.name]
            shared = one.index[one.index.isin(other.index)]
            differences[first, second] = floats(other.loc[shared, column]) - floats(one.loc[shared, column])
    means = zip(differences, estimates(list(differences.values())), strict=True)
    return {pair: mean for pair, mean in means if mean.used}
