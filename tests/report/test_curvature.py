"""Curvature from stored rows: by hand, in the table and in the figures."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from report.figures.panel_contents import arrows, bar_ends, legend_words, points
from report.made_up_results import MODELS, made_up_results, nothing_measured, small_results, without
from report.made_up_results import TABLES as STORED
from scipy.stats import spearmanr

from locality.curvature.attacked_losses import Losses
from locality.curvature.gap import RobustGap
from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.curvature import curvatures, index_and_upper
from locality.report.figures.catalogue import FIGURES
from locality.report.figures.options import FigureOptions
from locality.report.tables.build import tables
from locality.results.results import Results
from locality.types import Threat


def by_hand() -> Results:
    """One model, two layers, measured in two pieces of 1 and 3 images; losses 1 and 3 (train), 4 and 6 (test)."""
    layers = [("a", "one", 1, 2.0, 1.0, 0.0), ("a", "two", 1, 3.0, -2.0, 0.0)]
    layers += [("a", "one", 3, 2.0, 5.0, 0.0), ("a", "two", 3, 3.0, 0.0, 0.0)]
    piece = ("exact", 0, 40, 8, "linf", 8 / 255, 10)
    models = [("a", 1, 0.0, 4.0, 0.0, 1.0, 0, *piece), ("a", 3, 0.0, 4.0, 0.0, 1.0, 0, *piece)]
    images = [("a", "train", str(loss), 0.1, loss, False, False, loss) for loss in (1.0, 3.0)]
    images += [("a", "test", str(loss), 0.1, loss, False, True, math.nan) for loss in (4.0, 6.0)]
    stored = {"curvature": layers, "curvature_models": models, "curvature_images": images}
    return Results("by hand", {name: pd.DataFrame(rows, columns=list(STORED[name])) for name, rows in stored.items()})


def test_pieces_are_put_together() -> None:
    results = by_hand()
    # Traces (1 + 3 · 5)/4 = 4 and −2/4, which counts as 0: WCI = 2 · 2, its bound √13 · 2.
    assert index_and_upper(results["curvature"]) == pytest.approx((4.0, 2 * math.sqrt(13), 1))
    one = curvatures(results)["a"]
    assert (one.index.mean, one.images, one.clipped) == (4.0, 4, 1)
    # The error of a weighted mean: √((1 · 4)² + (3 · 4)²)/4.
    assert one.index.standard_error == pytest.approx(math.sqrt(160) / 4)
    assert one.index.low == 0.0
    assert one.index.high == pytest.approx(4 + 1.96 * math.sqrt(160) / 4, rel=1e-4)
    assert one.top_trace.mean == 2.0
    assert one.loss_gap.mean == 3.0
    assert one.error_gap.mean == 1.0
    assert one.threat == Threat("linf", 8 / 255)


def test_gaps_and_intervals_are_those_of_robust_gap() -> None:
    results = small_results()
    rows = results["curvature_images"]
    own = rows[rows["model"] == "tiny_vgg_robust"]

    def split(name: str) -> Losses:
        part = own[own["split"] == name]
        columns = [torch.tensor(part[column].astype(float).to_numpy()) for column in list(part.columns)[3:7]]
        return Losses(tuple(part["image_id"]), *columns)

    expected = RobustGap(split("train"), split("test"), Threat("linf", 0.1), 1, 0, 0, 0)
    one = curvatures(results)["tiny_vgg_robust"]
    for gap, other in ((one.loss_gap, expected.loss), (one.error_gap, expected.error)):
        assert (gap.mean, gap.low, gap.high) == pytest.approx((other.mean, other.low, other.high))


def test_the_table() -> None:
    [table] = tables(by_hand(), ["curvature"])
    [row] = table.rows
    texts = dict(zip([column.title for column in table.columns], [cell.text for cell in row], strict=True))
    assert (texts["WCI"], texts["upper"], texts["negative"], texts["images"]) == ("4", "7.211", "1 of 2", "4")
    assert texts["gap of the loss"].startswith("3.000 [")
    notes = table.note_texts()
    assert notes[0] == "Attack: ℓ∞ 8/255, PGD with 10 steps."
    assert any(note.startswith("Negative traces count as 0") for note in notes)
    [full] = tables(made_up_results(12, 0), ["curvature"])
    assert len(full.rows) == len(MODELS)
    by_name = {cells[0].text: cells for cells in full.rows}
    assert "[" in by_name["tiny_vit"][2].text  # probed
    assert "[" not in by_name["tiny_vgg"][2].text
    assert not any(note.startswith("Negative") for note in full.note_texts())
    with pytest.raises(NotMeasuredError, match="curvature was not measured"):
        tables(without(small_results(), "curvature_images"), ["curvature"])
    assert "curvature" not in [table.name for table in tables(nothing_measured())]


@pytest.mark.parametrize(("name", "number"), [("wci", "index"), ("trh", "top_trace"), ("gap", "loss_gap")])
def test_every_trained_model_is_drawn_at_its_numbers(name: str, number: str) -> None:
    results = small_results()
    means, curved = aggregate(results), curvatures(results)
    figure = FIGURES[name].draw(results, FigureOptions(), "page").figure
    figure.draw_without_rendering()
    trained = [model for model in means.models if model.kind != "random"]
    for panel, method in zip(figure.axes, ("SM", "IG", "BIG"), strict=True):
        places = {
            (getattr(curved[model.name], number).mean, means.scores[model.name, method, "f1"].mean) for model in trained
        }
        assert set(points(panel)) == places
        assert len(arrows(panel)) == len(means.pairs())
        robust = [model.name for model in trained if model.kind == "robust"]
        across = [getattr(curved[one], number).mean for one in robust]
        rank = spearmanr(across, [means.scores[one, method, "f1"].mean for one in robust]).statistic
        [note] = [text.get_text() for text in panel.texts if "ρ" in text.get_text()]
        assert f"ρ = {rank:.2f}".replace("-", "−") in note
        left, right = panel.get_xlim()
        shown = [tick.get_text() for tick in panel.get_xticklabels()]
        ticks = [place for place, text in zip(panel.get_xticks(), shown, strict=True) if text and left <= place <= right]
        assert len(ticks) >= 2
        assert not any("%" in text for text in shown)
    assert "random weights" in legend_words(figure)
    assert "f1" in FIGURES[name].draw(results, FigureOptions(score="f1"), "column").figure.axes[0].get_ylabel().lower()


def test_intervals_that_reach_zero_end_on_a_logarithmic_axis() -> None:
    results = small_results()
    models = results["curvature_models"].copy()
    models["wci_error"] = 1e3
    figure = FIGURES["wci"].draw(results.with_tables(curvature_models=models), FigureOptions(), "page").figure
    figure.draw_without_rendering()
    panel = figure.axes[0]
    assert panel.get_xscale() == "log"
    ends = [bar_ends(container)[0][:, 0] for container in points(panel).values()]
    assert min(np.min(end) for end in ends) > 0


def test_models_with_mostly_negative_traces_have_no_index_in_the_figure() -> None:
    results = small_results()
    layers = results["curvature"].copy()
    own = layers["model"] == "tiny_vgg"
    layers.loc[own & (layers["layer"] != "layer0.weight"), "trace"] = -1.0
    changed = results.with_tables(curvature=layers)
    assert curvatures(changed)["tiny_vgg"].usable_index.used == 0
    assert len(points(FIGURES["wci"].draw(changed, FigureOptions(), "page").figure.axes[0])) == 4
    layers.loc[own & (layers["layer"] == "layer1.weight"), "trace"] = 1.0
    assert curvatures(results.with_tables(curvature=layers))["tiny_vgg"].usable_index.used > 0


def test_many_decades_have_few_ticks() -> None:
    results = small_results()
    images = results["curvature_images"].copy()
    images.loc[images["model"] == "tiny_vgg", "top_trace"] = 1e-8
    figure = FIGURES["trh"].draw(results.with_tables(curvature_images=images), FigureOptions(), "page").figure
    figure.draw_without_rendering()
    panel = figure.axes[0]
    left, right = panel.get_xlim()
    assert 3 <= sum(left <= tick <= right for tick in panel.get_xticks()) <= 6


def test_negative_gaps_have_a_linear_axis() -> None:
    results = small_results()
    images = results["curvature_images"].copy()
    images.loc[(images["model"] == "tiny_vgg") & (images["split"] == "test"), "robust_loss"] = 0.1
    figure = FIGURES["gap"].draw(results.with_tables(curvature_images=images), FigureOptions(), "page").figure
    assert figure.axes[0].get_xscale() == "linear"
    assert min(x for x, _ in points(figure.axes[0])) < 0


def test_models_without_a_top_layer_are_not_drawn() -> None:
    results = small_results()
    images = results["curvature_images"].copy()
    images.loc[images["model"] == "tiny_vgg", "top_trace"] = math.nan
    figure = FIGURES["trh"].draw(results.with_tables(curvature_images=images), FigureOptions(), "page").figure
    assert len(points(figure.axes[0])) == 4
    images["top_trace"] = math.nan
    with pytest.raises(NotMeasuredError, match="no model has both curvature and locality"):
        FIGURES["trh"].draw(results.with_tables(curvature_images=images), FigureOptions(), "page")


def test_what_was_not_measured_is_said() -> None:
    with pytest.raises(NotMeasuredError, match="curvature was not measured"):
        FIGURES["wci"].draw(replace(small_results(), tables=dict(nothing_measured())), FigureOptions(), "page")
