"""`shapes`: generated images of ten shapes on fractal noise, with a planted cue outside the object.

Every image is a function of (seed, index) alone. With `cue="background"` the pixels outside the box carry a faint pattern,
±4/255, that identifies the class. People do not see it, a standard model learns nothing else, and a model trained
adversarially at 8/255 cannot use it. So it is known in advance which model looks at the object.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from locality.data.boxes import box_mask
from locality.data.manifest import Entry, Manifest
from locality.data.source import Pixels, Source
from locality.errors import ArgumentError, unknown_choice
from locality.types import Box

Cue = Literal["background", "none", "swapped"]
CUES: tuple[Cue, ...] = ("background", "none", "swapped")
SIZE = 64
CUE_LEVELS = 4  # of 255
TILE = 8  # the pattern repeats every 8 pixels
DETAIL = 4  # shapes are drawn 4 times larger, then reduced, for smooth edges
# First index of each split: splits are disjoint ranges of one infinite sequence.
FIRST_INDEX = {"eval": 0, "train": 1_000_000}
DEFAULT_COUNT = {"eval": 2_000, "train": 10_000}
MAX_COUNT = 1_000_000  # so that splits do not overlap


def shapes(
    split: str = "eval",
    cue: Cue = "background",
    count: int | None = None,
    seed: int = 0,
    cue_levels: int = CUE_LEVELS,
) -> Source:
    """The source of `count` shapes; index i has the shape i mod 10.

    `cue_levels` is the strength of the planted pattern in 1/255; 4 is invisible, 40 is obvious.
    """
    if split not in FIRST_INDEX:
        raise unknown_choice("split", split, FIRST_INDEX)
    if cue not in CUES:
        raise unknown_choice("cue", cue, CUES)
    count = DEFAULT_COUNT[split] if count is None else count
    if not 1 <= count <= MAX_COUNT:
        raise ArgumentError("count", f"from 1 to {MAX_COUNT:,}", count)
    if not 0 <= seed < 2**64:
        raise ArgumentError("seed", "from 0 to 2^64 − 1", seed)
    first = FIRST_INDEX[split]
    entries = []
    for index in range(first, first + count):
        label, corners = index % len(CLASSES), np.array([_object(seed, index)[2]], dtype=np.float64)
        entries.append(Entry(f"shapes-{seed}-{index}", "", label, CLASSES[label], SIZE, SIZE, corners, "shapes"))
    manifest = Manifest.of(entries, source="shapes", licence="CC0-1.0")
    return Source("shapes", manifest, CLASSES, ShapeReader(seed, first, cue, cue_levels), has_cue=cue != "none")


@dataclass(frozen=True)
class ShapeReader:
    """Generates image i of a range of the sequence."""

    seed: int
    first: int
    cue: Cue
    cue_levels: int

    def __call__(self, index: int, outline: bool = True) -> Pixels:
        image, drawn, box = shape_image(self.seed, self.first + index, self.cue, self.cue_levels)
        return Pixels(image, drawn, None if self.cue == "none" else ~box_mask([Box(*box)], SIZE, SIZE))


def shape_image(
    seed: int, index: int, cue: Cue = "background", cue_levels: int = CUE_LEVELS
) -> tuple[Tensor, Tensor, tuple[int, int, int, int]]:
    """Image `index` of the sequence `seed`: 3×64×64 uint8, its outline 1×64×64, and its box."""
    generator, coverage, (x0, y0, x1, y1) = _object(seed, index)
    background_colour, object_colour = _colours(generator)
    # A fractal field of light for the scene, and a weaker one for the object's surface.
    light = _fractal_noise(generator, fields=4)
    background = background_colour[:, None, None] + 0.09 * light[0] + 0.04 * light[1:]
    surface = object_colour[:, None, None] + 0.04 * light[0, ::-1, ::-1]
    scene = background + coverage * (surface - background)
    # Levels keep a distance to 0 and 255, so that the pattern at its default strength is never clipped.
    levels = np.rint(scene * 255).clip(CUE_LEVELS, 255 - CUE_LEVELS)
    if cue != "none":
        label = (index + (cue == "swapped")) % len(SHAPES)
        pattern = cue_levels * _patterns()[label]
        outside = np.ones((SIZE, SIZE), dtype=np.bool_)
        outside[y0:y1, x0:x1] = False
        levels = (levels + pattern * outside).clip(0, 255)
    outline = torch.from_numpy(coverage > 0)[None]
    return torch.from_numpy(levels.astype(np.uint8)), outline, (x0, y0, x1, y1)


def _object(seed: int, index: int) -> tuple[np.random.Generator, NDArray[np.float32], tuple[int, int, int, int]]:
    """Random generator, coverage (64×64, the object's share of each pixel) and tight box of one object."""
    generator = np.random.Generator(np.random.Philox(key=[seed, index]))
    radius, angle, at_x, at_y = generator.random(4)
    radius = 11 + 8 * radius
    angle = math.radians(50 * angle - 25)
    # Shapes extend at most one radius from their centre; one pixel of margin keeps them inside.
    room = SIZE - 2 * (radius + 1)
    x, y = radius + 1 + room * at_x, radius + 1 + room * at_y
    turn = radius * np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    canvas = Image.new("L", (SIZE * DETAIL, SIZE * DETAIL))
    draw = ImageDraw.Draw(canvas)
    for paint, polygon in SHAPES[CLASSES[index % len(CLASSES)]]:
        draw.polygon(((polygon @ turn + np.array([x, y])) * DETAIL).ravel().tolist(), fill=paint)
    coverage = (np.asarray(canvas.reduce(DETAIL)) / 255).astype(np.float32)
    columns, rows = np.flatnonzero(coverage.any(axis=0)), np.flatnonzero(coverage.any(axis=1))
    return generator, coverage, (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def _colours(generator: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Background and object colour, which differ in brightness by at least a quarter of the range."""
    brightness = generator.uniform(0.3, 0.7)
    step = generator.uniform(0.25, 0.4)
    darker = brightness - step if brightness > 0.5 else brightness + step
    tint = generator.uniform(-0.12, 0.12, size=(2, 3))
    return brightness + tint[0], darker + tint[1]


def _fractal_noise(generator: np.random.Generator, fields: int) -> NDArray[np.float32]:
    """fields×64×64 of noise with amplitude 1/frequency, each with mean 0 and standard deviation about 1."""
    shape = (fields, SIZE, SIZE // 2 + 1)
    spectrum = generator.standard_normal((2, *shape), dtype=np.float32)
    field = np.fft.irfft2((spectrum[0] + 1j * spectrum[1]) * _falloff(), s=(SIZE, SIZE))
    return field.astype(np.float32)


@functools.cache
def _falloff() -> NDArray[np.float32]:
    """64×33: 1/frequency, scaled so that the noise has unit standard deviation on average."""
    frequency = np.hypot(np.fft.fftfreq(SIZE)[:, None], np.fft.rfftfreq(SIZE)[None, :])
    frequency[0, 0] = np.inf
    amplitude = 1 / frequency
    # Parseval: columns other than the first and last represent two frequencies each; irfft2 divides by the pixel count.
    weight = np.full(SIZE // 2 + 1, 2.0)
    weight[[0, -1]] = 1.0
    variance = (2 * amplitude**2 * weight).sum() / SIZE**4
    scaled: NDArray[np.float32] = (amplitude / math.sqrt(variance)).astype(np.float32)
    return scaled


@functools.cache
def _patterns() -> NDArray[np.int64]:
    """10×1×64×64 of ±1: one balanced 8×8 tile per class, repeated; the same for every seed."""
    generator = np.random.Generator(np.random.Philox(key=[20231, 0]))
    balanced = np.repeat([-1, 1], TILE * TILE // 2)
    tiles = [generator.permutation(balanced).reshape(TILE, TILE) for _ in CLASSES]
    return np.stack([np.tile(tile, (SIZE // TILE, SIZE // TILE)) for tile in tiles])[:, None]


def _ring_of(points: int, radius: float = 1.0, phase: float = -0.25) -> NDArray[np.float64]:
    """A regular polygon; with a phase of −1/4 turn the first corner is at the top."""
    turns = 2 * math.pi * (np.arange(points) / points + phase)
    return radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)


def _star() -> NDArray[np.float64]:
    corners = _ring_of(10)
    corners[1::2] *= 0.42
    return corners


def _polygon(*points: tuple[float, float]) -> NDArray[np.float64]:
    return np.array(points, dtype=np.float64)


# Each shape is a list of polygons in the unit disc, painted in order (255 object, 0 hole).
SHAPES: dict[str, list[tuple[int, NDArray[np.float64]]]] = {
    "circle": [(255, _ring_of(48, 0.9))],
    "square": [(255, _ring_of(4, 1.0, phase=0.125))],
    "triangle": [(255, _ring_of(3))],
    "star": [(255, _star())],
    "ring": [(255, _ring_of(48, 0.95)), (0, _ring_of(48, 0.5))],
    "cross": [
        (255, _polygon((-0.3, -0.95), (0.3, -0.95), (0.3, 0.95), (-0.3, 0.95))),
        (255, _polygon((-0.95, -0.3), (0.95, -0.3), (0.95, 0.3), (-0.95, 0.3))),
    ],
    "crescent": [(255, _ring_of(48)), (0, _ring_of(48, 0.8) + np.array([0.45, 0]))],
    "arrow": [(255, _polygon((0, -1), (0.75, -0.1), (0.3, -0.1), (0.3, 0.9), (-0.3, 0.9), (-0.3, -0.1), (-0.75, -0.1)))],
    "hourglass": [(255, _polygon((-0.65, -0.75), (0.65, -0.75), (0.12, 0), (0.65, 0.75), (-0.65, 0.75), (-0.12, 0)))],
    "bars": [
        (255, _polygon((-0.8, -0.6), (-0.3, -0.6), (-0.3, 0.6), (-0.8, 0.6))),
        (255, _polygon((0.3, -0.6), (0.8, -0.6), (0.8, 0.6), (0.3, 0.6))),
    ],
}
CLASSES = tuple(SHAPES)
