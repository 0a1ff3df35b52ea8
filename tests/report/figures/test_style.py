"""Files of figures: the same bytes each time, the widths of a paper, names as they are."""

from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from locality.report.aggregates import Model
from locality.report.figures.style import (
    COLUMN_WIDTH,
    PAGE_WIDTH,
    family_markers,
    figure_bytes,
    label_axes,
    panels,
    plain,
    write_figure,
)


def test_files_are_whole_and_the_same_each_time(tmp_path: Path) -> None:
    def drawn() -> Figure:
        figure, [axes] = panels(1, 2)
        axes.plot([0, 1], [1, 0])
        axes.set_title("ρ = 0.5 \N{CJK UNIFIED IDEOGRAPH-6728}")  # a letter that the font does not have
        return figure

    paths = write_figure(drawn(), tmp_path / "new", "name", ("png", "pdf", "svg"))
    assert [path.name for path in paths] == ["name.png", "name.pdf", "name.svg"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["name.pdf", "name.png", "name.svg"]
    for path, form in zip(paths, ("png", "pdf", "svg"), strict=True):
        assert figure_bytes(drawn(), form) == path.read_bytes()
    with pytest.raises(ValueError, match="`forms` must be among pdf, svg, png, got gif"):
        write_figure(drawn(), tmp_path, "name", ("gif",))


def test_figures_are_as_wide_as_a_column_or_a_page() -> None:
    for count, width in ((1, COLUMN_WIDTH), (3, PAGE_WIDTH), (5, PAGE_WIDTH)):
        figure, axes = panels(count, 2.0)
        assert figure.get_size_inches()[0] == pytest.approx(width)
        assert len(axes) == count
    assert figure.get_size_inches()[1] == pytest.approx(4.0)
    assert sum(each.get_visible() for each in figure.axes) == 5
    figure, axes = panels(3, 2.9, "column")
    assert figure.get_size_inches()[0] == pytest.approx(COLUMN_WIDTH)
    assert [each.get_subplotspec().rowspan.start for each in axes] == [0, 1, 2]


def test_axes_that_panels_share_are_named_once() -> None:
    name = "accuracy under attack (ℓ∞ 4/255, APGD-CE + APGD-DLR)"
    for count, width, across, up in ((3, "page", [1], [0]), (5, "page", [3, 4], [0, 3]), (3, "column", [2], [0, 1, 2])):
        _, axes = panels(count, 2.0, width)  # type: ignore[arg-type]
        label_axes(axes, name, "locality", width)  # type: ignore[arg-type]
        assert [place for place, each in enumerate(axes) if each.get_xlabel()] == across
        assert [place for place, each in enumerate(axes) if each.get_ylabel()] == up
    assert axes[2].get_xlabel() == "accuracy under attack\n(ℓ∞ 4/255, APGD-CE + APGD-DLR)"


def test_settings_of_the_caller_stay() -> None:
    before = dict(mpl.rcParams)
    figure_bytes(panels(1, 1)[0], "png")
    assert dict(mpl.rcParams) == before


def test_families_have_markers_of_their_own() -> None:
    models = [Model(name, family, "standard", None, None, None, "") for name, family in zip("abc", "xyx", strict=True)]
    found = family_markers(models)
    assert list(found) == ["x", "y"]
    assert found["x"] != found["y"]


def test_names_are_plain() -> None:
    assert plain("a$b$") == r"a\$b\$"
    assert plain("a\nb\x1b") == "a�b�"
    assert len(plain("x" * 100)) == 26
    assert plain("_a") == "\N{HAIR SPACE}_a"
