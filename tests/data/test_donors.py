"""Donors: of another class, drawn with the image's own seed, and never one that cannot be read."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from locality.data.dataset import ImageDataset, load_dataset
from locality.data.donors import donors
from locality.errors import DataError
from locality.model_calls.randomness import image_seeds


@pytest.fixture(scope="module")
def data() -> ImageDataset:
    return load_dataset("shapes", limit=30, count=30)


def test_a_donor_is_of_another_class_and_depends_on_the_seed_alone(data: ImageDataset) -> None:
    ids = [sample.id for sample in data]
    seeds = image_seeds(torch.stack([sample.image for sample in data]), 0)
    given = donors(data, ids, seeds)
    assert all(donor is not None and donor.label != sample.label for donor, sample in zip(given, data, strict=True))
    names = [donor.id for donor in given if donor is not None]
    assert len(set(names)) > 10
    some = [donor.id for donor in donors(data, ids[20:7:-3], seeds[20:7:-3]) if donor is not None]
    assert some == names[20:7:-3]
    assert [donor.id for donor in donors(data, ids, seeds[::-1]) if donor is not None] != names


def test_images_that_were_read_are_not_read_again(data: ImageDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = {index: data[index] for index in range(30)}
    monkeypatch.setattr(ImageDataset, "__getitem__", lambda *_: pytest.fail("read again"))
    [donor] = donors(data, [decoded[4].id], [7], decoded)
    assert donor is not None


def test_an_image_that_cannot_be_read_gives_way_to_the_next(data: ImageDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    [first] = donors(data, [data[0].id], [5])
    assert first is not None
    read: Callable[..., Any] = ImageDataset.__getitem__

    def broken(self: ImageDataset, index: int) -> Any:
        sample = read(self, index)
        if sample.id == first.id:
            raise DataError("damaged")
        return sample

    monkeypatch.setattr(ImageDataset, "__getitem__", broken)
    [second] = donors(data, [read(data, 0).id], [5])
    assert second is not None
    assert second.id != first.id
    assert second.label != read(data, 0).label


def with_names(data: ImageDataset, names: list[str]) -> ImageDataset:
    manifest = data.source.manifest
    images = manifest.images.assign(wnid=names)
    return ImageDataset(replace(data.source, manifest=replace(manifest, images=images)), data.indices)


def test_classes_without_names_differ_by_their_numbers(data: ImageDataset) -> None:
    unnamed = with_names(data, [""] * 30)
    given = donors(unnamed, [sample.id for sample in data], range(30))
    assert all(donor is not None and donor.label != sample.label for donor, sample in zip(given, data, strict=True))


def test_a_class_that_is_accepted_too_is_no_other_class(data: ImageDataset) -> None:
    """Every label but star and arrow is also accepted as a circle's."""
    names = [("" if label in (3, 7) else "circle ") + data.source.classes[label] for label in data.manifest.images["label"]]
    own = with_names(data, names)
    given = donors(own, [sample.id for sample in data if sample.label == 0], range(3))
    assert {donor.label for donor in given if donor is not None} <= {3, 7}


def test_data_of_one_class_have_no_donor(data: ImageDataset) -> None:
    same = ImageDataset(data.source, data.indices[data.source.manifest.images["label"].to_numpy()[data.indices] == 3])
    assert len(same) == 3
    assert donors(same, [sample.id for sample in same], range(3)) == [None] * 3
