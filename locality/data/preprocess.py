"""Resize, crop and flip an image together with its boxes and its outline.

Each function takes a `Sample` and returns a new one. Resizing works on 8-bit levels with antialiasing, as in Pillow, since
accuracies of published weights were measured that way. torch's kernel is faster than Pillow's; on photographs its rounding
differs by one or two levels of 255.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locality.data.boxes import View, box_array, box_mask, boxes_of, nonempty, union_area
from locality.errors import ArgumentError
from locality.types import Box, Interpolation, ModelSpec, Region, Sample

NO_CUE = 'plant one with cue="sticker"'


def resize(sample: Sample, short_side: int, interpolation: Interpolation = "bilinear") -> Sample:
    """The sample with its short side scaled to `short_side` pixels; the long side is rounded down."""
    height, width = sample.image.shape[-2:]
    new_width, new_height = resized_size(np.array(width), np.array(height), short_side)
    return stretch(sample, (int(new_height), int(new_width)), interpolation)


def stretch(sample: Sample, size: tuple[int, int], interpolation: Interpolation = "bilinear") -> Sample:
    """The sample scaled to `size` = (height, width), whatever its own proportions."""
    height, width = sample.image.shape[-2:]
    if size == (height, width):
        return sample
    view = View(size[1] / width, size[0] / height, 0, 0, size[1], size[0])
    return _seen(sample, _resized_image(sample.image, size, interpolation), view)


def center_crop(sample: Sample, size: tuple[int, int]) -> Sample:
    """The central `size` = (height, width) of the sample; boxes are clipped."""
    height, width = sample.image.shape[-2:]
    if size[0] > height or size[1] > width:
        raise ArgumentError("size", f"at most that of the image, {(height, width)}", size, "resize it first")
    left, top = (int(offset) for offset in crop_offset(np.array(width), np.array(height), size))
    image = sample.image[..., top : top + size[0], left : left + size[1]].contiguous()
    return _seen(sample, image, View(1.0, 1.0, left, top, size[1], size[0]))


def flip(sample: Sample) -> Sample:
    """The sample mirrored left to right."""
    width = sample.image.shape[-1]
    corners = box_array(sample.boxes)
    mirrored = np.stack([width - corners[:, 2], corners[:, 1], width - corners[:, 0], corners[:, 3]], axis=1)
    outline, cue = (None if mask is None else mask.flip(-1) for mask in (sample.outline, sample.cue))
    changed = replace(sample, image=sample.image.flip(-1), boxes=boxes_of(mirrored), outline=outline, cue=cue)
    return replace(changed, mask=sample.mask.flip(-1))


def fit(sample: Sample, spec: ModelSpec) -> Sample:
    """The sample as the model of `spec` sees it: resized, then cropped around the centre; or stretched."""
    if spec.resize is None:
        return stretch(sample, spec.input_size, spec.interpolation)
    return center_crop(resize(sample, spec.resize, spec.interpolation), spec.input_size)


def fit_view(spec: ModelSpec, widths: NDArray[np.int64], heights: NDArray[np.int64]) -> View:
    """The view that `fit` gives of images of the given sizes, computed without the pixels."""
    height, width = spec.input_size
    if spec.resize is None:
        return View(width / widths, height / heights, 0.0, 0.0, width, height)
    new_widths, new_heights = resized_size(widths, heights, spec.resize)
    left, top = crop_offset(new_widths, new_heights, spec.input_size)
    return View(new_widths / widths, new_heights / heights, left.astype(np.float64), top.astype(np.float64), width, height)


def resized_size(
    widths: NDArray[np.int64], heights: NDArray[np.int64], short_side: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Widths and heights after `resize`."""
    short, long = np.minimum(widths, heights), np.maximum(widths, heights)
    scaled = short_side * long // short
    return np.where(widths <= heights, short_side, scaled), np.where(widths <= heights, scaled, short_side)


def crop_offset(
    widths: NDArray[np.int64], heights: NDArray[np.int64], size: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Left and top edge of the centre crop; half pixels are rounded to even, as in torchvision."""
    left, top = np.round((widths - size[1]) / 2), np.round((heights - size[0]) / 2)
    return left.astype(np.int64), top.astype(np.int64)


def region_mask(
    boxes: tuple[Box, ...], outline: Tensor | None, region: Region, height: int, width: int, cue: Tensor | None = None
) -> Tensor:
    """1×H×W: the pixels that locality is scored against; boxes and outlines without the pixels that a cue hides."""
    if region == "cue":
        if cue is None:
            raise ArgumentError("region", "box or object for data without a planted cue", region, NO_CUE)
        return cue
    if region == "object" and outline is None:
        raise ArgumentError("region", "box for this data set, which has no outlines of objects", region)
    mask = box_mask(boxes, height, width) if region == "box" or outline is None else outline
    return mask if cue is None else mask & ~cue


def _seen(sample: Sample, image: Tensor, view: View) -> Sample:
    """The sample in a view, with its new image."""
    height, width = image.shape[-2:]
    before = box_array(sample.boxes)
    after = view.corners(before)
    after = after[nonempty(after)]
    area = union_area(before) * float(view.scale_x) * float(view.scale_y)
    kept = union_area(after) / area if area > 0 else 1.0
    boxes = boxes_of(after)
    outline, cue = (
        None if mask is None else _seen_outline(mask, view, height, width) for mask in (sample.outline, sample.cue)
    )
    return replace(
        sample,
        image=image,
        boxes=boxes,
        outline=outline,
        cue=cue,
        mask=region_mask(boxes, outline, sample.region, height, width, cue),
        cropped=1 - (1 - sample.cropped) * min(kept, 1.0),
    )


def _resized_image(image: Tensor, size: tuple[int, int], interpolation: Interpolation) -> Tensor:
    """3×h×w of the image's own type: uint8 stays uint8, float32 is converted to 8-bit levels and back."""
    levels = image if image.dtype == torch.uint8 else (image * 255).round().to(torch.uint8)
    scaled = torch.nn.functional.interpolate(levels[None], size=size, mode=interpolation, antialias=True)[0]
    return scaled if image.dtype == torch.uint8 else scaled.float().div_(255)


def _seen_outline(outline: Tensor, view: View, height: int, width: int) -> Tensor:
    """1×h×w: a pixel is part of the object if its centre, mapped to the original image, is."""
    rows = (torch.arange(height, dtype=torch.float64) + 0.5 + float(view.top)) / float(view.scale_y)
    columns = (torch.arange(width, dtype=torch.float64) + 0.5 + float(view.left)) / float(view.scale_x)
    rows = rows.long().clamp(max=outline.shape[-2] - 1)
    columns = columns.long().clamp(max=outline.shape[-1] - 1)
    return outline[:, rows][:, :, columns]
