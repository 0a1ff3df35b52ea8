"""What the tests of several boundary searches share: running one on its own, and looking at its points."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from locality.boundary import Search, SearchContext
from locality.boundary.fast.state import State
from locality.model_calls import Calls, open_model
from locality.model_calls.randomness import image_seeds
from locality.perturbation import margin
from locality.progress import Progress, no_progress
from locality.types import Norm


def run_search(
    search: Search,
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    norm: Norm = "l2",
    seed: int = 0,
    chunk: int | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> tuple[Tensor, Calls]:
    """The candidates of a search, as it returns them, and the calls with their counts."""
    with open_model(model, images, chunk) as calls:
        context = SearchContext(calls, images, labels, norm, image_seeds(images, seed), progress)
        return search(context, **options), calls


def state_of(calls: Calls, images: Tensor, labels: Tensor | None = None) -> State:
    """The state of `fast` before its first step."""
    labels = torch.zeros(len(images), dtype=torch.long) if labels is None else labels
    return State(SearchContext(calls, images, labels, "l2", [0] * len(images)), None, stop_cosine=0.98)


def crosses(model: Callable[[Tensor], Tensor], points: Tensor, labels: Tensor) -> Tensor:
    """N bool."""
    with torch.no_grad():
        across: Tensor = margin(model(points), labels) < 0
    return across


def l2_length(offset: Tensor) -> Tensor:
    """N."""
    lengths: Tensor = offset.flatten(1).norm(dim=1)
    return lengths


def caller_state(model: nn.Module) -> tuple[Any, ...]:
    """Everything that a search must leave as it was."""
    numpy_state: Any = np.random.get_state()
    return (
        [p.grad for p in model.parameters()],
        [p.requires_grad for p in model.parameters()],
        [part.training for part in model.modules()],
        torch.get_rng_state().tolist(),
        numpy_state[1].tolist(),
        random.getstate(),
    )
