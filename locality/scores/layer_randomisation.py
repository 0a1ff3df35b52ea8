"""The sanity check: attributions must change if the model's layers are randomised (Adebayo et al. 2018, Figure 2.4)."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from locality.attribution.class_gradient import class_gradient
from locality.errors import ArgumentError, needing
from locality.model_calls import open_model
from locality.model_calls.checks import UNIT, check_images
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import Target, class_indices
from locality.progress import Progress, no_progress

REFERENCE = 64  # images that BatchNorm's statistics are taken from, in one batch
WINDOW = 7  # pixels, skimage's default for SSIM


@dataclass(frozen=True)
class Layer:
    """What is randomised together: a module's parameters, those of parts that are never called, its BatchNorm."""

    name: str
    parameters: tuple[str, ...]
    norms: tuple[str, ...]  # modules with running statistics


@dataclass(frozen=True, eq=False)
class SanityCurve:
    """Similarity of the maps before and after, step by step; the first step is the original model. S steps, N images."""

    layers: tuple[str, ...]  # from the top (the logits) down
    randomised: tuple[int, ...]  # S: how many of them are randomised
    correlation: Tensor  # S×N, Spearman of |A|; nan where a map is undefined or constant
    ssim: Tensor  # S×N, structural similarity of |A|/max|A|
    target: Tensor  # N int64, the class explained in every step


def sanity_check(
    model: nn.Module,
    images: Tensor,
    method: str | type | Callable[..., Any] = "BIG",
    target: Target = None,
    layers_at_once: int = 5,
    *,
    reference: Tensor | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
    **options: Any,
) -> SanityCurve:
    """Maps of the model against maps of copies whose top 0, k, 2k, … layers are random: the curve of Figure 2.4.

    A faithful method falls towards 0; one that stays high shows the image, not the model. `method` is whatever
    `locality.attribution.method` takes, and `options` go to its constructor. The class explained is the prediction of the
    original model (or `target`) in every step. The model is not modified: copies are randomised (see `randomised_copy`).
    With BatchNorm, maps depend on `reference`; pass the same one if results of several calls are compared. Catch: pixels
    that no layer reads (strides that skip them) are 0 before and after, and such ties keep the correlation high; SSIM of
    maps with few large values is always high.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Tanh(), nn.Linear(16, 3))
    >>> curve = sanity_check(net, torch.rand(2, 3, 4, 4), "SM", layers_at_once=1)
    >>> curve.layers, curve.randomised, curve.correlation[0].tolist()
    (('3', '1'), (0, 1, 2), [1.0, 1.0])
    """
    if isinstance(layers_at_once, bool) or not isinstance(layers_at_once, int) or layers_at_once < 1:
        raise ArgumentError("layers_at_once", "a whole number of at least 1", layers_at_once)
    for pixels in (images,) if reference is None else (images, reference):
        check_images(pixels, options.get("bounds", UNIT))
    from locality.attribution.methods import method as factory_of  # here, because it imports Captum

    layers = layers_from_top(model, images)
    factory = factory_of(method)
    with open_model(model, images) as calls:
        chosen = class_gradient(calls, images.detach().float(), class_indices(target, images), with_gradient=False).target

    def magnitudes(network: nn.Module) -> Tensor:
        maps: Tensor = factory(network, **options).attribute(images, target=chosen)
        return maps.detach().abs().cpu()

    before = magnitudes(copy.deepcopy(model))  # a copy, because the caller's own method may modify it
    steps = [*range(0, len(layers), layers_at_once), len(layers)]
    rows = []
    for done, count in enumerate(steps):
        after = before
        if count:
            after = magnitudes(randomised_copy(model, images if reference is None else reference, layers[:count], seed))
        rows.append([_similarity(one.numpy(), other.numpy()) for one, other in zip(before, after, strict=True)])
        progress(done + 1, len(steps))
    values = torch.tensor(rows, dtype=torch.float32, device=images.device)  # S×N×2
    names = tuple(layer.name for layer in layers)
    return SanityCurve(names, tuple(steps), values[..., 0].clone(), values[..., 1].clone(), chosen)


def layers_from_top(model: nn.Module, images: Tensor) -> tuple[Layer, ...]:
    """The model's layers with parameters, in the reverse order of a forward pass.

    A module that is called several times counts at its last call. One that holds parameters but is never called itself (the
    output projection inside nn.MultiheadAttention) belongs to the nearest enclosing module that is. A BatchNorm belongs to
    the layer it follows, so that a ResNet-50 has 54 layers. A container with parameters of its own (a transformer's position
    embedding) counts where it begins.

    >>> class Upside(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.head, self.stem = nn.Linear(4, 2), nn.Linear(12, 4)  # in another order than they are called
    ...
    ...     def forward(self, images):
    ...         return self.head(self.stem(images.flatten(1)))
    >>> [layer.name for layer in layers_from_top(Upside(), torch.rand(1, 3, 2, 2))]
    ['head', 'stem']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be an nn.Module, got {type(model).__name__}: its layers are randomised")
    order = _order_of_calls(model, images)
    held: dict[str, list[str]] = {name: [] for name in order}
    # A tensor shared by two modules has two names here; the one nearer to the top is used, below.
    shared = {name: id(p) for name, p in model.named_parameters(remove_duplicate=False) if p.is_floating_point()}
    for name in shared:
        home = name.rpartition(".")[0]
        while home not in held and home:
            home = home.rpartition(".")[0]
        held.setdefault(home, []).append(name)
    norms = {name for name, part in model.named_modules() if isinstance(part, _NormBase) and part.running_mean is not None}
    groups: list[Layer] = []
    seen: set[int] = set()
    for name in reversed(order):
        own = tuple(parameter for parameter in held[name] if shared[parameter] not in seen)
        seen |= {shared[parameter] for parameter in own}
        if own or name in norms:
            groups.append(Layer(name, own, (name,) if name in norms else ()))
    layers: list[Layer] = []
    for layer in reversed(groups):  # from the bottom up: a BatchNorm joins what came before it, not what it is part of
        below = layers[-1] if layers else None
        if below is not None and layer.norms and below.name and not layer.name.startswith(f"{below.name}."):
            layers[-1] = Layer(below.name, below.parameters + layer.parameters, below.norms + layer.norms)
        else:
            layers.append(layer)
    named = tuple(replace(layer, name=layer.name or "(model)") for layer in reversed(layers) if layer.parameters)
    if not named:
        raise ValueError("`model` must have parameters to randomise, got none")
    return named


def randomised_copy(model: nn.Module, reference: Tensor, layers: tuple[Layer, ...], seed: int = 0) -> nn.Module:
    """A copy of the model in which every tensor of these layers is Gaussian noise of the same ℓ2 norm.

    A tensor's noise depends on its name and the seed alone, so that a layer gets the same numbers in every step. That
    includes BatchNorm's weight and bias. Its running mean and variance are estimated from `reference` (at most 64 images,
    chosen by their pixels): those of the trained model do not fit random layers, and activations would explode or vanish.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    >>> images = torch.rand(1, 3, 2, 2)
    >>> random = randomised_copy(net, images, layers_from_top(net, images))
    >>> torch.equal(random[1].weight, net[1].weight), torch.allclose(random[1].weight.norm(), net[1].weight.norm())
    (False, True)
    """
    random = copy.deepcopy(model)
    parameters = dict(random.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name in (name for layer in layers for name in layer.parameters):
            parameters[name].copy_(_noise_like(parameters[name], name, seed))
    norms = [random.get_submodule(name) for layer in layers for name in layer.norms]
    if norms:
        _estimate_statistics(random, [part for part in norms if isinstance(part, _NormBase)], reference, seed)
    return random


def _order_of_calls(model: nn.Module, images: Tensor) -> list[str]:
    """Names of the modules that are called for an image, each at its last call."""
    watched = copy.deepcopy(model)  # the caller's model gets no hooks
    begun: dict[str, None] = {}

    def watch(name: str) -> Callable[..., None]:
        def note(*_: Any) -> None:
            begun.pop(name, None)
            begun[name] = None

        return note

    for name, part in watched.named_modules():
        part.register_forward_pre_hook(watch(name))
    with open_model(watched, images) as calls:
        calls.logits(images[:1].detach())
    return list(begun)


def _noise_like(tensor: Tensor, name: str, seed: int) -> Tensor:
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=str(seed).encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
    # Drawn in float64 on the CPU: the same numbers on every device and in every precision.
    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    scale: Tensor = torch.linalg.vector_norm(tensor.detach().cpu().double()) / torch.linalg.vector_norm(noise)
    return (noise * scale).to(tensor)


def _estimate_statistics(model: nn.Module, norms: list[_NormBase], reference: Tensor, seed: int) -> None:
    """Set the running statistics of these layers to those of the reference, all in one pass."""
    seeds = image_seeds(reference, seed)
    chosen = sorted(range(len(reference)), key=seeds.__getitem__)[:REFERENCE]
    batch = reference[chosen].detach()
    momenta = [part.momentum for part in norms]
    with open_model(model, batch, chunk=len(batch)) as calls:
        for part in norms:
            part.reset_running_stats()
            part.momentum = None  # a plain average, here of one batch
            part.train()
        try:
            calls.logits(batch)
        except ValueError as error:
            if len(batch) > 1:
                raise
            # BatchNorm of a single value per channel is undefined.
            raise ArgumentError("reference", "two images or more for this model", len(batch)) from error
    for part, momentum in zip(norms, momenta, strict=True):
        part.momentum = momentum


def _similarity(one: NDArray[Any], other: NDArray[Any]) -> tuple[float, float]:
    """Rank correlation and SSIM of two C×H×W arrays of |A|; `nan` where either is undefined."""
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return math.nan, math.nan
    return _rank_correlation(one, other), _ssim(one, other)


def _rank_correlation(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Spearman's: Pearson's correlation of ranks, equal values share theirs; `nan` where either map is constant."""
    with needing("`sanity_check`"):
        from scipy.stats import rankdata

    first, second = (ranks - ranks.mean() for ranks in (rankdata(one), rankdata(other)))
    size = math.sqrt((first @ first) * (second @ second))
    return float(first @ second) / size if size else math.nan


def _ssim(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Mean structural similarity over the channels, each map divided by its largest value; `nan` for maps of zeros."""
    with needing("`sanity_check`"):
        from skimage.metrics import structural_similarity

    window = min(WINDOW, (min(one.shape[1:]) - 1) // 2 * 2 + 1)  # odd, and no larger than the image
    if window < 3 or not (one.any() and other.any()):
        return math.nan
    one, other = one / one.max(), other / other.max()
    return float(structural_similarity(one, other, win_size=window, data_range=1.0, channel_axis=0))
