"""Region tests from stored rows: the tables by hand, the figure and the sentences."""

import math

import numpy as np
import pandas as pd
import pytest
from report.figures.panel_contents import points
from report.made_up_results import TABLES as STORED
from report.made_up_results import nothing_measured, small_results, without
from scipy.stats import spearmanr

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.figures.catalogue import FIGURES
from locality.report.figures.options import FigureOptions
from locality.report.findings.regions import attribution_and_intervention, higher_reliance_than_counterpart, relied_on
from locality.report.regions import region_tested
from locality.report.tables.build import tables
from locality.results.region_tests import reliance
from locality.results.results import Results


def one_row(test: str, kept: float, elsewhere: float, image: str = "1") -> tuple[object, ...]:
    values = {"model": "a", "image_id": image, "region": "box", "share": 0.25, "overlap": 0.1, "test": test, "before": True}
    values |= {"correct": kept, "kept": kept, "correct_elsewhere": elsewhere, "kept_elsewhere": elsewhere}
    values |= {"logit_change": kept - 1, "logit_change_elsewhere": -0.5, "prediction": 4, "donor": None, "donor_label": -1}
    return tuple(values.get(column, 0) for column in STORED["regions"])


def by_hand() -> Results:
    """One model and two images: without the object it is lost, and elsewhere half of the time."""
    rows = []
    for image, elsewhere in (("1", 1.0), ("2", 0.0)):
        rows += [one_row(test, 0.0, elsewhere, image) for test in ("inside_greyed", "inside_blurred")]
        rows += [one_row(test, 1.0, 1 - elsewhere, image) for test in ("outside_greyed", "outside_blurred")]
    return Results("by hand", {"regions": pd.DataFrame(rows, columns=list(STORED["regions"]))})


def test_the_tables_by_hand() -> None:
    [short, full] = tables(by_hand(), ["regions", "region_tests"])
    row = dict(zip([column.title for column in short.columns], short.rows[0], strict=True))
    assert row["accuracy"].text == "100.0%"
    assert row["object greyed"].text == "0.0%"
    assert row["background greyed"].text == "100.0%"
    assert row["background swapped"].text == "–"
    assert row["reliance"].value == pytest.approx((1 + 0) / 2)  # ½·[(1 − 0) − (0 − 1)] and ½·[(1 − 0) − (1 − 0)]
    assert row["RCS"].text == "undefined"
    assert (row["images"].text, row["undefined"].text) == ("2", "0")
    assert "10% of the moved region lies in the region on average. RCS elsewhere is undefined." in full.note_texts()[0]
    titles = [column.title for column in full.columns]
    by_test = {line[titles.index("test")].text: dict(zip(titles, line, strict=True)) for line in full.rows}
    assert list(by_test) == ["object greyed", "object blurred", "background greyed", "background blurred"]
    assert by_test["object greyed"]["accuracy"].value == 0
    assert by_test["object greyed"]["accuracy, elsewhere"].value == 0.5
    assert by_test["object blurred"]["logit change"].value == -1
    assert by_test["background greyed"]["decision kept, elsewhere"].value == 0.5


def test_the_figure_sets_lift_against_reliance() -> None:
    results = small_results()
    plot = FIGURES["regions"].draw(results, FigureOptions(), "page")
    tested, means = region_tested(results), aggregate(results)
    for panel, method in zip(plot.figure.axes, ("SM", "IG", "BIG"), strict=True):
        drawn = sorted(points(panel))
        expected = sorted(
            (tested[model.name].reliance.mean, means.scores[model.name, method, "lift"].mean) for model in means.models
        )
        assert np.allclose(drawn, expected)
        trained = [model.name for model in means.models if model.kind != "random"]
        rho = spearmanr(
            [tested[name].reliance.mean for name in trained], [means.scores[name, method, "lift"].mean for name in trained]
        ).statistic
        [note] = [text.get_text() for text in panel.texts if "ρ = " in text.get_text()]
        assert note.startswith(f"trained: ρ = {rho:.2f}".replace("-", "−"))
        assert note.endswith(f"{len(trained)} models")
    assert "random" in plot.elements
    assert plot.points == 6
    with pytest.raises(NotMeasuredError, match="region tests were not made"):
        FIGURES["regions"].draw(without(results, "regions"), FigureOptions(), "page")
    with pytest.raises(NotMeasuredError, match="both region tests and locality"):
        FIGURES["regions"].draw(without(results, "rows"), FigureOptions(), "page")


def test_the_sentences() -> None:
    results = small_results()
    means = aggregate(results)
    [relied] = relied_on(results, means)
    tests = results["regions"]
    above = sum(reliance(part).mean() > 0.1 for _, part in tests.groupby("model"))
    assert relied.startswith("By region tests, without attribution, decisions of 6 models rely on the region: ")
    assert 0 < above <= 5
    [pairs] = higher_reliance_than_counterpart(results, means)
    assert pairs.startswith("Reliance (region tests) of robust models is above that of their standard counterparts in ")
    correlations, sides = attribution_and_intervention(results, means)
    assert correlations.startswith("Rank correlation of lift with reliance (region tests) over 5 trained models: SM ")
    assert "BIG for " in sides
    nothing = nothing_measured()
    for finding in (relied_on, higher_reliance_than_counterpart, attribution_and_intervention):
        assert finding(nothing, aggregate(nothing)) == []


def test_both_sides_of_chance_are_counted() -> None:
    """Two models with certain answers: one relies on the region, the other on the rest."""
    frames = []
    for name, sign in (("looks", 1), ("looks_not", -1)):
        rows = [
            one_row(test, float((sign > 0) != test.startswith("inside")), 0.5, str(image))
            for image in range(12)
            for test in ("inside_greyed", "inside_blurred", "outside_greyed", "outside_blurred")
        ]
        frames.append(pd.DataFrame(rows, columns=list(STORED["regions"])).assign(model=name))
    results = Results("two", {"regions": pd.concat(frames, ignore_index=True)})
    tested = region_tested(results)
    assert [tested[name].reliance.mean for name in ("looks", "looks_not")] == [0.5, -0.5]
    assert math.isnan(tested["looks"].sensitivity.value)
    [sentence] = relied_on(results, aggregate(results))
    assert "2 models rely on the region: 1 more than chance (looks), 1 less than chance (looks_not)" in sentence
