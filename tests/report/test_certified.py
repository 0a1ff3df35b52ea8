"""Verified accuracy in tables and figures: counted by hand, and violations that must be seen."""

import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from report.made_up_results import CERTIFIED, MODELS, TABLES, made_up_results, nothing_measured, write_results

from locality.report.aggregates import NotMeasuredError
from locality.report.certified import certificates
from locality.report.figures.catalogue import FIGURES
from locality.report.figures.certified import _curve
from locality.report.figures.options import FigureOptions
from locality.report.tables.build import tables
from locality.results.results import Results


def by_hand(radii: str = "0.1 0.3") -> Results:
    """Four images: right at 0.5, right at 0.2, wrong at 0.4, and one of an unknown class."""
    values: list[tuple[object, ...]] = [
        ("a", 3, False, True, 0.5),
        ("b", 1, False, True, 0.2),
        ("c", 1, False, False, 0.4),
        ("d", 2, False, None, 0.9),
        ("e", -1, True, False, 0.0),
    ]
    rows = [("m", one, "lipschitz", "{}", *more, "l2", 0.0, 5.0, radii) for one, *more in values]
    certified = pd.DataFrame(rows, columns=list(TABLES["certified"])).astype({"correct": "boolean"})
    attacks = [("m", "a", True), ("m", "b", True), ("m", "c", False), ("m", "e", False)]
    robust = pd.DataFrame(
        [(model, image, "pgd5", "l2", 0.1, right, right) for model, image, right in attacks], columns=list(TABLES["robust"])
    )
    edges = {"a": 1.0, "b": 0.5, "c": 0.4, "d": math.inf}
    scores = pd.DataFrame(
        [
            ("m", image, 0, 0, 0, True, False, "SM", 0.5, 0.5, 0.5, 0.1, 0.3, edge, edge < math.inf, 1)
            for image, edge in edges.items()
        ],
        columns=list(TABLES["rows"]),
    )
    models = pd.DataFrame(
        [("m", "M", "certified", "certified", "l2", 0.1, None, "shapes", "0" * 64)], columns=list(TABLES["models"])
    )
    return Results("by hand", {"certified": certified, "robust": robust, "rows": scores, "models": models})


def test_shares_are_counted() -> None:
    [one] = certificates(by_hand())
    assert one.radii == (0.1, 0.3)
    assert [one.verified(radius).mean for radius in (0.0, 0.1, 0.2, 0.3, 0.5)] == [0.5, 0.5, 0.25, 0.25, 0.0]
    assert [one.rejected(radius).mean for radius in (0.1, 0.3, 0.4)] == [0.25, 0.5, 0.75]
    assert [one.wrong(radius) for radius in (0.1, 0.4)] == [1, 0]
    assert one.tightness(by_hand()) == 0.5  # 0.5 of 1, 0.2 of 0.5, 0.4 of 0.4
    attacked = one.attacked(by_hand(), 0.1)
    assert attacked is not None
    assert (attacked.mean, one.attacked(by_hand(), 0.3)) == (0.5, None)


def test_violations_are_seen() -> None:
    results = by_hand()
    [one] = certificates(results)
    assert one.violations(results) == 0
    broken = results["robust"].copy()
    broken.loc[0, "robust"] = False  # verified at 0.5, broken at 0.1
    assert one.violations(results.with_tables(robust=broken)) == 1
    gained = results["robust"].copy()
    gained.loc[2, "robust"] = True  # correct under attack, but not without
    assert one.violations(results.with_tables(robust=gained)) == 1
    rows = results.rows.copy()
    rows.loc[0, "distance"] = 0.49  # inside the radius
    assert one.violations(results.with_tables(rows=rows)) == 1
    assert one.violations(results.with_tables(rows=rows, robust=broken)) == 1  # the same image
    farther = results["robust"].assign(epsilon=0.5, robust=False)  # at the radius itself nothing is stated
    assert one.violations(results.with_tables(robust=farther)) == 0


def test_the_table() -> None:
    [table] = tables(by_hand(), ["certified"])
    texts = [[cell.text for cell in row] for row in table.rows]
    assert [row[3] for row in texts] == ["ℓ2 0.1", "ℓ2 0.3"]
    assert [row[5].split()[0] for row in texts] == ["50.0%", "25.0%"]
    assert [row[6:] for row in texts] == [
        ["50.0%", "25.0%", "1", "0", "50.0%", "5", "4"],
        ["–", "50.0%", "1", "0", "50.0%", "5", "4"],
    ]
    [many] = tables(made_up_results(12, 0, (*MODELS[:2], *CERTIFIED)), ["certified"])
    assert len(many.rows) == 8
    with pytest.raises(NotMeasuredError, match="certified radii were not measured"):
        tables(nothing_measured(), ["certified"])


def test_the_curve_steps_down_at_each_radius() -> None:
    [one] = certificates(by_hand())
    places, heights = _curve(one, 1.0)
    assert (places, heights) == ([0.0, 0.2, 0.5, 1.0], [0.5, 0.25, 0.0, 0.0])
    plot = FIGURES["vra"].draw(by_hand(), FigureOptions(), "page")
    [line, *_] = plot.figure.axes[0].lines
    assert line.get_label() == "m"
    caption = FIGURES["vra"].caption(plot)
    assert "Certified models have lines that are orange." in caption
    assert "Standard" not in caption


def test_reading_certificates_imports_no_torch(tmp_path: Path) -> None:
    write_results(made_up_results(6, 0, (*MODELS[:1], *CERTIFIED)), tmp_path)
    code = (
        "import sys\nfrom pathlib import Path\nfrom locality.results.folder import read_results\n"
        "from locality.report.tables.build import tables\nfrom locality.report.figures.catalogue import draw_figures\n"
        f"results = read_results(Path({str(tmp_path)!r}))\ntables(results, ['certified'])\n"
        f"draw_figures(results, Path({str(tmp_path)!r}), ['vra'], ['png'])\nassert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
