"""A network prepared for curvature: eval mode, weights without gradients, images in chunks, evaluations counted."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from locality.curvature.layers import weight_layers
from locality.errors import ArgumentError, ArgumentTypeError
from locality.model_calls import NEEDS_CONTIGUOUS, Calls, model_dtype, open_model
from locality.model_calls.checks import check_images, check_labels, check_target
from locality.model_calls.randomness import image_seeds
from locality.progress import Progress, no_progress


@dataclass(frozen=True, eq=False)
class OpenNetwork:
    """A network in eval mode, with the images at which the loss is taken. The caller's weights are never differentiated."""

    model: nn.Module
    names: tuple[str, ...]  # of the weight layers
    tensors: dict[str, Tensor]  # parameters and copies of buffers, float32 or a higher precision, without gradients
    images: Tensor
    labels: Tensor  # N int64
    seeds: list[int]  # one per image
    classes: int
    calls: Calls  # counts images, and halves chunks that are too large for memory
    progress: Progress = no_progress

    @property
    def layers(self) -> list[Tensor]:
        return [self.tensors[name] for name in self.names]

    def logits(self, images: Tensor, weights: dict[str, Tensor] | None = None) -> Tensor:
        """N×K logits with a graph; `weights` replace those of the same names."""
        self.calls.forwards += len(images)
        # A copy, because the network may begin with an in-place operation.
        return _checked(functional_call(self.model, self.tensors | (weights or {}), (images.clone(),)), len(images))


@contextmanager
def open_network(
    model: nn.Module, images: Tensor, labels: Tensor, seed: int, chunk: int | None, progress: Progress
) -> Generator[OpenNetwork, None, None]:
    """Check the arguments and open the network; the caller's state is restored when the block ends."""
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError("model", "a torch module", type(model).__name__)
    while isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        model = model.module
    names = tuple(weight_layers(model))
    if not names:
        raise ArgumentError("model", "a network with weights of two or more dimensions", f"{type(model).__name__} without")
    check_images(images)
    labels = check_labels(labels, len(images))
    with open_model(model, images, chunk) as calls:
        dtype = torch.promote_types(model_dtype(model, images), torch.float32)
        # A pass may write to buffers, so they are copied; parameters are only read.
        tensors = {name: _as(dtype, parameter.detach()) for name, parameter in model.named_parameters()}
        tensors |= {name: _as(dtype, buffer.detach().clone()) for name, buffer in model.named_buffers()}
        pixels = images.detach().to(dtype)
        with torch.no_grad():
            try:  # channels-last memory, which is faster, unless the network flattens with `.view`
                fast = {name: _channels_last(tensor) for name, tensor in tensors.items()}
                classes = _checked(functional_call(model, fast, (_channels_last(pixels[:1]).clone(),)), 1).shape[1]
                tensors, pixels = fast, _channels_last(pixels)
            except RuntimeError as error:
                if NEEDS_CONTIGUOUS not in str(error):
                    raise
                classes = _checked(functional_call(model, tensors, (pixels[:1].clone(),)), 1).shape[1]
        check_target(labels, classes, "labels")
        seeds = image_seeds(images, seed)
        yield OpenNetwork(model, names, tensors, pixels, labels.to(images.device), seeds, classes, calls, progress)


def _as(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _checked(logits: object, images: int) -> Tensor:
    if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != images or logits.shape[1] < 2:
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise ArgumentError("model", "one that returns N×K logits of two classes or more", got)
    if not torch.isfinite(logits.detach()).all():
        raise ArgumentError("model", "one that returns finite logits", "nan or inf", "check its weights")
    return logits
