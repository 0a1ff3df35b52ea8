"""Layer traces of any network by Hutchinson's estimator: v · H v for random signs v, with the true Hessian."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from locality.curvature.open_network import OpenNetwork

GROUP = 8  # images that share a probe; fewer would be less noisy per gradient, but slower


def probed_products(network: OpenNetwork, probes: int) -> Tensor:
    """G×P×L: the layer's own part of v · H v for every group of images and probe, H being of the group's summed loss.

    One probe covers all layers: its noise has Var = 2 Σ_{i≠j} (H_kk)_ij² + Σ_{l≠k} ‖H_kl‖_F², and it may be negative. Groups
    have probes of their own, so that the noise of different groups averages out. Smaller chunks divide a group's Hessian,
    never its probe.
    """
    total = len(network.images)
    network.progress(0, total)
    groups = []
    for start in range(0, total, GROUP):
        rows = slice(start, min(start + GROUP, total))
        vectors = [_signs(network, rows, probe) for probe in range(probes)]

        def of_chunk(images: Tensor, labels: Tensor, vectors: list[list[Tensor]] = vectors) -> tuple[Tensor, Tensor]:
            return labels, _products(network, images, labels, vectors)[None]  # one sum per chunk

        _, products = network.calls.in_chunks(of_chunk, network.images[rows], network.labels[rows])
        groups.append(products.sum(0))
        network.progress(rows.stop, total)
    return torch.stack(groups)


def _products(network: OpenNetwork, images: Tensor, labels: Tensor, vectors: list[list[Tensor]]) -> Tensor:
    """P×L: the products for the summed loss of some images."""
    weights = {name: network.tensors[name].clone().requires_grad_() for name in network.names}
    leaves = list(weights.values())
    result = torch.zeros(len(vectors), len(leaves), dtype=torch.float64, device=images.device)
    # Other kernels of attention have no second derivative.
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        loss = cross_entropy(network.logits(images, weights), labels, reduction="sum")
        gradients = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
        network.calls.gradients += len(images) * (1 + 2 * len(vectors))
        used = [place for place, gradient in enumerate(gradients) if gradient.requires_grad]
        for probe, signs in enumerate(vectors):
            products = torch.autograd.grad(
                [gradients[place] for place in used],
                leaves,
                [signs[place] for place in used],
                retain_graph=probe + 1 < len(vectors),
                materialize_grads=True,
            )
            for place, product in enumerate(products):
                result[probe, place] = (signs[place].double() * product.double()).sum()
    return result


def _signs(network: OpenNetwork, rows: slice, probe: int) -> list[Tensor]:
    digest = hashlib.blake2b(repr((network.seeds[rows], probe)).encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
    return [(torch.randint(0, 2, layer.shape, generator=generator) * 2 - 1).to(layer) for layer in network.layers]
