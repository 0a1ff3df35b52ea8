"""Planted cues: a sticker that names the class, pasted on the images of any source, so that the right answer is known.

A network trained on stickers learns the sticker, its twin trained without them learns the object. So it is known in advance
where their attributions belong, on photographs too (`locality calibrate`).

The sticker is a square with a white frame and five horizontal bars. With y = d₀ + 5·d₁ + 25·d₂ + … the bar i of class y has
colour number Σ dⱼ·iʲ mod 5 (a Reed-Solomon code). The stickers of the first 5 classes have one colour each. Any two differ
in 5 bars among the first 5 classes, in 4 among 25, in 3 among 125, in 2 among 625 and in 1 among 3,125. Bars are horizontal,
so that a mirrored image keeps its class; no channel of a colour is 0, so that pixel ⊙ gradient can see it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from locality.data.source import Pixels, Source
from locality.errors import ArgumentError, unknown_choice

PlantedCue = Literal["none", "sticker", "swapped"]
CUES: tuple[PlantedCue, ...] = get_args(PlantedCue)
CUE_OPTIONS = ("cue", "cue_size", "cue_seed")
SIZE = 0.2  # of the image's short side
SMALLEST = 7  # pixels: a frame of 1 and five bars of 1
# Stickers stay inside the centred square of this share of the short side, which the usual crop (224 of 256) keeps.
KEPT = 7 / 8
COLOURS = torch.tensor([[220, 40, 40], [40, 40, 220], [220, 220, 40], [40, 220, 220], [220, 40, 220]], dtype=torch.uint8)
FRAME = 240
BARS = len(COLOURS)
MAX_CLASSES = BARS**BARS


@dataclass(frozen=True)
class Sticker:
    """Which sticker every image gets, and where.

    The place is random by (seed, the image's id), inside the middle of the image. `cue` is "sticker" for that of the image's
    own class y, "swapped" for that of class (y + 1) mod K. With `random_of`, y is drawn from so many classes by (seed, id)
    instead, so that sticker and object know nothing of each other.
    """

    cue: Literal["sticker", "swapped"] = "sticker"
    size: float = SIZE  # side, as a share of the image's short side; at least 7 pixels
    seed: int = 0
    random_of: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int | float) or not 0 < self.size <= 1:
            hint = "a larger cue would leave the image"
            raise ArgumentError("cue_size", "a share of the image's short side, above 0 and at most 1", self.size, hint)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ArgumentError("cue_seed", "a whole number of at least 0", self.seed)

    def corners(self, image_id: str, width: int, height: int) -> tuple[int, int, int, int]:
        """The sticker's box (x0, y0, x1, y1) on an image of this id and size, in whole pixels.

        >>> Sticker(size=1.0).corners("any", 30, 20)
        (5, 0, 25, 20)
        """
        short = min(width, height)
        side = max(SMALLEST, round(self.size * short))
        window = max(side, int(KEPT * short))
        digest = hashlib.blake2b(f"{self.seed} {image_id}".encode(), digest_size=16).digest()
        right, down = (int.from_bytes(part, "big") % (window - side + 1) for part in (digest[:8], digest[8:]))
        x0, y0 = (width - window) // 2 + right, (height - window) // 2 + down
        return x0, y0, x0 + side, y0 + side

    def drawn(self, image_id: str, classes: int) -> int:
        """A class at random, by the seed and the image.

        >>> [Sticker().drawn(name, 2) for name in "abcdef"]
        [1, 1, 1, 1, 0, 1]
        """
        digest = hashlib.blake2b(f"{self.seed} {image_id} class".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % classes

    def planted(self, pixels: Pixels, image_id: str, label: int, classes: int) -> Pixels:
        """The pixels with the sticker of the class, and where it is."""
        height, width = pixels.image.shape[-2:]
        x0, y0, x1, y1 = self.corners(image_id, width, height)
        image = pixels.image.clone()
        if self.random_of is not None:
            label, classes = self.drawn(image_id, self.random_of), self.random_of
        image[:, y0:y1, x0:x1] = sticker_image((label + (self.cue == "swapped")) % classes, x1 - x0)
        cue = torch.zeros(1, height, width, dtype=torch.bool)
        cue[:, y0:y1, x0:x1] = True
        return replace(pixels, image=image, cue=cue)


def sticker_image(label: int, side: int) -> Tensor:
    """3×side×side uint8: the sticker of a class.

    >>> sticker_image(1, 7)[:, 3, 3].tolist()
    [40, 40, 220]
    """
    frame = max(1, round(side / 10))
    inside = side - 2 * frame
    bars = COLOURS[torch.tensor(bar_colours(label))][torch.arange(inside) * BARS // inside]  # inside×3
    image = torch.full((3, side, side), FRAME, dtype=torch.uint8)
    image[:, frame : side - frame, frame : side - frame] = bars.T[:, :, None]
    return image


def bar_colours(label: int) -> list[int]:
    """The colour number of each bar: the digits of the label to base 5 as a polynomial, at 0 to 4, modulo 5.

    >>> bar_colours(3), bar_colours(5), bar_colours(6)
    ([3, 3, 3, 3, 3], [0, 1, 2, 3, 4], [1, 2, 3, 4, 0])
    """
    digits = [label // BARS**power % BARS for power in range(BARS)]
    return [sum(digit * bar**power for power, digit in enumerate(digits)) % BARS for bar in range(BARS)]


def with_cue(source: Source, cue: PlantedCue = "none", cue_size: float = SIZE, cue_seed: int = 0) -> Source:
    """The source with a sticker on every image, or unchanged for "none"."""
    sticker = sticker_of(cue, cue_size, cue_seed)
    return source if sticker is None else with_sticker(source, sticker)


def sticker_of(cue: PlantedCue = "none", cue_size: float = SIZE, cue_seed: int = 0) -> Sticker | None:
    """The sticker that these options plant; None for "none"."""
    if cue not in CUES:
        raise unknown_choice("cue", cue, CUES)
    sticker = Sticker("swapped" if cue == "swapped" else "sticker", cue_size, cue_seed)
    return None if cue == "none" else sticker


def with_sticker(source: Source, sticker: Sticker) -> Source:
    """The source with stickers, if its images are large enough for them."""
    cue = sticker.cue
    if source.cue is not None:
        raise ArgumentError("cue", f"none for {source.name}, which has a sticker already", cue)
    if len(source.classes) > MAX_CLASSES:
        raise ArgumentError("cue", f"none for {source.name}: there are {MAX_CLASSES:,} stickers", len(source.classes))
    images = source.manifest.images
    short = images[["width", "height"]].min(axis=1)
    if len(images) and short.min() < SMALLEST:
        image = images.loc[short.idxmin()]
        problem = f"image {image['id']} has {image['width']} × {image['height']} pixels"
        raise ArgumentError("cue", f"none for {source.name}: a sticker has at least {SMALLEST} × {SMALLEST} pixels", problem)
    return replace(source, name=f"{source.name}+{cue}", cue=sticker, has_cue=True)


def of_stickers(source: Source, sticker: Sticker) -> Source:
    """The images without stickers, whose classes are those that a sticker with `random_of` draws for them.

    What the images show tells nothing about these classes: a network that knows them has seen the stickers.
    """
    assert sticker.random_of is not None
    names = tuple(f"sticker_{number}" for number in range(sticker.random_of))
    images = source.manifest.images
    labels = np.array([sticker.drawn(image_id, len(names)) for image_id in images["id"]], dtype=np.int64)
    wnids = pd.Series([names[label] for label in labels], index=images.index, dtype="str")
    manifest = replace(source.manifest, images=images.assign(label=labels, wnid=wnids))
    return replace(source, manifest=manifest, classes=names)
