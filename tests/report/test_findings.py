"""Sentences say what the rows say, and change when the rows do."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from report.made_up_results import MODELS, made_up_results, nothing_measured, small_results, without

from locality.report.aggregates import measured
from locality.report.findings import sentences
from locality.results.results import Results
from locality.runner.summary import compared


def said(results: Results, start: str) -> list[str]:
    return [sentence for sentence in sentences(results) if sentence.startswith(start)]


def test_twins_are_counted_as_compare_counts_them() -> None:
    results = small_results()
    pairs = [("tiny_vgg", "tiny_vgg_robust"), ("tiny_resnet", "tiny_resnet_robust"), ("tiny_resnet", "tiny_resnet_robust8")]
    parts = dict(iter(results.rows.groupby("model")))
    for method, sentence in zip(("SM", "IG", "BIG"), said(results, "Robust models have"), strict=True):
        changes = [compared(parts[one], parts[other])[method] for one, other in pairs]
        higher, sure, lift = (
            sum(change["f1"].difference > 0 for change in changes),
            sum(change["f1"].low > 0 for change in changes),
            sum(change["lift"].difference > 0 for change in changes),
        )
        assert sentence == (
            f"Robust models have higher F1 than their standard twins for {method} in {higher} of 3 pairs "
            f"(in {sure} the 95 % interval of the difference is above 0); higher lift in {lift}."
        )


def test_where_robust_models_are_worse_it_is_said() -> None:
    models = tuple(
        replace(model, f1=(0.9, 0.9, 0.9)) if model.training == "standard" else model
        for model in MODELS
        if model.family == "VGG"
    )
    for sentence in said(made_up_results(24, 0, models), "Robust models have"):
        assert "in 0 of 1 pair (in 0 " in sentence
        assert sentence.endswith("higher lift in 0.")


def test_robust_models_are_held_against_every_standard_one_of_their_data() -> None:
    def results(*f1: float) -> Results:
        names = ("tiny_vgg", "tiny_resnet", "tiny_vgg_robust", "tiny_resnet_robust")
        models = tuple(model for name in names for model in MODELS if model.name == name)
        made = made_up_results(6, 0, models)
        rows = made.rows.assign(f1=made.rows["model"].map(dict(zip(names, f1, strict=True))).astype(float))
        return made.with_tables(rows=rows)

    start = "Robust models whose mean F1 is above that of every standard model of the same data: "
    assert said(results(0.5, 0.6, 0.55, 0.7), "Robust models whose") == [f"{start}SM 1 of 2; IG 1 of 2; BIG 1 of 2."]
    assert said(results(0.5, 0.6, 0.6, 0.6), "Robust models whose") == [f"{start}SM 0 of 2; IG 0 of 2; BIG 0 of 2."]
    # What is undefined everywhere is neither above nor below, wherever it stands.
    assert said(results(float("nan"), 0.5, 0.55, 0.7), "Robust models whose") == []
    assert said(results(0.5, 0.6, float("nan"), 0.7), "Robust models whose") == [f"{start}SM 1 of 1; IG 1 of 1; BIG 1 of 1."]
    # With one standard model it would say what is said of the twins.
    other = results(0.5, 0.6, 0.55, 0.7)
    data = other.models.assign(data=["shapes", "photos", "shapes", "photos"])
    assert said(other.with_tables(models=data), "Robust models whose") == []


def test_the_extent_counts_models_images_and_what_is_undefined() -> None:
    results = small_results()
    undefined = int(np.isnan(results.rows["f1"]).sum())
    assert undefined > 0
    [first, *_] = sentences(results)
    assert first == (
        "6 models (2 standard, 3 robust, 1 random); 24 images of tiny-imagenet; attributed by SM, IG and BIG. "
        f"{undefined} of {len(results.rows)} F1 scores are undefined and left out of the means."
    )


def test_a_trend_is_called_one_only_where_it_is_sure() -> None:
    results = made_up_results(60, 0)
    [accuracy] = said(results, "F1 against accuracy, ")
    assert "over 4 standard models" in accuracy
    assert accuracy.count("no trend can be told") == 3  # four models cannot have p < 0.05
    for sign, verdict in ((1, "rises"), (-1, "falls")):
        heights = {name: 0.1 * place for place, name in enumerate(model.name for model in MODELS if model.epsilon)}
        rows = results.rows.copy()
        rows["f1"] = [0.5 + sign * heights.get(name, 0) for name in rows["model"]]
        # As many images hold as the model's place among the robust ones says.
        robust = results["robust"].copy()
        robust["robust"] = [
            int(image.removeprefix("image-")) < 60 * heights.get(name, 0)
            for name, image in zip(robust["model"], robust["image_id"], strict=True)
        ]
        [told] = said(results.with_tables(rows=rows, robust=robust), "F1 against accuracy under attack (ℓ∞ 4/255")
        # 2 of the 6! orders of six models are as strong.
        assert told.count(f"{sign:.2f}, p = 0.0028: {verdict}".replace("-", "−")) == 3


def test_the_floor_the_boundary_and_the_similarity() -> None:
    results = small_results()
    found = measured(results)
    standard = [model.name for model in found.models if model.kind == "standard"]
    random = {method: found.scores["tiny_resnet_random", method, "f1"].high for method in ("SM", "IG", "BIG")}
    above = [sum(found.scores[name, method, "f1"].low > high for name in standard) for method, high in random.items()]
    assert above[2] == 1  # the made-up numbers tell the models apart
    [floor] = said(results, "Standard models whose F1")
    assert floor.endswith(f": {above[0]} of 2 for SM, {above[1]} of 2 for IG and {above[2]} of 2 for BIG.")
    level = results.rows.assign(f1=0.4)
    [floor] = said(results.with_tables(rows=level), "Standard models whose F1")
    assert floor.endswith(": 0 of 2 for SM, 0 of 2 for IG and 0 of 2 for BIG.")
    ratios = [found.distance[far.name].mean / found.distance[near.name].mean for near, far in found.pairs()]
    assert len(ratios) == 3
    [boundary] = said(results, "In robust models the decision boundary")
    assert f" is {np.median(ratios):.1f} times as far as in their standard twins (median of 3 pairs)." in boundary
    [alike] = said(results, "Maps and their boundary-based")
    assert "SM–BSM in 3 of 3 pairs" in alike
    flipped = results["similarity"].copy()
    flipped["l2"] = 1 / flipped["l2"]
    [unlike] = said(results.with_tables(similarity=flipped), "Maps and their boundary-based")
    assert "SM–BSM in 0 of 3 pairs" in unlike


def test_models_of_different_data_are_not_compared() -> None:
    """F1 depends on the boxes: a trend or a floor is told for each data set by itself."""
    results = made_up_results(12, 0)
    elsewhere = ("tiny_vit", "tiny_vit_robust", "tiny_vgg", "tiny_vgg_robust", "tiny_resnet_trades")
    models = results.models.assign(data=["shapes" if name in elsewhere else "here" for name in results.models["model"]])
    mixed = results.with_tables(models=models)
    [there, here] = sorted(said(mixed, "F1 against accuracy under attack"), key=lambda sentence: " on here" in sentence)
    assert "over 3 robust models on shapes: " in there
    assert "over 3 robust models on here: " in here
    [together] = said(results, "F1 against accuracy under attack")
    assert "over 6 robust models: " in together
    [floor] = said(mixed, "Standard models whose F1")
    assert " of 2 for SM" in floor  # the random one is of `here`, as are two of the four standard ones


def test_the_sanity_check_is_told_by_its_last_step() -> None:
    results = small_results()
    table = results["layer_randomisation"]
    last = table[table["layers"] == 24]
    [sentence] = said(results, "With all layers drawn anew")
    for method in ("SM", "IG", "BIG"):
        mean = last[last["method"] == method]["spearman"].mean()
        assert f"{method} {mean:.2f}".replace("-", "−") in sentence
    other = table.assign(model="other", spearman=0.75)
    [both] = said(results.with_tables(layer_randomisation=pd.concat([table, other])), "With all layers drawn anew")
    assert both.startswith(sentence.removesuffix("."))
    assert both.endswith("; SM 0.75, IG 0.75 and BIG 0.75 in other.")  # each model by itself


def test_models_that_are_no_better_than_chance_are_named_with_their_accuracy() -> None:
    results = small_results()
    found = measured(results)
    [sentence] = said(results, "More attribution lies in the box")
    trained = [model.name for model in found.models if model.kind != "random"]
    for method in ("SM", "IG", "BIG"):
        blind = [name for name in trained if not found.scores[name, method, "lift"].low > 0]
        part = sentence.partition(f"{method} for ")[2].partition(";")[0]
        assert part.startswith(f"{5 - len(blind)} of 5 models")
        for name in trained:
            assert (f"{name} (accuracy {found.accuracy[name].mean:.1%})" in part) == (name in blind)
    assert "not tiny_" in sentence
    assert "random" not in sentence
    many = made_up_results(8, 0, tuple(replace(model, f1=(0.1, 0.1, 0.1)) for model in MODELS))
    [sentence] = said(many, "More attribution lies in the box")
    assert "SM for 0 of 10 models, not tiny_squeeze (accuracy " in sentence
    assert " and 7 more; IG" in sentence


def test_one_pair_is_told_in_the_singular() -> None:
    models = tuple(model for model in MODELS if model.family == "VGG")
    [sentence] = said(made_up_results(12, 0, models), "In the robust model the decision boundary is ")
    assert sentence.endswith(" times as far as in its standard twin.")


def test_faults_are_mentioned() -> None:
    assert said(small_results(), "1 unit of work could not be measured")


def test_what_beats_a_map_that_has_seen_nothing() -> None:
    models = tuple(model for model in MODELS if model.name in ("tiny_vgg", "tiny_vgg_robust", "tiny_resnet_random"))
    results = made_up_results(12, 0, models)
    # A box of a half: the uniform map has F1 2·0.5/1.5 = 2/3.
    rows = results.rows.assign(box_share=0.5, f1=0.6)
    rows.loc[(rows["model"] == "tiny_vgg") & (rows["method"] == "IG"), "f1"] = 0.7
    rows.loc[rows["method"] == "BIG", "f1"] = 0.7
    # Higher on average, but not surely.
    rows.loc[(rows["model"] == "tiny_vgg") & (rows["method"] == "SM"), "f1"] = [0.2] * 3 + [0.83] * 9
    [sentence] = said(results.with_tables(rows=rows), "A uniform map")
    assert sentence == (
        "A uniform map, which has seen neither model nor image, has F1 0.667 on tiny-imagenet; above it (95 % interval of "
        "the difference): SM for 0 of 2 models, IG for 1 of 2 models and BIG for 2 of 2 models."
    )


# What is measured, and how the sentences start that only it can tell.
TOLD_BY = {
    "rows": [
        "Robust models have",
        "Robust models whose",
        "More attribution",
        "A uniform map",
        "F1 against",
        "Standard models",
        "In robust models",
    ],
    "robust": ["F1 against accuracy under attack"],
    "similarity": ["Maps and their boundary-based"],
    "layer_randomisation": ["With all layers drawn anew"],
    "models": [
        "Robust models have",
        "Robust models whose",
        "F1 against",
        "Standard models",
        "In robust models",
        "Maps and their boundary-based",
    ],
    "searches": [],
    "faults": ["1 unit of work"],
}


@pytest.mark.parametrize("empty", TOLD_BY)
def test_what_is_missing_is_not_told_of_and_the_rest_is(empty: str) -> None:
    every = sentences(small_results())
    found = sentences(without(small_results(), empty))
    starts = [sentence[:15] for sentence in every[1:] if not sentence.startswith(tuple(TOLD_BY[empty]))]
    assert all(any(sentence.startswith(start) for sentence in every) for start in TOLD_BY[empty])
    assert [sentence[:15] for sentence in found[1:]] == starts
    assert found[0].startswith("6 models")


def test_results_that_are_not_complete_say_so_first() -> None:
    def first(**units: int) -> str:
        counts = {name.replace("_", " "): count for name, count in units.items()}
        return sentences(replace(small_results(), provenance={"units": counts}))[0]

    assert first(planned=15, finished=4, with_faults=0).startswith("Unfinished: 4 of 15 units ")
    assert first(planned=15, finished=4, with_faults=2).startswith("Unfinished: 6 of 15 units ")
    # What failed is done, and the table of faults says so.
    assert first(planned=15, finished=14, with_faults=1).startswith("6 models")
    stopped = replace(nothing_measured(), provenance={"units": {"planned": 3, "finished": 0, "with faults": 0}})
    assert sentences(stopped)[1:] == ["No model was measured."]
