"""The widths of a paper, shared axes, names, and the looks of the four kinds."""

from typing import get_args

import pytest
from matplotlib.colors import to_rgb

from locality.report.figures.style import (
    COLUMN_WIDTH,
    LOOKS,
    PAGE_WIDTH,
    Width,
    family_markers,
    label_axes,
    panels,
    plain,
)
from locality.report.models import KINDS, Model
from locality.zoo.trainings import Kind


def test_figures_are_as_wide_as_a_column_or_a_page() -> None:
    for count, width in ((1, COLUMN_WIDTH), (3, PAGE_WIDTH), (5, PAGE_WIDTH)):
        figure, axes = panels(count, 2.0)
        assert figure.get_size_inches()[0] == pytest.approx(width)
        assert len(axes) == count
    assert figure.get_size_inches()[1] == pytest.approx(4.0)
    assert sum(panel.get_visible() for panel in figure.axes) == 5
    figure, axes = panels(3, 2.9, "column")
    assert figure.get_size_inches()[0] == pytest.approx(COLUMN_WIDTH)
    places = [panel.get_subplotspec() for panel in axes]
    assert [place.rowspan.start for place in places if place is not None] == [0, 1, 2]


@pytest.mark.parametrize(
    ("count", "width", "across", "up"), [(3, "page", [1], [0]), (5, "page", [3, 4], [0, 3]), (3, "column", [2], [0, 1, 2])]
)
def test_axes_that_panels_share_are_named_once(count: int, width: Width, across: list[int], up: list[int]) -> None:
    _, axes = panels(count, 2.0, width)
    label_axes(axes, "accuracy under attack (ℓ∞ 4/255, APGD-CE + APGD-DLR)", "locality", width)
    assert [index for index, panel in enumerate(axes) if panel.get_xlabel()] == across
    assert [index for index, panel in enumerate(axes) if panel.get_ylabel()] == up
    if width == "column":
        assert axes[2].get_xlabel() == "accuracy under attack\n(ℓ∞ 4/255, APGD-CE + APGD-DLR)"


def test_families_have_different_markers() -> None:
    markers = family_markers([Model(name, family) for name, family in zip("abc", "xyx", strict=True)])
    assert list(markers) == ["x", "y"]
    assert markers["x"] != markers["y"]


def test_every_kind_has_its_own_look_also_without_colour() -> None:
    assert tuple(LOOKS) == KINDS == (*get_args(Kind), "unknown")
    assert len({look.colour for look in LOOKS.values()}) == len(LOOKS)
    fillings = {}
    for kind in get_args(Kind):
        marker = LOOKS[kind].marker
        # Luminance of the left and of the right half: what is left of a look in a grey print.
        halves = (marker["markerfacecolor"], marker.get("markerfacecoloralt", marker["markerfacecolor"]))
        fillings[kind] = tuple(
            round(sum(w * c for w, c in zip((0.2, 0.7, 0.1), to_rgb(half), strict=True)), 1) for half in halves
        )
    assert len(set(fillings.values())) == 4


def test_names_are_plain() -> None:
    assert plain("a$b$") == r"a\$b\$"
    assert plain("a\nb\x1b") == "a�b�"
    assert len(plain("x" * 100)) == 26
    assert plain("_a") == "\N{HAIR SPACE}_a"
