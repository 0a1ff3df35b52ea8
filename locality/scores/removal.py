"""Deletion and insertion curves (RISE, Petsiuk et al. 2018): the class probability as the most attributed pixels go or come.

Deletion removes pixels from the image in descending order of attribution, and the probability should fall at once;
insertion puts them into a blurred image, and it should rise at once. The scores are the areas under the curves, by the
trapezoid rule, over the share of pixels from 0 to 1. A pixel's attribution is the sum over its channels. Equal attributions
have a random order that the image and the seed determine. So a constant map is a random order, which is chance: a curve
depends on the order of the pixels only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from locality.attribution.baselines import Baseline, baseline_images
from locality.errors import ArgumentError, unknown_choice
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import Target, class_indices, class_logit
from locality.scores.map_features import plain_maps
from locality.types import PathMaps

Output = Literal["probability", "logit"]
STEPS = (
    14  # two curves of 14 steps share f(x): 28 forward passes. bench/speed/removal.py compares with the 224 of the paper.
)


@dataclass(frozen=True, eq=False)
class Curve:
    """The output at increasing shares of pixels, and the area under it; `nan` in the rows of maps that are not finite."""

    share: Tensor  # S + 1, of pixels that were removed or inserted
    output: Tensor  # N×(S + 1)
    area: Tensor  # N


@dataclass(frozen=True, eq=False)
class RemovalCurves:
    """The two curves of each image."""

    deletion: Curve  # small is good
    insertion: Curve  # large is good


def removal_curves(
    model: Model | Calls,
    images: Tensor,
    maps: Tensor | PathMaps | Mapping[str, Tensor | PathMaps],
    target: Target = None,
    *,
    steps: int = STEPS,
    fill: Baseline = "mean",
    start: Baseline = "blur",
    output: Output = "probability",
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> dict[str, RemovalCurves]:
    """Deletion and insertion of each method's maps by its name; of a single tensor under the name "map".

    `fill` replaces deleted pixels: the mean colour of the image by default. (The paper's code takes the mean colour of
    ImageNet.) `start` is what insertion begins with: the blurred image, as in the paper. The class probability is the
    paper's output; logits do not saturate. `steps` are equal shares of the pixels; the paper has one row of the image per
    step. Costs 3 + 2(`steps` − 1) forward passes per image, 3 of which the methods share. Catch: a removed pixel makes an
    edge that no photograph has, so the curve also measures how the network takes such images; compare methods on one
    network, beside chance (`chance_curves`).

    >>> lit = lambda images: torch.stack((images.sum((1, 2, 3)), images[:, 0, 0, 0] * 0), 1)
    >>> image = torch.tensor([[[[0.9, 0.6, 0.3]]]])
    >>> curves = removal_curves(lit, image, image, target=0, steps=3, fill="black", output="logit")["map"]
    >>> [round(value, 4) for value in curves.deletion.output[0].tolist()], round(curves.deletion.area.item(), 4)
    ([1.8, 0.9, 0.3, 0.0], 0.7)
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ArgumentError("steps", "a whole number of steps from none to all of the pixels", steps)
    if output not in get_args(Output):
        raise unknown_choice("output", output, get_args(Output))
    named = named_maps(maps, images)
    pixels = working_copy(images, bounds)
    size = pixels.shape[-2] * pixels.shape[-1]
    if steps > size:
        raise ArgumentError("steps", f"at most one per pixel, {size}", steps)
    counts = [round(step * size / steps) for step in range(steps + 1)]
    with open_model(model, pixels, chunk, bounds) as calls:
        classes = class_indices(target, pixels)
        logits = calls.logits(pixels)
        classes = logits.argmax(1) if classes is None else classes
        whole = _output(logits, classes, output)
        filled, started = (baseline_images(baseline, pixels, bounds) for baseline in (fill, start))
        nothing, first = (_output(calls.logits(points), classes, output) for points in (filled, started))
        curves, seeds = {}, image_seeds(pixels, seed)
        change = Replacement.of(pixels, filled), Replacement.of(started, pixels)
        for name, values in named.items():
            order = PixelOrder.of(values, seeds)

            def between(change: Replacement, order: PixelOrder = order) -> Tensor:
                """N×(S − 1): with the first pixels replaced."""
                rows = order.finite.nonzero()[:, 0].to(pixels.device)
                inner = pixels.new_full((len(pixels), steps - 1), torch.nan)

                def points(row: int, step: int, out: Tensor) -> None:
                    change.write(row, order.first(row, counts[step + 1]), out)

                values = logits_of_variants(calls, rows.tolist(), steps - 1, points, pixels)
                if values is not None:
                    flat = _output(values, classes[rows].repeat_interleave(steps - 1), output)
                    inner[rows] = flat.view(len(rows), steps - 1)
                return inner

            share = torch.tensor(counts, dtype=pixels.dtype, device=pixels.device) / size
            undefined = ~order.finite.to(pixels.device)
            deletion = _curve(share, undefined, whole, between(change[0]), nothing)
            insertion = _curve(share, undefined, first, between(change[1]), whole)
            curves[name] = RemovalCurves(deletion, insertion)
        return curves


def chance_curves(model: Model | Calls, images: Tensor, target: Target = None, **settings: object) -> RemovalCurves:
    """The curves of a random order of the pixels: what any map scores on average after its values are shuffled.

    `settings` are those of `removal_curves`. One order per image; the mean over images is that of chance.
    """
    return removal_curves(model, images, torch.zeros_like(images), target, **settings)["map"]  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class PixelOrder:
    """The pixels of each map in descending order of their summed attribution."""

    keys: np.ndarray[tuple[int, ...], np.dtype[np.float64]]  # N×P, one different number per pixel, the largest first removed
    ranked: np.ndarray[tuple[int, ...], np.dtype[np.float64]]  # N×P, the same in ascending order
    size: tuple[int, int]
    finite: Tensor  # N bool; an order of other maps means nothing

    @classmethod
    def of(cls, maps: Tensor, seeds: Sequence[int]) -> PixelOrder:
        """Of N×C×H×W maps; among equal attributions the order is random, seeded by the image (`image_seeds`).

        float32 leaves the last 29 bits of a float64 free: a random permutation of the pixels goes there, so that a sort of
        values, which is several times as fast as one of indices, breaks ties.
        """
        summed = maps.detach().float().sum(1)
        height, width = summed.shape[1:]
        if height * width >= 2**29:
            raise ArgumentError("maps", "of fewer than 2**29 pixels", (height, width))
        keys = summed.flatten(1).cpu().double().numpy()
        bits = keys.view(np.int64)
        for row, number in enumerate(seeds):
            generator = torch.Generator().manual_seed(number)
            permuted = torch.randperm(height * width, generator=generator).numpy()
            # Further bits move a number away from 0, down if it is negative.
            bits[row] |= np.where(bits[row] < 0, height * width - 1 - permuted, permuted)
        finite = torch.from_numpy(np.isfinite(keys).all(1))
        return cls(keys, np.sort(keys, axis=1), (height, width), finite)

    def first(self, row: int, count: int) -> Tensor:
        """H×W bool: the `count` pixels of the largest attribution."""
        return torch.from_numpy(self._edge(row, count)).view(self.size)

    def _edge(self, row: int, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        if count == 0:
            return np.zeros(self.keys.shape[1], dtype=np.bool_)
        return np.asarray(self.keys[row] >= self.ranked[row, -count])


@dataclass(frozen=True, eq=False)
class Replacement:
    """Images whose pixels can be replaced by others'.

    Bits are copied, by operations without branches: `torch.where` takes 20 times as long for scattered pixels.
    """

    kept: Tensor  # N×C×H×W whole numbers, the bits of the images
    change: Tensor  # the bits that differ

    @classmethod
    def of(cls, kept: Tensor, other: Tensor) -> Replacement:
        dtype = {4: torch.int32, 8: torch.int64}[kept.element_size()]
        bits = kept.contiguous().view(dtype)
        return cls(bits, bits ^ other.contiguous().view(dtype))

    def write(self, row: int, replaced: Tensor, out: Tensor) -> None:
        """Write the image with its `replaced` pixels (H×W bool) from the other one to `out` (C×H×W)."""
        ones = replaced.to(self.kept).neg_()  # −1 has all bits
        bits = out.view(self.kept.dtype)
        torch.bitwise_and(self.change[row], ones, out=bits)
        bits.bitwise_xor_(self.kept[row])


def logits_of_variants(
    calls: Calls, rows: Sequence[int], count: int, write: Callable[[int, int, Tensor], None], images: Tensor
) -> Tensor | None:
    """R·count×K logits of variants of the images, `count` of each of the rows; None if there are no rows.

    `write(row, number, out)` writes one variant to `out` (C×H×W). One chunk is in memory at a time.
    """
    pairs = [(row, number) for row in rows for number in range(count)]
    found = []
    while pairs:
        part, pairs = pairs[: calls.chunk], pairs[calls.chunk :]
        points = torch.empty((len(part), *images.shape[1:]), dtype=images.dtype, device=images.device)
        for point, (row, number) in zip(points, part, strict=True):
            write(row, number, point)
        found.append(calls.logits(points))
    return torch.cat(found) if found else None


def named_maps(maps: Tensor | PathMaps | Mapping[str, Tensor | PathMaps], images: Tensor) -> dict[str, Tensor]:
    """Maps of the images by name."""
    several = maps if isinstance(maps, Mapping) else {"map": maps}
    named = {name: plain_maps(value) for name, value in several.items()}
    for name, value in named.items():
        fits = value.dim() == 4 and (len(value), *value.shape[2:]) == (len(images), *images.shape[2:])
        if not fits:
            expected = f"N×C×H×W like the images, {tuple(images.shape)}"
            raise ArgumentError("maps", expected, f"{tuple(value.shape)} ({name})")
    return named


def _output(logits: Tensor, classes: Tensor, output: Output) -> Tensor:
    return class_logit(logits.softmax(1) if output == "probability" else logits, classes)


def _curve(share: Tensor, undefined: Tensor, first: Tensor, inner: Tensor, last: Tensor) -> Curve:
    values = torch.cat((first[:, None], inner, last[:, None]), 1).masked_fill(undefined[:, None], torch.nan)
    return Curve(share, values, torch.trapezoid(values, share, dim=1))
