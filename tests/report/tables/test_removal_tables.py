"""Tables of removal, sensitivity and localisation from numbers made by hand."""

import math

import numpy as np
import pandas as pd
from report.made_up_results import TABLES as STORED

from locality.report.tables.build import tables
from locality.report.tables.table import Table
from locality.results.results import Results


def by_hand(name: str, rows: list[tuple[object, ...]]) -> Table:
    results = Results("by hand", {name: pd.DataFrame(rows, columns=list(STORED[name]))})
    [table] = tables(results, [name])
    return table


def texts(table: Table, key: str) -> list[str]:
    place = [column.key for column in table.columns].index(key)
    return [row[place].text for row in table.rows]


def marks(table: Table, key: str) -> list[str]:
    place = [column.key for column in table.columns].index(key)
    return [row[place].mark for row in table.rows]


def test_removal() -> None:
    rows: list[tuple[object, ...]] = [("m", "1", "SM", 0.4, 0.5, 0.5, 0.6, 0.8, 0.9, 0.1)]
    rows += [("m", "1", "BIG", 0.2, 0.5, 0.8, 0.6, 0.4, 0.9, 0.5)]
    rows += [("m", "2", method, *[math.nan] * 7) for method in ("SM", "BIG")]
    table = by_hand("removal", rows)
    assert texts(table, "deletion") == ["0.400", "0.200"]
    assert texts(table, "deletion_chance") == ["0.500", "0.500"]
    assert marks(table, "deletion") == ["", "best"]
    assert marks(table, "insertion") == ["", "best"]
    assert marks(table, "road") == ["", "best"]
    assert marks(table, "road_most") == ["", "best"]
    assert marks(table, "road_least") == ["best", "best"]
    assert texts(table, "images") == texts(table, "undefined") == ["1", "1"]


def test_intervals_end_where_scores_end() -> None:
    rows: list[tuple[object, ...]] = [
        ("m", str(place), "SM", *[0.01, 0.5] * 2, 0.99 * place, 0.9, -0.9) for place in range(2)
    ]
    table = by_hand("removal", rows)
    assert texts(table, "road_most") == ["0.495 [0.000, 1.000]"]


def test_sensitivity() -> None:
    rows: list[tuple[object, ...]] = [
        ("m", "1", "SM", 0.4, 0.01, -0.3, 0.9, 1.4),
        ("m", "1", "BIG", 0.3, 0.02, 0.3, 1.1, 1.4),
    ]
    table = by_hand("sensitivity", rows)
    assert marks(table, "random_logit") == ["", "best"]
    assert marks(table, "max_sensitivity") == ["best", ""]
    assert marks(table, "class_cosine") == ["", ""]
    assert texts(table, "class_cosine") == ["−0.300", "0.300"]


def localised(
    method: str, image: str, reached: int, inside: tuple[int, int], outside: tuple[int, int]
) -> tuple[object, ...]:
    """Boxes of IoU 0.6 up to threshold `reached`; pixels of the lowest and the highest level."""
    overlaps = np.where(np.arange(255) < reached, 0.6, 0).astype(np.float32) if reached else np.full(255, np.nan, np.float32)
    levels = [np.zeros(256, np.int32) for _ in range(2)]
    for counts, (low, high) in zip(levels, (inside, outside), strict=True):
        counts[0], counts[-1] = low, high
    return ("m", image, method, overlaps.tobytes(), *(counts.tobytes() for counts in levels))


def test_localisation() -> None:
    rows = [localised("SM", "1", 100, (1, 3), (6, 0)), localised("SM", "2", 0, (2, 2), (4, 2))]
    rows.append(localised("model-free: uniform", "1", 0, (4, 0), (6, 0)))
    table = by_hand("localisation", rows)
    assert texts(table, "method") == ["SM", "model-free: uniform"]
    assert texts(table, "max_box_acc_v2") == ["0.667", "undefined"]  # 0.3 and 0.5 are reached, 0.7 is not
    # 5 of 7 at the highest level, 8 of 20 at the lowest: 5/8·5/7 + 3/8·8/20
    assert texts(table, "px_ap")[0].split()[0] == f"{5 / 8 * 5 / 7 + 3 / 8 * 8 / 20:.3f}"
    assert texts(table, "px_ap_chance") == ["0.400", "0.400"]
    assert texts(table, "undefined") == ["1", "1"]
    assert texts(table, "images") == ["2", "1"]
