"""Robust and certified models against their standard counterparts, image by image: Finding I of the thesis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.report.estimates import floats
from locality.report.models import Model

Pair = tuple[Model, Model]  # standard, compared with it
NO_PAIRS = "no robust or certified model was measured together with its standard counterpart"


def paired_differences(
    rows: pd.DataFrame, columns: Sequence[str], pairs: Sequence[Pair]
) -> dict[tuple[Pair, str], NDArray[np.float64]]:
    """Second minus first on the images that both models have, per pair and column; `nan` where either is undefined.

    A model has each image at most once in `rows`. Images are in the order of the first model.
    """
    codes = pd.Series(pd.factorize(rows["image_id"])[0], index=rows.index)  # integers are compared faster than texts
    parts = {str(name): part for name, part in rows.groupby("model", sort=False)}
    differences = {}
    for pair in pairs:
        if all(model.name in parts for model in pair):
            first, second = (parts[model.name] for model in pair)
            one, other = codes[first.index].to_numpy(), codes[second.index].to_numpy()
            if not np.array_equal(one, other):
                position = {code: index for index, code in enumerate(other.tolist())}
                shared = [(index, position[code]) for index, code in enumerate(one.tolist()) if code in position]
                first = first.iloc[[index for index, _ in shared]]
                second = second.iloc[[index for _, index in shared]]
            for column in columns:
                differences[pair, column] = floats(second[column]) - floats(first[column])
    return differences
