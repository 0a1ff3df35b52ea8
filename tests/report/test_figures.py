"""All figures by number, and the scripts that draw one each."""

import ast
import subprocess
import sys
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
from report.made_up_results import nothing_measured, small_results, write_results

from locality.report.figures import FIGURES, draw_figures
from locality.report.measures import NotMeasuredError
from locality.report.palette import COLUMN_WIDTH, STYLE, write_figure
from locality.runner.results import Results

SCRIPTS = Path(__file__).parents[2] / "figures"
FROM_RESULTS = [name for name in FIGURES if name != "2.3"]  # the other one computes its own network


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
    return replace(
        results,
        rows=moved(results.rows, "f1", "precision", "recall"),
        sanity=moved(results.sanity, "spearman"),
        gallery=gallery,
    )


@pytest.mark.slow
def test_every_figure_is_drawn_from_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STYLE, "savefig.dpi", 90)  # quicker
    pictures = []
    for name, results in (("one", small_results()), ("other", other_results())):
        drawn = draw_figures(results, tmp_path / name, FROM_RESULTS, ("png",))
        assert list(drawn.files) == FROM_RESULTS
        assert drawn.left_out == {}
        pictures.append([inside(path) for [path] in drawn.files.values()])
    for name, one, other in zip(FROM_RESULTS, *pictures, strict=True):
        assert one.shape == other.shape, name
        # What is inside the panels follows the numbers; titles, axes and legends, which are the same, do not count.
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
def test_figures_for_a_column_keep_their_letters_inside_and_large_enough() -> None:
    for name, drawing in FIGURES.items():
        figure = drawing.draw(small_results(), width="column")
        assert figure.get_size_inches()[0] == COLUMN_WIDTH, name
        assert 1 < figure.get_size_inches()[1] < 9.8, name  # of a page
        with mpl.rc_context(STYLE):
            figure.draw_without_rendering()
            bounds = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())
            written = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
        width, height = figure.get_size_inches()
        assert bounds.x0 > -0.02, name
        assert bounds.y0 > -0.02, name
        assert bounds.x1 < width + 0.02, name
        assert bounds.y1 < height + 0.02, name
        assert min(text.get_fontsize() for text in written) >= 6.5, name
    with pytest.raises(ValueError, match="`width` must be page or column, got 'wide'"):
        draw_figures(small_results(), Path("nowhere"), width="wide")  # type: ignore[arg-type]


def test_what_cannot_be_drawn_is_left_out_with_its_reason(tmp_path: Path) -> None:
    from locality.report import figures

    several = {name: drawing for name, drawing in figures.FIGURES.items() if name != "2.3"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "FIGURES", several)
        drawn = draw_figures(nothing_measured(), tmp_path)
    assert drawn.files == {}
    assert drawn.left_out["3.4"] == "accuracy under attack was not measured"
    assert list(drawn.left_out) == list(several)
    with pytest.raises(NotMeasuredError, match=r"Figure 3\.4 cannot be drawn from nothing: accuracy under attack"):
        draw_figures(nothing_measured(), tmp_path, ["3.4"])
    with pytest.raises(ValueError, match=r"`which` must name figures among 2\.3, .*, got 9\.9"):
        draw_figures(nothing_measured(), tmp_path, ["9.9"])


def test_every_figure_has_a_short_script() -> None:
    for name, drawing in FIGURES.items():
        source = (SCRIPTS / f"{drawing.file}.py").read_text(encoding="utf-8")
        assert len(source.splitlines()) < 25
        if name == "2.3":
            continue
        [call] = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
        assert isinstance(call.args[0], ast.Constant)
        assert call.args[0].value == name


@pytest.mark.slow
def test_a_script_reads_results_and_writes_both_files(tmp_path: Path) -> None:
    folder = write_results(small_results(), tmp_path / "results")
    command = [sys.executable, str(SCRIPTS / "fig3_2.py"), str(folder), "--out", str(tmp_path / "drawn")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == ["fig3_2.pdf", "fig3_2.png"]
    assert done.stdout.count("\n") == 2
