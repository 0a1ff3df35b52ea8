"""Figures of one model: best and worst images, histogram, means."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from report.made_up_results import MODELS, made_up_results, small_results

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.figures.catalogue import FIGURES
from locality.report.figures.extremes import extreme_heatmaps
from locality.report.figures.histogram import score_histogram
from locality.report.figures.means import model_means
from locality.report.figures.options import FigureOptions
from locality.results.results import Results


@pytest.fixture(scope="module")
def one_model() -> Results:
    return made_up_results(24, 5, MODELS[1:2])


def test_the_best_images_come_first_and_the_worst_last(one_model: Results) -> None:
    figure = extreme_heatmaps(one_model).figure
    rows = one_model.rows
    stored = [image.image_id for image in one_model.gallery]
    lifts = rows[rows["image_id"].isin(stored)].groupby("image_id")["lift"].mean().sort_values(ascending=False)
    labels = {image.image_id: image.label for image in one_model.gallery}
    titles = [panel.get_ylabel().split("\n") for panel in figure.axes if panel.get_ylabel().startswith(("best", "worst"))]
    assert [title[0] for title in titles] == ["best 1", "best 2", "best 3", "worst 2", "worst 1"]
    assert [title[2].split(",")[0] for title in titles] == [labels[image] for image in lifts.index]
    own = rows[(rows["image_id"] == lifts.index[0]) & (rows["method"] == "SM")]["lift"].iloc[0]
    assert figure.axes[1].get_xlabel() == f"lift {own:.2f}".replace("-", "−")


def test_without_maps_there_is_nothing_to_show() -> None:
    with pytest.raises(NotMeasuredError, match="no maps were stored"):
        extreme_heatmaps(made_up_results(8, 0, MODELS[1:2]))


def test_every_image_is_in_the_histogram_once(one_model: Results) -> None:
    figure = score_histogram(one_model).figure
    for panel, method in zip(figure.axes, ("SM", "IG", "BIG"), strict=True):
        bars = [bar for bar in panel.patches if isinstance(bar, Rectangle)]
        own = one_model.rows.loc[one_model.rows["method"] == method, "lift"].dropna()
        counts, _ = np.histogram(own, [*(bar.get_x() for bar in bars), bars[-1].get_x() + bars[-1].get_width()])
        assert counts.sum() == len(own)
        assert [bar.get_height() for bar in bars] == counts.tolist()
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["mean"]  # what the triangle is
    [several] = score_histogram(small_results()).figure.legends
    assert len(several.get_texts()) == 1 + 6  # models


def test_the_means_of_one_model_are_in_one_figure(one_model: Results) -> None:
    figure = model_means(one_model).figure
    means = aggregate(one_model)
    for panel, score in zip(figure.axes, ("precision", "recall", "f1", "lift"), strict=True):
        drawn = sorted(float(line.get_xdata()[0]) for line in panel.lines if line.get_marker() == "o")  # type: ignore[index,arg-type]
        assert drawn == pytest.approx(sorted(means.scores["tiny_vgg", method, score].mean for method in ("SM", "IG", "BIG")))
    with pytest.raises(NotMeasuredError, match="it shows one model, 6 were measured"):
        model_means(small_results())


def test_figures_that_compare_models_say_how_many_they_have(one_model: Results) -> None:
    for name in ("3.2", "3.4", "distance", "B.1", "B.2"):
        assert FIGURES[name].draw(one_model, FigureOptions(), "page").points == 1
