"""Layer traces of piecewise linear networks from inputs and output gradients of the layers: exact, or one pass per probe.

Each layer's block of the Hessian is then Σ over images of J_kᵀ Φ J_k / N with Φ = diag(p) − p pᵀ. Its trace is the mean of
‖J_kᵀ u‖² summed over any u with Σ u uᵀ = Φ, or averaged over random u with E[u uᵀ] = Φ. J_kᵀ u is a gradient of the layer's
weights. Its norm for each image follows from the layer's input and the gradient of its output, so that all images share a
backward pass without mixing, and no gradient of a weight is formed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, pad

from locality.curvature.layers import Layer, nonlinear_step, unsuitable_module
from locality.curvature.open_network import OpenNetwork
from locality.errors import ArgumentError

BLOCK_BYTES = 2**21  # of inputs that are formed at a time
Directions = Callable[
    [Tensor, Tensor], Tensor
]  # N×K log-probabilities and N numbers of images ↦ R×N×K vectors on the logits


def logit_probe(log_probabilities: Tensor, signs: Tensor) -> Tensor:
    """u = √p ⊙ e − p (√p · e) for random signs e: E[u uᵀ] = diag(p) − p pᵀ, the cross-entropy's Hessian by the logits.

    √p is computed from log p, so that its derivative is finite also where p rounds to 0.

    >>> p = torch.tensor([0.5, 0.25, 0.25])
    >>> signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3)
    >>> u = logit_probe(p.log().expand(8, 3), signs)
    >>> torch.allclose(u.T @ u / 8, p.diag() - p.outer(p))
    True
    """
    signed = (log_probabilities / 2).exp() * signs
    return signed - log_probabilities.exp() * signed.sum(-1, keepdim=True)


def class_vectors(log_probabilities: Tensor) -> Tensor:
    """K×N×K: u_c = √p_c (e_c − p), whose outer products sum to diag(p) − p pᵀ."""
    unit = torch.eye(log_probabilities.shape[1], dtype=log_probabilities.dtype, device=log_probabilities.device)
    return (log_probabilities / 2).exp().T[:, :, None] * (unit[:, None] - log_probabilities.exp())


def exact_squares(network: OpenNetwork) -> Tensor:
    """N×L: every image's own traces, by one backward pass per class."""
    _refuse_unsuitable(network, "exact")
    return _squares(network, "exact", network.classes, lambda logs, rows: class_vectors(logs)).sum(1)


def sampled_squares(network: OpenNetwork, probes: int) -> Tensor:
    """N×P×L: unbiased estimates of every image's own traces, never negative, by one backward pass per probe."""
    _refuse_unsuitable(network, "sampled")

    def directions(logs: Tensor, rows: Tensor) -> Tensor:
        signs = torch.stack([_signs(network.seeds[row], probes, network.classes) for row in rows.tolist()], 1)
        return logit_probe(logs, signs.to(logs))

    return _squares(network, "sampled", probes, directions)


def _signs(seed: int, probes: int, classes: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, (probes, classes), generator=generator) * 2 - 1


def _refuse_unsuitable(network: OpenNetwork, method: str) -> None:
    reason = unsuitable_module(network.model)
    if reason:
        raise _not_piecewise_linear(method, reason)


def _not_piecewise_linear(method: str, reason: str) -> ArgumentError:
    hint = f"the network is not piecewise linear in each layer ({reason})"
    return ArgumentError("method", "probed for this network", method, hint)


def passes_linearly(network: OpenNetwork) -> bool:
    """Whether a pass of one image is piecewise linear in each layer, by its modules and by the steps that it makes."""
    if unsuitable_module(network.model):
        return False
    with torch.enable_grad(), _watched(network, 1, 1) as watched:
        logits = network.logits(network.images[:1])
    network.calls.forwards -= 1
    return not watched.problem(logits)


def _squares(network: OpenNetwork, method: str, passes: int, directions: Directions) -> Tensor:
    """N×R×L: ‖J_kᵀ u‖² of every image, direction and layer, in float64."""
    done = 0
    network.progress(0, len(network.images))

    def of_chunk(images: Tensor, rows: Tensor) -> tuple[Tensor]:
        nonlocal done
        with torch.enable_grad(), _watched(network, len(images), passes) as watched:
            logits = network.logits(images)
        reason = watched.problem(logits)
        if reason:
            raise _not_piecewise_linear(method, reason)
        vectors = directions(log_softmax(logits.detach(), 1), rows)
        network.calls.gradients += len(images) * len(vectors)
        result = torch.zeros(len(images), len(vectors), len(network.names), dtype=torch.float64, device=images.device)
        columns = [network.names.index(name) for name in watched.layers]
        for probe, vector in enumerate(vectors):
            keep = probe + 1 < len(vectors)
            gradients = watched.gradients(logits, vector, keep)
            for column, (name, layer) in zip(columns, watched.layers.items(), strict=True):
                if name in gradients:
                    result[:, probe, column] = layer.squares(gradients[name])
        done += len(images)
        network.progress(done, len(network.images))
        return (result,)

    rows = torch.arange(len(network.images))
    (squares,) = network.calls.in_chunks(of_chunk, network.images, rows)
    return squares


@dataclass(frozen=True, eq=False)
class Seen:
    """A layer, and what its input contributes to the norm of ‖δᵀA‖: A itself (positions × inputs) or A Aᵀ.

    For a single backward pass A is formed when it is needed, a few images at a time: then it stays in the processor's cache,
    and no large new memory has to be mapped.
    """

    layer: Layer
    inputs: Tensor  # as the layer got them
    formed: Tensor | None  # B×S×D, or B×S×S if `gram`; B runs over images and, within each, the groups of a convolution
    gram: bool
    block: int  # images at a time where nothing is formed

    def squares(self, gradient: Tensor) -> Tensor:
        """N: ‖δᵀA‖² of each image, where δ is the gradient of the output."""
        rows = _rows(self.layer, gradient.detach())
        if self.formed is None:
            groups = len(rows) // len(gradient)
            pairs = zip(self.inputs.split(self.block), rows.split(self.block * groups), strict=True)
            values = torch.cat([_product_squares(_patches(self.layer, inputs), own) for inputs, own in pairs])
        elif self.gram:
            values = torch.einsum("bst,bst->b", self.formed, rows @ rows.transpose(1, 2))
        else:
            values = _product_squares(self.formed, rows)
        # Rounding may take the product of two Gram matrices below 0.
        return values.double().view(len(gradient), -1).sum(1).clamp_min(0.0)


def _product_squares(patches: Tensor, rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows.transpose(1, 2) @ patches, dim=(1, 2))
    return norms.square()


@dataclass(frozen=True, eq=False)
class Watched:
    """What the layers saw in a pass, and why their traces do not follow from it."""

    layers: dict[str, Seen]
    problems: list[str]
    first: dict[str, Tensor]  # outputs of layers that no other layer comes before: the leaves of the graph
    passed: dict[str, Tensor]  # gradients of the other layers' outputs in the last backward pass

    def gradients(self, logits: Tensor, vector: Tensor, keep: bool) -> dict[str, Tensor]:
        """The gradient of vector · logits by each layer's output; none for a layer that the logits do not depend on."""
        self.passed.clear()
        leaves = torch.autograd.grad(logits, list(self.first.values()), vector, retain_graph=keep, allow_unused=True)
        found = dict(zip(self.first, leaves, strict=True)) | self.passed
        return {name: gradient for name, gradient in found.items() if gradient is not None}

    def problem(self, logits: Tensor) -> str:
        return next(iter(self.problems), "") or nonlinear_step(logits)


@contextmanager
def _watched(network: OpenNetwork, images: int, passes: int) -> Generator[Watched, None, None]:
    """Watch the layers during one pass over `images` images, which that many backward `passes` follow."""
    watched = Watched({}, [], {}, {})

    def watch(name: str, layer: Layer) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            if name in watched.layers:
                watched.problems.append(f"{name} is used twice in a pass")
            if len(output) != images:
                watched.problems.append(f"{name} does not get one row per image")
                return output
            watched.layers[name] = _seen(layer, inputs[0].detach(), passes)
            if output.requires_grad:  # the hook sees the gradient of this value, also if what follows changes it in place
                output.register_hook(lambda gradient: watched.passed.__setitem__(name, gradient))
                return output
            watched.first[name] = output.detach().requires_grad_()
            return watched.first[name].clone()  # what follows may change it in place

        return hook

    handles = []
    try:
        for place, module in network.model.named_modules():
            name = f"{place}.weight" if place else "weight"
            if name in network.names and isinstance(module, Layer):
                handles.append(module.register_forward_hook(watch(name, module)))
        yield watched
    finally:
        for handle in handles:
            handle.remove()


def _seen(layer: Layer, inputs: Tensor, passes: int) -> Seen:
    one = _patches(layer, inputs[:1])
    _, positions, size = one.shape
    outputs = layer.weight.shape[0] // (layer.groups if isinstance(layer, nn.Conv2d) else 1)
    # Multiplications per backward pass, the Gram matrix's own spread over the passes that share it.
    gram = positions * (size / passes + outputs) < size * outputs
    block = max(1, BLOCK_BYTES // (one.numel() * one.element_size()))
    if passes == 1 and not gram:
        return Seen(layer, inputs, None, gram, block)
    patches = _patches(layer, inputs)
    return Seen(layer, inputs, patches @ patches.transpose(1, 2) if gram else patches, gram, block)


def _patches(layer: Layer, inputs: Tensor) -> Tensor:
    """B×S×D: what each position of the layer's output is made of; the order within a row is that of memory."""
    images = len(inputs)
    if isinstance(layer, nn.Linear):
        return inputs.reshape(images, -1, inputs.shape[-1])
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = pad(inputs, layer._reversed_padding_repeated_twice, mode=mode)
    per_image, per_channel, per_row, per_column = padded.stride()
    (high, wide), (down, across), (every_row, every_column) = layer.kernel_size, layer.stride, layer.dilation
    rows = (padded.shape[2] - every_row * (high - 1) - 1) // down + 1
    columns = (padded.shape[3] - every_column * (wide - 1) - 1) // across + 1
    channels = padded.shape[1] // layer.groups
    windows = padded.as_strided(
        (images, layer.groups, rows, columns, high, wide, channels),
        (
            *(per_image, channels * per_channel, down * per_row, across * per_column),
            *(every_row * per_row, every_column * per_column, per_channel),
        ),
    )
    return windows.reshape(images * layer.groups, rows * columns, high * wide * channels)


def _rows(layer: Layer, gradient: Tensor) -> Tensor:
    """B×S×O: the gradient of the layer's output, position by position."""
    images = len(gradient)
    if isinstance(layer, nn.Linear):
        return gradient.reshape(images, -1, gradient.shape[-1])
    grouped = gradient.permute(0, 2, 3, 1).reshape(images, -1, layer.groups, gradient.shape[1] // layer.groups)
    return grouped.transpose(1, 2).reshape(images * layer.groups, grouped.shape[1], -1)
