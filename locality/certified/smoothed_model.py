"""A model averaged over Gaussian noise on its images: f_σ(x) = E[f(x + ε)], ε ~ N(0, σ²I).

Theorem 1 and Corollary 1 of the thesis are about gradients, which decisions do not have, so outputs are averaged here. Votes
of decisions, F_σ of Definition 13, are in `votes`.
"""

from __future__ import annotations

import math
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from locality.certified.smoothing import check_noise
from locality.errors import unknown_choice
from locality.model_calls import CHUNK_PIXELS, CHUNK_PIXELS_ELSEWHERE, Model
from locality.model_calls.randomness import image_seeds

Average = Literal["logits", "probabilities"]
Noise = Literal["image", "shared"]


class SmoothedModel(nn.Module):
    """f_σ(x) = mean of f(x + ε_j) over `samples` fixed draws ε_j ~ N(0, σ²I): deterministic and differentiable.

    - `average="logits"` is the smoothing of Theorem 1; `"probabilities"` gives log E[softmax f(x + ε)], the soft version of
      Definition 13 (Salman et al. 2019).
    - `noise="image"` draws from each image's own pixels: the same image always has the same output, and no two images
      share a draw; but a point nearby has other draws, so along a line the output jumps by the Monte Carlo error.
      `noise="shared"` uses the same draws for all images: what searches for a boundary and path integrals need.

    Noisy images leave [0, 1], as published. Gradients in eval mode keep only the noisy images; activations are recomputed in
    the backward pass, chunk by chunk.

    >>> linear = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> smoothed = SmoothedModel(linear, sigma=0.5, samples=8)
    >>> images = torch.rand(3, 1, 2, 2)
    >>> torch.equal(smoothed(images), smoothed(images))
    True
    """

    def __init__(
        self,
        model: Model,
        sigma: float = 0.25,
        samples: int = 100,
        seed: int = 0,
        average: Average = "logits",
        noise: Noise = "image",
        chunk: int | None = None,
    ) -> None:
        super().__init__()
        check_noise(sigma, samples=samples)
        if average not in get_args(Average):
            raise unknown_choice("average", average, get_args(Average))
        if noise not in get_args(Noise):
            raise unknown_choice("noise", noise, get_args(Noise))
        self.model = model
        self.sigma, self.samples, self.seed = sigma, samples, seed
        self.average, self.noise, self.chunk = average, noise, chunk

    def forward(self, images: Tensor) -> Tensor:
        chunk = self.chunk or _chunk(images)
        # Several images at a time if their draws fit into one chunk, else one image in several chunks.
        images_at_once = max(1, chunk // self.samples)
        return torch.cat([self._averaged(group, chunk) for group in images.split(images_at_once)])

    def _averaged(self, images: Tensor, chunk: int) -> Tensor:
        """N×K smoothed logits of a few images."""
        seeds = image_seeds(images, self.seed) if self.noise == "image" else [self.seed] * len(images)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        pairs = torch.arange(len(images) * self.samples)
        chunks = []
        for part in pairs.split(chunk):
            indices = part // self.samples
            noise = self.sigma * draws(generators, indices, images)
            chunks.append(self._logits(images[indices.to(images.device)] + noise, recompute=len(pairs) > chunk))
        logits = torch.cat(chunks).unflatten(0, (len(images), self.samples))
        smoothed: Tensor = logits.mean(dim=1)
        if self.average == "probabilities":
            smoothed = logits.log_softmax(dim=2).logsumexp(dim=1) - math.log(self.samples)
        return smoothed

    def _logits(self, noisy: Tensor, recompute: bool) -> Tensor:
        # In training mode a second evaluation would draw other dropout masks and update batch statistics twice; the weights
        # of a plain function are not known.
        if recompute and torch.is_grad_enabled() and isinstance(self.model, nn.Module) and not self.training:
            weights = dict(self.model.named_parameters())
            return cast(Tensor, _Recomputed.apply(self.model, tuple(weights), noisy, *weights.values()))  # type: ignore[no-untyped-call]
        return cast(Tensor, self.model(noisy))

    def extra_repr(self) -> str:
        return (
            f"sigma={self.sigma:g}, samples={self.samples}, seed={self.seed}, average={self.average!r}, noise={self.noise!r}"
        )


class _Recomputed(torch.autograd.Function):
    """Logits whose graph is built only in the backward pass, with the weights of the forward pass.

    torch's own checkpoint fails here: it evaluates the module as it is at that time, not as `functional_call` had set it.
    """

    @staticmethod
    def forward(ctx: Any, model: nn.Module, names: tuple[str, ...], noisy: Tensor, *weights: Tensor) -> Tensor:
        ctx.model, ctx.names = model, names
        ctx.save_for_backward(noisy, *weights)
        logits: Tensor = model(noisy)
        return logits

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[2:]
        leaves = [kept.detach().requires_grad_(need) for kept, need in zip(ctx.saved_tensors, wanted, strict=True)]
        with torch.enable_grad():
            logits = torch.func.functional_call(ctx.model, dict(zip(ctx.names, leaves[1:], strict=True)), (leaves[0],))
        needed = [leaf for leaf, need in zip(leaves, wanted, strict=True) if need]
        gradients = iter(torch.autograd.grad(logits, needed, above, allow_unused=True, materialize_grads=True))
        return None, None, *(next(gradients) if need else None for need in wanted)


def draws(generators: list[torch.Generator], indices: Tensor, like: Tensor) -> Tensor:
    """Standard normal noise for each image index; one draw per sample, so that the chunk does not change later draws."""
    shape = like.shape[1:]
    return torch.stack([torch.randn(shape, generator=generators[index]) for index in indices.tolist()]).to(like)


def _chunk(images: Tensor) -> int:
    pixels = CHUNK_PIXELS.get(images.device.type, CHUNK_PIXELS_ELSEWHERE)
    return max(1, pixels // (images.shape[-1] * images.shape[-2]))
