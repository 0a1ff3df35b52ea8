"""The robust generalisation gap: how much larger loss and error under attack are on test images than on training images."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from locality.curvature.attacked_losses import STEPS, AttackedSplit, Losses, attacked_split, number_of_images
from locality.model_calls import Model
from locality.model_calls.devices import on_device
from locality.progress import Progress, no_progress
from locality.statistics import Difference, paired, unpaired
from locality.types import Norm, Threat

if TYPE_CHECKING:
    from locality.curvature.attacked_losses import Images


@dataclass(frozen=True, eq=False)
class RobustGap:
    """Losses and errors of training and test images under the same attack, and their differences, test − train."""

    train: Losses
    test: Losses
    threat: Threat
    steps: int
    seed: int
    gradients: int  # images × gradients of both attacks
    forwards: int

    @property
    def loss(self) -> Difference:
        """Robust cross-entropy, test − train."""
        return self._difference("robust_loss")

    @property
    def error(self) -> Difference:
        """Robust error, test − train."""
        return self._difference("robust_error")

    @property
    def clean_loss(self) -> Difference:
        """Cross-entropy without attack, test − train."""
        return self._difference("clean_loss")

    @property
    def clean_error(self) -> Difference:
        """Error without attack, test − train."""
        return self._difference("clean_error")

    @property
    def standard_minus_robust(self) -> Difference:
        """Error without − error under attack, of the test images, never above 0: the "gap" of the WCI paper's appendix."""
        change = paired(self.test.robust_error, self.test.clean_error)
        return Difference(change.difference, change.low, change.high)

    def to_json(self) -> dict[str, Any]:
        """Differences and means with their intervals, as plain values: an undefined number is None."""
        names = ("loss", "error", "clean_loss", "clean_error", "standard_minus_robust")
        differences = {name: _defined(asdict(getattr(self, name))) for name in names}
        return differences | {name: _split_json(split) for name, split in (("train", self.train), ("test", self.test))}

    def _difference(self, name: str) -> Difference:
        return unpaired(self.train.means[name], self.test.means[name])


def robust_gap(
    model: Model,
    train: Images,
    test: Images,
    epsilon: float = 8 / 255,
    norm: Norm = "linf",
    steps: int = STEPS,
    seed: int = 0,
    *,
    chunk: int | None = None,
    device: torch.device | str | None = None,
    progress: Progress = no_progress,
) -> RobustGap:
    """Cross-entropy and error under attack on training and on test images, and the difference, test − train.

    `train` and `test` are data sets, batches, or pairs of images and labels. The attack is PGD on the cross-entropy with a
    random start and all of its steps: attacks that stop at the first misclassified iterate give the right errors, but far
    too small losses. Images are not augmented, and the model is in eval mode. `progress` counts images.

    >>> from torch import nn
    >>> linear = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    >>> _ = linear[1].weight.data.copy_(torch.eye(2))
    >>> images = torch.tensor([[0.8, 0.5], [0.6, 0.5]]).view(2, 1, 1, 2)  # margins 0.3 and 0.1, under attack 0.1 and −0.1
    >>> gap = robust_gap(linear, (images[:1], torch.tensor([0])), (images[1:], torch.tensor([0])), epsilon=0.1)
    >>> gap.error.mean, gap.clean_error.mean, round(gap.loss.mean, 4)
    (1.0, 0.0, 0.1)
    """
    threat = Threat(norm, epsilon)
    given = train[0].device if isinstance(train, tuple) else torch.device("cpu")
    model, device = on_device(model, device, given)
    counts = number_of_images(train), number_of_images(test)
    splits = []
    progress(0, sum(counts))
    for data, before in ((train, 0), (test, counts[0])):

        def report(done: int, _: int | None, before: int = before) -> None:
            progress(before + done, sum(counts))

        splits.append(attacked_split(model, data, threat, steps, seed, chunk, device, keep=False, progress=report))
    return gap_between(splits[0], splits[1], threat, steps, seed)


def gap_between(train: AttackedSplit, test: AttackedSplit, threat: Threat, steps: int, seed: int) -> RobustGap:
    """The gap between two splits that were attacked in the same way."""
    costs = train.gradients + test.gradients, train.forwards + test.forwards
    return RobustGap(train.losses, test.losses, threat, steps, seed, *costs)


def _split_json(split: Losses) -> dict[str, Any]:
    means = {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in split.means.items()}
    return {"images": len(split), "undefined": split.undefined} | {name: _defined(mean) for name, mean in means.items()}


def _defined(values: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
