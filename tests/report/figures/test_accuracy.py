"""Figures 3.2, B.1 and B.2: standard models at their accuracy and score."""

import numpy as np
import pytest
from report.figures.panel_contents import against_accuracy, bar_ends, legend_words, points
from report.made_up_results import nothing_measured, small_results

from locality.report.aggregates import NotMeasuredError, aggregate


@pytest.mark.parametrize("score", ["f1", "precision", "recall"])
def test_standard_models_are_at_their_accuracy_and_score_with_their_intervals(score: str) -> None:
    results = small_results()
    means = aggregate(results)
    figure = against_accuracy(results, score)
    assert [panel.get_title() for panel in figure.axes] == ["Saliency Map", "Integrated Gradients", "Boundary-based IG"]
    for panel, method in zip(figure.axes, ("SM", "IG", "BIG"), strict=True):
        drawn = points(panel)
        assert len(drawn) == 2  # neither robust nor random ones
        for name in ("tiny_vgg", "tiny_resnet"):
            accuracy, height = means.accuracy[name], means.scores[name, method, score]
            across, up = bar_ends(drawn[accuracy.mean, height.mean])
            assert across[:, 0].tolist() == pytest.approx([accuracy.low, accuracy.high])
            assert up[:, 1].tolist() == pytest.approx([height.low, height.high])
        floor = means.scores["tiny_resnet_random", method, score]
        dashed = [line for line in panel.lines if np.asarray(line.get_ydata()).tolist() == [floor.mean, floor.mean]]
        assert len(dashed) == 1
    assert figure.axes[0].get_ylabel() == f"locality ({'F1' if score == 'f1' else score})"
    assert {"VGG", "ResNet", "standard", "random weights"} <= set(legend_words(figure))
    assert "robust" not in legend_words(figure)


def test_methods_that_were_not_measured_are_refused() -> None:
    with pytest.raises(NotMeasuredError, match="not measured for AGI"):
        against_accuracy(small_results(), methods=["SM", "AGI"])
    figure = against_accuracy(small_results(), "lift", ["BIG"])
    assert [panel.get_title() for panel in figure.axes] == ["Boundary-based IG"]
    assert figure.axes[0].get_ylabel() == "locality (lift)"


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(NotMeasuredError, match="no model has both accuracy and locality"):
        against_accuracy(nothing_measured())
