"""Locality against boundary distance: means, quarters of the images, and correlations."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from report.figures.panel_contents import panel_annotations
from report.made_up_results import MODELS, made_up_results, nothing_measured, small_results
from scipy.stats import spearmanr

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.figures.distance import BINS, locality_against_distance


def test_a_marker_is_a_models_mean_and_its_line_the_quarters_of_its_images() -> None:
    results = small_results()
    means = aggregate(results)
    panel = locality_against_distance(results).figure.axes[2]
    assert panel.get_xscale() == "log"
    own = results.rows[(results.rows["model"] == "tiny_vgg") & (results.rows["method"] == "BIG")]
    own = own[own["found"]].sort_values("distance")
    quarters = np.array_split(np.arange(len(own)), BINS)
    expected = [(own["distance"].iloc[part].median(), own["f1"].iloc[part].mean()) for part in quarters]
    curves = [np.asarray(line.get_xydata()) for line in panel.lines]
    lines = [curve for curve in curves if len(curve) == BINS]
    assert any(np.allclose(line, expected) for line in lines)
    markers = [tuple(curve[0]) for curve in curves if len(curve) == 1]
    assert (means.distance["tiny_vgg"].mean, means.scores["tiny_vgg", "BIG", "f1"].mean) in markers
    bands = [band for band in panel.collections if isinstance(band, PolyCollection)]
    assert len(bands) == len(means.models)


def test_the_note_has_both_correlations() -> None:
    results = small_results()
    means = aggregate(results)
    [note] = [text.get_text() for text in locality_against_distance(results).figure.axes[0].texts if "ρ" in text.get_text()]
    names = [model.name for model in means.models]
    heights = [means.scores[name, "SM", "f1"].mean for name in names]
    between = spearmanr([means.distance[name].mean for name in names], heights).statistic
    inside = []
    for name in names:
        own = results.rows[(results.rows["model"] == name) & (results.rows["method"] == "SM") & results.rows["found"]]
        inside.append(spearmanr(own["distance"], own["f1"]).statistic)
    assert note == f"ρ = {between:.2f} between models, {np.median(inside):.2f} within".replace("-", "−")


def test_robust_models_of_one_family_have_letters_and_a_key() -> None:
    figure = locality_against_distance(small_results()).figure
    key = figure.legends[0].get_title().get_text().replace("\N{NO-BREAK SPACE}", " ")
    assert key == "a ResNet AT ℓ∞ 4/255   b ResNet AT ℓ∞ 8/255"
    means = aggregate(small_results())
    for panel, method in zip(figure.axes, ("SM", "IG", "BIG"), strict=True):
        letters = {note.get_text(): note.xy for note in panel_annotations(panel) if note.get_text() in ("a", "b")}
        assert letters == {
            letter: (means.distance[name].mean, means.scores[name, method, "f1"].mean)
            for letter, name in (("a", "tiny_resnet_robust"), ("b", "tiny_resnet_robust8"))
        }


def test_one_model_alone_has_a_trend_within_it() -> None:
    results = made_up_results(24, 0, MODELS[:1])
    figure = locality_against_distance(results).figure
    panel = figure.axes[0]
    assert panel.texts[0].get_text().endswith(" within models")
    figure.draw_without_rendering()
    # A narrow range still has several numbers on its axis.
    low, high = panel.get_xlim()
    assert sum(low <= tick <= high for tick in panel.get_xticks()) >= 2


def test_few_images_have_a_marker_and_no_line() -> None:
    panel = locality_against_distance(made_up_results(6, 0)).figure.axes[0]
    assert all(len(np.asarray(line.get_xdata())) < BINS for line in panel.lines)


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(NotMeasuredError, match="no model has both boundary distance and locality"):
        locality_against_distance(nothing_measured())


def test_bands_end_where_the_score_ends() -> None:
    results = small_results()
    rows = results.rows.assign(f1=(np.arange(len(results.rows)) % 7 == 0).astype(float))  # mostly 0: the intervals are wide
    panel = locality_against_distance(replace(results, tables={**results.tables, "rows": rows})).figure.axes[0]
    heights = np.concatenate([np.asarray(path.vertices)[:, 1] for band in panel.collections for path in band.get_paths()])
    assert heights.min() >= 0
    assert heights.max() <= 1
