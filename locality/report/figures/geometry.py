"""Figure 2.3: how SM, BSM, IG and BIG relate to a decision boundary, computed on a small ReLU network with two inputs.

A ReLU network is linear inside each polytope of inputs that switch the same neurons on. There, its gradient suggests a
straight boundary, which the real one need not follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from locality.report.figures.drawing import Drawing, Plot
from locality.report.figures.options import FigureOptions
from locality.report.figures.style import COLUMN_WIDTH, GREEN, INK, ORANGE, PAGE_WIDTH, PURPLE, STYLE, YELLOW, Width
from locality.results.results import Results

if TYPE_CHECKING:  # it imports torch, which other figures do not need
    from locality.report.figures.toy_network import Geometry

Vector = NDArray[np.float64]  # 2
COLOURS = {"SM": PURPLE, "BSM": GREEN, "IG": ORANGE, "BIG": GREEN}


@mpl.rc_context(STYLE)
def geometry_plot(width: Width = "page", seed: int | None = None) -> Plot:
    """Left: SM leads to the line that its polytope suggests, BSM to the nearest real boundary.

    Right: IG averages gradients over the polytopes between the black image and x, BIG over those between boundary and x.
    Arrows lead down the gradient. x is the point where both pairs differ most; means are over a lattice of points.
    """
    from locality.report.figures.toy_network import SEED, mean_cosines, toy_geometry

    geometry = toy_geometry(seed=SEED if seed is None else seed)
    narrow = width == "column"
    figure = Figure(figsize=(COLUMN_WIDTH, 7.1) if narrow else (PAGE_WIDTH, 3.75), layout="constrained")
    left, right = figure.subplots(2, 1) if narrow else figure.subplots(1, 2, sharey=True)
    for panel in (left, right):
        _draw_regions(panel, geometry)
    _draw_projections(left, geometry)
    _draw_paths(right, geometry)
    titles = "SM and BSM: which boundary a gradient points to", "IG and BIG: which polytopes a path crosses"
    for panel, title in zip((left, right), titles, strict=True):
        panel.set_title(title, fontsize=7.5 if narrow else None)
    words = [f"{name} {geometry.cosine(name):.2f} (mean {mean:.2f})" for name, mean in mean_cosines(geometry.net).items()]
    lines = ["cosine with the normal of the nearest boundary:", (",  " if narrow else ",   ").join(words)]
    figure.supxlabel(("\n" if narrow else "   ").join(lines).replace("-", "−"), fontsize=6.5 if narrow else 7.5)
    return Plot(figure)


def _draw_regions(panel: Axes, geometry: Geometry) -> None:
    """Classes as tints, edges of polytopes as thin lines, the decision boundary as a thick one."""
    side, value, neurons = geometry.regions()
    panel.contourf(side, side, value, levels=[-np.inf, 0, np.inf], colors=["#eef3f8", "#faf3ea"])
    for neuron in range(neurons.shape[-1]):
        if neurons[..., neuron].min() < 0 < neurons[..., neuron].max():
            panel.contour(side, side, neurons[..., neuron], levels=[0], colors="#b9b9b9", linewidths=0.5)
    panel.contour(side, side, value, levels=[0], colors=INK, linewidths=1.8)
    panel.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], aspect="equal")
    panel.grid(False)
    panel.set(xlabel="first pixel", ylabel="second pixel")
    panel.label_outer()  # side by side, the left panel names the shared axis
    panel.spines[["top", "right"]].set_visible(True)


def _draw_projections(panel: Axes, geometry: Geometry) -> None:
    saliency, normal = geometry.normals["SM"], geometry.normals["BSM"]
    foot = geometry.point - saliency * geometry.logit() / (saliency @ saliency)
    ends = {"SM": foot, "BSM": geometry.across}
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
        _arrow(panel, geometry.point, end, colour)
        # Beside the arrow, away from the other one.
        side = _unit(np.array([geometry.point[1] - end[1], end[0] - geometry.point[0]]))
        other = ends["BSM" if name == "SM" else "SM"] - geometry.point
        _write_name(panel, (geometry.point + end) / 2, name, side * (-1 if side @ other > 0 else 1), colour, 13)
        _write_name(panel, _near_edge(end, along), line, _unit(end - geometry.point), colour, 9)
    _draw_points(panel, geometry, [foot], baseline=False)


def _draw_paths(panel: Axes, geometry: Geometry) -> None:
    side, _, _ = geometry.regions()
    rows, columns = np.meshgrid(side, side, indexing="ij")
    polytopes = geometry.polytopes(np.stack([columns, rows], axis=-1).reshape(-1, 2)).reshape(rows.shape)
    paths = {"IG": np.zeros(2), "BIG": geometry.across}
    picture = np.zeros((*rows.shape, 4))
    for name, start in paths.items():
        tint = to_rgb(YELLOW if name == "IG" else GREEN)
        crossed = geometry.polytopes(_between(start, geometry.point)).tolist()
        for index, polytope in enumerate(dict.fromkeys(crossed)):
            picture[polytopes == polytope] = (*tint, 0.36 if index % 2 else 0.2)
    panel.imshow(picture, extent=(0, 1, 0, 1), origin="lower", interpolation="nearest", zorder=1.2)
    # Down the mean gradient, like SM and BSM on the left; of two lengths, in case both have one direction.
    tips = {name: geometry.point - far * _unit(geometry.normals[name]) for name, far in (("IG", 0.2), ("BIG", 0.14))}
    for name, start in paths.items():
        panel.plot(
            *np.array([start, geometry.point]).T, color=COLOURS[name], linewidth=1.8, linestyle=(0, (3, 1.5)), zorder=3
        )
        _arrow(panel, geometry.point, tips[name], COLOURS[name])
        others = [geometry.point, *paths.values(), *(tip for other, tip in tips.items() if other != name)]
        _write_name(panel, tips[name], name, _free_side(tips[name], others), COLOURS[name], 9)
    _draw_points(panel, geometry, [*tips.values(), np.zeros(2)], baseline=True)


def _draw_points(panel: Axes, geometry: Geometry, others: Sequence[Vector], baseline: bool) -> None:
    looks: Any = {"color": INK, "zorder": 6, "markeredgecolor": "white", "markeredgewidth": 0.8, "linestyle": ""}
    panel.plot(*geometry.point, marker="o", markersize=7, **looks)
    panel.plot(*geometry.across, marker="D", markersize=6, **looks)
    _write_name(panel, geometry.point, "x", _free_side(geometry.point, [geometry.across, *others]), INK, 10)
    _write_name(panel, geometry.across, "x′", _free_side(geometry.across, [geometry.point, *others]), INK, 11)
    if baseline:
        panel.plot(0, 0, marker="s", markersize=8, clip_on=False, **looks)
        panel.annotate("b, black", (0, 0), (8, 5), textcoords="offset points", zorder=6)


def _arrow(panel: Axes, start: Vector, end: Vector, colour: str) -> None:
    looks = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "shrinkA": 3, "shrinkB": 0}
    panel.annotate("", (end[0], end[1]), (start[0], start[1]), arrowprops=looks, zorder=4)


def _write_name(panel: Axes, position: Vector, text: str, side: Vector, colour: str, far: float) -> None:
    """A name `far` points from a position, on the given side of it."""
    panel.annotate(
        text,
        (position[0], position[1]),
        (far * side[0], far * side[1]),
        textcoords="offset points",
        ha="center",
        va="center",
        color=colour,
        fontweight="normal" if colour == INK else "bold",
        zorder=7,
    )


def _free_side(position: Vector, others: Sequence[Vector]) -> Vector:
    """The direction that points least towards any of the others."""
    turns = np.linspace(0, 2 * np.pi, 36, endpoint=False)
    sides = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    towards = np.stack([_unit(other - position) for other in others], axis=1)
    return np.asarray(sides[(sides @ towards).max(1).argmin()])


def _near_edge(position: Vector, along: Vector) -> Vector:
    """Where a line is about to leave the picture, at its longer end."""
    reach = [(limit - position[axis]) / along[axis] for axis in (0, 1) for limit in (0.07, 0.93) if abs(along[axis]) > 1e-9]
    steps = [min((step for step in reach if step * sign > 0), key=abs, default=0.0) for sign in (1, -1)]
    return position + max(steps, key=abs) * along


def _unit(vector: Vector) -> Vector:
    return np.asarray(vector / np.linalg.norm(vector))


def _between(start: Vector, end: Vector) -> NDArray[np.float64]:
    return start + np.linspace(0, 1, 2000)[:, None] * (end - start)


def _draw(results: Results, options: FigureOptions, width: Width) -> Plot:
    return geometry_plot(width)


GEOMETRY = Drawing(
    "fig2_3",
    "The geometry of SM, BSM, IG and BIG",
    (
        "Computed on a ReLU network with two inputs. Left: SM leads to the line H₁ that its own polytope suggests, BSM to "
        "the nearest real boundary, H₂. Right: IG averages over the polytopes between black and x, BIG over those near x.",
        "Network and x were chosen to show both differences: of twelve seeds, and of the points with both lines in view, "
        "those where the smaller of the gaps BSM − SM and BIG − IG in cosine with the normal is largest. Means are over all "
        "points.",
    ),
    _draw,
    needs_results=False,
)
