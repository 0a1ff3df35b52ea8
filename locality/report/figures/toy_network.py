"""The small ReLU network with two inputs that Figure 2.3 is computed on, and the point of it that tells methods apart."""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

STEPS, POINTS, SEED = 400, 240, 5  # of training; of the seeds 0 to 11, 5 has the most telling point
FINE = 420  # points a side of the picture


class TwoInputs(nn.Module):
    """Two pixels in, logits g and −g out; two hidden layers of ReLUs."""

    def __init__(self, width: int = 10) -> None:
        super().__init__()
        self.width = width
        self.first, self.second, self.last = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, images: Tensor) -> Tensor:
        value = self.last(self.neurons(images.flatten(1))[:, -self.width :].relu())
        return torch.cat([value, -value], dim=1)

    def neurons(self, points: Tensor) -> Tensor:
        """What each neuron receives; its ReLU is on where that is positive."""
        first = self.first(6 * (points - 0.5))
        return torch.cat([first, self.second(first.relu())], dim=1)


@functools.lru_cache(maxsize=4)
def trained_net(seed: int = SEED) -> TwoInputs:
    """The network, fitted to two classes that a bent line separates; the caller's random state is left alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = TwoInputs()
        points = torch.rand(POINTS, 2)
        labels = (points[:, 1] < 0.5 + 0.28 * torch.sin(6.5 * points[:, 0])).long()
        optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
        for _ in range(STEPS):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(points), labels).backward()
            optimiser.step()
    return net.eval().requires_grad_(False)


def telling_point(net: TwoInputs) -> Tensor:
    """Of a lattice of points with their boundary in view, the one that tells both pairs of methods apart best.

    That is where the smaller of two gaps is largest: by how much BSM is better aligned with the normal of the nearest
    boundary than SM is, and BIG than IG.
    """
    side = torch.linspace(0.2, 0.8, 31)
    points = torch.cartesian_prod(side, side)
    # The nearest point of a fine lattice that has the other class: near enough to choose by, and quick.
    _, others = lattice(100)
    distances = torch.cdist(points, others)
    distances[(net(points)[:, 0] > 0)[:, None] == (net(others)[:, 0] > 0)[None]] = torch.inf
    distance, nearest = distances.min(1)
    across = others[nearest]
    saliency, normal = _slopes(net, points), _slopes(net, across)
    cosine = nn.functional.cosine_similarity
    sm = cosine(saliency, normal)
    ig, big = (cosine(_mean_slopes(net, start, points), normal) for start in (torch.zeros_like(points), across))
    # Where the polytope's own line is: at a distance of g/‖∇g‖ against the gradient; it must be in view, too.
    suggested = points - saliency * (net(points)[:, 0] / saliency.pow(2).sum(1))[:, None]
    inside = ((suggested - 0.5).abs() < 0.45).all(1) & ((across - 0.5).abs() < 0.42).all(1)
    # At a corner of the boundary the lattice would tell a normal of the wrong side: the way there must follow the normal.
    straight = cosine(points - across, normal).abs() > 0.98
    usable = inside & straight & (distance > 0.14) & (distance < 0.3) & (sm > 0.15)
    if not usable.any():
        raise ValueError("`seed` must give a network whose gradient misses a boundary in view: try another")
    gap = torch.minimum(1 - sm, big - ig)
    return points[torch.where(usable, gap, -torch.inf).argmax()][None]


def _slopes(net: TwoInputs, points: Tensor) -> Tensor:
    """∇g at each point."""
    places = points.detach().requires_grad_()
    [found] = torch.autograd.grad(net(places)[:, 0].sum(), places)
    return found


def _mean_slopes(net: TwoInputs, starts: Tensor, ends: Tensor, steps: int = 20) -> Tensor:
    """∇g averaged along the way to each point."""
    shares = (torch.arange(steps) + 0.5) / steps
    places = starts[None] + shares[:, None, None] * (ends - starts)[None]
    return _slopes(net, places.reshape(-1, 2)).reshape(steps, -1, 2).mean(0)


def lattice(count: int = FINE) -> tuple[NDArray[np.float64], Tensor]:
    """The places of rows and columns, and all points, row by row."""
    side = (np.arange(count) + 0.5) / count
    rows, columns = np.meshgrid(side, side, indexing="ij")
    return side, torch.tensor(np.stack([columns, rows], axis=-1).reshape(-1, 2), dtype=torch.float32)
