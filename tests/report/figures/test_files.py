"""Figures as files: complete, and the same bytes each time."""

from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from locality.errors import ArgumentError
from locality.report.figures.files import figure_bytes, write_figure
from locality.report.figures.style import panels


def test_files_are_complete_and_the_same_each_time(tmp_path: Path) -> None:
    def drawn() -> Figure:
        figure, [axes] = panels(1, 2)
        axes.plot([0, 1], [1, 0])
        axes.set_title("ρ = 0.5 \N{CJK UNIFIED IDEOGRAPH-6728}")  # a character that the font lacks
        return figure

    paths = write_figure(drawn(), tmp_path / "new", "name", ("png", "pdf", "svg"))
    assert [path.name for path in paths] == ["name.png", "name.pdf", "name.svg"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["name.pdf", "name.png", "name.svg"]
    for path, form in zip(paths, ("png", "pdf", "svg"), strict=True):
        assert figure_bytes(drawn(), form) == path.read_bytes()
    with pytest.raises(ArgumentError, match="`format` must be one of png, pdf, svg, got 'gif'"):
        write_figure(drawn(), tmp_path, "name", ("gif",))


def test_settings_of_the_caller_are_unchanged() -> None:
    before = dict(mpl.rcParams)
    figure_bytes(panels(1, 1)[0], "png")
    assert dict(mpl.rcParams) == before
