"""Results as a mapping of tables, and results of several data sets."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from report.made_up_results import nothing_measured, small_results

from locality.results.gallery import gallery_images, gallery_table, resized
from locality.results.results import Results, of_data
from locality.results.schema import CORE

SHAPES_MODELS = ("tiny_vgg", "tiny_vgg_robust")


@pytest.fixture
def mixed() -> Results:
    results = small_results()
    data = ["shapes" if name in SHAPES_MODELS else "here" for name in results.models["model"]]
    first = results.gallery[0]
    elsewhere = replace(
        first,
        image_id="elsewhere",
        maps={key: value for key, value in first.maps.items() if key[0] in SHAPES_MODELS},
    )
    images = gallery_table([elsewhere, *results.gallery])
    return results.with_tables(models=results.models.assign(data=data), gallery=images)


def test_only_the_models_of_that_data_are_left_in_every_table(mixed: Results) -> None:
    shapes, here = of_data(mixed, "shapes"), of_data(mixed, "here")
    for name, table in mixed.items():
        there = table["model"].isin(SHAPES_MODELS)
        assert shapes[name]["model"].tolist() == table.loc[there, "model"].tolist()
        if name in here:
            assert here[name]["model"].tolist() == table.loc[~there, "model"].tolist()
    assert {image.image_id for image in shapes.gallery} >= {"elsewhere"}
    assert "elsewhere" not in {image.image_id for image in here.gallery}
    assert here.gallery


def test_data_that_nothing_was_measured_on_is_an_error_that_names_the_others(mixed: Results) -> None:
    with pytest.raises(ValueError, match="`data` must be one of shapes, here, got 'coco'"):
        of_data(mixed, "coco")


def test_a_table_that_nobody_knows_is_kept_and_one_without_rows_is_not() -> None:
    toy = pd.DataFrame({"image_id": ["a"], "brightness": [0.5]})
    results = nothing_measured().with_tables(toy=toy, robust=pd.DataFrame({"model": []}))
    assert list(results) == [*CORE, "toy"]
    assert len(results) == 4
    assert results["toy"]["brightness"].tolist() == [0.5]
    assert list(nothing_measured().rows) == list(CORE["rows"])
    with pytest.raises(KeyError):
        results["robust"]
    # A table without models belongs to every data set.
    both = results.with_tables(models=small_results().models)
    assert "toy" in of_data(both, "tiny-imagenet")


def test_results_are_keys_of_what_is_computed_of_them() -> None:
    one, other = nothing_measured(), nothing_measured()
    assert one != other
    assert {one: 1}[one] == 1


def test_the_gallery_comes_back_as_it_was() -> None:
    before = small_results().gallery
    after = gallery_images(gallery_table(before))
    for one, other in zip(before, after, strict=True):
        assert (one.image_id, one.boxes, one.label, one.predictions) == (
            other.image_id,
            other.boxes,
            other.label,
            other.predictions,
        )
        assert np.array_equal(one.image, other.image)
        assert all(np.array_equal(heat, other.maps[key]) for key, heat in one.maps.items())


@pytest.mark.parametrize("shape", [(7, 9), (64, 64), (20, 3), (1, 1)])
def test_a_map_is_resized_as_torch_does_it(shape: tuple[int, int]) -> None:
    heat = np.random.default_rng(0).normal(size=(16, 12)).astype(np.float16)
    tensor = torch.from_numpy(heat.astype(np.float32))[None, None]
    expected = torch.nn.functional.interpolate(tensor, shape, mode="bilinear", align_corners=False)[0, 0].numpy()
    assert np.allclose(resized(heat, shape).astype(np.float32), expected, atol=2e-3)


def test_results_print_in_one_line() -> None:
    table = pd.DataFrame({"model": ["a", "b"]})
    results = Results("mine", {"similarity": table})
    assert repr(results) == "<Results of mine: rows 0, models 0, faults 0, similarity 2 rows>"
