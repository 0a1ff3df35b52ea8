"""Region tests: what happens to a model's decisions when a region, or all but the region, is changed. No attribution.

Inside and outside are greyed, blurred or given noise, and the outside is replaced by another image's background. Every test
is made twice: for the region, and as chance level for a region of the same shape and size at another place of the image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from locality.attribution.baselines import blurred
from locality.errors import ArgumentError, unknown_choice
from locality.model_calls import Calls, open_model
from locality.model_calls.checks import working_copy
from locality.model_calls.decisions import correct, decisions
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import class_logit
from locality.scores.interventions import (
    GREYS,
    Grey,
    edge_weights,
    grey_images,
    mixed,
    moved_masks,
    noise_norms,
    noise_of_norm,
)
from locality.types import ABSTAINED

REMOVALS = ("inside_greyed", "inside_blurred", "outside_greyed", "outside_blurred", "outside_swapped")
NOISES = ("inside_noise", "outside_noise")
TESTS = REMOVALS + NOISES
PLACES = ("region", "elsewhere")
Changed = Callable[[Tensor], Tensor]  # indices of images ↦ these images, changed


@dataclass(frozen=True)
class RegionSettings:
    """How regions are changed. Lengths are shares of the image's shorter side."""

    grey: Grey = "mean"  # the image's mean colour; "half": 0.5
    blur: float = 0.1  # standard deviation of the Gaussian
    sigma: float = 0.25  # of the noise in the smaller of inside and outside; the other has noise of equal ℓ2 norm
    draws: int = 2  # of noise per image
    edge: float = 0.0  # 0: regions have hard edges; above: their edges are blurred by this

    def check(self) -> None:
        """Raise an ArgumentError for the first setting that makes no sense."""
        if self.grey not in GREYS:
            raise unknown_choice("grey", self.grey, GREYS)
        for name in ("blur", "sigma"):
            if not 0 < getattr(self, name) < math.inf:
                raise ArgumentError(name, "above 0", getattr(self, name))
        if not 0 <= self.edge < 1:
            raise ArgumentError("edge", "a share of the image's shorter side, from 0 to below 1", self.edge)
        if isinstance(self.draws, bool) or not isinstance(self.draws, int) or self.draws < 1:
            raise ArgumentError("draws", "a whole number of draws of noise per image", self.draws)

    @property
    def forwards(self) -> int:
        """Forward passes per image: one of the image, and for either place one per removal and draw of noise."""
        return 1 + len(PLACES) * (len(REMOVALS) + len(NOISES) * self.draws)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one change does, as N numbers; `nan` where undefined. With noise, means over its draws."""

    correct: Tensor  # 1 where the prediction is right; `nan` where no label is known
    kept: Tensor  # 1 where the decision is that on the unchanged image
    logit_change: Tensor  # f_y(changed) − f_y(image), y the class predicted for the image
    prediction: Tensor  # int64, of the first draw; −1 for an abstention and where undefined


@dataclass(frozen=True, eq=False)
class RegionTests:
    """The tests of N images; `nan` where the region is empty or the whole image, or the model abstains on the image."""

    prediction: Tensor  # N int64, on the unchanged image
    correct: Tensor  # N
    share: Tensor  # N, the region's share of the image
    overlap: Tensor  # N, the share of the region elsewhere that lies in the region
    outcomes: dict[tuple[str, str], Outcome]  # by test and place
    forwards: int  # per image


def region_tests(
    model: nn.Module,
    images: Tensor,
    masks: Tensor,
    accepted: Sequence[Sequence[int]],
    backgrounds: Tensor | None = None,
    settings: RegionSettings | None = None,
    seed: int = 0,
    calls: Calls | None = None,
) -> RegionTests:
    """Decisions on images whose region (N×1×H×W bool) or whose rest is greyed, blurred, swapped or noisy.

    `accepted` are the labels that are right for each image, none where they are not known. `backgrounds` are N images of
    other classes with their own objects painted over (`interventions.background_images`), `nan` where there is none. Pixels
    stay in [0, 1]. Places and noise depend on the image's pixels and the seed only. The catch: greyed and blurred images are
    unlike any photograph, so compare with the same change elsewhere.

    >>> mean_of_left = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    >>> _ = mean_of_left[1].weight.data.copy_(torch.tensor([[1.0, 1, 0, 0], [0, 0, 0, 0]]))
    >>> image, left = torch.tensor([[[[1.0, 1, 0, 0]]]]), torch.tensor([[[[True, True, False, False]]]])
    >>> tests = region_tests(mean_of_left, image, left, [(0,)])
    >>> [tests.outcomes[name, "region"].logit_change.item() for name in ("inside_greyed", "outside_greyed")]
    [-1.0, 0.0]
    """
    settings = settings or RegionSettings()
    settings.check()
    pixels, inside = working_copy(images), masks.to(images.device)
    if inside.shape != (len(images), 1, *images.shape[2:]) or inside.dtype != torch.bool:
        expected = f"{len(images)}×1×{images.shape[2]}×{images.shape[3]} bool"
        raise ArgumentError("masks", expected, f"{tuple(masks.shape)} {masks.dtype}".replace("torch.", ""))
    if len(accepted) != len(images):
        raise ArgumentError("accepted", f"the labels of each of the {len(images)} images", len(accepted))
    if backgrounds is not None and backgrounds.shape != images.shape:
        raise ArgumentError("backgrounds", f"images of the same shape, {tuple(images.shape)}", tuple(backgrounds.shape))
    seeds = image_seeds(pixels, seed)
    elsewhere, overlap = moved_masks(inside, seeds)
    share = inside.float().mean((1, 2, 3))
    defined = (share > 0) & (share < 1)
    outcomes = {}
    with open_model(calls or model, pixels) as opened:
        before = _Before(model, opened, opened.logits(pixels), accepted)
        for place, region in zip(PLACES, (inside, elsewhere), strict=True):
            for name, changed in _changes(pixels, region, backgrounds, settings, seeds).items():
                usable = defined & _finite(pixels, backgrounds) if name == "outside_swapped" else defined
                draws = settings.draws if name in NOISES else 1
                outcomes[name, place] = before.outcome(changed, draws, usable.nonzero()[:, 0])
    return RegionTests(before.predicted, before.correct, share, overlap, outcomes, settings.forwards)


class _Before:
    """What the model makes of the unchanged images, and so what a change does."""

    def __init__(self, model: nn.Module, calls: Calls, logits: Tensor, accepted: Sequence[Sequence[int]]) -> None:
        self.model, self.calls, self.logits, self.accepted = model, calls, logits, accepted
        self.predicted, self.classes = decisions(model, logits), logits.argmax(1)
        self.unknown = torch.tensor([not labels for labels in accepted], device=logits.device)
        self.correct = correct(self.predicted, accepted).float().masked_fill(self.unknown, torch.nan)

    def outcome(self, changed: Changed, draws: int, rows: Tensor) -> Outcome:
        """The mean outcome over the draws of the images in `rows`; that of the others is undefined."""
        columns = torch.full((3, len(self.logits)), torch.nan, device=self.logits.device)
        first = torch.full_like(self.predicted, ABSTAINED)
        if not len(rows):
            return Outcome(columns[0], columns[1], columns[2], first)
        own, classes = [self.accepted[row] for row in rows.tolist()], self.classes[rows]
        columns[:, rows] = 0.0
        for draw in range(draws):
            logits = self.calls.logits(changed(rows))
            after = decisions(self.model, logits)
            change = class_logit(logits, classes) - class_logit(self.logits[rows], classes)
            kept = (after == self.predicted[rows]).float()
            columns[:, rows] += torch.stack([correct(after, own).float(), kept, change]) / draws
            if draw == 0:
                first[rows] = after
        columns[0, self.unknown] = torch.nan
        columns[1:, self.predicted == ABSTAINED] = torch.nan
        return Outcome(columns[0], columns[1], columns[2], first)


def _finite(images: Tensor, backgrounds: Tensor | None) -> Tensor:
    """N bool: which images have a background of another one."""
    if backgrounds is None:
        return torch.zeros(len(images), dtype=torch.bool, device=images.device)
    return backgrounds.to(images.device).isfinite().flatten(1).all(1)


def _changes(
    images: Tensor,
    masks: Tensor,
    backgrounds: Tensor | None,
    settings: RegionSettings,
    seeds: Sequence[int],
) -> dict[str, Changed]:
    """The changes by name. Each is computed when it is asked for, so that one batch of images is in memory at a time."""
    weights = edge_weights(masks, images, settings.edge)
    grey, blurry = grey_images(images, settings.grey), blurred(images, settings.blur)
    others = images if backgrounds is None else backgrounds.to(images)
    norms = noise_norms(masks, settings.sigma, images.shape[1])
    generators = {name: [torch.Generator().manual_seed(seed) for seed in seeds] for name in NOISES}

    def noisy(name: str, sides: Tensor, rows: Tensor) -> Tensor:
        drawn = [torch.randn(images.shape[1:], generator=generators[name][row]) for row in rows.tolist()]
        return (images[rows] + noise_of_norm(sides[rows], norms[rows], torch.stack(drawn).to(images))).clamp(0.0, 1.0)

    return {
        "inside_greyed": lambda rows: mixed(images[rows], grey[rows], weights[rows]),
        "inside_blurred": lambda rows: mixed(images[rows], blurry[rows], weights[rows]),
        "outside_greyed": lambda rows: mixed(images[rows], grey[rows], 1 - weights[rows]),
        "outside_blurred": lambda rows: mixed(images[rows], blurry[rows], 1 - weights[rows]),
        "outside_swapped": lambda rows: mixed(images[rows], others[rows], 1 - weights[rows]),
        "inside_noise": lambda rows: noisy("inside_noise", masks, rows),
        "outside_noise": lambda rows: noisy("outside_noise", ~masks, rows),
    }
