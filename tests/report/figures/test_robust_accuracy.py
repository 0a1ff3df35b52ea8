"""Figure 3.4: every model at its accuracy under attack, with arrows and letters."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch
from report.figures.panel_contents import (
    against_accuracy,
    against_robustness,
    arrow_ends,
    arrows,
    bar_ends,
    legend_words,
    points,
)
from report.made_up_results import CERTIFIED, MODELS, made_up_results, nothing_measured, small_results
from scipy.stats import spearmanr

from locality.report.aggregates import Budget, NotMeasuredError, aggregate
from locality.report.figures.scatter import PAIR, RANDOM_WEIGHTS, TREND
from locality.report.figures.style import BLUE, GREEN, LOOKS, Width
from locality.types import Threat

BUDGET = Budget("autoattack", Threat("linf", 4 / 255))


@pytest.mark.parametrize("width", ["page", "column"])
def test_every_panel_has_its_own_scale_with_numbers(width: Width) -> None:
    results = small_results()
    for figure in (against_accuracy(results, width=width), against_robustness(results, width=width)):
        figure.draw_without_rendering()
        for panel in figure.axes:
            shown = [text.get_text() for text in panel.get_yticklabels() if text.get_visible()]
            assert len([text for text in shown if text]) > 1
            # Models fill more than a third of a panel's height: on one scale for all methods they would be a line.
            heights = [y for _, y in points(panel)]
            ends = [end for container in points(panel).values() for end in bar_ends(container)[1][:, 1]]
            assert np.ptp([*heights, *ends]) > np.ptp(panel.get_ylim()) / 3
        assert len({panel.get_ylim() for panel in figure.axes}) == 3


def test_error_bars_are_above_their_markers() -> None:
    for line, caps, bars in points(against_robustness(small_results()).axes[0]).values():
        assert min(artist.get_zorder() for artist in (*caps, *bars)) > line.get_zorder()
        assert to_hex(bars[0].get_color()[0]) != to_hex(line.get_markerfacecolor())


def test_the_legend_names_only_what_is_drawn() -> None:
    def words(*names: str) -> set[str]:
        models = tuple(model for model in MODELS if model.name in names)
        return set(legend_words(against_robustness(made_up_results(12, 0, models)))) & {RANDOM_WEIGHTS, PAIR, TREND}

    assert words("tiny_vgg", "tiny_resnet") == set()
    assert words("tiny_vgg", "tiny_vgg_robust") == {PAIR}
    assert words("tiny_vgg_robust", "tiny_resnet_random") == {RANDOM_WEIGHTS}
    assert words("tiny_vgg_robust", "tiny_resnet_robust", "tiny_vit_robust") == {TREND}


def test_every_model_is_at_its_own_accuracy_under_attack() -> None:
    results = small_results()
    means = aggregate(results)
    figure = against_robustness(results)
    for panel, method in zip(figure.axes, ("SM", "IG", "BIG"), strict=True):
        drawn = points(panel)
        models = [model for model in means.models if model.kind != "random"]
        assert len(drawn) == len(models) == 5
        for model in models:
            position = means.robust[model.name, BUDGET].mean, means.scores[model.name, method, "f1"].mean
            marker = drawn[position][0]
            assert marker.get_color() == (GREEN if model.kind == "robust" else BLUE)
            # The filling repeats it for readers who do not see the colour.
            assert marker.get_markerfacecolor() == (GREEN if model.kind == "robust" else "white")


def test_certified_models_look_different_from_robust_ones_and_are_no_part_of_their_trend() -> None:
    results = made_up_results(24, 0, (*MODELS[1:6], *CERTIFIED))
    means = aggregate(results)
    figure = against_robustness(results)
    looks = {}
    for model in means.models:
        position = means.robust[model.name, BUDGET].mean, means.scores[model.name, "IG", "f1"].mean
        marker = points(figure.axes[1])[position][0]
        looks[model.kind] = marker.get_color(), to_hex(marker.get_markerfacecolor()), marker.get_fillstyle()
    assert looks["certified"] == (LOOKS["certified"].colour, LOOKS["certified"].colour.lower(), "left")
    assert len(set(looks.values())) == len({fill for _, _, fill in looks.values()}) + 1 == 3  # colour and filling
    assert {"standard", "robust", "certified"} <= set(legend_words(figure))
    [note] = [text.get_text() for text in figure.axes[1].texts if "models" in text.get_text()]
    assert note == "robust: 2 models, too few for a trend"
    pairs = {(first.name, second.name) for first, second in means.pairs()}
    assert ("tiny_vgg", "tiny_vgg_certified") in pairs
    assert len(arrows(figure.axes[1])) == len(pairs) == 4


def test_arrows_lead_from_standard_models_to_their_counterparts_and_along_the_trend() -> None:
    results = small_results()
    means = aggregate(results)
    ends = [arrow_ends(arrow) for arrow in arrows(against_robustness(results).axes[2])]

    def position(name: str) -> tuple[float, float]:
        return means.robust[name, BUDGET].mean, means.scores[name, "BIG", "f1"].mean

    pairs = [(position(one.name), position(other.name)) for one, other in means.pairs()]
    assert set(pairs) <= set(ends)
    [trend] = [end for end in ends if end not in pairs]
    robust = np.array([position(other.name) for _, other in means.pairs()])
    slope, height = np.polyfit(robust[:, 0], robust[:, 1], 1)
    (x0, y0), (x1, y1) = trend
    assert (y1 - y0) / (x1 - x0) == pytest.approx(slope)
    assert y0 == pytest.approx(height + slope * x0)
    assert x0 < robust[:, 0].min() < robust[:, 0].max() < x1


def test_two_robust_models_have_no_trend() -> None:
    models = tuple(model for model in MODELS if model.name in ("tiny_vgg", "tiny_vgg_robust", "tiny_vit_robust"))
    panel = against_robustness(made_up_results(12, 0, models)).axes[0]
    assert len(arrows(panel)) == 1
    assert any("2 models, too few for a trend" in text.get_text() for text in panel.texts)


def test_the_rank_correlation_is_that_of_the_points() -> None:
    results = small_results()
    means = aggregate(results)
    panel = against_robustness(results).axes[1]
    robust = [model.name for model in means.models if model.kind == "robust"]
    heights = [means.scores[name, "IG", "f1"].mean for name in robust]
    expected = spearmanr([means.robust[name, BUDGET].mean for name in robust], heights).statistic
    [note] = [text.get_text() for text in panel.texts if "ρ" in text.get_text()]
    assert f"ρ = {expected:.2f}".replace("-", "−") in note
    assert "3 models" in note


def test_models_that_look_alike_have_letters_and_a_key() -> None:
    figure = against_robustness(small_results())
    legend = figure.legends[0]
    assert legend.get_title().get_text().replace("\N{NO-BREAK SPACE}", " ") == "a ResNet AT ℓ∞ 4/255   b ResNet AT ℓ∞ 8/255"
    for panel in figure.axes:
        assert len([text for text in panel.texts if text.get_text() in ("a", "b")]) == 2
    assert {PAIR, TREND} <= set(legend_words(figure))
    assert len([patch for patch in legend.get_patches() if isinstance(patch, FancyArrowPatch)]) == 2
    distinct = tuple(model for model in MODELS if model.name in ("tiny_vgg", "tiny_vgg_robust", "tiny_resnet"))
    assert against_robustness(made_up_results(12, 0, distinct)).legends[0].get_title().get_text() == ""


def test_letters_keep_clear_of_arrows() -> None:
    models = [model for model in MODELS if model.name != "tiny_squeeze"]
    figure = against_robustness(made_up_results(40, 0, tuple(models)))
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    crossed = 0
    for panel in figure.axes:
        boxes = [text.get_window_extent(renderer) for text in panel.texts if text.get_text() in tuple("abcd")]
        assert len(boxes) == 4
        for arrow in arrows(panel):
            start, end = panel.transData.transform(arrow_ends(arrow))
            line = start + np.linspace(0, 1, 400)[:, None] * (end - start)
            crossed += sum(any(box.contains(x, y) for x, y in line) for box in boxes)
    assert crossed <= 2  # of 84 pairs; where all positions are taken, one must give way


def test_the_trend_is_visible_between_and_beyond_the_models() -> None:
    panel = against_robustness(small_results()).axes[2]
    [trend] = [arrow for arrow in arrows(panel) if arrow.get_linewidth() > 1]
    assert to_hex(trend.get_edgecolor()) not in (GREEN.lower(), BLUE.lower())
    assert trend.get_alpha() in (None, 1)
    robust = [x for (x, _), container in points(panel).items() if container[0].get_color() == GREEN]
    (start, _), (end, _) = arrow_ends(trend)
    assert start < min(robust) - 0.3 * np.ptp(robust)
    assert end > max(robust) + 0.3 * np.ptp(robust)
    # Its head is clear of every marker and bar.
    assert trend.get_zorder() > max(container[0].get_zorder() for container in points(panel).values())
    everyone = [x for x, _ in points(panel)]
    assert end >= max(robust) + 0.1 * np.ptp(everyone)


def test_another_budget_can_be_chosen() -> None:
    results = small_results()
    robust = results["robust"]
    weaker = robust.assign(epsilon=1 / 255, robust=robust["clean"])
    both = results.with_tables(robust=pd.concat([robust, weaker]))
    figure = against_robustness(both, budget=Budget("autoattack", Threat("linf", 1 / 255)))
    assert "1/255" in figure.axes[1].get_xlabel()
    clean = aggregate(both).clean["tiny_vgg", BUDGET].mean
    assert clean in [x for x, _ in points(figure.axes[0])]
    assert "4/255" in against_robustness(both).axes[1].get_xlabel()


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(NotMeasuredError, match="accuracy under attack was not measured"):
        against_robustness(nothing_measured())
    with pytest.raises(NotMeasuredError, match="no model has both accuracy under attack and locality"):
        against_robustness(small_results(), budget=Budget("cw20", Threat("l2", 0.5)))


def test_hostile_names_are_drawn_literally() -> None:
    odd = {"VGG": r"$\frac{1$", "ResNet": "_hidden <b>\x1b[2J"}
    models = tuple(replace(model, family=odd[model.family]) for model in MODELS if model.family in odd)
    figure = against_robustness(made_up_results(8, 0, models))
    figure.savefig("/dev/null", format="png")  # mathtext would fail here
    words = legend_words(figure)
    assert r"\$\frac{1\$" in words
    assert any("_hidden <b>" in word and "\x1b" not in word for word in words)
