"""The means behind tables and figures, against direct computation and scipy."""

import numpy as np
import pandas as pd
import pytest
import torch
from report.made_up_results import abstaining, made_up_results, nothing_measured, small_results
from scipy.stats import binomtest

from locality.report.aggregates import (
    Budget,
    NotMeasuredError,
    aggregate,
    uniform_scores,
    usual_budget,
)
from locality.scores.locality import map_scores
from locality.types import Threat


def test_everything_of_the_results_is_aggregated() -> None:
    results = small_results()
    means = aggregate(results)
    assert [model.name for model in means.models] == list(results.models["model"])
    assert means.methods == ("SM", "IG", "BIG")
    own = results.rows[(results.rows["model"] == "tiny_vgg") & (results.rows["method"] == "IG")]
    assert means.scores["tiny_vgg", "IG", "lift"].mean == pytest.approx(own["lift"].mean())
    accuracy = means.accuracy["tiny_vgg"]
    assert accuracy.mean == pytest.approx(own["correct"].astype(float).mean())
    expected = binomtest(int(own["correct"].sum()), len(own)).proportion_ci(method="wilsoncc")
    assert (accuracy.low, accuracy.high) == pytest.approx((expected.low, expected.high))
    near = own["distance"][own["found"]]
    assert means.distance["tiny_vgg"].mean == pytest.approx(near.mean())
    assert means.distance["tiny_vgg"].undefined == len(own) - len(near)
    budget = Budget("autoattack", Threat("linf", 4 / 255))
    held = results["robust"][results["robust"]["model"] == "tiny_vgg_robust"]["robust"]
    assert means.robust["tiny_vgg_robust", budget].mean == pytest.approx(held.astype(float).mean())
    assert [(one.name, other.name) for one, other in means.pairs()] == [
        ("tiny_vgg", "tiny_vgg_robust"),
        ("tiny_resnet", "tiny_resnet_robust"),
        ("tiny_resnet", "tiny_resnet_robust8"),
    ]


def test_an_abstention_is_not_correct_and_is_counted_apart() -> None:
    results = small_results()
    own = results.rows[(results.rows["model"] == "tiny_vgg") & (results.rows["method"] == "SM")].reset_index()
    right = int(own["correct"][6:].sum())
    assert right < int(own["correct"].sum())  # some of the first six are correct
    six = abstaining(results, "tiny_vgg", 6)
    unstated = six.with_tables(rows=six.rows.assign(correct=six.rows["correct"].mask(six.rows["abstained"])))
    for changed in (six, unstated):  # `correct` is False or missing: accuracy is correct / all either way
        means = aggregate(changed)
        assert means.accuracy["tiny_vgg"].mean == right / 24
        assert means.accuracy["tiny_vgg"].used == 24
        assert means.abstained["tiny_vgg"].mean == 6 / 24
        assert means.abstained["tiny_resnet"].mean == 0
        assert means.scores["tiny_vgg", "SM", "f1"].undefined == 6
    # A label that the model lacks stays undefined.
    unknown = six.rows.assign(label=-1, correct=pd.array([None] * len(six.rows), dtype="boolean"))
    assert aggregate(six.with_tables(rows=unknown)).accuracy["tiny_vgg"].used == 0


def test_without_abstentions_there_is_no_share_of_them() -> None:
    results = small_results()
    assert aggregate(results).abstained == {}
    older = results.with_tables(rows=results.rows.drop(columns="abstained"))
    assert aggregate(older).abstained == {}
    assert aggregate(older).accuracy == aggregate(results).accuracy


def test_the_usual_budget_is_that_of_most_models() -> None:
    weak, strong = Budget("pgd20", Threat("linf", 1 / 255)), Budget("autoattack", Threat("linf", 4 / 255))
    assert usual_budget([("a", weak), ("a", strong), ("b", strong)]) == strong
    assert usual_budget([("a", weak), ("a", strong)]) == weak
    with pytest.raises(NotMeasuredError, match="accuracy under attack"):
        usual_budget([])


@pytest.mark.parametrize(
    ("attack", "name"),
    [
        ("paper", "APGD-CE + APGD-DLR"),
        ("standard", "AutoAttack"),
        ("pgd20", "PGD-20"),
        ("cw1000", "CW-1,000"),
        ("own", "own"),
    ],
)
def test_attacks_have_the_names_that_readers_know(attack: str, name: str) -> None:
    assert str(Budget(attack, Threat("linf", 4 / 255))) == f"ℓ∞ 4/255, {name}"


def test_the_uniform_map_of_stored_rows_scores_as_the_map_itself() -> None:
    masks = torch.zeros(3, 1, 4, 4, dtype=torch.bool)
    masks[0, 0, :2, :3] = masks[1, 0, 3, 3] = True  # and one that is empty
    expected = map_scores(torch.ones(3, 3, 4, 4), masks)
    scores = uniform_scores(pd.DataFrame({"box_share": expected.box_share.tolist()}))
    for score in ("precision", "recall", "f1", "lift"):
        assert scores[score][:2] == pytest.approx(getattr(expected, score)[:2].numpy(), abs=1e-6)
    assert np.isnan(scores["f1"][2])


def test_results_are_unchanged_and_nothing_measured_is_no_error() -> None:
    results = made_up_results(8, 0)
    before = results.rows.copy()
    aggregate(results)
    pd.testing.assert_frame_equal(results.rows, before)
    assert aggregate(nothing_measured()).models == ()
