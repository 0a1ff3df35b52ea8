import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locality.data.boxes import View, box_array, box_mask, box_share, clip, nonempty, union_area, union_areas
from locality.types import Box

corner = st.floats(0, 40, allow_nan=False, width=32)


@st.composite
def boxes(draw: st.DrawFn, number: int = 1) -> list[Box]:
    found = []
    for _ in range(number):
        (x0, x1), (y0, y1) = (sorted((draw(corner), draw(corner))) for _ in range(2))
        found.append(Box(x0, y0, x1 + 0.5, y1 + 0.5))
    return found


@given(boxes())
def test_mask_area_is_the_box_area_within_a_ring(found: list[Box]) -> None:
    box = found[0]
    count = int(box_mask(found, 50, 50).sum())
    assert abs(count - box.area) <= box.width + box.height + 1


def test_a_pixel_is_inside_if_its_centre_is() -> None:
    mask = box_mask([Box(0.5, 0.51, 2.5, 1.6)], 3, 4)[0]
    # Centres 0.5 and 1.5 lie in [0.5, 2.5), 2.5 does not; of the rows, 1.5 lies in [0.51, 1.6), 0.5 does not.
    assert mask.int().tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


def test_a_box_over_the_edge_is_cut() -> None:
    assert box_mask([Box(-3, -2, 1, 1)], 2, 3)[0].int().tolist() == [[1, 0, 0], [0, 0, 0]]


@given(boxes(3))
def test_union_mask_is_the_union_of_masks(found: list[Box]) -> None:
    union = box_mask(found[:1], 50, 50) | box_mask(found[1:2], 50, 50) | box_mask(found[2:], 50, 50)
    assert (box_mask(found, 50, 50) == union).all()


@given(st.lists(st.tuples(*[st.integers(0, 12)] * 4), min_size=1, max_size=5))
def test_union_area_of_whole_pixels_is_what_the_mask_counts(corners: list[tuple[int, int, int, int]]) -> None:
    found = [Box(min(a, c), min(b, d), max(a, c) + 1, max(b, d) + 1) for a, b, c, d in corners]
    assert union_area(box_array(found)) == box_mask(found, 20, 20).sum()


def test_a_box_of_any_size_is_masked() -> None:
    assert box_mask([Box(0, 0, 1e19, 1)], 2, 2)[0].int().tolist() == [[1, 1], [0, 0]]


def test_union_areas_of_many_images() -> None:
    corners = np.array([[0, 0, 2, 2], [0, 0, 2, 2], [1, 1, 3, 3], [0, 0, 1, 1], [4, 4, 5, 6]], dtype=float)
    assert union_areas(corners, np.array([0, 1, 3, 3, 5])).tolist() == [4, 7, 0, 3]


def test_share_counts_overlap_once_and_cuts_at_the_edge() -> None:
    assert box_share([Box(0, 0, 5, 10), Box(0, 0, 5, 5), Box(8, 0, 20, 10)], height=10, width=10) == pytest.approx(0.7)


@given(boxes(), st.floats(0.2, 3), st.floats(0.2, 3), st.integers(0, 9), st.integers(0, 9))
def test_view_moves_every_point_of_a_box_alike(found: list[Box], sx: float, sy: float, left: int, top: int) -> None:
    corners = box_array(found)
    seen = View(sx, sy, left, top, 30, 25).corners(corners)
    x0, y0, x1, y1 = corners[0]
    expected = [x0 * sx - left, y0 * sy - top, x1 * sx - left, y1 * sy - top]
    assert seen[0] == pytest.approx(np.clip(expected, 0, [30, 25, 30, 25]))


def test_a_box_outside_is_clipped_to_nothing() -> None:
    cut = clip(np.array([[12.0, 0, 15, 5], [0, 0, 5, 5]]), 10, 10)
    assert nonempty(cut).tolist() == [False, True]


@pytest.mark.parametrize(
    "corners", [(0, 0, 0, 5), (3, 0, 1, 5), (0, 5, 2, 4), (float("nan"), 0, 1, 1), (0, 0, float("inf"), 1)]
)
def test_a_box_that_is_none_is_refused(corners: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="`Box`"):
        Box(*corners)
