"""`layer_traces`: the trace of the loss's Hessian for every layer, with its standard error and what it cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from locality.curvature.open_network import OpenNetwork, open_network
from locality.curvature.output_gradients import exact_squares, passes_linearly, sampled_squares
from locality.curvature.probed import probed_products
from locality.errors import ArgumentError, unknown_choice
from locality.progress import Progress, no_progress

PROBES = 4  # per image (sampled) or group of images (probed)
EXACT_CLASSES = 20  # up to so many, `auto` spends a backward pass per class


@dataclass(frozen=True, eq=False)
class Estimate:
    """Traces of L layers, and the covariance of their errors: of the probes, given the images; nan for a single probe."""

    traces: Tensor  # L
    covariance: Tensor  # L×L
    probes: int  # 0 if nothing is drawn
    method: str


@dataclass(frozen=True, eq=False)
class LayerTraces:
    """Traces of the Hessian blocks of the mean cross-entropy, one per layer; L layers, float64."""

    names: tuple[str, ...]
    traces: Tensor  # L
    covariance: Tensor  # L×L, of the errors of `traces`: 0 if exact, nan for a single probe
    norms: Tensor  # L, ‖W_k‖_F
    gradients: int  # backward passes × images; a product of the Hessian with a vector counts as two
    forwards: int  # forward passes × images
    probes: int  # per image (sampled) or group of images (probed); 0 if exact
    images: int
    method: str  # exact, sampled or probed

    @property
    def errors(self) -> Tensor:
        """L: standard errors of `traces` for these images; they say nothing about other images."""
        return self.covariance.diagonal().sqrt()


def layer_traces(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    method: str = "auto",
    probes: int | None = None,
    seed: int = 0,
    chunk: int | None = None,
    progress: Progress = no_progress,
) -> LayerTraces:
    """The trace of each layer's block of the Hessian of the mean cross-entropy of `images`, in eval mode.

    A layer is a weight of two or more dimensions (`weight_layers`). Pass attacked images for the curvature of the
    adversarial loss; they are constants. `method` is one of TRACES:

    - exact: one backward pass per class, for networks that are piecewise linear in each layer (ReLU, max-pool, BatchNorm in
      eval mode, residual sums); no error, and the labels do not matter;
    - sampled: one backward pass per probe for all layers, for the same networks; unbiased and never negative;
    - probed: Hutchinson's estimator with the true Hessian, for any network; single layers may come out negative;
    - auto: exact up to 20 classes and sampled for more if the network is piecewise linear, otherwise probed.

    `probes` is per image (sampled) or per group of eight images (probed), 4 by default. Results do not depend on `chunk`,
    the number of images in one pass. `progress` counts images.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3, 2, bias=False))
    >>> _ = nn.init.zeros_(net[1].weight)
    >>> result = layer_traces(net, torch.ones(1, 3, 1, 1), torch.tensor([0]))
    >>> result.names, result.method, result.gradients
    (('1.weight',), 'exact', 2)
    >>> round(result.traces.item(), 6)  # ‖x‖² (1 − ‖p‖²) = 3 · 1/2
    1.5
    """
    if method not in TRACES:
        raise unknown_choice("method", method, TRACES)
    if probes is not None and (isinstance(probes, bool) or not isinstance(probes, int) or probes < 1):
        raise ArgumentError("probes", "a whole number of at least 1, or None", probes)
    with open_network(model, images, labels, seed, chunk, progress) as network:
        estimate = TRACES[method](network, probes or PROBES)
        return LayerTraces(
            names=network.names,
            traces=estimate.traces.cpu(),
            covariance=estimate.covariance.cpu(),
            norms=torch.stack([layer.double().norm() for layer in network.layers]).cpu(),
            gradients=network.calls.gradients,
            forwards=network.calls.forwards,
            probes=estimate.probes,
            images=len(images),
            method=estimate.method,
        )


def exact(network: OpenNetwork, probes: int) -> Estimate:
    """Σ_c p_c ‖∇_W CE(g, c)‖², averaged over the images; `probes` is not used."""
    traces = exact_squares(network).mean(0)
    return Estimate(traces, torch.zeros(len(traces), len(traces), dtype=torch.float64), 0, "exact")


def sampled(network: OpenNetwork, probes: int) -> Estimate:
    """‖∇_W u · g‖² with E[u uᵀ] = diag(p) − p pᵀ, averaged over probes and images."""
    return _averaged(sampled_squares(network, probes), len(network.images), "sampled")


def probed(network: OpenNetwork, probes: int) -> Estimate:
    """The layer's part of v · H v for random signs v, averaged over probes and groups of images."""
    return _averaged(probed_products(network, probes), len(network.images), "probed")


def auto(network: OpenNetwork, probes: int) -> Estimate:
    """exact or sampled where the network is piecewise linear, otherwise probed."""
    if not passes_linearly(network):
        return probed(network, probes)
    return (exact if network.classes <= EXACT_CLASSES else sampled)(network, probes)


def _averaged(values: Tensor, images: int, method: str) -> Estimate:
    """The estimate of S×P×L values of P probes for S independent parts (images or groups), which sum to N traces."""
    _, probes, layers = values.shape
    traces = values.mean(1).sum(0) / images
    if probes == 1:
        return Estimate(traces, torch.full((layers, layers), torch.nan, dtype=torch.float64), probes, method)
    centred = values - values.mean(1, keepdim=True)
    covariance = torch.einsum("ipk,ipl->kl", centred, centred) / (probes - 1) / probes / images**2
    return Estimate(traces, covariance, probes, method)


TRACES: dict[str, Callable[[OpenNetwork, int], Estimate]] = {
    "exact": exact,
    "sampled": sampled,
    "probed": probed,
    "auto": auto,
}
