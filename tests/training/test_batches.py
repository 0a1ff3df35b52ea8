import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from locality.data.dataset import load_dataset
from locality.errors import ArgumentError
from locality.progress import no_progress
from locality.training.batches import BatchKeys, TrainingImages, augmented, collate, image_seed, zoomed
from locality.training.new_model import fitted_images
from locality.training.recipe import read_recipe
from locality.training.recipe_parts import Augmentation, Net, TrainingData
from locality.types import Box


def test_every_epoch_visits_every_image_once_in_a_new_order() -> None:
    batches = list(BatchKeys(images=12, batch_size=4, epochs=2, seed=0))
    assert len(batches) == len(BatchKeys(12, 4, 2, 0)) == 6
    first = [index for batch in batches[:3] for epoch, index in batch if epoch == 0]
    second = [index for batch in batches[3:] for epoch, index in batch if epoch == 1]
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert list(BatchKeys(12, 4, 2, seed=1)) != batches


def test_a_run_can_be_interrupted_anywhere_and_split_over_processes() -> None:
    whole = list(BatchKeys(13, 4, 3, 0))
    for step in range(len(whole) + 1):
        rest = BatchKeys(13, 4, 3, 0, first_step=step)
        assert list(rest) == whole[step:]
        assert len(rest) == len(whole) - step
    halves = [list(BatchKeys(13, 4, 3, 0, process=process, processes=2)) for process in (0, 1)]
    assert [left + right for left, right in zip(*halves, strict=True)] == whole


def test_augmentation_mirrors_and_shifts_whole_pixels() -> None:
    image = torch.rand(3, 8, 8)
    seen = set()
    for seed in range(60):
        changed = augmented(image, Augmentation(flip=True, shift=1), seed)
        assert changed.shape == image.shape
        for mirrored in (False, True):
            source = image.flip(-1) if mirrored else image
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    inner = source[:, 2 + down : 6 + down, 2 + right : 6 + right]
                    if torch.equal(changed[:, 2:6, 2:6], inner):
                        seen.add((mirrored, down, right))
    assert len(seen) == 18  # each way, and nothing else would have matched


def test_cutout_fills_one_square_with_the_mean_colour() -> None:
    """The rest of the image is as it would be without, and every place is reached."""
    image = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0))
    others = Augmentation(flip=True, shift=2, colour=0.3)
    reached = torch.zeros(8, 8, dtype=torch.bool)
    for seed in range(200):
        without = augmented(image, others, seed)
        cut = augmented(image, replace(others, cutout=3), seed)
        filled = (cut != without).any(0)
        rows, columns = filled.nonzero().unbind(1)
        assert (int(rows.max() - rows.min()), int(columns.max() - columns.min()), int(filled.sum())) == (2, 2, 9)
        assert torch.allclose(cut[:, filled], without.mean((1, 2))[:, None].expand(3, 9))
        reached |= filled
    assert reached.all()


def test_an_image_is_zoomed_and_turned_about_its_centre() -> None:
    image = torch.rand(3, 6, 8, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(zoomed(image, 1.0, 0.0), image, atol=1e-5)
    assert torch.allclose(zoomed(image, 1.0, math.pi), image.flip(-1, -2), atol=1e-5)
    square = image[:, :, :6]
    assert torch.allclose(zoomed(square, 1.0, math.pi / 2), square.rot90(1, (-2, -1)), atol=1e-5)
    blocks = torch.rand(1, 2, 2).repeat_interleave(4, -1).repeat_interleave(4, -2)
    middle = blocks[:, 2:6, 2:6].repeat_interleave(2, -1).repeat_interleave(2, -2)  # what is left when it is enlarged twice
    assert torch.allclose(zoomed(blocks, 2.0, 0.0)[:, ::7, ::7], middle[:, ::7, ::7], atol=1e-5)
    smaller = zoomed(image, 0.5, 0.0)
    assert torch.allclose(smaller[:, 2, 3], image[:, 1:3, 2:4].mean((1, 2)), atol=1e-5)  # between four pixels
    assert torch.allclose(smaller[:, 0, 3], smaller[:, 2, 3], atol=1e-5)  # the mirror image beyond the edge
    wide = zoomed(torch.ones(3, 4, 12), 1.3, 0.4)  # a constant image stays one, in [0, 1]
    assert torch.allclose(wide, torch.ones(3, 4, 12))


def test_zoom_and_turn_are_drawn_anew_and_change_no_other_draw() -> None:
    """A disc keeps its shape: its area follows the factor, from 1/(1 + zoom)² to (1 + zoom)²."""
    rows, columns = torch.meshgrid(torch.arange(33.0), torch.arange(33.0), indexing="ij")
    disc = ((rows - 16) ** 2 + (columns - 16) ** 2 < 36).float().expand(3, 33, 33)
    changes = [float(augmented(disc, Augmentation(zoom=0.5, turn=20.0), seed).sum() / disc.sum()) for seed in range(150)]
    assert 0.42 < min(changes) < 0.5
    assert 2.0 < max(changes) < 2.28
    assert 0.9 < float(torch.tensor(changes).log().mean().exp()) < 1.1
    bar = (abs(rows - 16) < 2).float().expand(3, 33, 33)
    turned = torch.stack([augmented(bar, Augmentation(turn=20.0), seed) for seed in range(60)])
    heights = (turned[:, 0, :, 30] * rows[:, 0]).sum(1) / turned[:, 0, :, 30].sum(1) - 16  # of its right end, 14 pixels out
    slopes = torch.rad2deg(torch.atan(heights / 14))
    assert 17 < float(slopes.max()) < 22
    assert -22 < float(slopes.min()) < -17
    image = torch.rand(3, 8, 8)
    for seed in range(20):
        both = augmented(image, Augmentation(flip=True, shift=2, zoom=1e-9), seed)
        assert torch.allclose(both, augmented(image, Augmentation(flip=True, shift=2), seed), atol=1e-5)


def test_colour_keeps_the_range_and_changes_light_and_contrast() -> None:
    image = torch.rand(3, 8, 8) * 0.2 + 0.4
    changed = [augmented(image, Augmentation(colour=0.3), seed) for seed in range(100)]
    means = torch.tensor([float(one.mean() - image.mean()) for one in changed])
    contrasts = torch.tensor([float(one.std() / image.std()) for one in changed])
    assert -0.151 < float(means.min()) < -0.12
    assert 0.12 < float(means.max()) < 0.151
    assert 0.699 < float(contrasts.min()) < 0.75
    assert 1.25 < float(contrasts.max()) < 1.301
    assert augmented(image, Augmentation(), 5) is image
    assert float(augmented(torch.ones(3, 4, 4), Augmentation(colour=1.0), 1).max()) <= 1


def test_what_happens_to_an_image_depends_on_seed_epoch_and_image() -> None:
    seeds = {image_seed(seed, epoch, index) for seed in range(3) for epoch in range(3) for index in range(3)}
    assert len(seeds) == 27


def test_kept_images_are_those_of_the_data() -> None:
    data = load_dataset("shapes", split="train", limit=12, count=20)
    images = TrainingImages(data, Augmentation(flip=True), seed=0)
    before = collate([images[(0, index)] for index in range(12)])
    images.keep(no_progress)
    assert images.kept is not None
    after = collate([images[(0, index)] for index in range(12)])
    assert torch.equal(before[0], after[0])
    assert before[1].tolist() == after[1].tolist() == [data[index].label for index in range(12)]
    assert before[2] == after[2]


@pytest.mark.parametrize("kept", [False, True])
def test_unchanged_batches_are_the_images_in_order(kept: bool) -> None:
    data = load_dataset("shapes", split="train", limit=11, count=20)
    images = TrainingImages(data, Augmentation(flip=True, shift=3, colour=0.5), seed=0)
    if kept:
        images.keep(no_progress)
    batches = list(images.unchanged(4))
    assert [len(batch) for batch in batches] == [4, 4]  # three images are left over
    expected = torch.stack([data[index].image for index in range(8)])
    assert torch.allclose(torch.cat(batches), expected, atol=1 / 500)


def test_images_of_one_size_that_the_network_takes_are_left_as_they_are() -> None:
    data = load_dataset("shapes", split="train", limit=4, count=10)
    assert fitted_images(data, read_recipe("shapes_vit")) is data


@pytest.mark.parametrize("net", ["tiny_resnet", "tiny_vgg", "shapes_cnn"])
def test_a_recipe_may_state_the_size_of_images_and_boxes_follow(net: str) -> None:
    data = load_dataset("shapes", split="train", limit=4, count=10)
    recipe = replace(read_recipe("shapes_cnn"), net=Net(net), data=TrainingData("shapes", size=32))
    fitted = fitted_images(data, recipe)
    for before, after in zip(data, fitted, strict=True):
        halves = torch.nn.functional.avg_pool2d(before.image, 2)
        assert after.image.shape == (3, 32, 32)
        assert float((after.image - halves).abs().mean()) < 0.05  # the whole image, not a crop of it
        assert after.label == before.label
        assert after.boxes == tuple(Box(box.x0 / 2, box.y0 / 2, box.x1 / 2, box.y1 / 2) for box in before.boxes)
    same = replace(recipe, data=TrainingData("shapes", size=64))
    assert torch.equal(fitted_images(data, same)[0].image, data[0].image)


def test_a_size_that_the_network_does_not_take_is_one_sentence() -> None:
    data = load_dataset("shapes", split="train", limit=4, count=10)
    recipe = replace(read_recipe("shapes_vit"), data=TrainingData("shapes", size=48))
    with pytest.raises(ArgumentError, match=r"`data.size` must be a size of images that shapes_vit takes, got 48"):
        fitted_images(data, recipe)


def test_images_without_boxes_are_trained_on_as_they_are(small_cifar10: Path) -> None:
    data = load_dataset(f"cifar10:{small_cifar10}", split="train")
    recipe = replace(read_recipe("shapes_cnn"), net=Net("tiny_resnet"), data=TrainingData(f"cifar10:{small_cifar10}"))
    assert fitted_images(data, recipe) is data
    enlarged = fitted_images(data, replace(recipe, net=Net("tiny_vit")))  # which takes 64×64 only
    assert enlarged[0].image.shape == (3, 64, 64)
