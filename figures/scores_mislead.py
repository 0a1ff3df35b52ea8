"""Draw the picture of docs/scores.md: maps whose quality is known in advance, and what every score says about them.

python figures/scores_mislead.py [--out figures/rendered]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from locality import BIG, SM, load_dataset
from locality.scores import score_maps
from locality.scores.model_free_maps import centred_gaussian_maps, uniform_maps

COUNT = 100  # images behind every number
SHOWN = 3  # the one that is drawn
MISLEADS = 0.4  # a score this far from the map's worth is framed
INK, PALE, RED, GREEN = "#1f2933", "#7b8794", "#d4372c", "#2f855a"
SCALE = LinearSegmentedColormap.from_list("scores", ["#ffffff", "#d6e6f4", "#86b9dd", "#3d85bd"])
SIGNED = LinearSegmentedColormap.from_list("signed", ["#2166ac", "#92c5de", "#f7f7f7", "#f4a582", "#b2182b"])
ROWS = {
    "f1": "F1",
    "lift": "lift",
    "precision": "precision, energy pointing game",
    "recall": "recall",
    "relevance_mass_accuracy": "relevance mass accuracy",
    "pointing_game": "pointing game",
    "relevance_rank_accuracy": "relevance rank accuracy",
    "top_k_intersection": "top-k intersection, k = 1000",
    "roc_auc": "ROC-AUC",
    "iou_at_quantile": "IoU at the 0.8 quantile",
}


class Scene(NamedTuple):
    """Images with the regions that are scored and the objects' own pixels."""

    images: Tensor
    masks: Tensor
    outlines: Tensor


class Column(NamedTuple):
    """A map, what it shows, and its worth: 1 if it shows the object and nothing else, otherwise 0."""

    title: str
    verdict: str
    worth: int
    maps: Callable[[Scene], Tensor]
    closer: bool = False


def shapes() -> Scene:
    samples = [load_dataset("shapes", count=COUNT)[index] for index in range(COUNT)]
    parts = ([one.image for one in samples], [one.mask for one in samples], [one.outline for one in samples])
    return Scene(*(torch.stack(part) for part in parts))  # type: ignore[arg-type]


def closer(scene: Scene) -> Scene:
    """The same images cropped around the box, which then covers a little more than half of them."""
    parts = []
    for image, mask, outline in zip(*scene, strict=True):
        rows, columns = (mask[0].any(axis).nonzero() for axis in (1, 0))
        edges = []
        for inside in (rows, columns):
            first, last = int(inside.min()), int(inside.max()) + 1
            more = round((last - first) * (0.54**-0.5 - 1) / 2)
            edges.append(slice(max(0, first - more), last + more))
        window = torch.cat([image, mask, outline])[None, :, edges[0], edges[1]]
        parts.append(nn.functional.interpolate(window, (64, 64), mode="nearest-exact")[0])
    together = torch.stack(parts)
    return Scene(together[:, :3], together[:, 3:4].bool(), together[:, 4:].bool())


def untrained() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            *(nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(32 * 13 * 13, 10)),
        ).eval()


def one_bright_pixel(scene: Scene) -> Tensor:
    """Noise, and one larger value in the middle of the box."""
    maps = torch.randn(scene.images.shape, generator=torch.Generator().manual_seed(1))
    for index, mask in enumerate(scene.masks[:, 0]):
        row, column = mask.nonzero().float().mean(0).round().long().tolist()
        maps[index, :, row, column] = 8
    return maps


def faint_inside(scene: Scene) -> Tensor:
    """A little everywhere in the box, nothing around it, and most of the attribution along two edges of the image."""
    maps = 0.02 * scene.masks.float()
    edges = torch.zeros_like(scene.masks)
    edges[:, :, :3], edges[:, :, -3:] = True, True
    maps[edges & ~scene.masks] = 1.0
    return maps.expand(scene.images.shape)


def attributed(method: type[SM] | type[BIG], scene: Scene) -> Tensor:
    maps = method(untrained()).attribute(scene.images)
    assert isinstance(maps, Tensor)
    return maps


COLUMNS = [
    Column("the object\nitself", "right", 1, lambda scene: scene.outlines.float().expand(scene.images.shape)),
    Column("uniform", "sees nothing", 0, lambda scene: uniform_maps(scene.images)),
    Column("uniform,\ncropped closely", "sees nothing", 0, lambda scene: uniform_maps(scene.images), closer=True),
    Column("centred\nGaussian", "sees nothing", 0, lambda scene: centred_gaussian_maps(scene.images)),
    Column("SM, untrained\nnetwork", "learnt nothing", 0, lambda scene: attributed(SM, scene)),
    Column("BIG, untrained\nnetwork", "learnt nothing", 0, lambda scene: attributed(BIG, scene)),
    Column("noise, one\nbright pixel", "one pixel", 0, one_bright_pixel),
    Column(
        "evidence against\nthe class", "wrong sign", 0, lambda scene: 0.1 - scene.masks.float().expand(scene.images.shape)
    ),
    Column("faint inside,\nstrong outside", "looks away", 0, faint_inside),
]


def draw_map(axes: Axes, image: Tensor, mask: Tensor, attribution: Tensor) -> None:
    grey = image.mean(0) * 0.55 + 0.45
    axes.imshow(grey, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    summed = attribution.sum(0)
    strength = (summed / summed.abs().flatten().quantile(0.995).clamp(min=1e-12)).clamp(-1, 1)
    axes.imshow(strength, cmap=SIGNED, vmin=-1, vmax=1, alpha=0.82 * strength.abs() ** 0.6, interpolation="nearest")
    rows, columns = (mask[0].any(axis).nonzero() for axis in (1, 0))
    corner = (float(columns.min()) - 0.5, float(rows.min()) - 0.5)
    size = (float(columns.max() - columns.min()) + 1, float(rows.max() - rows.min()) + 1)
    axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor="white", linewidth=3.2))
    axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=INK, linewidth=1.4))
    axes.set_axis_off()


def draw_cell(axes: Axes, row: int, column: int, name: str, value: float, worth: int) -> None:
    axes.add_patch(Rectangle((column, row), 1, 1, facecolor=SCALE(max(0.0, value)), edgecolor="white", linewidth=2))
    # Chance is 0.5 in ROC-AUC and taken as 0 elsewhere.
    judged = max(0.0, 2 * value - 1) if name == "roc_auc" else max(0.0, value)
    misleads = round(abs(judged - worth), 2) >= MISLEADS
    if misleads:
        axes.add_patch(
            Rectangle((column + 0.05, row + 0.09), 0.9, 0.82, fill=False, edgecolor=RED, linewidth=1.8, joinstyle="round")
        )
    weight = "bold" if misleads or name in ("f1", "lift") else "normal"
    text = f"{value:.2f}".replace("-", "−") if abs(value) >= 0.005 else "0.00"
    colour = "white" if value > 0.85 else INK
    axes.text(column + 0.5, row + 0.52, text, ha="center", va="center", fontsize=12, color=colour, weight=weight)


def picture(path: Path) -> None:
    scene = shapes()
    near = closer(scene)
    width, height = len(COLUMNS), len(ROWS)
    figure = plt.figure(figsize=(15.2, 8.8), facecolor="white")
    left, right, bottom, top = 0.2, 0.99, 0.03, 0.64
    step = (right - left) / width
    table = figure.add_axes((left, bottom, right - left, top - bottom), xlim=(0, width), ylim=(height, 0))
    table.set_axis_off()
    for index, column in enumerate(COLUMNS):
        seen = near if column.closer else scene
        maps = column.maps(seen)
        side = 0.9 * step
        axes = figure.add_axes((left + (index + 0.05) * step, top + 0.045, side, side * 15.2 / 8.8))
        draw_map(axes, seen.images[SHOWN], seen.masks[SHOWN], maps[SHOWN])
        axes.text(0.5, 1.05, column.title, transform=axes.transAxes, ha="center", va="bottom", fontsize=12, color=INK)
        colour = GREEN if column.worth else RED
        middle = left + (index + 0.5) * step
        figure.text(
            middle, top + 0.017, column.verdict, ha="center", va="center", fontsize=11.5, color=colour, style="italic"
        )
        scores = score_maps(maps, seen.masks, list(ROWS))
        for row, name in enumerate(ROWS):
            draw_cell(table, row, index, name, scores[name].mean().item(), column.worth)
    for row, label in enumerate(ROWS.values()):
        weight = "bold" if label in ("F1", "lift") else "normal"
        table.text(-0.1, row + 0.52, label, ha="right", va="center", fontsize=12, color=INK, weight=weight)
    figure.text(
        0.012, 0.955, "What scores say about maps whose quality is known", fontsize=19, weight="bold", color=INK, va="center"
    )
    figure.text(
        *(0.012, 0.912),
        f"Means over {COUNT} images of shapes; red is positive, blue negative. Framed: {MISLEADS} or more from the map's "
        "worth, 1 for the object, else 0 (ROC-AUC: from 0.5).",
        fontsize=12,
        color=PALE,
        va="center",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("figures/rendered"), help="folder for the picture")
    out = parser.parse_args().out / "scores_mislead.png"
    picture(out)
    print(f"What scores say about maps whose quality is known: {out}")
