"""The numbers behind tables and figures, against `statistics.summary` and scipy."""

import math
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch
from report.made_up_results import made_up_results, nothing_measured, small_results
from scipy.stats import binomtest, sem

from locality.report.aggregates import (
    ATTACKS,
    Budget,
    Model,
    NotMeasuredError,
    floats,
    found_distance,
    measured,
    measures,
    models_of,
    uniform_scores,
    usual_budget,
)
from locality.robustness import Attack
from locality.scores.locality import map_scores
from locality.statistics import summary


def test_measures_are_those_of_summary() -> None:
    random = np.random.default_rng(3)
    columns = [
        random.random(40),
        random.normal(size=40),
        random.random(7),
        np.array([0.3]),
        np.array([]),
        np.full(5, math.nan),
    ]
    columns[1][::3] = math.nan
    for column, found in zip(columns, measures(columns), strict=True):
        expected = summary(column)
        for name in ("mean", "low", "high", "median", "used", "undefined"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-12, nan_ok=True), name
        defined = column[~np.isnan(column)]
        assert found.error == pytest.approx(sem(defined) if len(defined) > 1 else math.nan, nan_ok=True)


def test_blocks_of_the_bootstrap_do_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    column = np.random.default_rng(0).random(30)
    [whole] = measures([column])
    monkeypatch.setattr("locality.report.aggregates.BLOCK", 100)
    [blocks] = measures([column])
    assert (whole.low, whole.high) == pytest.approx((blocks.low, blocks.high))


def test_everything_of_the_results_is_measured() -> None:
    results = small_results()
    found = measured(results)
    assert [model.name for model in found.models] == list(results.models["model"])
    assert found.methods == ("SM", "IG", "BIG")
    own = results.rows[(results.rows["model"] == "tiny_vgg") & (results.rows["method"] == "IG")]
    assert found.scores["tiny_vgg", "IG", "lift"].mean == pytest.approx(own["lift"].mean())
    accuracy = found.accuracy["tiny_vgg"]
    assert accuracy.mean == pytest.approx(own["correct"].astype(float).mean())
    expected = binomtest(int(own["correct"].sum()), len(own)).proportion_ci(method="wilson")
    assert (accuracy.low, accuracy.high) == pytest.approx((expected.low, expected.high))
    near = own["distance"][own["found"]]
    assert found.distance["tiny_vgg"].mean == pytest.approx(near.mean())
    assert found.distance["tiny_vgg"].undefined == len(own) - len(near)
    budget = Budget("autoattack", "linf", 4 / 255)
    held = results["robust"][results["robust"]["model"] == "tiny_vgg_robust"]["robust"]
    assert found.robust["tiny_vgg_robust", budget].mean == pytest.approx(held.astype(float).mean())
    assert [(one.name, other.name) for one, other in found.pairs()] == [
        ("tiny_vgg", "tiny_vgg_robust"),
        ("tiny_resnet", "tiny_resnet_robust"),
        ("tiny_resnet", "tiny_resnet_robust8"),
    ]


def test_only_robust_models_are_compared_with_their_twins() -> None:
    results = small_results()
    models = results.models.assign(counterpart="tiny_vgg")
    found = measured(results.with_tables(models=models))
    assert {other.name for _, other in found.pairs()} == {"tiny_vgg_robust", "tiny_resnet_robust", "tiny_resnet_robust8"}


def test_models_that_nobody_described_are_known_by_their_name() -> None:
    results = small_results()
    bare = results.with_tables(models=nothing_measured().models)
    found = models_of(bare)
    assert {model.name for model in found} == set(results.models["model"])
    assert {model.kind for model in found} == {"unknown"}
    assert found[0].family == found[0].name
    # A model of the suite of which nothing was measured yet is no model of the results.
    assert models_of(nothing_measured().with_tables(models=results.models)) == ()


@pytest.mark.parametrize(
    ("training", "norm", "epsilon", "kind", "words"),
    [
        ("standard", None, None, "standard", "standard"),
        ("random", None, None, "random", "random"),
        ("fast_at", "linf", 8 / 255, "robust", "fast AT ℓ∞ 8/255"),
        ("at", "l2", 3.0, "robust", "AT ℓ2 3"),
        ("unknown", None, None, "unknown", "unknown"),
    ],
)
def test_what_a_model_is(training: str, norm: str | None, epsilon: float | None, kind: str, words: str) -> None:
    model = Model("a", "a", training, norm, epsilon, None, "shapes")
    assert (model.kind, model.trained) == (kind, words)


def test_columns_of_any_type_become_numbers() -> None:
    for column in (
        pd.Series([True, None, False], dtype="boolean"),
        pd.Series([True, None, False], dtype=object),
        pd.Series([1.0, math.nan, 0.0]),
        pd.Series([1, pd.NA, 0], dtype="Int64"),
    ):
        assert floats(column).tolist() == pytest.approx([1.0, math.nan, 0.0], nan_ok=True)
    assert floats(pd.Series([], dtype=object)).tolist() == []


def test_a_boundary_that_was_not_found_has_no_distance() -> None:
    rows = pd.DataFrame({"distance": [0.5, math.inf, 0.0], "found": [True, False, True]})
    assert found_distance(rows).tolist() == pytest.approx([0.5, math.nan, 0.0], nan_ok=True)


def test_the_usual_budget_is_that_of_most_models() -> None:
    weak, strong = Budget("pgd20", "linf", 1 / 255), Budget("autoattack", "linf", 4 / 255)
    assert usual_budget([("a", weak), ("a", strong), ("b", strong)]) == strong
    assert usual_budget([("a", weak), ("a", strong)]) == weak
    with pytest.raises(NotMeasuredError, match="accuracy under attack"):
        usual_budget([])


@pytest.mark.parametrize(
    ("attack", "name"),
    [("paper", "APGD-CE + APGD-DLR"), ("standard", "AutoAttack"), ("pgd20", "PGD-20"), ("cw20", "CW-20"), ("own", "own")],
)
def test_attacks_have_the_names_that_readers_know(attack: str, name: str) -> None:
    assert str(Budget(attack, "linf", 4 / 255)) == f"ℓ∞ 4/255, {name}"
    assert set(ATTACKS) == set(get_args(Attack))


def test_the_uniform_map_of_stored_rows_scores_as_the_map_itself() -> None:
    masks = torch.zeros(3, 1, 4, 4, dtype=torch.bool)
    masks[0, 0, :2, :3] = masks[1, 0, 3, 3] = True  # and one that is empty
    expected = map_scores(torch.ones(3, 3, 4, 4), masks)
    found = uniform_scores(pd.DataFrame({"box_share": expected.box_share.tolist()}))
    for score in ("precision", "recall", "f1", "lift"):
        assert found[score][:2] == pytest.approx(getattr(expected, score)[:2].numpy(), abs=1e-6)
    assert np.isnan(found["f1"][2])


def test_results_are_not_changed_and_nothing_is_no_error() -> None:
    results = made_up_results(8, 0)
    before = results.rows.copy()
    measured(results)
    pd.testing.assert_frame_equal(results.rows, before)
    assert measured(nothing_measured()).models == ()
