"""Changed images for tests of a region: greyed, blurred, swapped, noisy, inside the region or outside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from locality.attribution.baselines import baseline_images, blurred
from locality.errors import unknown_choice
from locality.model_calls.checks import UNIT

Grey = Literal["mean", "half"]
GREYS: dict[str, str | float] = {"mean": "mean", "half": 0.5}  # the image's own mean colour, or 0.5 everywhere
FAINT = 1e-3  # weight of the background's mean colour where no background is near


def grey_images(images: Tensor, grey: Grey = "mean") -> Tensor:
    """N×C×H×W: one colour per image, the mean of each channel over the whole image or 0.5.

    >>> grey_images(torch.tensor([[[[0.0, 1.0, 0.2]]]])), grey_images(torch.zeros(1, 1, 1, 2), "half")
    (tensor([[[[0.4000, 0.4000, 0.4000]]]]), tensor([[[[0.5000, 0.5000]]]]))
    """
    if grey not in GREYS:
        raise unknown_choice("grey", grey, GREYS)
    return baseline_images(GREYS[grey], images, UNIT)


def mixed(images: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """The images where the N×1×H×W weights are 0, the others where they are 1, in [0, 1]."""
    return ((1 - weights) * images + weights * others).clamp(0.0, 1.0)


def edge_weights(masks: Tensor, images: Tensor, edge: float = 0.0) -> Tensor:
    """The bool masks as weights in the images' dtype: 0 and 1, or blurred with this share of the shorter side as σ."""
    weights = masks.to(images)
    return blurred(weights, edge).clamp(0.0, 1.0) if edge else weights


def background_images(images: Tensor, masks: Tensor, blur: float) -> Tensor:
    """The images with their own region painted over with the background around it.

    That is the blurred background, Σ w·x / Σ w with weights that fall with the distance. Far inside a large region there is
    none, and the background's mean colour takes over. An image that is all region becomes its mean colour.
    """
    outside = (~masks).to(images)
    count = outside.sum((2, 3), keepdim=True)
    inside_too = images.mean((2, 3), keepdim=True)
    mean = torch.where(count > 0, (images * outside).sum((2, 3), keepdim=True) / count.clamp(min=1), inside_too)
    around = (blurred(images * outside, blur) + FAINT * mean) / (blurred(outside, blur) + FAINT)
    return mixed(images, around, 1 - outside)


def moved_masks(masks: Tensor, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Each region at another place, as N×1×H×W masks; and N, the share of it that lies in the region itself.

    The region keeps its shape and its size. The place is drawn from those inside the image where at most the share a of it
    lies in the region, a being the region's share of the image: what a random pixel would. A region too large for
    that goes where it overlaps itself least. A region that reaches all four borders is moved round the edges.

    >>> masks = torch.tensor([[[[True, True, False, False]]]])
    >>> moved, overlap = moved_masks(masks, [0])
    >>> overlap.item() <= 0.5, moved.sum().item()
    (True, 2)
    """
    places = [_moved(mask[0], seed) for mask, seed in zip(masks, seeds, strict=True)]
    overlap = torch.tensor([share for _, share in places])
    return torch.stack([mask for mask, _ in places])[:, None].to(masks.device), overlap


def _moved(mask: Tensor, seed: int) -> tuple[Tensor, float]:
    region = mask.cpu()
    count, pixels = int(region.sum()), region.numel()
    if count in (0, pixels):
        return region, float("nan")
    rows, columns = region.any(1).nonzero()[:, 0], region.any(0).nonzero()[:, 0]
    down = torch.arange(-int(rows[0]), region.shape[0] - int(rows[-1]))
    right = torch.arange(-int(columns[0]), region.shape[1] - int(columns[-1]))
    if len(down) == len(right) == 1:
        down, right = torch.arange(region.shape[0]), torch.arange(region.shape[1])
    # Pixels shared with the region by the region moved by (d, r): its circular autocorrelation, in which a move inside the
    # image is the same as one round the edges.
    spectrum = torch.fft.rfft2(region.double())
    shared = torch.fft.irfft2(spectrum.abs() ** 2, s=region.shape).round().long()
    shared = shared[down % region.shape[0]][:, right % region.shape[1]]
    most = max(int(shared.min()), count * count // pixels)
    places = (shared <= most).nonzero()
    place = places[int(torch.randint(len(places), (1,), generator=torch.Generator().manual_seed(seed)))]
    offset = int(down[place[0]]), int(right[place[1]])
    return region.roll(offset, (0, 1)), float(shared[tuple(place)]) / count


def noise_of_norm(masks: Tensor, norms: Tensor, draws: Tensor) -> Tensor:
    """The drawn N×C×H×W noise inside the masks, scaled to N ℓ2 norms."""
    inside = draws * masks.to(draws)
    scale = norms / torch.linalg.vector_norm(inside, dim=(1, 2, 3)).clamp(min=1e-12)
    scaled: Tensor = inside * scale[:, None, None, None]
    return scaled


def noise_norms(masks: Tensor, sigma: float, channels: int) -> Tensor:
    """N: the ℓ2 norm of the noise on either side, that of N(0, σ²) in every feature of the smaller side.

    >>> noise_norms(torch.tensor([[[[True, False, False, False, False]]]]), 0.5, channels=4)
    tensor([1.])
    """
    inside = masks.flatten(1).sum(1)
    smaller = torch.minimum(inside, masks[0].numel() - inside)
    return sigma * (channels * smaller).float().sqrt()
