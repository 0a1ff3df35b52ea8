"""The weight-curvature index: how sharp the loss is, whatever the scale of the layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locality.curvature.traces import LayerTraces


@dataclass(frozen=True, eq=False)
class WeightCurvature:
    """WCI = Σ_k ‖W_k‖_F √Tr(H_k) and its bound."""

    index: float
    layers: Tensor  # L: each layer's ‖W_k‖_F √Tr(H_k), float64
    clipped: int  # layers whose estimated trace is negative; they count as 0
    upper: float  # √Σ‖W_k‖² · √ΣTr(H_k), never below the index
    error: float  # standard error of the index from that of the traces, to first order; nan if it is not known


def weight_curvature(traces: LayerTraces) -> WeightCurvature:
    """The weight-curvature index Σ_k ‖W_k‖_F √Tr(H_k), which rescaling a layer against the next one does not change.

    Negative estimates of a trace count as 0 and are counted. The error is √(dᵀ C d) with d_k = ‖W_k‖ / (2 √Tr(H_k)) and the
    covariance C of the traces. It has no meaning for a layer without a positive trace, which adds ‖W_k‖ √error_k, the value
    at one standard error above 0.

    >>> from torch import nn
    >>> from locality.curvature.traces import layer_traces
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3, 2, bias=False))
    >>> _ = nn.init.ones_(net[1].weight)
    >>> result = weight_curvature(layer_traces(net, torch.ones(1, 3, 1, 1), torch.tensor([0])))
    >>> round(result.index, 6)  # ‖W‖ √(‖x‖² σ(p)) = √6 · √1.5
    3.0
    """
    positive = traces.traces.clamp_min(0.0)
    layers = traces.norms * positive.sqrt()
    flat = positive == 0
    slopes = torch.where(flat, 0.0, traces.norms / (2 * positive.sqrt()))
    variance = slopes @ traces.covariance @ slopes
    beyond = (traces.norms * traces.errors.sqrt())[flat].sum()
    return WeightCurvature(
        index=float(layers.sum()),
        layers=layers,
        clipped=int((traces.traces < 0).sum()),
        upper=float(traces.norms.square().sum().sqrt() * positive.sum().sqrt()),
        error=float(variance.clamp_min(0.0).sqrt() + beyond),
    )
