"""Sum and standard deviation of all Hessian eigenvalues of a small ReLU network, exactly and without the Hessian.

For a network Linear–ReLU–Linear–ReLU–Linear with two classes, let m = g₁ − g₀, π = p₁, w = π (1 − π) and ρ = π − y. The
Hessian of the mean cross-entropy is G + R with G = ⟨w ∇m ∇mᵀ⟩ and R = ⟨ρ ∇²m⟩. The eigenvalues sum to Tr G, because R has no
entries within a layer, and their squares sum to ‖G‖² + 2⟨G, R⟩ + ‖R‖². The products ∇mᵢ · ∇mⱼ are products of inputs and
backward signals of the layers, and R couples layers through active units only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from locality.errors import ArgumentError
from locality.model_calls.checks import check_labels, check_target


@dataclass(frozen=True, eq=False)
class SpectrumMoments:
    """Moments of the eigenvalues of the full Hessian (first) and of the block of each layer with its bias (the others)."""

    sums: Tensor  # 4
    deviations: Tensor  # 4, of the population


@dataclass(frozen=True, eq=False)
class _Signals:
    """What one pass gives: N images, widths A and B."""

    logits: Tensor
    inputs: tuple[Tensor, Tensor, Tensor]  # of each layer, with a 1 for the bias
    gradients: tuple[Tensor, Tensor]  # of m by the first two layers' outputs
    active: tuple[Tensor, Tensor]  # 1 where a unit is positive

    @property
    def weight(self) -> Tensor:
        """N: w = π (1 − π)."""
        return (self.logits[:, 1] - self.logits[:, 0]).sigmoid() * (self.logits[:, 0] - self.logits[:, 1]).sigmoid()


def mlp_traces(model: nn.Sequential, inputs: Tensor, bias: bool = True) -> Tensor:
    """3: traces of the Hessian block of each layer with or without its bias, differentiable by the weights.

    ⟨w (‖x‖² + 1) ‖δ₁‖²⟩, ⟨w (‖h₁‖² + 1) ‖δ₂‖²⟩, ⟨2 w (‖h₂‖² + 1)⟩; δ is the gradient of m by a layer's output. Labels do not
    matter. The sum is the trace of the full Hessian.
    """
    seen = _signals(model, inputs)
    lengths = [(part if bias else part[:, :-1]).square().sum(1) for part in seen.inputs]
    slopes = [seen.gradients[0].square().sum(1), seen.gradients[1].square().sum(1), torch.full_like(lengths[2], 2.0)]
    return torch.stack([(seen.weight * length * slope).mean() for length, slope in zip(lengths, slopes, strict=True)])


@torch.no_grad()
def spectrum_moments(model: nn.Sequential, inputs: Tensor, labels: Tensor) -> SpectrumMoments:
    """Sum and standard deviation of the eigenvalues of the Hessian of the mean cross-entropy, all weights and biases.

    deviation² = ‖H‖_F² / size − (Tr H / size)². The cost is O(N² + N · width²) instead of O(weights³).

    >>> net = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> moments = spectrum_moments(net, torch.rand(8, 2), torch.arange(8) % 2)
    >>> torch.allclose(moments.sums[0], moments.sums[1:].sum())
    True
    """
    labels = check_labels(labels, len(inputs))
    check_target(labels, 2, "labels")
    seen = _signals(model, inputs)
    weight, count = seen.weight, len(inputs)
    residual = (seen.logits[:, 1] - seen.logits[:, 0]).sigmoid() - labels.to(weight)
    grams = [part @ part.T for part in seen.inputs]
    products = [grams[0] * (seen.gradients[0] @ seen.gradients[0].T), grams[1] * (seen.gradients[1] @ seen.gradients[1].T)]
    products.append(2 * grams[2])
    total = products[0] + products[1] + products[2]
    pairs = weight[:, None] * weight
    sums = torch.stack([(weight * product.diagonal()).mean() for product in (total, *products)])
    squares = torch.stack([(pairs * product.square()).sum() / count**2 for product in (total, *products)])
    squares[0] += _coupling(model, seen, weight / count, residual / count)
    sizes = [sum(parameter.numel() for parameter in layer.parameters()) for layer in _layers(model)]
    size = torch.tensor([sum(sizes), *sizes]).to(sums)
    return SpectrumMoments(sums, (squares / size - (sums / size).square()).clamp_min(0.0).sqrt())


def _coupling(model: nn.Sequential, seen: _Signals, weight: Tensor, residual: Tensor) -> Tensor:
    """2⟨G, R⟩ + ‖R‖², where `weight` and `residual` are divided by N. Every block of R occurs twice, below and above."""
    first, second, third = seen.inputs
    (delta1, delta2), (active1, active2) = seen.gradients, seen.active
    hidden1, hidden2 = second[:, :-1], third[:, :-1]
    # (unit of layer 1, its input) for each image: the gradient of layer 1's weights without δ.
    lower = (active1[:, :, None] * first[:, None]).flatten(1)
    # Layers 1 and 2: R[a; b, c] = ⟨ρ δ₂ₐ 1[unit b] x_c⟩ between W₂[a, b] and W₁[b, c].
    block12 = (delta2 * residual[:, None]).T @ lower
    along12 = (hidden1 * delta1)[:, :, None] * first[:, None]
    product12 = (weight[:, None] * (delta2 @ block12) * along12.flatten(1)).sum()
    # Layers 2 and 3: R[b; c] = ⟨ρ 1[unit b] h_c⟩ between W₃[k, b] and W₂[b, c], with the sign of class k.
    block23 = (active2 * residual[:, None]).T @ second
    product23 = (weight[:, None] * hidden2 * delta2 * (second @ block23.T)).sum()
    # Layers 1 and 3: R[b; c, d] = ⟨ρ 1[unit b] W₂[b, c] 1[unit c] x_d⟩ between W₃[k, b] and W₁[c, d].
    through = _layers(model)[1].weight.detach().repeat_interleave(first.shape[1], dim=1)
    block13 = (active2 * residual[:, None]).T @ lower * through
    along13 = (delta1[:, :, None] * first[:, None]).flatten(1)
    product13 = (weight[:, None] * (hidden2 @ block13) * along13).sum()
    # Two classes: each entry that involves W₃ occurs for both.
    inner = 2 * (product12 + 2 * product23 + 2 * product13)
    own = 2 * (block12.square().sum() + 2 * block23.square().sum() + 2 * block13.square().sum())
    return 2 * inner + own


def _signals(model: nn.Sequential, inputs: Tensor) -> _Signals:
    layers = _layers(model)
    if inputs.dim() != 2 or inputs.shape[1] != layers[0].in_features or not len(inputs):
        raise ArgumentError("inputs", f"N×{layers[0].in_features} numbers", tuple(inputs.shape))
    outer1 = layers[0](inputs)
    hidden1 = relu(outer1)
    outer2 = layers[1](hidden1)
    hidden2 = relu(outer2)
    active1, active2 = (outer1 > 0).to(inputs), (outer2 > 0).to(inputs)
    delta2 = active2 * (layers[2].weight[1] - layers[2].weight[0])
    delta1 = active1 * (delta2 @ layers[1].weight)
    one = torch.ones_like(inputs[:, :1])
    with_ones = tuple(torch.cat([part, one], 1) for part in (inputs, hidden1, hidden2))
    return _Signals(layers[2](hidden2), (with_ones[0], with_ones[1], with_ones[2]), (delta1, delta2), (active1, active2))


def _layers(model: nn.Sequential) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    """The three linear layers; raises for any other network."""
    parts = list(model)
    kinds = [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    fits = len(parts) == 5 and all(type(part) is kind for part, kind in zip(parts, kinds, strict=True))
    linear = [part for part in parts if isinstance(part, nn.Linear) and part.bias is not None]
    if not fits or len(linear) != 3 or linear[2].out_features != 2:
        hint = "the moments are derived for this network only"
        raise ArgumentError("model", "Linear, ReLU, Linear, ReLU and Linear with biases and two classes", model, hint)
    return linear[0], linear[1], linear[2]
