"""What a run ends with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.optim.swa_utils import update_bn

from locality.data.dataset import ImageDataset
from locality.training.batches import TrainingImages
from locality.training.network import Weights
from locality.training.recipe import Recipe
from locality.training.validation import BestEpoch
from locality.zoo.pixel_model import PixelModel


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run ends with; `model` is on the CPU, in eval mode, with the recipe's average of the weights.

    With `validation`, these are the weights of the best epoch.
    """

    model: PixelModel
    data: ImageDataset  # that it was trained on
    minutes: float
    is_main: bool  # of several processes, the one that writes files
    was_finished: bool = False  # before this call
    held_out: ImageDataset | None = None  # that chose the best epoch
    best: BestEpoch | None = None


def finished(
    model: PixelModel, weights: Weights, stale: bool, images: TrainingImages, recipe: Recipe, device: torch.device
) -> PixelModel:
    """The model with these weights and, where they are `stale`, BatchNorm statistics that belong to them."""
    model.net.load_state_dict(weights)
    if stale and not recipe.keeps_statistics:
        torch.manual_seed(recipe.seed)  # networks with dropout draw from the global stream
        update_bn(images.unchanged(recipe.batch_size), model.to(device), device)
    return model.cpu().eval()
