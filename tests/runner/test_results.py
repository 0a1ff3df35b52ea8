"""Results of several data sets, one at a time."""

from dataclasses import replace

import pytest
from report.made_up_results import small_results

from locality.runner.results import TABLES, Results, of_data

THERE = ("tiny_vgg", "tiny_vgg_robust")


@pytest.fixture
def mixed() -> Results:
    results = small_results()
    data = ["shapes" if name in THERE else "here" for name in results.models["model"]]
    elsewhere = replace(
        results.gallery[0],
        image_id="elsewhere",
        maps={key: value for key, value in results.gallery[0].maps.items() if key[0] in THERE},
    )
    return replace(results, models=results.models.assign(data=data), gallery=(elsewhere, *results.gallery))


def test_only_the_models_of_that_data_are_left_in_every_table(mixed: Results) -> None:
    shapes, here = of_data(mixed, "shapes"), of_data(mixed, "here")
    for name in TABLES:
        table = getattr(mixed, name)
        there = table["model"].isin(THERE)
        assert getattr(shapes, name)["model"].tolist() == table.loc[there, "model"].tolist()
        assert getattr(here, name)["model"].tolist() == table.loc[~there, "model"].tolist()
    assert {image.image_id for image in shapes.gallery} >= {"elsewhere"}
    assert "elsewhere" not in {image.image_id for image in here.gallery}
    assert here.gallery


def test_data_that_nothing_was_measured_on_is_an_error_that_names_the_others(mixed: Results) -> None:
    with pytest.raises(ValueError, match="`data` must be one of shapes, here, got 'coco'"):
        of_data(mixed, "coco")
