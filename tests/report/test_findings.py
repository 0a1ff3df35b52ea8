"""Sentences follow from the rows, and change when the rows do."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from report.made_up_results import CERTIFIED, MODELS, abstaining, made_up_results, nothing_measured, small_results, without

from locality.report.aggregates import aggregate
from locality.report.estimates import Estimate
from locality.report.findings import sentences
from locality.report.findings.wording import significantly_above
from locality.results.results import Results
from locality.runner.compare import paired_differences
from locality.statistics import holm, signed_rank_p


def said(results: Results, start: str) -> list[str]:
    return [sentence for sentence in sentences(results) if sentence.startswith(start)]


def test_pairs_are_counted_as_by_compare() -> None:
    results = small_results()
    pairs = [("tiny_vgg", "tiny_vgg_robust"), ("tiny_resnet", "tiny_resnet_robust"), ("tiny_resnet", "tiny_resnet_robust8")]
    parts = dict(iter(results.rows.groupby("model")))
    for method, sentence in zip(("SM", "IG", "BIG"), said(results, "Robust models have"), strict=True):
        changes = [paired_differences(parts[one], parts[other])[method] for one, other in pairs]
        corrected = holm([change["f1"].p for change in changes])
        higher, significant, lift = (
            sum(change["f1"].difference > 0 for change in changes),
            sum(p < 0.05 and change["f1"].low > 0 for p, change in zip(corrected, changes, strict=True)),
            sum(change["lift"].difference > 0 for change in changes),
        )
        assert sentence == (
            f"Robust models have a higher F1 than their standard counterparts with {method} in {higher} of 3 pairs, "
            f"significantly (95 %, Holm-corrected) in {significant}; a higher lift in {lift}."
        )


def test_robust_models_that_are_worse_are_counted() -> None:
    models = tuple(
        replace(model, f1=(0.9, 0.9, 0.9)) if model.training == "standard" else model
        for model in MODELS
        if model.family == "VGG"
    )
    for sentence in said(made_up_results(24, 0, models), "Robust models have"):
        assert "in 0 of 1 pair, significantly (95 %, Holm-corrected) in 0;" in sentence
        assert sentence.endswith("a higher lift in 0.")


def test_robust_models_are_compared_with_every_standard_one_of_their_data() -> None:
    def results(*f1: float) -> Results:
        names = ("tiny_vgg", "tiny_resnet", "tiny_vgg_robust", "tiny_resnet_robust")
        models = tuple(model for name in names for model in MODELS if model.name == name)
        made = made_up_results(6, 0, models)
        rows = made.rows.assign(f1=made.rows["model"].map(dict(zip(names, f1, strict=True))).astype(float))
        return made.with_tables(rows=rows)

    start = "Robust models with a higher mean F1 than every standard model of the same data: "
    assert said(results(0.5, 0.6, 0.55, 0.7), "Robust models with") == [f"{start}SM 1 of 2; IG 1 of 2; BIG 1 of 2."]
    assert said(results(0.5, 0.6, 0.6, 0.6), "Robust models with") == [f"{start}SM 0 of 2; IG 0 of 2; BIG 0 of 2."]
    # What is undefined everywhere is neither above nor below.
    assert said(results(float("nan"), 0.5, 0.55, 0.7), "Robust models with") == []
    assert said(results(0.5, 0.6, float("nan"), 0.7), "Robust models with") == [f"{start}SM 1 of 1; IG 1 of 1; BIG 1 of 1."]
    # With one standard model it would repeat the sentence on the pairs.
    other = results(0.5, 0.6, 0.55, 0.7)
    data = other.models.assign(data=["shapes", "photos", "shapes", "photos"])
    assert said(other.with_tables(models=data), "Robust models with") == []


def test_the_extent_counts_models_images_and_what_is_undefined() -> None:
    results = small_results()
    undefined = int(np.isnan(results.rows["f1"]).sum())
    assert undefined > 0
    [first, *_] = sentences(results)
    assert first == (
        "6 models (2 standard, 3 robust, 1 random); 24 images of tiny-imagenet; attributed by SM, IG and BIG. "
        f"{undefined} of {len(results.rows)} F1 scores are undefined and excluded from the means."
    )


def test_a_trend_is_positive_or_negative_only_where_it_is_significant() -> None:
    results = made_up_results(60, 0)
    [accuracy] = said(results, "Rank correlation of F1 with accuracy over")
    assert "over 4 standard models" in accuracy
    assert accuracy.count("(inconclusive)") == 3  # four models cannot have p < 0.05
    for sign, verdict in ((1, "positive"), (-1, "negative")):
        heights = {name: 0.1 * place for place, name in enumerate(model.name for model in MODELS if model.epsilon)}
        rows = results.rows.copy()
        rows["f1"] = [0.5 + sign * heights.get(name, 0) for name in rows["model"]]
        # The number of robust images rises with the model's position among the robust ones.
        robust = results["robust"].copy()
        robust["robust"] = [
            int(image.removeprefix("image-")) < 60 * heights.get(name, 0)
            for name, image in zip(robust["model"], robust["image_id"], strict=True)
        ]
        [sentence] = said(
            results.with_tables(rows=rows, robust=robust), "Rank correlation of F1 with accuracy under attack (ℓ∞ 4"
        )
        # 2 of the 6! orders of six models are as strong.
        assert sentence.count(f"{sign:.2f}, p = 0.0028 ({verdict})".replace("-", "−")) == 3


def test_the_floor_the_boundary_and_the_similarity() -> None:
    results = small_results()
    higher = (results.rows["model"] == "tiny_vgg") & (results.rows["method"] == "BIG")
    results = results.with_tables(rows=results.rows.assign(f1=results.rows["f1"].mask(higher, 0.95)))
    means = aggregate(results)
    standard = [model.name for model in means.models if model.kind == "standard"]
    parts = dict(iter(results.rows.groupby(["model", "method"])))
    counts = {}
    for score in ("f1", "lift"):
        for method in ("SM", "IG", "BIG"):
            floor = parts["tiny_resnet_random", method]
            changes = [paired_differences(floor, parts[name, method])[method][score] for name in standard]
            corrected = holm([change.p for change in changes])
            counts[score, method] = sum(p < 0.05 and one.low > 0 for p, one in zip(corrected, changes, strict=True))
    assert counts["f1", "BIG"] == 1
    [sentence] = said(results, "Standard models above")
    told = [
        f"by {title} "
        + " and ".join(
            (
                ", ".join(f"{counts[score, method]} of 2 for {method}" for method in ("SM", "IG")),
                f"{counts[score, 'BIG']} of 2 for BIG",
            )
        )
        for score, title in (("f1", "F1"), ("lift", "lift"))
    ]
    assert sentence.endswith(f": {told[0]}; {told[1]}.")
    level = results.rows.assign(f1=0.4)
    [sentence] = said(results.with_tables(rows=level), "Standard models above")
    assert ": by F1 0 of 2 for SM, 0 of 2 for IG and 0 of 2 for BIG; by lift " in sentence
    ratios = [means.distance[far.name].mean / means.distance[near.name].mean for near, far in means.pairs()]
    assert len(ratios) == 3
    [boundary] = said(results, "The decision boundary of robust models")
    assert (
        f" is {np.median(ratios):.1f} times as far away as that of their standard counterparts (median of 3 pairs)."
        in boundary
    )
    [alike] = said(results, "Maps are closer")
    assert "SM–BSM in 3 of 3 pairs" in alike
    flipped = results["similarity"].copy()
    flipped["l2"] = 1 / flipped["l2"]
    [unlike] = said(results.with_tables(similarity=flipped), "Maps are closer")
    assert "SM–BSM in 0 of 3 pairs" in unlike


def test_the_higher_of_two_floors_counts() -> None:
    random = next(model for model in MODELS if model.training == "random")
    models = (*(model for model in MODELS if model.name in ("tiny_vgg", "tiny_vit")), random, replace(random, name="higher"))
    results = made_up_results(24, 0, models)
    f1 = results.rows["f1"].where(~results.rows["model"].isin(["tiny_resnet_random", "higher"]), 0.2)
    low = results.with_tables(rows=results.rows.assign(f1=f1))
    higher = low.with_tables(rows=low.rows.assign(f1=low.rows["f1"].mask(low.rows["model"] == "higher", 0.9)))
    for one, number in ((low, 2), (higher, 0)):
        [sentence] = said(one, "Standard models above")
        assert f": by F1 {number} of 2 for SM, {number} of 2 for IG and {number} of 2 for BIG; by lift" in sentence


def test_models_of_different_data_are_not_compared() -> None:
    """F1 depends on the boxes: trends and floors are per data set."""
    results = made_up_results(12, 0)
    elsewhere = ("tiny_vit", "tiny_vit_robust", "tiny_vgg", "tiny_vgg_robust", "tiny_resnet_trades")
    models = results.models.assign(data=["shapes" if name in elsewhere else "here" for name in results.models["model"]])
    mixed = results.with_tables(models=models)
    [there, here] = sorted(
        said(mixed, "Rank correlation of F1 with accuracy under attack"), key=lambda sentence: " on here" in sentence
    )
    assert "over 3 robust models on shapes: " in there
    assert "over 3 robust models on here: " in here
    [together] = said(results, "Rank correlation of F1 with accuracy under attack")
    assert "over 6 robust models: " in together
    [floor] = said(mixed, "Standard models above")
    assert " of 2 for SM" in floor  # the random one is of `here`, as are two of the four standard ones


def test_layer_randomisation_is_summarised_by_its_last_step() -> None:
    results = small_results()
    table = results["layer_randomisation"]
    last = table[table["layers"] == 24]
    [sentence] = said(results, "Rank correlation of maps")
    for method in ("SM", "IG", "BIG"):
        mean = last[last["method"] == method]["spearman"].mean()
        assert f"{method} {mean:.2f}".replace("-", "−") in sentence
    other = table.assign(model="other", spearman=0.75)
    [both] = said(results.with_tables(layer_randomisation=pd.concat([table, other])), "Rank correlation of maps")
    assert both.startswith(sentence.removesuffix("."))
    assert both.endswith("; SM 0.75, IG 0.75 and BIG 0.75 in other.")  # each model by itself


def test_models_that_are_no_better_than_chance_are_named_with_their_accuracy() -> None:
    results = small_results()
    means = aggregate(results)
    [sentence] = said(results, "More attribution lies in the box")
    trained = [model.name for model in means.models if model.kind != "random"]
    for method in ("SM", "IG", "BIG"):
        blind = [name for name in trained if not means.scores[name, method, "lift"].low > 0]
        part = sentence.partition(f"{method} for ")[2].partition(";")[0]
        assert part.startswith(f"{5 - len(blind)} of 5 models")
        for name in trained:
            assert (f"{name} (accuracy {means.accuracy[name].mean:.1%})" in part) == (name in blind)
    assert "not tiny_" in sentence
    assert "random" not in sentence
    many = made_up_results(8, 0, tuple(replace(model, f1=(0.1, 0.1, 0.1)) for model in MODELS))
    [sentence] = said(many, "More attribution lies in the box")
    assert "SM for 0 of 10 models, not tiny_squeeze (accuracy " in sentence
    assert " and 7 more; IG" in sentence


def test_one_pair_has_no_median() -> None:
    models = tuple(model for model in MODELS if model.family == "VGG")
    [sentence] = said(made_up_results(12, 0, models), "The decision boundary of robust models is ")
    assert sentence.endswith(" times as far away as that of their standard counterparts (1 pair).")


def test_faults_are_mentioned() -> None:
    assert said(small_results(), "1 unit could not be measured")


def test_models_above_the_uniform_map_are_counted() -> None:
    models = tuple(model for model in MODELS if model.name in ("tiny_vgg", "tiny_vgg_robust", "tiny_resnet_random"))
    results = made_up_results(12, 0, models)
    # A box of a half: the uniform map has F1 2·0.5/1.5 = 2/3.
    rows = results.rows.assign(box_share=0.5, f1=0.6)
    rows.loc[(rows["model"] == "tiny_vgg") & (rows["method"] == "IG"), "f1"] = 0.7
    rows.loc[rows["method"] == "BIG", "f1"] = 0.7
    # Higher on average, but not significantly.
    rows.loc[(rows["model"] == "tiny_vgg") & (rows["method"] == "SM"), "f1"] = [0.2] * 3 + [0.83] * 9
    [sentence] = said(results.with_tables(rows=rows), "A uniform map")
    assert sentence == (
        "A uniform map, independent of model and image, has F1 0.667 on tiny-imagenet. Significantly above it "
        "(95 %, Holm-corrected): "
        "SM for 0 of 2 models, IG for 1 of 2 models and BIG for 2 of 2 models."
    )


def test_one_model_is_not_counted() -> None:
    results = made_up_results(12, 0, tuple(model for model in MODELS if model.name == "tiny_vgg"))
    rows = results.rows.assign(box_share=0.5, f1=0.6, lift=0.0)
    assert said(results.with_tables(rows=rows), "More attribution")[0].endswith("Holm-corrected): no method.")
    rows.loc[rows["method"] != "SM", ["f1", "lift"]] = 0.7, 0.3
    found = results.with_tables(rows=rows)
    assert said(found, "More attribution")[0].endswith("Holm-corrected): IG and BIG.")
    assert said(found, "A uniform map")[0].endswith("Holm-corrected): IG and BIG.")


def test_several_models_are_corrected_for() -> None:
    """p = 0.033 is significant for one model and not for the better of two (Holm: 0.065)."""
    changes = [np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, -0.85, -0.95, -0.05]), np.array([-1.0, 1.1] * 6)]
    assert signed_rank_p(changes[0]) == pytest.approx(0.0327, abs=1e-4)
    means = [Estimate(0.6, 0.1, 1.1, 0.7, 0.25, 13, 0)] * 2
    assert significantly_above(means[:1], changes[:1]) == [True]
    assert significantly_above(means, changes) == [False, False]


# Table of the results ↦ beginnings of the sentences that need it.
NEEDED_FOR = {
    "rows": [
        "Robust models have",
        "Robust models with",
        "More attribution",
        "A uniform map",
        "Rank correlation of F1",
        "Standard models",
        "The decision boundary",
        "tiny_",
        "Rank correlation of lift",
        "Lift and reliance",
        "It cannot be told whether",
    ],
    "model_free": ["tiny_", "It cannot be told whether"],
    "robust": ["Rank correlation of F1 with accuracy under attack"],
    "regions": ["By region tests", "Reliance", "Rank correlation of lift", "Lift and reliance"],
    "similarity": ["Maps are closer"],
    "layer_randomisation": ["Rank correlation of maps"],
    "models": [
        "Robust models have",
        "Robust models with",
        "Rank correlation of F1",
        "Reliance",
        "Standard models",
        "The decision boundary",
        "Maps are closer",
    ],
    "searches": [],
    "faults": ["1 unit"],
}


@pytest.mark.parametrize("empty", NEEDED_FOR)
def test_without_a_table_only_its_sentences_are_missing(empty: str) -> None:
    every = sentences(small_results())
    found = sentences(without(small_results(), empty))
    starts = [sentence[:25] for sentence in every[1:] if not sentence.startswith(tuple(NEEDED_FOR[empty]))]
    assert all(any(sentence.startswith(start) for sentence in every) for start in NEEDED_FOR[empty])
    assert [sentence[:25] for sentence in found[1:]] == starts
    assert found[0].startswith("6 models")


def test_unfinished_results_are_the_first_sentence() -> None:
    def first(**units: int) -> str:
        counts = {name.replace("_", " "): count for name, count in units.items()}
        return sentences(replace(small_results(), provenance={"units": counts}))[0]

    assert first(planned=15, finished=4, with_faults=0).startswith("Unfinished: 4 of 15 units ")
    assert first(planned=15, finished=4, with_faults=2).startswith("Unfinished: 6 of 15 units ")
    # Failed units count as measured; the table of faults lists them.
    assert first(planned=15, finished=14, with_faults=1).startswith("6 models")
    stopped = replace(nothing_measured(), provenance={"units": {"planned": 3, "finished": 0, "with faults": 0}})
    assert sentences(stopped)[1:] == ["No model was measured."]


def test_certified_models_are_counted_apart_from_robust_ones() -> None:
    results = made_up_results(24, 0, (*MODELS[1:6], *CERTIFIED))
    assert sentences(results)[0].startswith("7 models (3 standard, 2 robust, 2 certified); ")
    for start, number in (("Robust models have", 2), ("Certified models have", 2)):
        assert len(said(results, start)) == 3
        assert all(f" of {number} pairs" in sentence for sentence in said(results, start))
    assert said(results, "The decision boundary of certified models")
    assert "in the certified model" in said(results, "Maps are closer")[1]
    assert said(results, "Rank correlation of F1 with accuracy under attack") == []  # two robust models


def test_abstentions_are_reported_with_their_share() -> None:
    assert said(small_results(), "Abstentions") == []
    both = abstaining(abstaining(small_results(), "tiny_vgg", 6), "tiny_resnet", 3)
    [sentence] = said(both, "Abstentions")
    assert sentence.startswith("Abstentions: tiny_vgg on 25.0% and tiny_resnet on 12.5% of the images. ")
