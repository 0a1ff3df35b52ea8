"""ROAD, "remove and debias" (Rong et al. 2022): is the decision kept if pixels are removed in the order of a map?

Removed pixels are imputed from those that stay (`imputation.py`) with a little noise, so that the network cannot tell from
the hole's colour and shape what was there, as it can if the hole has a constant colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from locality.errors import ArgumentError
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import Target, class_indices, class_logit
from locality.scores.imputation import TOLERANCE, linear_imputation
from locality.scores.removal import PixelOrder, logits_of_variants, named_maps
from locality.types import PathMaps

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
NOISE = 0.01


@dataclass(frozen=True, eq=False)
class Road:
    """What is left at each share of removed pixels, most and least relevant first; `nan` where a map is not finite."""

    share: Tensor  # S
    kept_most: Tensor  # N×S, 1 where the class is still predicted after the most relevant pixels are removed
    kept_least: Tensor  # N×S, after the least relevant ones
    probability_most: Tensor  # N×S, of the class
    probability_least: Tensor  # N×S

    @property
    def most(self) -> Tensor:
        """N: the mean of `kept_most` over the shares (MoRF); small is good."""
        return self.kept_most.mean(1)

    @property
    def least(self) -> Tensor:
        """N: the mean of `kept_least` (LeRF); large is good."""
        return self.kept_least.mean(1)

    @property
    def gap(self) -> Tensor:
        """N: `least` − `most`, from −1 to 1; chance is 0, because a random order has no most relevant end."""
        return self.least - self.most

    @property
    def probability_gap(self) -> Tensor:
        """N: the same of probabilities, which is twice grad-cam's `ROADCombined` of a softmax output."""
        return (self.probability_least - self.probability_most).mean(1)


def road(
    model: Model | Calls,
    images: Tensor,
    maps: Tensor | PathMaps | Mapping[str, Tensor | PathMaps],
    target: Target = None,
    *,
    shares: Sequence[float] = SHARES,
    noise: float = NOISE,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> dict[str, Road]:
    """ROAD of each method's maps by its name; of a single tensor under the name "map".

    The paper's accuracy is the mean of `kept_most` or `kept_least` over images with their labels as `target`; without one
    it is how often the prediction survives. Noise is N(0, `noise`²) in pixel space, one field for all variants of an image,
    seeded by the image. `tolerance` is the error of the imputation. Costs 2·|`shares`| forward passes per image and method,
    and 1 if there is no target. Catch: scattered pixels are imputed almost exactly and large holes are not, so smooth maps
    lose more of the image at the same share than noisy ones.

    >>> left = lambda images: torch.stack((images[..., :2].mean((1, 2, 3)), images[..., 2:].mean((1, 2, 3))), 1)
    >>> image = torch.zeros(1, 1, 4, 4)
    >>> image[..., :2] = 1
    >>> found = road(left, image, image, shares=(0.5,), noise=0)["map"]  # all bright pixels, then all dark ones, are removed
    >>> found.share.tolist(), found.probability_gap.item() < 0.3
    ([0.5], True)
    """
    if not shares or not all(0 < share < 1 for share in shares):
        raise ArgumentError("shares", "numbers between 0 and 1, such as 0.1, 0.5, 0.9", list(shares))
    if not 0 <= noise < float("inf"):
        raise ArgumentError("noise", "a standard deviation in pixels, 0 or larger", noise)
    named = named_maps(maps, images)
    pixels = working_copy(images, bounds)
    size = pixels.shape[-2] * pixels.shape[-1]
    counts = [min(max(round(share * size), 1), size - 1) for share in shares]
    with open_model(model, pixels, chunk, bounds) as calls:
        classes = class_indices(target, pixels)
        classes = calls.logits(pixels).argmax(1) if classes is None else classes
        seeds = image_seeds(pixels, seed)
        fields = noise * torch.stack(
            [torch.randn(pixels.shape[1:], generator=torch.Generator().manual_seed(number)) for number in seeds]
        ).to(pixels)
        results = {}
        for name, values in named.items():
            order = PixelOrder.of(values, seeds)
            rows = order.finite.nonzero()[:, 0].tolist()

            variants: dict[int, Tensor] = {}  # of the row that is asked for

            def variant(
                row: int, number: int, out: Tensor, order: PixelOrder = order, variants: dict[int, Tensor] = variants
            ) -> None:
                """The image without its most relevant pixels, at each share, and then without its least relevant ones."""
                if row not in variants:
                    variants.clear()
                    most = [order.first(row, count) for count in counts]
                    least = [~order.first(row, size - count) for count in counts]
                    removed = torch.stack(most + least)[:, None].to(pixels.device)
                    repeated = pixels[row].expand(len(removed), -1, -1, -1)
                    variants[row] = linear_imputation(repeated, removed, tolerance) + fields[row] * removed
                out.copy_(variants[row][number])

            found = pixels.new_full((2, len(pixels), 2 * len(counts)), torch.nan)  # kept, probability
            logits = logits_of_variants(calls, rows, 2 * len(counts), variant, pixels)
            if logits is not None:
                wanted = classes[rows].repeat_interleave(2 * len(counts))
                found[0, rows] = (logits.argmax(1) == wanted).to(pixels).view(len(rows), -1)
                found[1, rows] = class_logit(logits.softmax(1), wanted).to(pixels).view(len(rows), -1)
            (kept_most, kept_least), (sure_most, sure_least) = (part.chunk(2, dim=1) for part in found)
            share = torch.tensor(counts, dtype=pixels.dtype, device=pixels.device) / size
            results[name] = Road(share, kept_most, kept_least, sure_most, sure_least)
        return results
