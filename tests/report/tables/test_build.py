"""Tables of numbers computed by hand, and their marks."""

import math
from collections.abc import Sequence

import pandas as pd
import pytest
from report.made_up_results import CERTIFIED, MODELS, abstaining, made_up_results, nothing_measured, small_results
from report.made_up_results import TABLES as STORED

from locality.report.aggregates import NotMeasuredError
from locality.report.tables.best_marks import marks
from locality.report.tables.build import TABLES, tables
from locality.report.tables.table import Column, Table, count_cell
from locality.results.results import Results
from locality.results.schema import ROWS


def by_hand(**given: Sequence[tuple[object, ...]]) -> Results:
    """Results with the given rows, and nothing else."""
    return Results("by hand", {name: pd.DataFrame(list(rows), columns=list(STORED[name])) for name, rows in given.items()})


def row(model: str, image: str, method: str, f1: float, share: float = 0.5) -> tuple[object, ...]:
    values = {"model": model, "image_id": image, "method": method, "correct": True, "found": True, "distance": 1.0}
    values["box_share"] = share
    scores = {"f1": f1, "precision": f1, "recall": f1, "lift": f1}
    return tuple((values | scores).get(column, 0) for column in ROWS)


def cells(table: Table, title: str) -> list[tuple[str, str]]:
    place = [column.title for column in table.columns].index(title)
    return [(row[place].text, row[place].mark) for row in table.rows]


def test_marks_follow_the_rule_of_the_thesis() -> None:
    # 0.70 − 0.02 ≤ 0.67 + 0.01, and 0.66 + 0.01 is below.
    assert marks([0.70, 0.67, 0.66], [0.02, 0.0101, 0.01]) == ["best", "tied", ""]
    assert marks([0.70, 0.73, 0.74], [0.02, 0.0101, 0.01], lower=True) == ["best", "tied", ""]
    assert marks([0.5, 0.5], [0.0, 0.0]) == ["best", "best"]
    assert marks([0.5, 0.5 - 1e-9], [math.nan, math.nan]) == ["best", ""]
    assert marks([math.nan, 0.1], [0.1, 0.1]) == ["", "best"]
    assert marks([math.nan], [0.1]) == [""]


def test_locality_by_hand() -> None:
    rows = [row("a", str(place), "SM", value) for place, value in enumerate([0.2, 0.4, math.nan])]
    rows += [row("b", str(place), "SM", value) for place, value in enumerate([0.8, 0.8, 0.8])]
    rows += [row("c", str(place), "SM", math.nan) for place in range(3)]
    [table] = tables(by_hand(rows=rows), ["locality"])
    assert cells(table, "model")[:3] == [("a", ""), ("b", ""), ("c", "")]
    # Two values: 0.3 ± 12.7 · 0.1 by Student's t, within 0 and 1.
    assert cells(table, "F1")[:3] == [("0.300 [0.000, 1.000]", ""), ("0.800 [0.800, 0.800]", "best"), ("undefined", "")]
    assert [text for text, _ in cells(table, "undefined")][:3] == ["1", "0", "3"]
    assert [text for text, _ in cells(table, "images")][:3] == ["2", "3", "0"]


def test_the_last_row_is_the_uniform_map() -> None:
    # Two methods of two models: each image counts once. F1 is 2·0.5/1.5 = 2/3 and 2·0.25/1.25 = 2/5.
    shares = (("1", 0.5), ("2", 0.25))
    rows = [row(model, image, method, 0.1, share) for model in "ab" for method in ("SM", "IG") for image, share in shares]
    [table] = tables(by_hand(rows=rows), ["locality"])
    last = dict(zip([column.title for column in table.columns], table.rows[-1], strict=True))
    assert [cell.text for cell in list(last.values())[:3]] == ["–", "–", "uniform map"]
    assert last["F1"].value == pytest.approx((2 / 3 + 2 / 5) / 2)
    assert (last["F1"].low, last["F1"].high) == (0, 1)  # two images say next to nothing
    assert (last["precision"].value, last["recall"].value, last["lift"].value) == (0.375, 1.0, 0.0)
    assert (last["images"].text, last["undefined"].text) == ("2", "0")
    # It is better than all methods here, but is not marked.
    assert {cell.mark for cell in last.values()} == {""}


def test_models_that_crop_differently_have_uniform_maps_of_their_own() -> None:
    """The mean of two views is the score of no map: 2/3 for a and c, 2/5 for b, and 0.533 for nobody."""
    rows = [row("a", "1", "SM", 0.1, 0.5), row("b", "1", "SM", 0.1, 0.25), row("c", "1", "SM", 0.1, 0.5)]
    models = [(name, name, "standard", "standard", None, None, None, "x", "0") for name in "abc"]
    [table] = tables(by_hand(rows=rows, models=models), ["locality"])
    assert cells(table, "F1")[3:] == [("0.667", ""), ("0.400", "")]
    assert cells(table, "images")[3:] == [("1", ""), ("1", "")]
    titles = [text for text, _ in cells(table, "method")][3:]
    assert titles == ["uniform map on x as seen by a and c", "uniform map on x as seen by b"]


def test_a_view_is_known_by_the_images_that_models_share() -> None:
    """a and b see image 2 alike and have others of their own: one view of three images."""
    rows = [row("a", "1", "SM", 0.1, 0.5), row("a", "2", "SM", 0.1, 0.3), row("b", "2", "SM", 0.1, 0.3)]
    rows.append(row("b", "3", "SM", 0.1, 0.9))
    [table] = tables(by_hand(rows=rows), ["locality"])
    assert [text for text, _ in cells(table, "method")][2:] == ["uniform map"]
    assert cells(table, "images")[-1] == ("3", "")


def test_models_of_different_data_do_not_compete() -> None:
    models = [
        (name, name, "standard", "standard", None, None, None, data, "0") for name, data in zip("abc", "xxy", strict=True)
    ]
    rows = [row(name, image, "SM", value) for name, value in zip("abc", [0.2, 0.4, 0.9], strict=True) for image in "12"]
    overview, locality = tables(by_hand(rows=rows, models=models), ["overview", "locality"])
    assert [mark for _, mark in cells(overview, "F1 SM")] == ["", "best", ""]
    assert [mark for _, mark in cells(locality, "F1")] == ["", "best", "", "", ""]
    robust = [(name, str(place), "pgd20", "linf", 4 / 255, True, place < 5) for name in "abc" for place in range(9)]
    [attacked] = tables(by_hand(rows=rows, models=models, robust=robust), ["robust"])
    assert [mark for _, mark in cells(attacked, "under attack")] == ["best", "best", ""]
    for table, words in ((overview, "each column"), (locality, "each method"), (attacked, "each attack")):
        assert any(f"Best of {words} and data set bold" in note for note in table.note_texts())
        [alone] = tables(by_hand(rows=rows[:4], models=models[:2], robust=robust[:18]), [table.name])
        assert any(f"Best of {words} bold" in note for note in alone.note_texts())
    assert [text for text, _ in cells(locality, "method")][3:] == ["uniform map on x", "uniform map on y"]


def test_pairs_are_compared_image_by_image() -> None:
    """Each model has images that the other lacks, and one where only one is defined."""
    rows = [row("plain", str(place), "SM", value) for place, value in enumerate([0.2, 0.4, 0.1, 0.9])]
    rows += [row("hard", str(place), "SM", value) for place, value in enumerate([0.3, 0.6, math.nan])]
    rows += [row("hard", "elsewhere", "SM", 0.0), row("alone", "0", "SM", 0.5)]
    models = [
        ("plain", "net", "standard", "standard", None, None, None, "shapes", ""),
        ("hard", "net", "at", "robust", "linf", 4 / 255, "plain", "shapes", ""),
        ("alone", "net", "at", "robust", "linf", 4 / 255, "missing", "shapes", ""),
    ]
    [table] = tables(by_hand(rows=rows, models=models), ["pairs"])
    assert [[cell.text for cell in line[:3]] for line in table.rows] == [["plain", "hard", "SM"]]
    assert cells(table, "F1 standard") == [("0.400", "")]
    assert cells(table, "F1 robust") == [("0.300", "")]
    # 0.1 and 0.2 on the two images that both have: 0.15 ± 12.7 · 0.05.
    assert cells(table, "F1 difference") == cells(table, "lift difference") == [("0.150 [−0.485, 0.785]", "")]
    assert cells(table, "images") == [("2", "")]
    assert cells(table, "undefined") == [("1", "")]
    results = by_hand(rows=rows, models=models)
    [table] = tables(results.with_tables(rows=results.rows.assign(lift=math.nan)), ["pairs"])
    assert cells(table, "lift difference") == [("–", "")]
    with pytest.raises(NotMeasuredError, match="no robust or certified model was measured together"):
        tables(by_hand(rows=rows, models=models[:1]), ["pairs"])


def test_robust_accuracy_has_the_largest_standard_error() -> None:
    robust = []
    for name, held in (("a", 50), ("b", 45), ("c", 30)):
        robust += [(name, str(place), "pgd20", "linf", 4 / 255, True, place < held) for place in range(100)]
    [table] = tables(by_hand(robust=robust), ["robust"])
    # √(0.25/100) = 0.05 on both sides: 0.50 − 0.05 ≤ 0.45 + 0.05, but 0.30 + 0.05 is below.
    assert [(text.partition(" ")[0], mark) for text, mark in cells(table, "under attack")] == [
        ("50.0%", "best"),
        ("45.0%", "tied"),
        ("30.0%", ""),
    ]
    assert cells(table, "attack")[0] == ("ℓ∞ 4/255, PGD-20", "")
    assert [mark for _, mark in cells(table, "accuracy")] == ["best"] * 3
    # Wilson's interval: 100 of 100 do not promise all the rest.
    assert cells(table, "accuracy")[0][0] == "100.0% [95.4%, 100.0%]"


def test_similarity_is_table_3_1() -> None:
    similarity = []
    for name, far, alike in (("standard", 8.0, 0.1), ("robust", 0.5, 0.9)):
        similarity += [(name, str(place), "SM-BSM", far + place, alike, 1.0) for place in range(2)]
        similarity += [(name, str(place), "IG-BIG", math.nan, math.nan, math.nan) for place in range(2)]
    [table] = tables(by_hand(similarity=similarity), ["similarity"])
    assert [text.partition(" ")[0] for text, _ in cells(table, "SM–BSM ℓ2")] == ["8.50", "1.00"]
    assert [mark for _, mark in cells(table, "SM–BSM ℓ2")] == ["", "best"]
    assert [mark for _, mark in cells(table, "SM–BSM cosine")] == ["", "best"]
    assert cells(table, "IG–BIG ℓ2") == [("undefined", ""), ("undefined", "")]
    assert [text for text, _ in cells(table, "undefined")] == ["2", "2"]


def test_searches_are_compared_where_all_found_a_boundary() -> None:
    searches = [
        ("m", "1", "fast", 1.0, True, 19, 15, 0.1),
        ("m", "2", "fast", 9.0, True, 19, 15, 0.3),
        ("m", "1", "paper", 1.5, True, 1001, 14, 3.0),
        ("m", "2", "paper", math.inf, False, 1001, 14, 3.0),
    ]
    [table] = tables(by_hand(searches=searches), ["searches"])
    assert [text.partition(" ")[0] for text, _ in cells(table, "ℓ2 distance")] == ["5.00", "1.50"]
    assert cells(table, "on common images") == [("1.00", "best"), ("1.50", "")]
    assert [text for text, _ in cells(table, "success")] == ["100.0%", "50.0%"]
    assert [text for text, _ in cells(table, "gradients")] == ["19", "1,001"]
    assert [text for text, _ in cells(table, "s per image")] == ["0.2", "3"]


def test_faithfulness_prefers_the_smaller() -> None:
    faithfulness = [
        ("m", str(place), method, "gauss 0.1", raw * (place + 1), raw / 10, 0.1, 0.01, 0.5)
        for method, raw in (("SM", 4.0), ("IG", 2.0))
        for place in range(3)
    ]
    [table] = tables(by_hand(faithfulness=faithfulness), ["faithfulness"])
    assert cells(table, "INFD") == [("8", ""), ("4", "")]
    assert [mark for _, mark in cells(table, "INFD / variance")] == ["", "best"]


def test_tiny_numbers_have_a_power_of_ten() -> None:
    tiny = [("m", str(place), "SM", "gauss 0.1", 2.02e-7, 3.14e-6 * (1 + place), 0.1, 0.01, 5e-9) for place in range(2)]
    tiny += [("m", str(place), "IG", "gauss 0.1", 4321.0, 0.0, 0.1, 0.01, 1e-4) for place in range(2)]
    [table] = tables(by_hand(faithfulness=tiny), ["faithfulness"])
    assert [text for text, _ in cells(table, "INFD")] == ["2.0e-7", "4,321"]
    assert [text for text, _ in cells(table, "INFD / variance")] == ["4.7e-6 [−1.5e-5, 2.5e-5]", "0.00 [0.00, 0.00]"]
    assert [text for text, _ in cells(table, "gap")] == ["5.0e-9", "0.0001"]


def test_nothing_that_rounds_to_zero_has_a_minus_sign() -> None:
    [table] = tables(by_hand(rows=[row("a", image, "SM", -0.0001) for image in "12"]), ["locality"])
    assert cells(table, "lift")[0][0] == "0.000 [0.000, 0.000]"


def test_faithfulness_compares_methods_under_one_noise() -> None:
    faithfulness = [
        ("m", str(place), method, noise, 1.0, value + 0.001 * place, 0.1, 0.01, float("nan"))
        for method, noise, value in (("SM", "a", 0.9), ("SM", "b", 0.1), ("IG", "a", 0.8), ("IG", "b", 0.2))
        for place in range(3)
    ]
    [table] = tables(by_hand(faithfulness=faithfulness), ["faithfulness"])
    assert [text for text, _ in cells(table, "noise")] == ["a", "a", "b", "b"]
    assert [mark for _, mark in cells(table, "INFD / variance")] == ["", "best", "best", ""]
    assert [text for text, _ in cells(table, "gap")] == ["–"] * 4


def test_the_overview_has_one_row_per_model_and_one_column_per_budget() -> None:
    [table] = tables(small_results(), ["overview"])
    assert [column.title for column in table.columns] == [
        "model",
        "training",
        "accuracy",
        "under ℓ∞ 4/255, autoattack",
        "F1 SM",
        "F1 IG",
        "F1 BIG",
    ]
    assert len(table.rows) == 6


def test_what_was_not_measured_is_omitted_or_refused() -> None:
    assert tables(nothing_measured()) == ()
    assert [table.name for table in tables(made_up_results(8, 0))] == list(TABLES)
    for name in TABLES:
        with pytest.raises(NotMeasuredError):
            tables(nothing_measured(), [name])
    with pytest.raises(ValueError, match=r"`which` must be one of overview, .*, got 'locallity': did you mean 'locality'"):
        tables(nothing_measured(), ["locallity"])


def test_a_single_model_is_not_the_best_of_anything() -> None:
    [table] = tables(by_hand(rows=[row("a", "1", "SM", 0.4), row("a", "2", "SM", 0.6)]), ["locality"])
    assert cells(table, "F1")[0] == ("0.500 [0.000, 1.000]", "")


def test_abstentions_have_a_column_beside_accuracy_where_any_model_abstains() -> None:
    [table] = tables(abstaining(small_results(), "tiny_vgg", 6), ["overview"])
    titles = [column.title for column in table.columns]
    assert titles[2:4] == ["accuracy", "abstained"]
    assert cells(table, "abstained")[:2] == [("25.0%", ""), ("0.0%", "")]  # never marked as the best
    assert any("abstained" in note for note in table.note_texts())
    marks_beside = [mark for _, mark in cells(table, "F1 BIG")]
    assert "best" in marks_beside
    [without] = tables(small_results(), ["overview"])
    assert "abstained" not in [column.title for column in without.columns]
    assert not any("abstained" in note for note in without.note_texts())


def test_certified_models_are_in_the_table_of_pairs_under_their_name() -> None:
    [robust] = tables(small_results(), ["pairs"])
    assert robust.title == "Robust models and their standard counterparts"
    assert [column.title for column in robust.columns][:5] == ["standard", "robust", "method", "F1 standard", "F1 robust"]
    [both] = tables(made_up_results(8, 0, (*MODELS[1:6], *CERTIFIED)), ["pairs"])
    assert both.title == "Robust or certified models and their standard counterparts"
    assert ("tiny_vgg_certified", "") in cells(both, "robust or certified")


def own_measurement() -> Results:
    """A table that a measurement of a user's own has written."""
    values = [
        ("tiny_vgg", "a", "low", 1.0, True),
        ("tiny_vgg", "b", "low", 3.0, False),
        ("tiny_vgg", "a", "high", 5.0, True),
    ]
    rows = [(name, image, band, value, holds, 7) for name, image, band, value, holds in values]
    rows.append(("other", "a", "low", math.nan, True, 7))
    columns = ["model", "image_id", "noise_band", "energy", "holds", "layer"]
    return small_results().with_tables(spectrum=pd.DataFrame(rows, columns=columns))


def test_a_table_without_a_layout_of_its_own_is_shown_by_means_per_model_and_group() -> None:
    [table] = tables(own_measurement(), ["spectrum"])
    titles = ["model", "training", "noise band", "energy", "layer", "holds", "images"]
    assert (table.title, [column.title for column in table.columns]) == ("Spectrum", titles)
    assert [[cell.text for cell in row[:3]] for row in table.rows] == [
        ["tiny_vgg", "standard", "low"],
        ["tiny_vgg", "standard", "high"],
        ["other", "unknown", "low"],
    ]
    assert [text for text, _ in cells(table, "energy")] == ["2.00 [−10.71, 14.71]", "5.00", "undefined"]
    assert [text.partition(" ")[0] for text, _ in cells(table, "holds")] == ["50.0%", "100.0%", "100.0%"]
    assert [text for text, _ in cells(table, "images")] == ["2", "1", "1"]
    assert any("Wilson" in note for note in table.note_texts())
    names = [one.name for one in tables(own_measurement())]
    assert names[-2:] == ["spectrum", "faults"]
    with pytest.raises(ValueError, match=r"`which` .*, spectrum, faults, got 'spectra': did you mean 'spectrum'"):
        tables(own_measurement(), ["spectra"])


def test_a_table_without_groups_or_numbers_is_shown_too() -> None:
    plain = pd.DataFrame({"model": ["tiny_vgg", "tiny_vgg"], "image_id": ["a", "b"], "blob": [b"1", b"2"]})
    [table] = tables(small_results().with_tables(blobs=plain), ["blobs"])
    assert [[cell.text for cell in row] for row in table.rows] == [["tiny_vgg", "standard", "2"]]


def test_a_new_table_is_one_line_in_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    def image_counts(results: Results) -> Table:
        return Table("counts", "Images", (Column("images", "images"),), ((count_cell(results.rows["image_id"].nunique()),),))

    monkeypatch.setitem(TABLES, "counts", image_counts)
    assert [[cell.text for cell in row] for row in tables(small_results(), ["counts"])[0].rows] == [["24"]]
    assert [table.name for table in tables(small_results())][-2:] == ["counts", "faults"]
