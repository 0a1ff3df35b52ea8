"""The data of the page's gallery."""

import base64
import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from report.made_up_results import CERTIFIED, MODELS, abstaining, made_up_results, nothing_measured, small_results

from locality.report.page import gallery
from locality.report.page.gallery import gallery_data, map_picture
from locality.results.gallery import GalleryImage, gallery_table


def pixels(address: str) -> NDArray[np.uint8]:
    head, _, data = address.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_a_map_comes_back_from_its_picture() -> None:
    values = np.array([[-1.0, -0.25, 0.0], [0.0004, 0.5, 1.0]], np.float16)
    root = (pixels(map_picture(values)).astype(float) - 128) / 127
    assert (np.sign(root) * root**2).ravel() == pytest.approx(values.astype(float).ravel(), abs=0.008)


def test_scores_boxes_and_predictions_belong_to_their_image() -> None:
    results = small_results()
    found = gallery_data(results)
    assert found is not None
    assert [model["name"] for model in found["models"]] == list(results.models["model"])
    second = found["images"][1]
    assert (second["id"], second["label"], second["width"], second["height"]) == ("image-1", "square", 64, 64)
    assert second["boxes"] == [list(results.gallery[1].boxes[0])]
    assert (pixels(second["picture"]) == results.gallery[1].image).all()
    place = [model["name"] for model in found["models"]].index("tiny_vgg_robust")
    own = results.rows[(results.rows["model"] == "tiny_vgg_robust") & (results.rows["image_id"] == "image-1")]
    expected = own.set_index("method").loc["IG"]
    assert second["scores"][place][found["methods"].index("IG")] == pytest.approx(
        [expected["f1"], expected["lift"]], abs=1e-4
    )
    assert second["predictions"][place] == "square"


def test_the_page_starts_with_a_pair() -> None:
    found = gallery_data(small_results())
    assert found is not None
    assert [found["models"][place]["name"] for place in found["start"]["models"]] == ["tiny_vgg", "tiny_vgg_robust"]
    assert [found["methods"][place] for place in found["start"]["methods"]] == ["SM", "IG", "BIG"]


def test_undefined_and_missing_maps_and_scores_are_none() -> None:
    maps = {("tiny_vgg", "SM"): np.full((2, 2), np.nan, np.float16), ("tiny_resnet", "IG"): np.zeros((2, 2), np.float16)}
    image = GalleryImage("not in the rows", np.zeros((2, 2, 3), np.uint8), (), "circle", maps, {})
    found = gallery_data(small_results().with_tables(gallery=gallery_table([image])))
    assert found is not None
    [entry] = found["images"]
    assert entry["maps"][0] == [None, None]
    assert entry["maps"][1][0] is None
    assert entry["maps"][1][1] is not None
    assert entry["scores"] == [[None, None], [None, None]]
    assert entry["predictions"] == [None, None]


def test_a_very_large_gallery_is_cut_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "MOST_BYTES", 10)
    found = gallery_data(small_results())
    assert found is not None
    assert (len(found["images"]), found["omitted"]) == (1, 1)


def test_nothing_stored_is_no_gallery() -> None:
    assert gallery_data(nothing_measured()) is None


def test_kinds_and_abstentions_are_in_the_data() -> None:
    results = abstaining(made_up_results(8, 2, (*MODELS[1:2], *MODELS[4:5], *CERTIFIED[:1])), "tiny_vgg_certified", 1)
    found = gallery_data(results)
    assert found is not None
    assert [model["kind"] for model in found["models"]] == ["standard", "robust", "certified"]
    assert [image["abstained"] for image in found["images"]] == [[False, False, True], [False, False, False]]
