"""Figures with one point a model: what is drawn stands where the numbers say."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.patches import FancyArrowPatch
from report.made_up_results import MODELS, made_up_results, nothing_measured, small_results

from locality.report.aggregates import Budget, NotMeasuredError, measured
from locality.report.figures.scatter import FLOOR, TREND, TWIN, locality_against_accuracy, locality_against_robustness
from locality.report.figures.style import BLUE, GREEN, Width

BUDGET = Budget("autoattack", "linf", 4 / 255)


def points(panel: Axes) -> dict[tuple[float, float], ErrorbarContainer]:
    found = [each for each in panel.containers if isinstance(each, ErrorbarContainer)]
    return {(each[0].get_xdata()[0], each[0].get_ydata()[0]): each for each in found}


def bar_ends(container: ErrorbarContainer) -> list[np.ndarray]:
    """The ends of the horizontal and of the vertical bar."""
    return [lines.get_segments()[0] for lines in container[2]]


@pytest.mark.parametrize("score", ["f1", "precision", "recall"])
def test_standard_models_stand_at_their_accuracy_and_score_with_their_intervals(score: str) -> None:
    results = small_results()
    found = measured(results)
    figure = locality_against_accuracy(results, score)
    assert [panel.get_title() for panel in figure.axes] == ["Saliency Map", "Integrated Gradient", "Boundary-based IG"]
    for panel, method in zip(figure.axes, ("SM", "IG", "BIG"), strict=True):
        drawn = points(panel)
        assert len(drawn) == 2  # neither robust nor random ones
        for name in ("tiny_vgg", "tiny_resnet"):
            accuracy, height = found.accuracy[name], found.scores[name, method, score]
            across, up = bar_ends(drawn[accuracy.mean, height.mean])
            assert across[:, 0].tolist() == pytest.approx([accuracy.low, accuracy.high])
            assert up[:, 1].tolist() == pytest.approx([height.low, height.high])
        floor = found.scores["tiny_resnet_random", method, score]
        dashed = [line for line in panel.lines if list(line.get_ydata()) == [floor.mean, floor.mean]]
        assert len(dashed) == 1
    assert figure.axes[0].get_ylabel() == f"locality ({'F1' if score == 'f1' else score})"
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"VGG", "ResNet", "standard", "random weights"} <= set(words)
    assert "robust" not in words


@pytest.mark.parametrize("width", ["page", "column"])
def test_every_panel_has_its_own_scale_with_numbers(width: Width) -> None:
    results = small_results()
    for figure in (locality_against_accuracy(results, width=width), locality_against_robustness(results, width=width)):
        figure.draw_without_rendering()
        for panel in figure.axes:
            shown = [text.get_text() for text in panel.get_yticklabels() if text.get_visible()]
            assert len([text for text in shown if text]) > 1
            # Models fill more than a third of a panel's height: on one scale for all methods they would be a line.
            heights = [y for _, y in points(panel)]
            ends = [end for each in points(panel).values() for end in bar_ends(each)[1][:, 1]]
            assert np.ptp([*heights, *ends]) > np.ptp(panel.get_ylim()) / 3
        assert len({panel.get_ylim() for panel in figure.axes}) == 3


def test_error_bars_are_seen_above_their_markers() -> None:
    for container in points(locality_against_robustness(small_results()).axes[0]).values():
        line, caps, bars = container
        assert min(each.get_zorder() for each in (*caps, *bars)) > line.get_zorder()
        assert to_hex(bars[0].get_color()[0]) != to_hex(line.get_markerfacecolor())


def test_the_legend_names_what_is_drawn_and_nothing_else() -> None:
    def words(*names: str) -> set[str]:
        models = tuple(model for model in MODELS if model.name in names)
        figure = locality_against_robustness(made_up_results(12, 0, models))
        return {text.get_text() for text in figure.legends[0].get_texts()} & {FLOOR, TWIN, TREND}

    assert words("tiny_vgg", "tiny_resnet") == set()
    assert words("tiny_vgg", "tiny_vgg_robust") == {TWIN}
    assert words("tiny_vgg_robust", "tiny_resnet_random") == {FLOOR}
    assert words("tiny_vgg_robust", "tiny_resnet_robust", "tiny_vit_robust") == {TREND}


def test_methods_that_were_not_measured_are_refused() -> None:
    with pytest.raises(NotMeasuredError, match="it was not measured for AGI"):
        locality_against_accuracy(small_results(), methods=["SM", "AGI"])
    figure = locality_against_accuracy(small_results(), "lift", ["BIG"])
    assert [panel.get_title() for panel in figure.axes] == ["Boundary-based IG"]
    assert figure.axes[0].get_ylabel() == "locality (lift)"


def test_every_model_stands_at_its_own_accuracy_under_attack() -> None:
    results = small_results()
    found = measured(results)
    figure = locality_against_robustness(results)
    for panel, method in zip(figure.axes, ("SM", "IG", "BIG"), strict=True):
        drawn = points(panel)
        models = [model for model in found.models if model.kind != "random"]
        assert len(drawn) == len(models) == 5
        for model in models:
            place = found.robust[model.name, BUDGET].mean, found.scores[model.name, method, "f1"].mean
            marker = drawn[place][0]
            assert marker.get_color() == (GREEN if model.kind == "robust" else BLUE)
            # The filling says it, too, for readers who do not see the colour.
            assert marker.get_markerfacecolor() == (GREEN if model.kind == "robust" else "white")


def test_arrows_lead_from_a_model_to_its_twins_and_along_the_trend() -> None:
    results = small_results()
    found = measured(results)
    panel = locality_against_robustness(results).axes[2]
    ends = [(patch._posA_posB[0], patch._posA_posB[1]) for patch in panel.patches if isinstance(patch, FancyArrowPatch)]

    def place(name: str) -> tuple[float, float]:
        return found.robust[name, BUDGET].mean, found.scores[name, "BIG", "f1"].mean

    twins = [(place(one.name), place(other.name)) for one, other in found.pairs()]
    for pair in twins:
        assert pair in [(tuple(start), tuple(end)) for start, end in ends]
    [trend] = [each for each in ends if (tuple(each[0]), tuple(each[1])) not in twins]
    robust = np.array([place(other.name) for _, other in found.pairs()])
    slope, height = np.polyfit(*robust.T, 1)
    (x0, y0), (x1, y1) = trend
    assert (y1 - y0) / (x1 - x0) == pytest.approx(slope)
    assert y0 == pytest.approx(height + slope * x0)
    assert x0 < robust[:, 0].min() < robust[:, 0].max() < x1


def test_two_robust_models_have_no_trend() -> None:
    models = tuple(model for model in MODELS if model.name in ("tiny_vgg", "tiny_vgg_robust", "tiny_vit_robust"))
    panel = locality_against_robustness(made_up_results(12, 0, models)).axes[0]
    arrows = [patch for patch in panel.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 1
    assert any("2 models, no trend to tell" in text.get_text() for text in panel.texts)


def test_the_rank_correlation_is_that_of_the_points() -> None:
    from scipy.stats import spearmanr

    results = small_results()
    found = measured(results)
    panel = locality_against_robustness(results).axes[1]
    robust = [model.name for model in found.models if model.kind == "robust"]
    heights = [found.scores[name, "IG", "f1"].mean for name in robust]
    expected = spearmanr([found.robust[name, BUDGET].mean for name in robust], heights).statistic
    [note] = [text.get_text() for text in panel.texts if "ρ" in text.get_text()]
    assert f"ρ = {expected:.2f}".replace("-", "−") in note
    assert "3 models" in note


def test_models_that_look_alike_have_letters_and_a_key() -> None:
    figure = locality_against_robustness(small_results())
    legend = figure.legends[0]
    assert legend.get_title().get_text().replace("\N{NO-BREAK SPACE}", " ") == "a ResNet AT ℓ∞ 4/255   b ResNet AT ℓ∞ 8/255"
    for panel in figure.axes:
        letters = [text for text in panel.texts if text.get_text() in ("a", "b")]
        assert len(letters) == 2
    words = [text.get_text() for text in legend.get_texts()]
    assert {"to its robust twin", "trend of the robust"} <= set(words)
    arrows = [patch for patch in legend.get_patches() if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 2
    alone = tuple(model for model in MODELS if model.name in ("tiny_vgg", "tiny_vgg_robust", "tiny_resnet"))
    assert locality_against_robustness(made_up_results(12, 0, alone)).legends[0].get_title().get_text() == ""


def test_letters_keep_clear_of_arrows() -> None:
    models = [model for model in MODELS if model.name != "tiny_squeeze"]
    figure = locality_against_robustness(made_up_results(40, 0, tuple(models)))
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    crossed = 0
    for panel in figure.axes:
        boxes = [text.get_window_extent(renderer) for text in panel.texts if text.get_text() in tuple("abcd")]
        assert len(boxes) == 4
        for patch in (patch for patch in panel.patches if isinstance(patch, FancyArrowPatch)):
            start, end = panel.transData.transform(patch._posA_posB)
            ways = start + np.linspace(0, 1, 400)[:, None] * (end - start)
            crossed += sum(any(box.contains(x, y) for x, y in ways) for box in boxes)
    assert crossed <= 2  # of 84 pairs; where all places are taken, one must give way


def test_the_trend_is_seen_between_and_beyond_the_models() -> None:
    panel = locality_against_robustness(small_results()).axes[2]
    [trend] = [patch for patch in panel.patches if isinstance(patch, FancyArrowPatch) and patch.get_linewidth() > 1]
    assert to_hex(trend.get_edgecolor()) not in (GREEN.lower(), BLUE.lower())
    assert trend.get_alpha() in (None, 1)
    robust = [x for (x, _), each in points(panel).items() if each[0].get_color() == GREEN]
    (start, _), (end, _) = trend._posA_posB
    assert start < min(robust) - 0.3 * np.ptp(robust)
    assert end > max(robust) + 0.3 * np.ptp(robust)
    # Its head stands clear of every marker and bar.
    assert trend.get_zorder() > max(each[0].get_zorder() for each in points(panel).values())
    everyone = [x for x, _ in points(panel)]
    assert end >= max(robust) + 0.1 * np.ptp(everyone)


def test_another_budget_can_be_asked_for() -> None:
    results = small_results()
    robust = results["robust"]
    weaker = robust.assign(epsilon=1 / 255, robust=robust["clean"])
    import pandas as pd

    both = results.with_tables(robust=pd.concat([robust, weaker]))
    figure = locality_against_robustness(both, budget=Budget("autoattack", "linf", 1 / 255))
    assert "1/255" in figure.axes[1].get_xlabel()
    clean = measured(both).clean["tiny_vgg", BUDGET].mean
    assert clean in [x for x, _ in points(figure.axes[0])]
    assert "4/255" in locality_against_robustness(both).axes[1].get_xlabel()


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(NotMeasuredError, match="accuracy and locality of no model"):
        locality_against_accuracy(nothing_measured())
    with pytest.raises(NotMeasuredError, match="accuracy under attack was not measured"):
        locality_against_robustness(nothing_measured())
    with pytest.raises(NotMeasuredError, match="of no model were both measured"):
        locality_against_robustness(small_results(), budget=Budget("cw20", "l2", 0.5))


def test_hostile_names_are_drawn_as_they_are() -> None:
    odd = {"VGG": r"$\frac{1$", "ResNet": "_hidden <b>\x1b[2J"}
    models = tuple(replace(model, family=odd[model.family]) for model in MODELS if model.family in odd)
    figure = locality_against_robustness(made_up_results(8, 0, models))
    figure.savefig("/dev/null", format="png")  # mathtext would fail here
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert r"\$\frac{1\$" in words
    assert any("_hidden <b>" in word and "\x1b" not in word for word in words)
