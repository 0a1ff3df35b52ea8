"""Maps that depend on neither the model nor the image: baselines for every score.

Tables show them as extra rows beside the methods. A method that scores no better than the centred Gaussian shows no more
than that photographers put the object in the middle.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from locality.model_calls.randomness import image_seeds
from locality.scores.map_features import region_share
from locality.types import LocalityScores


def uniform_maps(images: Tensor, seed: int = 0) -> Tensor:
    """1 everywhere; `seed` is not used.

    >>> uniform_maps(torch.zeros(1, 1, 1, 2))
    tensor([[[[1., 1.]]]])
    """
    return torch.ones_like(images)


def random_maps(images: Tensor, seed: int = 0) -> Tensor:
    """Every feature drawn from N(0, 1), with a seed from the image's pixels and `seed`.

    >>> random_maps(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 3, 8, 8])
    """
    generators = [torch.Generator().manual_seed(number) for number in image_seeds(images, seed)]
    drawn = [torch.randn(images.shape[1:], generator=generator) for generator in generators]
    return torch.stack(drawn).to(images)


def centred_gaussian_maps(images: Tensor, seed: int = 0) -> Tensor:
    """exp(−u²/2 − v²/2) with u and v the distance from the centre in units of a quarter of the side; `seed` is not used.

    >>> centred_gaussian_maps(torch.zeros(1, 1, 4, 4))[0, 0, 1]  # half a pixel and one and a half from the centre
    tensor([0.2865, 0.7788, 0.7788, 0.2865])
    """
    height, width = images.shape[2:]
    down, right = (
        torch.exp(-0.5 * ((torch.arange(side, device=images.device) + 0.5 - side / 2) / (side / 4)) ** 2)
        for side in (height, width)
    )
    return (down[:, None] * right).to(images).expand(images.shape).clone()


# Rows for tables by name: images and a seed ↦ maps of their shape.
MODEL_FREE_MAPS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "uniform": uniform_maps,
    "random": random_maps,
    "centred Gaussian": centred_gaussian_maps,
}


def uniform_scores(masks: Tensor) -> LocalityScores:
    """Locality of the uniform map in closed form: Pre = a, Rec = 1, F1 = 2a/(1 + a) with a the region's share.

    Its lift is 0. So an F1 of 0.7 means nothing if boxes cover 54 % of the image. `nan`: recall and F1 of an empty region.

    >>> uniform_scores(torch.tensor([[[[True, False], [False, False]]]]).bool()).f1
    tensor([0.4000])
    """
    share = region_share(masks)
    recall = torch.where(share > 0, 1.0, torch.nan)
    return LocalityScores(precision=share, recall=recall, f1=2 * share * recall / (share + recall))
