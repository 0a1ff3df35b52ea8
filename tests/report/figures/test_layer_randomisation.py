"""Figure 2.4: one point per step, one line per method, one panel per model."""

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from report.made_up_results import STEPS, nothing_measured, small_results

from locality.report.aggregates import NotMeasuredError
from locality.report.figures.layer_randomisation import layer_randomisation_plot
from locality.statistics import summary


def test_curves_are_the_means_over_images_with_their_intervals() -> None:
    results = small_results()
    figure = layer_randomisation_plot(results, ["tiny_vgg"]).figure
    [panel] = [axes for axes in figure.axes if axes.get_visible()]
    assert panel.get_title() == "tiny_vgg"
    curves = [each for each in panel.containers if isinstance(each, ErrorbarContainer)]
    shifts: list[float] = []
    for curve, method in zip(curves, ("SM", "IG", "BIG"), strict=True):
        table = results["layer_randomisation"]
        own = table[(table["model"] == "tiny_vgg") & (table["method"] == method)]
        shifts.append(curve[0].get_xdata()[0] - STEPS[0])
        assert curve[0].get_xdata() - shifts[-1] == pytest.approx(np.array(STEPS))
        for place, layers in enumerate(STEPS):
            expected = summary(own[own["layers"] == layers]["spearman"].to_numpy())
            assert curve[0].get_ydata()[place] == pytest.approx(expected.mean)
            ends = curve[2][0].get_segments()[place][:, 1]
            assert ends.tolist() == pytest.approx([expected.low, expected.high], abs=1e-9)
    # Beside each other, evenly around the step, and less than half a step from it.
    assert shifts == pytest.approx([-shifts[2], 0, shifts[2]])
    assert 0.2 < shifts[2] < min(np.diff(STEPS)) / 4
    for line, _, bars in curves:
        assert line.get_markerfacecolor() == "none"
        assert bars[0].get_zorder() > line.get_zorder()
    assert panel.get_ylim()[0] <= -0.1
    assert panel.get_ylim()[1] >= 1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["SM", "IG", "BIG"]


def test_every_model_has_a_panel_on_the_same_scale() -> None:
    figure = layer_randomisation_plot(small_results()).figure
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == list(small_results().models["model"])
    assert len({axes.get_ylim() for axes in shown}) == 1
    assert [bool(axes.get_xlabel()) for axes in shown] == [False] * 4 + [True, False]
    two = layer_randomisation_plot(small_results(), ["tiny_vgg", "tiny_resnet"]).figure
    assert all(axes.get_xlabel() for axes in two.axes)


def test_undefined_steps_are_left_out_of_means() -> None:
    results = small_results()
    table = results["layer_randomisation"].copy()
    table.loc[table["image_id"] == "image-0", "spearman"] = np.nan
    figure = layer_randomisation_plot(results.with_tables(layer_randomisation=table), ["tiny_vgg"]).figure
    curve = figure.axes[0].containers[0]
    own = table[(table["model"] == "tiny_vgg") & (table["method"] == "SM") & (table["layers"] == 5)]
    assert curve[0].get_ydata()[1] == pytest.approx(own["spearman"].mean())


def test_some_of_the_methods() -> None:
    figure = layer_randomisation_plot(small_results(), methods=["BIG"]).figure
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["BIG"]
    assert all(len(axes.containers) == 1 for axes in figure.axes)
    with pytest.raises(NotMeasuredError, match="not measured for AGI"):
        layer_randomisation_plot(small_results(), methods=["AGI"])


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(NotMeasuredError, match="layer randomisation was not measured"):
        layer_randomisation_plot(nothing_measured())
    with pytest.raises(NotMeasuredError, match="was not measured for nobody"):
        layer_randomisation_plot(small_results(), ["nobody"])
