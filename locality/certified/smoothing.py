"""Randomised smoothing (Cohen et al. 2019; the thesis' section 3.3.3): a model averaged over Gaussian noise on its image.

Definition 13 of the thesis smooths decisions, F_σ(x) = argmax_c P[F(x + ε) = c], ε ~ N(0, σ²I): see `certificate`. Theorem 1
and Corollary 1 are about gradients, which decisions do not have: there the outputs are smoothed, f_σ(x) = E[f(x + ε)].
"""

from __future__ import annotations

import math
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from locality.attribution.smoothgrad import smooth_gradient
from locality.model_calls import CHUNK_PIXELS, CHUNK_PIXELS_ELSEWHERE, Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import Target, class_indices

Average = Literal["logits", "probabilities"]
Noise = Literal["image", "shared"]


class SmoothedModel(nn.Module):
    """f_σ(x) = mean of f(x + ε_j) over `samples` fixed draws ε_j ~ N(0, σ²I): deterministic and differentiable.

    - `average="logits"` is the smoothing of Theorem 1; `"probabilities"` gives log E[softmax f(x + ε)], the soft version of
      Definition 13 (Salman et al. 2019).
    - `noise="image"` draws from each image's own pixels: the same image always has the same output, and no two images
      share a draw; but a point nearby has other draws, so along a line the output jumps by the Monte Carlo error.
      `noise="shared"` uses the same draws for all images: what searches for a boundary and path integrals need.

    Noisy images leave [0, 1], as published. Under a gradient in eval mode only they are kept, not what the layers make of
    them: that is computed again in the backward pass, chunk by chunk.

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
        if average not in ("logits", "probabilities"):
            raise ValueError(f"`average` must be 'logits' or 'probabilities', got {average!r}")
        if noise not in ("image", "shared"):
            raise ValueError(f"`noise` must be 'image' or 'shared', got {noise!r}")
        self.model = model
        self.sigma, self.samples, self.seed = sigma, samples, seed
        self.average, self.noise, self.chunk = average, noise, chunk

    def forward(self, images: Tensor) -> Tensor:
        chunk = self.chunk or _chunk(images)
        # Whole images at a time where their draws fit together, else one image in several parts.
        together = max(1, chunk // self.samples)
        return torch.cat([self._averaged(group, chunk) for group in images.split(together)])

    def _averaged(self, images: Tensor, chunk: int) -> Tensor:
        """N×K smoothed logits of a few images."""
        numbers = image_seeds(images, self.seed) if self.noise == "image" else [self.seed] * len(images)
        generators = [torch.Generator().manual_seed(number) for number in numbers]
        pairs = torch.arange(len(images) * self.samples)
        found = []
        for part in pairs.split(chunk):
            image = part // self.samples
            noise = self.sigma * draws(generators, image, images)
            found.append(self._logits(images[image.to(images.device)] + noise, again=len(pairs) > chunk))
        logits = torch.cat(found).unflatten(0, (len(images), self.samples))
        smoothed: Tensor = logits.mean(dim=1)
        if self.average == "probabilities":
            smoothed = logits.log_softmax(dim=2).logsumexp(dim=1) - math.log(self.samples)
        return smoothed

    def _logits(self, noisy: Tensor, again: bool) -> Tensor:
        # In training mode a second evaluation would draw other dropout masks and update batch statistics twice; of a plain
        # function nobody knows the weights.
        if again and torch.is_grad_enabled() and isinstance(self.model, nn.Module) and not self.training:
            weights = dict(self.model.named_parameters())
            return cast(Tensor, _Again.apply(self.model, tuple(weights), noisy, *weights.values()))  # type: ignore[no-untyped-call]
        return self.model(noisy)

    def extra_repr(self) -> str:
        return (
            f"sigma={self.sigma:g}, samples={self.samples}, seed={self.seed}, average={self.average!r}, noise={self.noise!r}"
        )


class _Again(torch.autograd.Function):
    """A model's logits whose graph is built in the backward pass only, with the weights that it had in the forward pass.

    torch's own checkpoint fails here: it evaluates the module as it is by then, not as `functional_call` had set it.
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
        asked = [leaf for leaf, need in zip(leaves, wanted, strict=True) if need]
        found = iter(torch.autograd.grad(logits, asked, above, allow_unused=True, materialize_grads=True))
        return None, None, *(next(found) if need else None for need in wanted)


def smoothed_saliency(
    model: Model | Calls,
    images: Tensor,
    target: Target = None,
    sigma: float = 0.25,
    samples: int = 100,
    *,
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Tensor:
    """The saliency map of f_σ by Monte Carlo: ∂/∂x E[f_y(x + ε)] = E[∂f_y(x + ε)/∂x], N×C×H×W.

    Where no target is given, y is the class that f_σ predicts, which may differ from the one of the image without noise;
    with a target this is SmoothGrad, and with either the saliency map of `SmoothedModel(model, sigma, samples, seed)`.

    >>> linear = lambda images: images.flatten(1) @ torch.tensor([[1.0, -2.0], [0.0, 3.0]])
    >>> smoothed_saliency(linear, torch.rand(1, 1, 1, 2), target=1, samples=4).flatten().tolist()
    [-2.0, 3.0]
    """
    check_noise(sigma, samples=samples)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        chosen = class_indices(target, pixels)
        if chosen is None:
            smoothed = SmoothedModel(calls.run, sigma, samples, seed, chunk=calls.chunk)
            with torch.no_grad():
                chosen = smoothed(pixels).argmax(dim=1)
            calls.forwards += len(pixels) * samples
        return smooth_gradient(calls, pixels, chosen, samples, sigma, seed=seed, bounds=bounds)


def smoothed_relu_saliency(weights: Tensor, images: Tensor, sigma: float) -> Tensor:
    """Theorem 1 in closed form: the saliency maps of E[ReLU(W(x + ε))] are w_k·Φ(w_k·x / (σ‖w_k‖)), N×K×C×H×W.

    >>> smoothed_relu_saliency(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 1, 1, 2), sigma=1.0).flatten().tolist()
    [1.5, 2.0]
    """
    activations = images.flatten(1) @ weights.T / (sigma * weights.norm(dim=1))
    maps: Tensor = torch.special.ndtr(activations)[:, :, None] * weights
    return maps.view(len(images), len(weights), *images.shape[1:])


def smoothed_relu_bound(weights: Tensor, distance: Tensor, sigma: float) -> Tensor:
    """‖w_k‖·‖x − x′‖/(σ√(2π)), N×K: at least the distance of the two saliency maps of Theorem 1 (Corollary 1: x′ = x_adv).

    It is this bound that falls with σ. The distance itself may grow: without noise, two points on the same side of a ReLU
    have the same map.

    >>> smoothed_relu_bound(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0]), sigma=2.0).item()  # 5/(2·2.5066)
    0.9973...
    """
    lengths: Tensor = weights.norm(dim=1)
    return distance[:, None] * lengths / (sigma * math.sqrt(2 * math.pi))


def draws(generators: list[torch.Generator], image: Tensor, like: Tensor) -> Tensor:
    """Standard normal noise for each image number; one draw a sample, so that no chunk changes what comes next."""
    shape = like.shape[1:]
    return torch.stack([torch.randn(shape, generator=generators[number]) for number in image.tolist()]).to(like)


def _chunk(images: Tensor) -> int:
    pixels = CHUNK_PIXELS.get(images.device.type, CHUNK_PIXELS_ELSEWHERE)
    return max(1, pixels // (images.shape[-1] * images.shape[-2]))


def check_noise(sigma: float, **counts: int) -> None:
    """Raise unless `sigma` is a standard deviation and every count a number of noisy images."""
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ValueError(f"`sigma` must be the noise's standard deviation in pixels, 0 or more, got {sigma!r}")
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"`{name}` must be a whole number of noisy images, got {count!r}")
