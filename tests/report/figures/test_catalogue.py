"""All figures by number, their files, captions and options."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray
from PIL import Image
from report.made_up_results import CERTIFIED, MODELS, abstaining, made_up_results, nothing_measured, small_results

from locality.report.aggregates import Budget, NotMeasuredError
from locality.report.figures import catalogue
from locality.report.figures.catalogue import FIGURES, draw_figures
from locality.report.figures.drawing import Drawing, If, Plot
from locality.report.figures.files import write_figure
from locality.report.figures.options import FigureOptions, by_data, figure_options, named_budget
from locality.report.figures.scatter import METHOD_TITLES
from locality.report.figures.style import COLUMN_WIDTH, STYLE, Width
from locality.results.gallery import gallery_table
from locality.results.results import Results
from locality.types import Threat

# Figure 2.3 computes its own network, and `means` is for results of one model.
FROM_RESULTS = [name for name in FIGURES if name not in ("2.3", "means")]


def other_results() -> Results:
    """The same models, images and axes as those of `small_results`, with other numbers inside their range."""
    results = small_results()

    def moved(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
        # Between the old value and the column's middle: the outermost values, which set the limits, are kept.
        values = {}
        for column in columns:
            old = table[column].astype(float)
            inner = (old > old.min()) & (old < old.max())
            values[column] = old.where(~inner, (old + old.median()) / 2)
        return table.assign(**values)

    gallery = tuple(replace(image, maps={key: -values for key, values in image.maps.items()}) for image in results.gallery)
    return results.with_tables(
        rows=moved(results.rows, "f1", "precision", "recall", "lift"),
        certified=moved(results["certified"], "radius"),
        layer_randomisation=moved(results["layer_randomisation"], "spearman"),
        gallery=gallery_table(gallery),
    )


@pytest.mark.slow
def test_every_figure_is_drawn_from_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STYLE, "savefig.dpi", 90)  # faster
    pictures = []
    for name, results in (("one", small_results()), ("other", other_results())):
        drawn = draw_figures(results, tmp_path / name, FROM_RESULTS, ("png",))
        assert list(drawn.files) == FROM_RESULTS
        assert drawn.skipped == {}
        pictures.append([inside(path) for [path] in drawn.files.values()])
    for name, one, other in zip(FROM_RESULTS, *pictures, strict=True):
        assert one.shape == other.shape, name
        # The contents of the panels follow the numbers; titles, axes and legends are the same.
        assert (one != other).any(2).mean() > 0.002, name


def inside(path: Path) -> NDArray[np.uint8]:
    """The middle of a picture: no labels and no legend."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    height, width = pixels.shape[:2]
    assert width >= 3.2 * 90
    return pixels[height // 5 : height // 2, width // 8 :]


def test_a_picture_without_data_would_be_noticed(tmp_path: Path) -> None:
    figure = Figure(figsize=(6.8, 2.9), layout="constrained")
    for panel in figure.subplots(1, 3):
        panel.set(title="Saliency Map", xlabel="accuracy", ylabel="locality")
    one, other = (inside(write_figure(figure, tmp_path, name, ("png",))[0]) for name in ("one", "other"))
    assert not (one != other).any()


@pytest.mark.slow
@pytest.mark.parametrize("models", ["few", "all"])
def test_text_of_a_column_wide_figure_is_inside_it_and_large_enough(models: str) -> None:
    results = small_results() if models == "few" else made_up_results(24, 0, (*MODELS, *CERTIFIED))
    names = [*FROM_RESULTS, "2.3"] if models == "few" else ["3.2", "3.4", "distance"]
    for name in names:
        figure = FIGURES[name].draw(results, FigureOptions(), "column").figure
        assert figure.get_size_inches()[0] == COLUMN_WIDTH, name
        assert 1 < figure.get_size_inches()[1] < 9.8, name  # of a page
        with mpl.rc_context(STYLE):
            figure.draw_without_rendering()
            bounds = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())  # type: ignore[no-untyped-call]
            texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
            written = [text for text in texts if text.get_text().strip() and text.get_visible()]
        width, height = figure.get_size_inches()
        assert bounds is not None
        assert bounds.x0 > -0.02, name
        assert bounds.y0 > -0.02, name
        assert bounds.x1 < width + 0.02, name
        assert bounds.y1 < height + 0.02, name
        assert min(float(text.get_fontsize()) for text in written) >= 6.5, name
    with pytest.raises(ValueError, match="`width` must be one of page, column, got 'wide'"):
        draw_figures(small_results(), Path("nowhere"), width="wide")  # type: ignore[arg-type]


def two_data_sets() -> Results:
    """Half of the models on other data, where every score is lower."""
    results = small_results()
    others = [name for name in results.models["model"] if "vgg" in name]
    families = [f"{family} {name}" for family, name in zip(results.models["family"], results.models["model"], strict=True)]
    data = ["shapes" if name in others else "tiny" for name in results.models["model"]]
    return results.with_tables(models=results.models.assign(data=data, family=families))


def names_of(figure: Figure) -> set[str]:
    """The families in the legend; one alone is not listed."""
    return {text.get_text().split(" ")[0] for text in figure.legends[0].get_texts()} & {"VGG", "ResNet"}


def test_no_figure_mixes_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[set[str]] = []

    def seen(figure: Figure, folder: Path, name: str, formats: Sequence[str]) -> list[Path]:
        shown.append(names_of(figure))
        return [folder / name]

    monkeypatch.setattr(catalogue, "write_figure", seen)
    drawn = draw_figures(two_data_sets(), tmp_path, ["3.4", "3.2"])
    assert [path.name for paths in drawn.files.values() for path in paths] == [
        *("fig3_4_shapes", "fig3_2_shapes"),
        *("fig3_4_tiny", "fig3_2_tiny"),
    ]
    assert list(drawn.files) == ["3.4 on shapes", "3.2 on shapes", "3.4 on tiny", "3.2 on tiny"]
    assert shown == [{"VGG"}, set(), {"ResNet"}, set()]  # Figure 3.2 shows one standard model of each
    # One data set alone needs no name in its file's.
    assert list(draw_figures(by_data(two_data_sets())["tiny"], tmp_path, ["3.4"]).files.values()) == [[tmp_path / "fig3_4"]]


def test_one_data_set_of_several_is_enough_for_a_named_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "write_figure", lambda figure, folder, name, formats: [folder / name])
    results = two_data_sets()
    table = results["layer_randomisation"]
    results = results.with_tables(layer_randomisation=table[table["model"] == "tiny_vgg"])
    drawn = draw_figures(results, tmp_path, ["2.4"])
    assert list(drawn.files) == ["2.4 on shapes"]
    assert drawn.skipped == {"2.4 on tiny": "layer randomisation was not measured"}


def test_captions_name_the_data_and_only_what_is_drawn() -> None:
    def caption(name: str, results: Results) -> str:
        [(data, part)] = by_data(results).items()
        return FIGURES[name].caption(FIGURES[name].draw(part, FigureOptions(), "page"), data)

    everything = caption("3.4", small_results())
    for words in ("Thin arrows", "The dark arrow", "Dashed: ", "Standard models", "Robust models", "ρ is Spearman's"):
        assert words in everything
    assert everything.endswith("Data: tiny-imagenet.")
    plain = made_up_results(12, 0, tuple(model for model in MODELS if model.name in ("tiny_vgg", "tiny_resnet")))
    little = caption("3.4", plain)
    for words in ("arrow", "Dashed", "Robust models", "ρ"):
        assert words not in little
    assert "Standard models" in little
    alone = FIGURES["3.4"].draw(small_results(), FigureOptions(("SM",)), "page")
    assert "own vertical scale" in everything
    assert "own vertical scale" not in FIGURES["3.4"].caption(alone)
    assert "Dashed" in caption("3.2", small_results())
    assert "Dashed" not in caption("3.2", plain)
    assert "quarters" in caption("distance", small_results())
    assert "quarters" not in caption("distance", made_up_results(6, 0))
    assert "Data" not in FIGURES["2.3"].caption(Plot(Figure()), "shapes")


def test_methods_score_and_attack_are_chosen() -> None:
    results = small_results()
    robust = results["robust"]
    weaker = robust.assign(epsilon=1 / 255, robust=robust["clean"])
    both = results.with_tables(robust=pd.concat([robust, weaker]))
    options = figure_options(both, ["BIG"], "lift", "linf 1/255")
    figure = FIGURES["3.4"].draw(both, options, "page").figure
    assert [panel.get_title() for panel in figure.axes] == [METHOD_TITLES["BIG"]]
    assert figure.axes[0].get_ylabel() == "locality (lift)"
    assert "1/255" in figure.axes[0].get_xlabel()
    assert FIGURES["B.1"].draw(both, options, "page").figure.axes[0].get_ylabel() == "locality (precision)"
    for given, problem in [
        ({"methods": ["AGI"]}, "`methods` must be one of SM, IG, BIG, got 'AGI'"),
        ({"score": "f2"}, "`score` must be one of precision, recall, f1, lift, got 'f2'"),
        ({"attack": "linf"}, "`attack` must be one of: linf 1/255 autoattack; linf 4/255 autoattack, got 'linf'"),
        ({"attack": "linf 2/0"}, "`attack` must be one of"),
        ({"attack": ""}, "`attack` must be one of"),
    ]:
        with pytest.raises(ValueError, match=problem):
            figure_options(both, **given)  # type: ignore[arg-type]


def test_a_budget_is_named_in_any_order() -> None:
    eight = Threat("linf", 8 / 255)
    known = [Budget("paper", eight), Budget("pgd20", eight), Budget("paper", Threat("l2", 0.5))]
    assert named_budget(known, "paper linf 8/255") == known[0]
    assert named_budget(known, "ℓ∞ 8/255, PGD-20") == known[1]
    assert named_budget(known, "l2") == known[2]
    assert named_budget(known, "0.5") == known[2]


def test_what_cannot_be_drawn_is_skipped_with_its_reason(tmp_path: Path) -> None:
    several = {name: drawing for name, drawing in catalogue.FIGURES.items() if name != "2.3"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "FIGURES", several)
        drawn = draw_figures(nothing_measured(), tmp_path)
    assert drawn.files == {}
    assert drawn.skipped["3.4"] == "accuracy under attack was not measured"
    assert list(drawn.skipped) == list(several)
    with pytest.raises(NotMeasuredError, match=r"Figure 3\.4 cannot be drawn from nothing: accuracy under attack"):
        draw_figures(nothing_measured(), tmp_path, ["3.4"])
    with pytest.raises(ValueError, match=r"`which` must be one of 2\.3, .*, got '9\.9'"):
        draw_figures(nothing_measured(), tmp_path, ["9.9"])


def test_a_caption_depends_on_what_is_drawn_not_on_its_words() -> None:
    drawing = Drawing("file", "Title", ("Always.", If("trend arrow", "A trend.")), lambda *_: Plot(Figure()))
    figure = Figure()
    figure.text(0, 0, "trend arrow")
    assert drawing.caption(Plot(figure)) == "Always."
    assert drawing.caption(Plot(Figure(), frozenset(["trend arrow"])), "shapes") == "Always. A trend. Data: shapes."


def test_captions_explain_certified_models_and_abstentions_where_there_are_any() -> None:
    def caption(name: str, results: Results) -> str:
        return FIGURES[name].caption(FIGURES[name].draw(results, FigureOptions(), "page"))

    certified = made_up_results(12, 0, (*MODELS[1:6], *CERTIFIED))
    for name in ("3.4", "distance"):
        assert "Certified models are orange and half-filled." in caption(name, certified)
        assert "Certified" not in caption(name, small_results())
    assert "random weights are grey" in caption("distance", small_results())
    for name in ("3.2", "3.4", "B.1", "B.2", "distance"):
        assert "Abstentions are neither" in caption(name, abstaining(small_results(), "tiny_vgg", 3))
        assert "Abstentions" not in caption(name, small_results())
    # Figure 3.2 draws standard models only.
    assert "Abstentions" not in caption("3.2", abstaining(small_results(), "tiny_vgg_robust", 3))


def test_a_new_figure_is_one_line_in_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(results: Results, options: FigureOptions, width: Width) -> Plot:
        figure = Figure(figsize=(2, 2))
        figure.subplots().hist(results.rows["f1"].dropna())
        return Plot(figure)

    monkeypatch.setitem(FIGURES, "histogram", Drawing("f1_histogram", "Distribution of F1", ("F1 of all images.",), draw))
    drawn = draw_figures(small_results(), tmp_path, ["histogram"], ["png"])
    assert drawn.files == {"histogram": [tmp_path / "f1_histogram.png"]}
    assert (tmp_path / "f1_histogram.png").stat().st_size > 1000
