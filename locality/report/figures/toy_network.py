"""The ReLU network with two inputs of Figure 2.3, and the vectors of SM, BSM, IG and BIG at one of its points.

The two logits are g and −g, so that the gradient of the predicted one is normal to the decision boundary g = 0.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from locality.attribution import attribute_all
from locality.boundary import find_boundary
from locality.types import PathMaps

STEPS, POINTS, SEED = 400, 240, 5  # of training; of the seeds 0 to 11, 5 has the most illustrative point
FINE = 420  # points per side of the picture
Vector = NDArray[np.float64]  # 2


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
        """The inputs of all ReLUs; a neuron is on where its input is positive."""
        first = self.first(6 * (points - 0.5))
        return torch.cat([first, self.second(first.relu())], dim=1)


@dataclass(frozen=True, eq=False)
class Geometry:
    """The network, one point, and the vectors of the methods at it."""

    net: TwoInputs
    point: Vector
    across: Vector  # the nearest point found across the boundary
    normals: dict[str, Vector]  # method ↦ gradient, or mean gradient along its path

    def cosine(self, method: str) -> float:
        """Between a method's vector and the normal of the nearest boundary."""
        one, other = self.normals[method], self.normals["BSM"]
        return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))

    def logit(self) -> float:
        """Of the predicted class at the point: |g|."""
        return float(self.net(torch.tensor(self.point, dtype=torch.float32)[None]).amax(1))

    def regions(self) -> tuple[Vector, NDArray[np.float32], NDArray[np.float32]]:
        """Coordinates of rows and columns of a fine lattice, g on it, and the inputs of all ReLUs on it."""
        side, points = lattice()
        value = self.net(points)[:, 0].reshape(FINE, FINE).numpy()
        return side, value, self.net.neurons(points).reshape(FINE, FINE, -1).numpy()

    def polytopes(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """A number for the polytope of each of N×2 points: the neurons that are on, as bits."""
        on = (self.net.neurons(torch.tensor(points, dtype=torch.float32)) > 0).numpy()
        return np.asarray(on @ (1 << np.arange(on.shape[1], dtype=np.int64)))


def toy_geometry(point: tuple[float, float] | None = None, seed: int = SEED) -> Geometry:
    """The four methods at one point; by default one where BSM differs from SM and BIG from IG, with boundaries in view.

    >>> result = toy_geometry()
    >>> round(result.cosine("BSM"), 6), result.cosine("SM") < 0.9
    (1.0, True)
    """
    net = trained_net(seed)
    chosen = torch.tensor([point]) if point is not None else illustrative_point(net)
    images = chosen.view(1, 1, 1, 2)
    boundary = find_boundary(net, images, search="thorough")
    maps = attribute_all(net, images, ["SM", "BSM", "IG", "BIG"], boundary=boundary, points=400)
    normals = {name: _vector(_gradient_part(value)) for name, value in maps.items()}
    return Geometry(net, _vector(images), _vector(boundary.points), normals)


def mean_cosines(net: TwoInputs) -> dict[str, float]:
    """The cosine of each method with the normal of the nearest boundary, averaged over a lattice of points."""
    side = torch.linspace(0.1, 0.9, 9)
    images = torch.cartesian_prod(side, side).view(-1, 1, 1, 2)
    boundary = find_boundary(net, images)
    maps = attribute_all(net, images, ["BSM", "SM", "IG", "BIG"], boundary=boundary)
    vectors = {name: _gradient_part(value)[boundary.found] for name, value in maps.items()}
    normal = vectors.pop("BSM")
    return {name: float(nn.functional.cosine_similarity(vector, normal).mean()) for name, vector in vectors.items()}


@functools.lru_cache(maxsize=4)
def trained_net(seed: int = SEED) -> TwoInputs:
    """The network, fitted to two classes separated by a curve; the caller's random state is unchanged."""
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


def illustrative_point(net: TwoInputs) -> Tensor:
    """Of a lattice of points with their boundary in view, the one that shows both differences best.

    There, the smaller of two gaps is largest: by how much BSM is better aligned with the normal of the nearest boundary than
    SM is, and BIG than IG.
    """
    side = torch.linspace(0.2, 0.8, 31)
    points = torch.cartesian_prod(side, side)
    # The nearest point of the other class on a fine lattice: precise enough for this choice, and fast.
    _, others = lattice(100)
    distances = torch.cdist(points, others)
    distances[(net(points)[:, 0] > 0)[:, None] == (net(others)[:, 0] > 0)[None]] = torch.inf
    distance, nearest = distances.min(1)
    across = others[nearest]
    saliency, normal = _gradients(net, points), _gradients(net, across)
    cosine = nn.functional.cosine_similarity
    sm = cosine(saliency, normal)
    ig, big = (cosine(_mean_gradients(net, start, points), normal) for start in (torch.zeros_like(points), across))
    # The boundary of the polytope's own linear function, at distance g/‖∇g‖ against the gradient, must be in view too.
    suggested = points - saliency * (net(points)[:, 0] / saliency.pow(2).sum(1))[:, None]
    inside = ((suggested - 0.5).abs() < 0.45).all(1) & ((across - 0.5).abs() < 0.42).all(1)
    # At a corner of the boundary the lattice may give the normal of the wrong side: the way there must follow the normal.
    straight = cosine(points - across, normal).abs() > 0.98
    usable = inside & straight & (distance > 0.14) & (distance < 0.3) & (sm > 0.15)
    if not usable.any():
        raise ValueError("`seed` must give a network whose gradient misses a boundary in view: try another")
    gap = torch.minimum(1 - sm, big - ig)
    return points[torch.where(usable, gap, -torch.inf).argmax()][None]


def lattice(count: int = FINE) -> tuple[Vector, Tensor]:
    """The coordinates of rows and columns, and all points, row by row."""
    side = (np.arange(count) + 0.5) / count
    rows, columns = np.meshgrid(side, side, indexing="ij")
    return side, torch.tensor(np.stack([columns, rows], axis=-1).reshape(-1, 2), dtype=torch.float32)


def _gradients(net: TwoInputs, points: Tensor) -> Tensor:
    """∇g at each point."""
    inputs = points.detach().requires_grad_()
    [gradients] = torch.autograd.grad(net(inputs)[:, 0].sum(), inputs)
    return gradients


def _mean_gradients(net: TwoInputs, starts: Tensor, ends: Tensor, steps: int = 20) -> Tensor:
    """∇g averaged along the line to each point."""
    shares = (torch.arange(steps) + 0.5) / steps
    inputs = starts[None] + shares[:, None, None] * (ends - starts)[None]
    return _gradients(net, inputs.reshape(-1, 2)).reshape(steps, -1, 2).mean(0)


def _gradient_part(value: PathMaps | Tensor) -> Tensor:
    return (value.integral if isinstance(value, PathMaps) else value).flatten(1)


def _vector(value: Tensor) -> Vector:
    return value.detach().double().flatten().numpy()
