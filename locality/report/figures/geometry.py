"""Figure 2.3: what SM, BSM, IG and BIG see of a decision boundary, computed on a small ReLU network with two inputs.

The two logits are g and −g, so that the gradient of the predicted one is normal to the decision boundary g = 0. A ReLU
network is linear inside each polytope of inputs that switch the same neurons on: there the boundary it suggests is
a straight line, which the real boundary need not follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from locality.attribution import attribute_all
from locality.boundary import find_boundary
from locality.report.figures.style import COLUMN_WIDTH, GREEN, INK, ORANGE, PAGE_WIDTH, PURPLE, STYLE, YELLOW, Width
from locality.report.figures.toy_network import FINE, SEED, TwoInputs, lattice, telling_point, trained_net
from locality.types import PathMaps

Vector = NDArray[np.float64]  # 2
COLOURS = {"SM": PURPLE, "BSM": GREEN, "IG": ORANGE, "BIG": GREEN}


@dataclass(frozen=True, eq=False)
class Geometry:
    """The network, one point, and what the methods make of it."""

    net: TwoInputs
    point: Vector
    across: Vector  # the nearest found point across the boundary
    normals: dict[str, Vector]  # method ↦ gradient, or mean gradient along its path

    def cosine(self, method: str) -> float:
        """How well a method's vector follows the normal of the nearest boundary."""
        one, other = self.normals[method], self.normals["BSM"]
        return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def geometry(point: tuple[float, float] | None = None, seed: int = SEED) -> Geometry:
    """The four methods at one point; by default where BSM differs from SM and BIG from IG, yet both boundaries are in view.

    >>> found = geometry()
    >>> round(found.cosine("BSM"), 6), found.cosine("SM") < 0.9
    (1.0, True)
    """
    net = trained_net(seed)
    chosen = torch.tensor([point]) if point is not None else telling_point(net)
    images = chosen.view(1, 1, 1, 2)
    edge = find_boundary(net, images, search="thorough")
    found = attribute_all(net, images, ["SM", "BSM", "IG", "BIG"], boundary=edge, points=400)
    normals = {name: _vector(_flat(value)) for name, value in found.items()}
    return Geometry(net, _vector(images), _vector(edge.points), normals)


def mean_cosines(net: TwoInputs) -> dict[str, float]:
    """The cosine of each method with the normal of the nearest boundary, averaged over a lattice of points."""
    side = torch.linspace(0.1, 0.9, 9)
    images = torch.cartesian_prod(side, side).view(-1, 1, 1, 2)
    edge = find_boundary(net, images)
    found = attribute_all(net, images, ["BSM", "SM", "IG", "BIG"], boundary=edge)
    vectors = {name: _flat(value) for name, value in found.items()}
    normal = vectors.pop("BSM")[edge.found]
    return {
        name: float(nn.functional.cosine_similarity(vector[edge.found], normal).mean()) for name, vector in vectors.items()
    }


@mpl.rc_context(STYLE)
def geometry_figure(seed: int = SEED, width: Width = "page") -> Figure:
    """Figure 2.3. Left: SM leads to the line that its polytope suggests, BSM to the nearest real boundary.

    Right: IG averages gradients over the polytopes between the black image and x, BIG over those between boundary and x.
    Arrows lead down the gradient. x is chosen where both pairs differ most; the mean is over a lattice of points.
    """
    found = geometry(seed=seed)
    narrow = width == "column"
    figure = Figure(figsize=(COLUMN_WIDTH, 7.1) if narrow else (PAGE_WIDTH, 3.75), layout="constrained")
    left, right = figure.subplots(2, 1) if narrow else figure.subplots(1, 2, sharey=True)
    for panel in (left, right):
        _draw_regions(panel, found.net)
    _draw_projections(left, found)
    _draw_paths(right, found)
    titles = "SM and BSM: which boundary a gradient points to", "IG and BIG: which polytopes a path crosses"
    for panel, title in zip((left, right), titles, strict=True):
        panel.set_title(title, fontsize=7.5 if narrow else None)
    words = [f"{name} {found.cosine(name):.2f} (mean {mean:.2f})" for name, mean in mean_cosines(found.net).items()]
    lines = ["cosine with the normal of the nearest boundary:", (",  " if narrow else ",   ").join(words)]
    figure.supxlabel(("\n" if narrow else "   ").join(lines).replace("-", "−"), fontsize=6.5 if narrow else 7.5)
    return figure


def _logit(net: TwoInputs, points: Tensor) -> Tensor:
    """The logit of the predicted class: |g|."""
    found: Tensor = net(points).amax(1)
    return found


def _draw_regions(panel: Axes, net: TwoInputs) -> None:
    """Classes as tints, polytopes' edges as thin lines, the decision boundary as a thick one."""
    grid, points = lattice()
    value = net(points)[:, 0].reshape(FINE, FINE).numpy()
    neurons = net.neurons(points).reshape(FINE, FINE, -1).numpy()
    panel.contourf(grid, grid, value, levels=[-np.inf, 0, np.inf], colors=["#eef3f8", "#faf3ea"])
    for neuron in range(neurons.shape[-1]):
        if neurons[..., neuron].min() < 0 < neurons[..., neuron].max():
            panel.contour(grid, grid, neurons[..., neuron], levels=[0], colors="#b9b9b9", linewidths=0.5)
    panel.contour(grid, grid, value, levels=[0], colors=INK, linewidths=1.8)
    panel.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], aspect="equal")
    panel.grid(False)
    panel.set(xlabel="first pixel", ylabel="second pixel")
    panel.label_outer()  # side by side, the left one says it for both
    panel.spines[["top", "right"]].set_visible(True)


def _draw_projections(panel: Axes, found: Geometry) -> None:
    value = float(_logit(found.net, torch.tensor(found.point, dtype=torch.float32)[None]))
    saliency, normal = found.normals["SM"], found.normals["BSM"]
    foot = found.point - saliency * value / (saliency @ saliency)
    ends = {"SM": foot, "BSM": found.across}
    for name, direction, line in (("SM", saliency, "H₁"), ("BSM", normal, "H₂")):
        colour, end = COLOURS[name], ends[name]
        along = _unit(np.array([-direction[1], direction[0]]))
        panel.plot(
            *(end + np.outer([-2.0, 2.0], along)).T,
            color=colour,
            linewidth=1.1,
            linestyle=(0, (5, 2.5)),
            scalex=False,
            scaley=False,
        )
        _arrow(panel, found.point, end, colour)
        # Beside the arrow, on the side where the other one is not.
        side = _unit(np.array([found.point[1] - end[1], end[0] - found.point[0]]))
        other = ends["BSM" if name == "SM" else "SM"] - found.point
        _write(panel, (found.point + end) / 2, name, side * (-1 if side @ other > 0 else 1), colour, 13)
        _write(panel, _near_edge(end, along), line, _unit(end - found.point), colour, 9)
    _draw_points(panel, found, [foot], baseline=False)


def _draw_paths(panel: Axes, found: Geometry) -> None:
    _, points = lattice()
    patterns = _patterns(found.net, points).reshape(FINE, FINE)
    paths = {"IG": np.zeros(2), "BIG": found.across}
    picture = np.zeros((FINE, FINE, 4))
    for name, start in paths.items():
        crossed = _patterns(found.net, torch.tensor(_between(start, found.point), dtype=torch.float32))
        tint = to_rgb(YELLOW if name == "IG" else GREEN)
        for place, pattern in enumerate(dict.fromkeys(crossed.tolist())):
            picture[patterns == pattern] = (*tint, 0.36 if place % 2 else 0.2)
    panel.imshow(picture, extent=(0, 1, 0, 1), origin="lower", interpolation="nearest", zorder=1.2)
    # Down the mean gradient, as SM and BSM on the left; of two lengths, for where both have one direction.
    tips = {name: found.point - far * _unit(found.normals[name]) for name, far in (("IG", 0.2), ("BIG", 0.14))}
    for name, start in paths.items():
        panel.plot(*np.array([start, found.point]).T, color=COLOURS[name], linewidth=1.8, linestyle=(0, (3, 1.5)), zorder=3)
        _arrow(panel, found.point, tips[name], COLOURS[name])
        others = [found.point, *paths.values(), *(tip for other, tip in tips.items() if other != name)]
        _write(panel, tips[name], name, _free_side(tips[name], others), COLOURS[name], 9)
    _draw_points(panel, found, [*tips.values(), np.zeros(2)], baseline=True)


def _draw_points(panel: Axes, found: Geometry, others: Sequence[Vector], baseline: bool) -> None:
    looks: Any = {"color": INK, "zorder": 6, "markeredgecolor": "white", "markeredgewidth": 0.8, "linestyle": ""}
    panel.plot(*found.point, marker="o", markersize=7, **looks)
    panel.plot(*found.across, marker="D", markersize=6, **looks)
    _write(panel, found.point, "x", _free_side(found.point, [found.across, *others]), INK, 10)
    _write(panel, found.across, "x′", _free_side(found.across, [found.point, *others]), INK, 11)
    if baseline:
        panel.plot(0, 0, marker="s", markersize=8, clip_on=False, **looks)
        panel.annotate("b, black", (0, 0), (8, 5), textcoords="offset points", zorder=6)


def _arrow(panel: Axes, start: Vector, end: Vector, colour: str) -> None:
    looks = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "shrinkA": 3, "shrinkB": 0}
    panel.annotate("", (end[0], end[1]), (start[0], start[1]), arrowprops=looks, zorder=4)


def _write(panel: Axes, place: Vector, text: str, side: Vector, colour: str, far: float) -> None:
    """A name `far` points from a place, on the given side of it."""
    panel.annotate(
        text,
        (place[0], place[1]),
        (far * side[0], far * side[1]),
        textcoords="offset points",
        ha="center",
        va="center",
        color=colour,
        fontweight="normal" if colour == INK else "bold",
        zorder=7,
    )


def _free_side(place: Vector, others: Sequence[Vector]) -> Vector:
    """The direction that points least to any of the others."""
    turns = np.linspace(0, 2 * np.pi, 36, endpoint=False)
    sides = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    towards = np.stack([_unit(other - place) for other in others], axis=1)
    return np.asarray(sides[(sides @ towards).max(1).argmin()])


def _near_edge(place: Vector, along: Vector) -> Vector:
    """Where a line is about to leave the picture, on its longer side."""
    reach = [(limit - place[axis]) / along[axis] for axis in (0, 1) for limit in (0.07, 0.93) if abs(along[axis]) > 1e-9]
    steps = [min((each for each in reach if each * sign > 0), key=abs, default=0.0) for sign in (1, -1)]
    return place + max(steps, key=abs) * along


def _unit(vector: Vector) -> Vector:
    return np.asarray(vector / np.linalg.norm(vector))


def _between(start: Vector, end: Vector) -> NDArray[np.float64]:
    return start + np.linspace(0, 1, 2000)[:, None] * (end - start)


def _patterns(net: TwoInputs, points: Tensor) -> NDArray[np.int64]:
    """A number for the polytope that each point lies in: its neurons that are on, as bits."""
    on = (net.neurons(points) > 0).numpy()
    return np.asarray(on @ (1 << np.arange(on.shape[1], dtype=np.int64)))


def _flat(value: PathMaps | Tensor) -> Tensor:
    return (value.integral if isinstance(value, PathMaps) else value).flatten(1)


def _vector(value: Tensor) -> Vector:
    return value.detach().double().flatten().numpy()
