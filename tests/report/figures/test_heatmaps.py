"""Heat maps: colours, one scale per row, boxes, titles."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from report.made_up_results import abstaining, made_up_results, nothing_measured, small_results

from locality.report.aggregates import NotMeasuredError
from locality.report.figures.drawing import Plot
from locality.report.figures.heatmaps import (
    NEGATIVE,
    PAIR_HEATMAPS,
    POSITIVE,
    heat_picture,
    model_heatmaps,
    pair_heatmaps,
    shared_limit,
)
from locality.results.gallery import GalleryImage, gallery_table
from locality.results.results import Results


def tiles(plot: Plot) -> list[list[NDArray[np.uint8]]]:
    """The pictures of each row, without the colour scales."""
    rows: dict[int, list[NDArray[np.uint8]]] = {}
    for axes in plot.figure.axes:
        place = axes.get_subplotspec()
        if axes.images and place is not None:
            rows.setdefault(place.rowspan.start, []).append(np.asarray(axes.images[0].get_array()))
    return list(rows.values())


def with_gallery(*images: GalleryImage) -> Results:
    return small_results().with_tables(gallery=gallery_table(images))


def test_red_is_for_and_blue_against_and_zero_shows_the_image() -> None:
    image = np.zeros((1, 5, 3), np.uint8)
    image[0, 2:] = 255
    values = np.array([[2.0, -2.0, 1.0, 0.0, -0.5]])
    found = heat_picture(image, values, 1.0)[0].astype(int)
    assert found[0].tolist() == list(POSITIVE)
    assert found[1].tolist() == list(NEGATIVE)
    assert found[2].tolist() == list(POSITIVE)
    assert found[3].tolist() == [255] * 3
    # Half of the way from white to blue.
    assert found[4].tolist() == pytest.approx([(255 + part) / 2 for part in NEGATIVE], abs=1)
    faint = heat_picture(image, np.zeros((1, 5)), 1.0)[0]
    assert 150 < faint[0, 0] < 255


def test_the_scale_is_shared_and_single_pixels_do_not_set_it() -> None:
    flat = np.full((100, 100), 0.2)
    spike = flat.copy()
    spike[0, 0] = 1.0
    assert shared_limit([flat, spike]) == pytest.approx(0.2)
    assert shared_limit([flat, 2 * flat]) == pytest.approx(0.4)
    assert shared_limit([np.full((2, 2), np.nan)]) == 1.0
    assert shared_limit([np.zeros((2, 2))]) == 1.0


def test_a_row_has_one_scale_and_each_row_its_own() -> None:
    quiet, loud = (np.full((8, 8), size, np.float16) for size in (0.25, 0.5))
    image = np.full((8, 8, 3), 255, np.uint8)
    maps = {("tiny_vgg", "SM"): quiet, ("tiny_vgg", "IG"): loud}
    robust = {("tiny_vgg_robust", "SM"): quiet, ("tiny_vgg_robust", "IG"): quiet}
    shown = GalleryImage("image-0", image, ((1, 2, 5, 6),), "circle", maps | robust, {})
    rows = tiles(pair_heatmaps(with_gallery(shown), ("tiny_vgg", "tiny_vgg_robust")))
    assert rows[0][1][0, 0].tolist() == pytest.approx([(255 + part) / 2 for part in POSITIVE], abs=1)
    assert rows[0][2][0, 0].tolist() == list(POSITIVE)
    assert rows[1][1][0, 0].tolist() == list(POSITIVE)


def test_the_box_is_drawn_in_the_pixels_of_the_image() -> None:
    figure = model_heatmaps(small_results(), images=1).figure
    [box] = small_results().gallery[0].boxes
    for axes in figure.axes[:4]:
        drawn = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert {
            (*patch.get_xy(), patch.get_x() + patch.get_width(), patch.get_y() + patch.get_height()) for patch in drawn
        } == {box}
        assert axes.get_xlim() == (0, 64)
        assert axes.get_ylim() == (64, 0)


def test_scores_stand_under_the_maps() -> None:
    results = small_results()
    figure = model_heatmaps(results, "tiny_resnet", images=1).figure
    own = results.rows[(results.rows["model"] == "tiny_resnet") & (results.rows["image_id"] == "image-0")]
    scores = own.set_index("method")["f1"]
    assert [axes.get_xlabel() for axes in figure.axes[1:4]] == [f"F1 {scores[name]:.2f}" for name in ("SM", "IG", "BIG")]
    assert [axes.get_title() for axes in figure.axes[:4]] == ["image and box", "SM", "IG", "BIG"]
    assert figure.axes[0].get_ylabel() == "tiny_resnet\ncircle"


def test_the_default_models_are_a_pair() -> None:
    assert model_heatmaps(small_results()).figure.axes[0].get_ylabel().startswith("tiny_vgg\n")
    labels = [axes.get_ylabel() for axes in pair_heatmaps(small_results(), images=1).figure.axes if axes.images]
    assert [label.partition("\n")[0] for label in labels if label] == ["tiny_vgg", "tiny_vgg_robust"]


def test_images_of_other_models_do_not_take_the_place_of_a_models_own() -> None:
    """Two data sets in one gallery: the first images are of models that the figure does not show."""
    gallery = small_results().gallery
    ones = np.ones((64, 64), np.float16)
    others = [replace(image, image_id=f"x{image.image_id}", maps={("lone", "SM"): ones}) for image in gallery]
    half = replace(gallery[0], image_id="half", maps={("tiny_vgg", "SM"): ones})
    mixed = with_gallery(*others, *others, half, *gallery)
    assert len(tiles(model_heatmaps(mixed, "tiny_resnet", images=2))) == 2
    shown, expected = tiles(pair_heatmaps(mixed, images=1)), tiles(pair_heatmaps(small_results(), images=1))
    assert [len(row) for row in shown] == [4, 4]  # the image that only one of the two has seen is no comparison
    assert all(np.array_equal(one, other) for one, other in zip(shown[1], expected[1], strict=True))


def test_a_map_that_is_undefined_or_missing_says_so() -> None:
    image = np.full((8, 8, 3), 255, np.uint8)
    maps = {("tiny_vgg", "SM"): np.full((8, 8), np.nan, np.float16), ("tiny_vgg", "IG"): np.ones((8, 8), np.float16)}
    shown = GalleryImage("elsewhere", image, (), "circle", maps, {"tiny_vgg": "star"})
    figure = model_heatmaps(with_gallery(shown), "tiny_vgg", methods=["SM", "IG", "BIG"]).figure
    said = [[text.get_text() for text in axes.texts] for axes in figure.axes[1:4]]
    assert said == [["undefined"], [], ["undefined"]]
    assert figure.axes[1].get_xlabel() == "F1 undefined"
    assert "circle,\npredicted star" in figure.axes[0].get_ylabel()


def test_nothing_to_draw_is_an_error() -> None:
    for results in (nothing_measured(), made_up_results(4, 0)):
        with pytest.raises(NotMeasuredError, match="no maps were stored"):
            model_heatmaps(results)
    with pytest.raises(NotMeasuredError, match="no robust or certified model was measured together"):
        pair_heatmaps(nothing_measured())


def test_an_abstention_is_named_and_explained() -> None:
    results = abstaining(small_results(), "tiny_vgg_robust", 1)
    plot = pair_heatmaps(results, ("tiny_vgg", "tiny_vgg_robust"))
    labels = [axes.get_ylabel().partition("\n")[2] for axes in plot.figure.axes if axes.images and axes.get_ylabel()]
    assert labels == ["circle", "circle, abstained", "square", "square"]
    assert "nothing is attributed" in PAIR_HEATMAPS.caption(plot)
    assert "nothing is attributed" not in PAIR_HEATMAPS.caption(pair_heatmaps(small_results()))
