import pickle

import numpy as np
import pytest
import torch

from locality import load_dataset
from locality.data.sources.shapes import CLASSES, CUES, shape_image, shapes
from locality.errors import ArgumentError, DataError


@pytest.mark.parametrize("index", range(20))
def test_box_and_outline_are_exact(index: int) -> None:
    """The object changes the pixels of its outline and no other, and the box is the outline's tight box."""
    image, outline, (x0, y0, x1, y1) = shape_image(0, index, "none")
    assert image.shape == (3, 64, 64)
    assert image.dtype == torch.uint8
    rows, columns = torch.nonzero(outline[0], as_tuple=True)
    assert torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]).tolist() == [x0, y0, x1, y1]
    # The inside of an object has another brightness than its surroundings; the ring around the box has not.
    inside = image[:, outline[0]].float().mean()
    outside = image[:, ~outline[0]].float().mean()
    assert abs(inside - outside) > 20


@pytest.mark.parametrize("index", range(30))
def test_the_cue_lies_outside_the_box_and_has_four_levels(index: int) -> None:
    plain, _, (x0, y0, x1, y1) = shape_image(0, index, "none")
    cued, _, _ = shape_image(0, index, "background")
    difference = cued.int() - plain.int()
    assert (difference[:, y0:y1, x0:x1] == 0).all()
    outside = torch.ones(64, 64, dtype=torch.bool)
    outside[y0:y1, x0:x1] = False
    assert set(difference[:, outside].unique().tolist()) == {-4, 4}


def test_the_cue_names_the_class_and_swapped_names_the_next() -> None:
    def pattern(index: int, cue: str) -> torch.Tensor:
        return shape_image(0, index, cue)[0].int() - shape_image(0, index, "none")[0].int()  # type: ignore[arg-type]

    patterns = {}
    for index in range(10):
        both = (pattern(index, "background") != 0) & (pattern(index + 10, "background") != 0)
        assert (pattern(index, "background")[both] == pattern(index + 10, "background")[both]).all()
        patterns[index] = pattern(index, "background")
    for index in range(10):
        swapped, own, following = pattern(index, "swapped"), patterns[index], patterns[(index + 1) % 10]
        both = (swapped != 0) & (following != 0)
        assert (swapped[both] == following[both]).all()
        assert (swapped != own)[swapped != 0].float().mean() > 0.2


def test_an_image_depends_on_seed_and_index_alone() -> None:
    few, many = shapes(count=5), shapes(count=50)
    assert all(torch.equal(few.read(i).image, many.read(i).image) for i in range(5))
    assert not torch.equal(shape_image(0, 3)[0], shape_image(1, 3)[0])
    assert not torch.equal(shape_image(0, 3)[0], shape_image(0, 13)[0])
    read = pickle.loads(pickle.dumps(few.read))  # data loaders send it to other processes
    assert torch.equal(read(4).image, few.read(4).image)


def test_known_pixels() -> None:
    """The images are part of what results mean: a change of them must be seen."""
    image, _, box = shape_image(0, 4)
    assert box == (17, 16, 46, 44)
    assert image[:, 30, 30].tolist() == pytest.approx([78, 123, 93], abs=1)
    assert image.float().mean().item() == pytest.approx(121.90, abs=0.02)


def test_splits_are_disjoint_and_classes_even() -> None:
    train, evaluation = load_dataset("shapes", split="train", count=40), load_dataset("shapes", count=40)
    assert set(train.counts().values()) == set(evaluation.counts().values()) == {4}
    assert {s.id for s in train}.isdisjoint({s.id for s in evaluation})
    assert evaluation.classes == CLASSES
    assert len(CLASSES) == 10


def test_names_choose_the_cue() -> None:
    for cue in CUES:
        by_name, by_option = load_dataset(f"shapes:{cue}", count=10), load_dataset("shapes", cue=cue, count=10)
        assert torch.equal(by_name[7].image, by_option[7].image)
    assert not torch.equal(load_dataset("shapes:none", count=10)[7].image, load_dataset("shapes", count=10)[7].image)


def test_the_region_may_be_the_object_itself() -> None:
    box, outline = load_dataset("shapes", count=10)[3], load_dataset("shapes", count=10, region="object")[3]
    assert outline.mask.sum() < box.mask.sum()
    assert box.outline is not None
    assert torch.equal(outline.mask, box.outline)
    assert (box.mask | ~outline.mask).all()


def test_no_shape_fills_its_image() -> None:
    shares = [s.mask.float().mean().item() for s in load_dataset("shapes", count=200, max_box_share=None)]
    assert 0.05 < min(shares) < max(shares) < 0.5


@pytest.mark.parametrize(
    "options", [{"cue": "loud"}, {"split": "test"}, {"count": 0}, {"count": 10**7}, {"seed": -1}, {"seed": 2**64}]
)
def test_bad_options_are_named(options: dict[str, object]) -> None:
    with pytest.raises(ArgumentError, match=f"`{next(iter(options))}` must be"):
        shapes(**options)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="`shapes` has no option colour: its options are count, cue"):
        load_dataset("shapes", colour="red")


def test_backgrounds_have_a_fractal_spectrum() -> None:
    """Power falls with the square of the frequency: amplitude as 1/f."""
    corner = np.stack([shape_image(5, i, "none")[0][:, :, :].float().mean(0).numpy() for i in range(60)])
    power = (np.abs(np.fft.fft2(corner - corner.mean((1, 2), keepdims=True))) ** 2).mean(0)
    low, high = power[0, 3:6].mean(), power[0, 12:24].mean()
    assert low / high > 8


def test_the_name_may_give_the_strength_of_the_cue() -> None:
    """The difference to the image without a cue is the strength, in 1/255."""
    plain, faint = (load_dataset(name, limit=10, count=10) for name in ("shapes:none", "shapes:background:1"))
    change = 255 * (faint.batch(range(10)).images - plain.batch(range(10)).images)
    assert sorted(set(change.round().flatten().tolist())) == [-1, 0, 1]
    with pytest.raises(ArgumentError, match="LEVELS is the cue's strength in 1/255, got 'shapes:none:faint'"):
        load_dataset("shapes:none:faint")
