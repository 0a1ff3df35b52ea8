"""How locality calls a model: the caller's state is kept, gradients are computed in chunks and counted.

All logits and gradients are computed through `open_model`, so that the promises hold everywhere: eval mode is set and
restored, no parameter or tensor of the caller changes, no random number is consumed, a chunk too large for memory is halved,
and every evaluation is counted.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from locality.errors import ArgumentError
from locality.model_calls.checks import UNIT, Bounds, check_chunk
from locality.model_calls.cpu_layers import CheaperLayers, has_cheaper_layers
from locality.model_calls.malloc import memory_kept
from locality.model_calls.outputs import logits_of

Model = Callable[[Tensor], Any]  # images ↦ logits, in any form that `outputs.logits_of` takes
Run = Callable[[Tensor], Tensor]
Limits = tuple[float, float]
Objective = Callable[..., Tensor]  # N×K logits and further tensors of N rows ↦ N numbers

# Pixels that go through a network at once. On CPUs larger chunks do not fit the caches (bench/speed/attribution.py measures
# the cost); on accelerators they fill the device.
CHUNK_PIXELS = {"cpu": 4 * 224 * 224}
CHUNK_PIXELS_ELSEWHERE = 128 * 224 * 224
# PyTorch raises plain RuntimeErrors for these two, so that its text is the only way to recognise them.
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "failed to allocate")
NEEDS_CONTIGUOUS = "view size is not compatible"  # `.view` of channels-last memory
# Packages between the caller's line and ours: a warning about the caller's model must not point to them.
NOT_THE_CALLER = {"locality", "captum", "torch", "foolbox", "eagerpy", "pyautoattack"}


@dataclass
class Calls:
    """An open model; `forwards` and `gradients` count the images evaluated since it was opened."""

    run: Run  # images of any dtype ↦ float32 logits, with a graph where the images require gradients
    chunk: int
    limits: Limits = (0.0, 1.0)  # of pixels
    rounding: float = 1e-4  # of a sum of probabilities in the model's precision
    forwards: int = 0
    gradients: int = 0
    _warned: set[str] = field(default_factory=set)

    def logits(self, images: Tensor) -> Tensor:
        """N×K float32 logits, without gradients."""
        self.forwards += len(images)

        def chunk_logits(chunk: Tensor) -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (self._checked(self.run(chunk.clone()), len(chunk)),)

        return self.in_chunks(chunk_logits, images)[0]

    def gradient(
        self, images: Tensor, objective: Objective, *extra: Tensor, run: Callable[..., Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits, and the gradient of `objective(logits, *extra)` of each image with respect to its pixels.

        `extra` holds one entry per image (such as its class) and is split into the same chunks. `run(images, *extra)`
        computes the logits of a chunk in its own way.
        """
        self.gradients += len(images)

        def chunk_gradient(chunk: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
            leaf = chunk.detach().clone().requires_grad_()
            with torch.enable_grad():
                # A copy for the model, which may begin with an in-place operation.
                copied = leaf.clone()
                logits = self._checked(self.run(copied) if run is None else run(copied, *rest), len(chunk))
                # In eval mode images of a batch are independent: the gradient of the sum is that of each image.
                total = objective(logits, *rest).sum()
                if not total.requires_grad:
                    return logits.detach(), torch.zeros_like(leaf)
                (gradient,) = torch.autograd.grad(total, leaf, allow_unused=True, materialize_grads=True)
            return logits.detach(), gradient.detach()

        logits, gradient = self.in_chunks(chunk_gradient, images, *extra)
        return logits, gradient

    def in_chunks(self, function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
        """`function` of all rows, one chunk at a time; the chunk is halved where memory runs out."""
        pieces: list[tuple[Tensor, ...]] = []
        start = 0
        while start < len(tensors[0]):
            try:
                pieces.append(function(*(tensor[start : start + self.chunk] for tensor in tensors)))
            except (RuntimeError, MemoryError) as error:
                if self.chunk == 1 or not is_out_of_memory(error):
                    raise
                self.chunk = max(1, self.chunk // 2)
                continue
            start += len(pieces[-1][0])
        return tuple(torch.cat(column) for column in zip(*pieces, strict=True))

    def _checked(self, logits: object, images: int) -> Tensor:
        if not isinstance(logits, Tensor):
            raise TypeError(
                f"`model` must return logits as a tensor, `.logits`, under 'logits' or 'out', or first in a tuple, got "
                f"{type(logits).__name__}: wrap it to return only the logits"
            )
        if logits.dim() != 2 or len(logits) != images or logits.shape[1] < 2:
            raise ValueError(f"`model` must return N×K logits, got shape {tuple(logits.shape)} for {images} images")
        values = logits.detach()
        if not torch.isfinite(values).all():
            raise ValueError("`model` must return finite logits, got nan or inf: check its weights and its input range")
        if values.numel() > 2 and bool((values >= 0).all()) and bool(((values.sum(1) - 1).abs() < self.rounding).all()):
            self.warn(
                "`model` returns probabilities (rows sum to 1), not logits: remove its softmax, which makes gradients vanish"
            )
        return logits.float()

    @contextmanager
    def with_settings(self, chunk: int | None, limits: Limits) -> Generator[None, None, None]:
        """Other limits and, unless None, another chunk inside the block."""
        before = self.chunk, self.limits
        self.chunk, self.limits = chunk or self.chunk, limits
        try:
            yield
        finally:
            # A chunk that was halved for memory stays halved.
            self.chunk, self.limits = (self.chunk if chunk is None else before[0]), before[1]

    def warned(self, kind: str) -> bool:
        """Whether a warning of this kind was given."""
        return kind in self._warned

    def warn(self, text: str, kind: str | None = None) -> None:
        """Warn, but only once; of a kind, only once whatever the text."""
        if (kind or text) not in self._warned:
            self._warned.add(kind or text)
            warn_caller(text)


def warn_caller(text: str) -> None:
    """Warn at the line of the caller's own code that led here, through any number of library frames."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in NOT_THE_CALLER:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


@contextmanager
def open_model(
    model: Model | Calls, images: Tensor, chunk: int | None = None, bounds: Bounds = UNIT
) -> Generator[Calls, None, None]:
    """Prepare a model for calls on images like `images`; the caller's state is restored when the block ends.

    An open `Calls` passes through and its counts continue; `chunk` (None: as it was) and `bounds` apply inside the block.
    Inference mode is off inside the block because it does not allow gradients.

    >>> images = torch.tensor([[[[0.8, 0.4]]]])
    >>> with open_model(nn.Flatten(), images) as calls, open_model(calls, images) as same:
    ...     _ = same.logits(images)
    >>> calls.forwards
    1
    """
    check_chunk(chunk)
    limits = (-math.inf, math.inf) if bounds is None else bounds
    if isinstance(model, Calls):
        with torch.inference_mode(False), model.with_settings(chunk, limits):
            yield model
        return
    module = model if isinstance(model, nn.Module) else None
    _check_device(model, images)
    modes = {} if module is None else {part: part.training for part in module.modules()}
    devices = [images.device] if images.device.type == "cuda" else []
    with torch.inference_mode(False), torch.random.fork_rng(devices=devices), memory_kept():
        try:
            if module is not None:
                module.eval()
            pixels = CHUNK_PIXELS.get(images.device.type, CHUNK_PIXELS_ELSEWHERE)
            size = chunk or max(1, pixels // (images.shape[-1] * images.shape[-2]))
            rounding = max(1e-4, 4 * torch.finfo(model_dtype(model, images)).eps)
            yield Calls(_runner(model, module, images), size, limits, rounding)
        finally:
            for part, mode in modes.items():
                part.training = mode


def _runner(model: Model, module: nn.Module | None, images: Tensor) -> Run:
    """The function behind `Calls.run`: the model's own dtype, channels-last memory where that is faster, float32 logits."""
    dtype = model_dtype(model, images)
    parts = [] if module is None else list(module.modules())
    # Modules that distribute their work make their own copies of the parameters, which a functional call does not replace.
    distributed = any(isinstance(part, nn.DataParallel | nn.parallel.DistributedDataParallel) for part in parts)
    if module is None or distributed or not any(isinstance(part, nn.Conv2d) for part in parts):
        return lambda pixels: _floats(model(pixels.to(dtype)), len(pixels))
    # Copies, because the caller's weights keep their memory format; detached, because only pixels need gradients.
    copies = {
        name: p.detach().contiguous(memory_format=torch.channels_last) if p.dim() == 4 else p.detach()
        for name, p in module.named_parameters()
    }
    contiguous = False  # True once the model has flattened with `.view`
    layers = CheaperLayers if has_cheaper_layers(parts) else nullcontext

    def run(pixels: Tensor) -> Tensor:
        nonlocal contiguous
        if not contiguous:
            arranged = pixels.to(dtype).contiguous(memory_format=torch.channels_last)
            if arranged is pixels:  # grey images have only one layout; an in-place operation must not change the input
                arranged = pixels.clone()
            try:
                with layers():
                    return _floats(torch.func.functional_call(module, copies, (arranged,)), len(pixels))
            except RuntimeError as error:
                if NEEDS_CONTIGUOUS not in str(error):
                    raise
                contiguous = True
                copies.clear()
        return _floats(model(pixels.to(dtype).contiguous()), len(pixels))

    return run


def model_dtype(model: Model, images: Tensor) -> torch.dtype:
    """The dtype of the model's parameters, or else of its buffers; that of the images where it has neither."""
    return next((tensor.dtype for tensor in _tensors(model) if tensor.is_floating_point()), images.dtype)


def model_device(model: Model) -> torch.device | None:
    """The device of the model's parameters, or else of its buffers; None where it has neither."""
    return next((tensor.device for tensor in _tensors(model)), None)


def _tensors(model: Model) -> Iterator[Tensor]:
    return chain(model.parameters(), model.buffers()) if isinstance(model, nn.Module) else iter(())


def _floats(output: Any, images: int) -> Tensor:
    logits: Tensor = logits_of(output, images)  # or what has none, which `Calls` refuses
    return logits.float() if isinstance(logits, Tensor) else logits


def _check_device(model: Model, images: Tensor) -> None:
    device = model_device(model)
    if device is not None and device != images.device:
        hint = "move the images or the model with .to()"
        raise ArgumentError("images", f"on the model's device, {device}", str(images.device), hint)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; torch has an exception of its own for that on accelerators only."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(text in str(error).lower() for text in OUT_OF_MEMORY)
