"""Attention rollout: how much attention flows from the patches of an image to the tokens that a transformer's head reads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from locality.attribution.attention_weights import AttentionWeights
from locality.attribution.captum_convention import Inputs, PixelAttribution, as_given, captum_method, one_tensor
from locality.attribution.class_gradient import class_gradient, warn_of_zero_maps
from locality.attribution.token_grid import declared_prefix, over_pixels, token_grid
from locality.errors import ArgumentError, unknown_choice
from locality.model_calls import Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Target, class_indices, class_logit

HEADS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda weights: weights.mean(1),
    "max": lambda weights: weights.amax(1),
    "min": lambda weights: weights.amin(1),
}


def attention_rollout(
    model: Model,
    images: Tensor,
    target: Target = None,
    heads: str = "mean",
    discard_ratio: float = 0.0,
    *,
    gradients: bool = False,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Tensor:
    """Rows of Π_l ½(A_l + I), A_l the attention of layer l, fused over the heads (Abnar & Zuidema 2020); no class, no signs.

    `gradients=True` is the relevance of Chefer et al. (2021), which depends on the class: rows of
    Π_l (I + E_heads[(∂f_y/∂A_l ⊙ A_l)⁺]) − I. `discard_ratio` sets that share of the lowest entries of each A_l to 0; the
    papers have 0.

    - The rows are those of the tokens that the head reads: those whose last attention has a gradient, weighted equally.
      They are the class token, with a distillation token both, or all patches; attention pooling has a row of its own.
    - The columns are those of the patches: class, distillation and register tokens have no place on the image.
    - The picture is upsampled and divided equally among the channels, as CAMs are.

    It costs one gradient and one forward pass per image. Networks without attention, or with attention inside windows, whose
    rows cannot be multiplied, are errors.
    """
    if heads not in HEADS:
        raise unknown_choice("heads", heads, HEADS)
    if not 0 <= discard_ratio < 1:
        raise ArgumentError("discard_ratio", "a share of attention entries, at least 0 and below 1", discard_ratio)
    pixels = working_copy(images, bounds)
    prefix = declared_prefix(model) if isinstance(model, nn.Module) else None
    with open_model(model, pixels, chunk, bounds) as calls:
        chosen = class_gradient(calls, pixels, class_indices(target, pixels), with_gradient=False).target
        calls.gradients += len(pixels)

        def pictures(part: Tensor, classes: Tensor) -> tuple[Tensor]:
            leaf = part.detach().clone().requires_grad_()
            with torch.enable_grad(), AttentionWeights() as attention:
                logit = class_logit(calls.run(leaf.clone()), classes).sum()
            weights = same_tokens(attention.weights, len(part), model)
            wanted = weights if gradients else weights[-1:]
            slopes = torch.autograd.grad(logit, wanted, allow_unused=True, materialize_grads=True)
            start = read_rows(slopes[-1])
            layers = [
                fused(layer.detach(), slopes[index] if gradients else None, heads, discard_ratio)
                for index, layer in enumerate(weights)
            ]
            flow = rolled_out(layers, start, add=gradients)
            grid = token_grid(flow.shape[1], (part.shape[-2], part.shape[-1]), prefix)
            if grid is None:
                raise no_rollout(f"{flow.shape[1]} tokens, which are no grid on the image")
            return (flow[:, None, grid.prefix :].unflatten(2, (grid.rows, grid.columns)),)

        maps = over_pixels(calls.in_chunks(pictures, pixels, chosen)[0], pixels)
        warn_of_zero_maps(calls, maps, "the attention rollout")
        return maps


def same_tokens(weights: list[Tensor], images: int, model: Model) -> list[Tensor]:
    """The weights of all layers, or an error unless they attend over the same tokens of each image."""
    if not weights:
        name = getattr(getattr(model, "spec", None), "name", type(model).__name__)  # of a loaded model
        raise no_rollout(f"no attention in {name}", "choose SM, BIG, or captum:LayerGradCam@LAYER")
    tokens = weights[-1].shape[-1]
    for layer in weights:
        square = layer.shape[2] == tokens or layer is weights[-1]
        if len(layer) != images or layer.shape[3] != tokens or not square:
            raise no_rollout(f"attention of shape {tuple(layer.shape)} for {images} images, as within windows")
    return weights


def no_rollout(got: str, hint: str = "choose captum:LayerGradCam@LAYER") -> ArgumentError:
    """The error for a network whose attention cannot be rolled out."""
    return ArgumentError("model", "a transformer whose layers all attend over the same tokens of the image", got, hint)


def read_rows(slope: Tensor) -> Tensor:
    """N×queries shares of the rows of the last attention that the logit depends on; `slope` is ∂f_y/∂A with its heads."""
    read = (slope != 0).any(3).any(1).to(slope.dtype)
    return read / read.sum(1, keepdim=True).clamp_min(1)


def fused(weights: Tensor, slope: Tensor | None, heads: str = "mean", discard_ratio: float = 0.0) -> Tensor:
    """N×queries×keys: a layer's attention over all heads, weighted by its gradient if given, less what is discarded."""
    joined = HEADS[heads](weights if slope is None else (weights * slope).clamp_min(0))
    discarded = int(discard_ratio * joined[0].numel())
    if discarded:
        lowest = joined.flatten(1).topk(discarded, dim=1, largest=False, sorted=False).indices
        joined = joined.flatten(1).scatter(1, lowest, 0.0).view_as(joined)
    return joined


def rolled_out(layers: list[Tensor], start: Tensor, add: bool = False) -> Tensor:
    """N×tokens: the rows `start` of the product of the layers, each with its residual connection.

    `add`: I + A, without normalisation, less the I that no attention has passed. Otherwise the rows of ½(A + I) sum to 1.
    A last layer with one query is attention pooling, which has no residual connection.
    """
    flow = start[:, None]
    pooled = layers[-1].shape[1] != layers[-1].shape[2]
    if pooled:
        flow = flow @ layers[-1]
    own = flow
    for layer in reversed(layers[:-1] if pooled else layers):
        mixed = layer + torch.eye(layer.shape[1], dtype=layer.dtype, device=layer.device)
        flow = flow @ (mixed if add else mixed / mixed.sum(2, keepdim=True))
    return (flow - own if add and not pooled else flow)[:, 0]


class Rollout(PixelAttribution):
    """Attention rollout (Abnar & Zuidema 2020): the mean over heads, nothing discarded, the same map for every class.

    `gradients=True` weights attention by its gradient, which makes the map that of a class (Chefer et al. 2021).

    >>> from locality.zoo.load import load_model
    >>> Rollout(load_model("shapes_vit")).attribute(torch.rand(1, 3, 64, 64)).shape
    torch.Size([1, 3, 64, 64])
    """

    def __init__(
        self,
        model: Model,
        *,
        heads: str = "mean",
        discard_ratio: float = 0.0,
        gradients: bool = False,
        bounds: Bounds = UNIT,
    ) -> None:
        super().__init__(model, bounds=bounds)
        self.heads, self.discard_ratio, self.gradients = heads, discard_ratio, gradients

    @captum_method
    def attribute(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        internal_batch_size: int | None = None,
        additional_forward_args: object = None,
    ) -> Inputs:
        """Maps of the inputs' shape and dtype; `target` is one class or one per image (None: the predicted one).

        `internal_batch_size` images go through the model at once (None: chosen for speed).
        """
        maps = attention_rollout(
            self.forward_func,
            one_tensor(inputs, additional_forward_args),
            target,
            self.heads,
            self.discard_ratio,
            gradients=self.gradients,
            bounds=self.bounds,
            chunk=internal_batch_size,
        )
        return as_given(maps, inputs)


class GradientRollout(Rollout):
    """Attention rollout weighted by gradients (Chefer et al. 2021): how much attention to a patch raises the class logit."""

    def __init__(self, model: Model, *, heads: str = "mean", discard_ratio: float = 0.0, bounds: Bounds = UNIT) -> None:
        super().__init__(model, heads=heads, discard_ratio=discard_ratio, gradients=True, bounds=bounds)
