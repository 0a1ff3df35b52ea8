"""Views: models that crop and resize images alike see the same share of them inside the box."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from locality.report.estimates import floats
from locality.report.models import Model

ALIKE = 1e-6  # box shares of one view differ by rounding only


@dataclass(frozen=True)
class View:
    """Models that see the images of one data set alike."""

    data: str
    models: tuple[str, ...]


def views_of(rows: pd.DataFrame, models: Sequence[Model]) -> dict[View, pd.DataFrame]:
    """The views of each data set, with one row per image.

    Models have one view if their box shares are equal on all images that both have, and there are such images.
    """
    groups: list[tuple[str, list[str], pd.DataFrame]] = []
    data_of = {model.name: model.data for model in models}
    for name, group in rows.groupby("model", sort=False):
        images = group.drop_duplicates("image_id")
        data = data_of.get(str(name), "")
        for index, (other_data, members, seen) in enumerate(groups):
            if data == other_data and _alike(seen, images):
                new = images[~images["image_id"].isin(seen["image_id"])]
                groups[index] = data, [*members, str(name)], pd.concat([seen, new]) if len(new) else seen
                break
        else:
            groups.append((data, [str(name)], images))
    return {View(data, tuple(members)): images for data, members, images in groups}


def place(view: View, views: Iterable[View]) -> str:
    """Where a number of this view belongs, as words after it; nothing if there is one view only.

    >>> small, large = View("photos", ("a", "b", "c", "d")), View("photos", ("e",))
    >>> place(small, [small]), place(small, [small, View("shapes", ("f",))])
    ('', ' on photos')
    >>> place(small, [small, large]), place(large, [small, large])
    (' on photos as seen by a, b and 2 more', ' on photos as seen by e')
    """
    known = list(views)
    on = f" on {view.data}" if len({one.data for one in known}) > 1 or len(known) > 1 else ""
    if sum(one.data == view.data for one in known) < 2:
        return on
    shown, more = view.models[:2], len(view.models) - 2
    names = " and ".join(shown) if more <= 0 else f"{', '.join(shown)} and {more} more"
    return f"{on} as seen by {names}"


def _alike(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    both = one[["image_id", "box_share"]].merge(other[["image_id", "box_share"]], on="image_id")
    first, second = floats(both["box_share_x"]), floats(both["box_share_y"])
    return len(both) > 0 and bool(np.allclose(first, second, rtol=0, atol=ALIKE, equal_nan=True))
