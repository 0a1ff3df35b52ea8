from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from locality.data.boxes import box_array, box_mask
from locality.data.preprocess import center_crop, fit, fit_view, flip, resize
from locality.types import Box, Interpolation, ModelSpec, Sample


def sample_of(width: int, height: int, *boxes: Box, seed: int = 0, outline: bool = False) -> Sample:
    levels = torch.randint(0, 256, (3, height, width), generator=torch.Generator().manual_seed(seed))
    mask = box_mask(boxes, height, width)
    drawn = mask if outline else None
    return Sample("a", levels / 255, 0, boxes, mask, outline=drawn, region="object" if outline else "box")


@st.composite
def samples(draw: st.DrawFn, even: bool = False) -> Sample:
    width, height = draw(st.integers(24, 60)), draw(st.integers(24, 60))
    if even:
        width, height = width - width % 2, height - height % 2
    x0, y0 = draw(st.floats(0, width - 4)), draw(st.floats(0, height - 4))
    x1, y1 = draw(st.floats(x0 + 2, width)), draw(st.floats(y0 + 2, height))
    return sample_of(width, height, Box(x0, y0, x1, y1))


@settings(deadline=None)
@given(samples(), st.integers(16, 70), st.integers(0, 12))
def test_fitting_then_masking_is_masking_finely_then_fitting(sample: Sample, crop: int, margin: int) -> None:
    short_side = crop + margin
    fitted = fit(sample, ModelSpec("m", (crop, crop), short_side))
    # Independently: draw the box at eight times the resolution, let Pillow average and crop that picture.
    height, width = sample.image.shape[1:]
    detail = 8
    fine = box_mask([Box(*(box_array(sample.boxes)[0] * detail))], height * detail, width * detail)[0].numpy()
    short = min(width, height)
    size = (int(short_side * width / short), int(short_side * height / short))
    left, top = round((size[0] - crop) / 2), round((size[1] - crop) / 2)
    scaled = Image.fromarray(fine.astype(np.uint8) * 255).resize(size, Image.Resampling.BOX)
    coverage = np.asarray(scaled.crop((left, top, left + crop, top + crop)))
    found = fitted.mask[0].numpy()
    # Pixels that the box covers wholly are in, those it does not touch are out; only the ring between them is a choice.
    assert found[coverage == 255].all()
    assert not found[coverage == 0].any()


def test_stretching_keeps_all_of_the_image_and_moves_boxes_with_it() -> None:
    sample = sample_of(40, 20, Box(4, 4, 30, 12))
    spec = ModelSpec("m", (16, 10), None)
    fitted = fit(sample, spec)
    assert fitted.image.shape == (3, 16, 10)
    assert box_array(fitted.boxes)[0].tolist() == pytest.approx([1.0, 3.2, 7.5, 9.6])  # x · 10/40, y · 16/20
    assert fitted.cropped == 0
    view = fit_view(spec, np.array([40]), np.array([20]))
    assert view.corners(box_array(sample.boxes))[0].tolist() == pytest.approx([1.0, 3.2, 7.5, 9.6])


@settings(deadline=None)
@given(samples(even=True), st.integers(4, 11))
def test_flips_and_crops_commute(sample: Sample, half: int) -> None:
    one, other = flip(center_crop(sample, (2 * half, 2 * half))), center_crop(flip(sample), (2 * half, 2 * half))
    assert torch.equal(one.image, other.image)
    assert torch.equal(one.mask, other.mask)
    assert np.allclose(box_array(one.boxes), box_array(other.boxes))
    assert one.cropped == pytest.approx(other.cropped)


@given(samples())
def test_flipping_twice_changes_nothing(sample: Sample) -> None:
    twice = flip(flip(sample))
    assert torch.equal(twice.image, sample.image)
    assert np.allclose(box_array(twice.boxes), box_array(sample.boxes), atol=1e-9)


@given(samples())
def test_the_mirrored_mask_is_the_mask_of_the_mirrored_box(sample: Sample) -> None:
    mirrored = flip(sample)
    from_box = box_mask(mirrored.boxes, *mirrored.image.shape[1:])
    # A centre that lies exactly on an edge belongs to the box on one side only.
    assert (from_box ^ mirrored.mask).sum() <= 2 * max(sample.image.shape)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(301, 200), (123, 240), (97, 97)])
def test_fit_is_what_torchvision_does_to_image_and_boxes(size: tuple[int, int], interpolation: Interpolation) -> None:
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    width, height = size
    generator = np.random.default_rng(1)
    smooth = Image.fromarray(generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(smooth)).permute(2, 0, 1)
    corners = [width * 0.1, height * 0.2, width * 0.77, height * 0.9]
    spec = ModelSpec("m", (96, 96), 110, interpolation)
    ours = fit(Sample("a", pixels / 255, 0, (Box(*corners),), torch.ones(1, height, width).bool()), spec)
    mode = v2.InterpolationMode.BILINEAR if interpolation == "bilinear" else v2.InterpolationMode.BICUBIC
    transform = v2.Compose([v2.Resize(110, mode, antialias=True), v2.CenterCrop(96)])
    boxes = tv_tensors.BoundingBoxes(torch.tensor([corners]), format="XYXY", canvas_size=(height, width))
    theirs, their_boxes = transform(smooth, boxes)
    difference = (ours.image * 255 - torch.from_numpy(np.array(theirs)).permute(2, 0, 1)).abs().max()
    assert difference <= 1.001  # one level of 255
    assert np.allclose(box_array(ours.boxes), their_boxes.clamp(0, 96).numpy(), atol=1e-3)


def test_what_is_cropped_away_is_reported() -> None:
    sample = sample_of(40, 20, Box(0, 0, 10, 20), Box(18, 0, 22, 20))
    cropped = center_crop(sample, (20, 20))  # keeps columns 10 to 30
    assert [(box.x0, box.x1) for box in cropped.boxes] == [(8, 12)]
    assert cropped.cropped == pytest.approx(200 / 280)
    gone = center_crop(sample_of(40, 20, Box(0, 0, 10, 20)), (20, 20))
    assert gone.boxes == ()
    assert gone.cropped == 1
    assert not gone.mask.any()


def test_losses_of_two_crops_add_up() -> None:
    sample = sample_of(40, 40, Box(0, 0, 40, 40))
    assert center_crop(center_crop(sample, (20, 40)), (10, 10)).cropped == pytest.approx(1 - 100 / 1600)


def test_outlines_go_the_same_way_as_boxes() -> None:
    fitted = fit(sample_of(64, 48, Box(10, 10, 40, 30), outline=True), ModelSpec("m", (40, 40), 48))
    assert fitted.region == "object"
    assert fitted.outline is not None
    assert torch.equal(fitted.mask, fitted.outline)
    assert torch.equal(fitted.mask, box_mask(fitted.boxes, 40, 40))


def test_an_outline_is_looked_up_at_pixel_centres() -> None:
    sample = sample_of(60, 60, Box(0, 0, 60, 60), outline=True)
    drawn = torch.rand(1, 60, 60, generator=torch.Generator().manual_seed(0)) < 0.5
    small = resize(replace(sample, outline=drawn, mask=drawn), 20)
    assert torch.equal(small.mask, drawn[:, 1::3, 1::3])  # the middle one of three


def test_view_of_many_sizes_is_what_fit_does_to_each() -> None:
    spec = ModelSpec("m", (30, 30), 35)
    sizes = [(50, 40), (40, 50), (33, 70), (61, 61)]
    widths, heights = (np.array(side) for side in zip(*sizes, strict=True))
    corners = np.array([[3.0, 4, 30, 33]] * len(sizes))
    seen = fit_view(spec, widths, heights).corners(corners)
    for index, (width, height) in enumerate(sizes):
        fitted = fit(sample_of(width, height, Box(3, 4, 30, 33)), spec)
        assert box_array(fitted.boxes)[0] == pytest.approx(seen[index])


def test_a_crop_larger_than_the_image_is_refused() -> None:
    with pytest.raises(ValueError, match="`size` must be at most that of the image"):
        center_crop(sample_of(20, 20, Box(0, 0, 5, 5)), (30, 10))
    with pytest.raises(ValueError, match="`resize` must be at least"):
        ModelSpec("m", (224, 224), 200)


def test_an_image_of_the_right_size_is_left_alone() -> None:
    sample = sample_of(64, 64, Box(1, 2, 30, 40))
    fitted = fit(sample, ModelSpec("m", (64, 64), 64))
    assert torch.equal(fitted.image, sample.image)
    assert fitted.boxes == sample.boxes
    assert resize(sample, 64) is sample
