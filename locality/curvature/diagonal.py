"""The diagonal of the Gauss–Newton matrix: the curvature of the loss along every single weight."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from locality.curvature.open_network import OpenNetwork
from locality.curvature.output_gradients import class_vectors, logit_probe

EXACT_CLASSES = 20  # up to so many, there is a backward pass per class
PROBES = 8  # backward passes per image for more classes


def gauss_newton_diagonal(network: OpenNetwork) -> dict[str, Tensor]:
    """⟨Σ_c p_c (∂CE(g, c)/∂w)²⟩ of every weight of every layer, by one backward pass per image and class.

    It is the diagonal of the Hessian of the mean cross-entropy where the network is piecewise linear in each layer, and its
    part that is never negative elsewhere. With more than 20 classes, 8 random directions of the logits take their place,
    and it is an unbiased estimate.
    """
    layers = {name: network.tensors[name].detach().requires_grad_() for name in network.names}
    sums = {name: torch.zeros_like(layer, dtype=torch.float64) for name, layer in layers.items()}
    network.progress(0, len(network.images))
    for index, seed in enumerate(network.seeds):
        with torch.enable_grad():
            logits = network.logits(network.images[index : index + 1], layers)
        for direction in _directions(log_softmax(logits.detach(), 1), seed):
            network.calls.gradients += 1
            gradients = torch.autograd.grad(logits, list(layers.values()), direction, retain_graph=True, allow_unused=True)
            for name, gradient in zip(layers, gradients, strict=True):
                if gradient is not None:
                    sums[name] += gradient.double().square()
        network.progress(index + 1, len(network.images))
    return {name: total / len(network.images) for name, total in sums.items()}


def _directions(log_probabilities: Tensor, seed: int) -> Tensor:
    """R×1×K vectors whose outer products sum to diag(p) − p pᵀ, exactly or on average."""
    classes = log_probabilities.shape[1]
    if classes <= EXACT_CLASSES:
        return class_vectors(log_probabilities)
    signs = torch.randint(0, 2, (PROBES, 1, classes), generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return logit_probe(log_probabilities, signs.to(log_probabilities)) / math.sqrt(PROBES)
