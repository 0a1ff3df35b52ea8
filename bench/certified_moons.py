"""Two moons (thesis, Figures 1.4 and 6.4): where a GloRo Net and a Centroid Net decide, and where they abstain.

    python bench/certified_moons.py [--seeds 3] [--out bench/results/certified_moons.json]

500 training points of `make_moons` with noise 0.05; 500 others, of which a fifth is moved by N(0, 0.5²). Both networks have
three dense layers of 64 units with MinMax. GloRo: EMMA at ε = 0.1, abstains where the certified radius is ε or less.
Centroid Net: 16 features, 8 centroids per class that begin at k-means of new features, η = 0.2, `centroid_reject` + 0.1 ·
`pull`. NAdam, 1,000 steps on all points. The thesis does not state its settings. `calibrated` is the same two networks with
the ε and the η at which they abstain on 5 % of the training points. Regions are measured on a grid of squares of 0.02.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from locality.certified.centroid import Centroid
from locality.certified.centroid_geometry import smallest_distance
from locality.certified.lipschitz_bound import lipschitz_bound
from locality.files import write_atomically
from locality.training.losses.emma import emma_logits
from locality.types import ABSTAINED
from locality.zoo.nets.centroid import CentroidHead, CentroidNet, reject_logit
from locality.zoo.nets.lipschitz import LipschitzLinear, LipschitzNet, MinMax, NormalisedHead

EPSILON, ETA, PULL = 0.1, 0.2, 0.1
POINTS, NOISE, MOVED, SPREAD = 500, 0.05, 0.2, 0.5
WIDTH, FEATURES, PER_CLASS = 64, 16, 8
STEPS, LEARNING_RATE, POWER_STEPS = 1000, 1e-2, 5
FAR = 0.3  # an outlier is far if no training point is nearer
MIDDLE = 0.1  # and near the middle if the distances to the two moons differ by less
GRID = (-2.0, 3.0, -1.75, 2.25)  # left, right, low, high
CELL = 0.02
HORIZON = (1.0, 3.0, 10.0)  # distances from the data at which every direction is asked


def as_images(points: NDArray[np.float64]) -> Tensor:
    return torch.tensor(points).view(-1, 1, 1, 2)


def layers(width: int) -> list[nn.Module]:
    """2–64–64–`width`, MinMax after the first two."""
    return [
        nn.Flatten(),
        LipschitzLinear(2, WIDTH),
        MinMax(),
        LipschitzLinear(WIDTH, WIDTH),
        MinMax(),
        LipschitzLinear(WIDTH, width),
    ]


def gloro_net(seed: int) -> LipschitzNet:
    torch.manual_seed(seed)
    return LipschitzNet(*layers(WIDTH), MinMax(), NormalisedHead(WIDTH, 2)).double()


def centroid_net(seed: int, images: Tensor, labels: Tensor) -> CentroidNet:
    torch.manual_seed(seed)
    net = CentroidNet(*layers(FEATURES), CentroidHead(FEATURES, 2, PER_CLASS, ETA)).double()
    features = net.penultimate(images).detach()
    means = [KMeans(PER_CLASS, n_init=3, random_state=seed).fit(features[labels == label]) for label in (0, 1)]
    net.centroid_head.centroids.data = torch.tensor(np.stack([mean.cluster_centers_ for mean in means]))
    return net


def gloro_loss(net: LipschitzNet, images: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(emma_logits(net(images), labels, net.margin_norms(POWER_STEPS), EPSILON), labels)


def centroid_loss(net: CentroidNet, images: Tensor, labels: Tensor) -> Tensor:
    features = net.penultimate(images)
    logits = net.head(features)
    rejected = reject_logit(logits, net.centroid_head.ratio)[:, None]
    pull = net.centroid_head.distances(features)[torch.arange(len(labels)), labels].amin(1).square().mean()
    return cross_entropy(torch.cat([logits, rejected], 1), labels) + PULL * pull


def trained(net: Any, loss: Any, images: Tensor, labels: Tensor) -> nn.Module:
    optimizer = torch.optim.NAdam(net.parameters(), LEARNING_RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(net, images, labels).backward()
        optimizer.step()
    return net.eval()  # type: ignore[no-any-return]


def scores(net: nn.Module, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """How sure a decision is: GloRo's certified radius, up to the rounding terms of `Lipschitz`; −d₁/d₂ of the centroids."""
    with torch.no_grad():
        logits = net(as_images(points))
    if isinstance(net, CentroidNet):
        return np.asarray(-logits.amax(1) / logits.amin(1).clamp_max(-1e-300))
    return np.asarray((logits[:, 0] - logits[:, 1]).abs() / lipschitz_bound(net, (1, 2), channels=1).largest)


def decided(net: nn.Module, points: NDArray[np.float64], least: float | None = None) -> NDArray[np.int64]:
    """The class of each point, −1 for an abstention: where the score is below `least`, or ε or η say so."""
    with torch.no_grad():
        answers = net(as_images(points)).argmax(1).numpy()
    if least is None:
        least = -net.centroid_head.ratio if isinstance(net, CentroidNet) else math.nextafter(EPSILON, 1)
    return np.where(scores(net, points) < least, ABSTAINED, answers)


def calibrated(net: nn.Module, train: NDArray[np.float64]) -> float:
    """The score below which 5 % of the training points lie."""
    return float(np.quantile(scores(net, train), 0.05))


def grid() -> NDArray[np.float64]:
    left, right, low, high = GRID
    x, y = np.meshgrid(np.arange(left, right, CELL), np.arange(low, high, CELL))
    return np.stack([x.ravel(), y.ravel()], 1)


def shares(net: nn.Module, train: NDArray[np.float64], labels: Any, test: Any, answers: Any, moved: Any) -> dict[str, Any]:
    """What is rejected, of which points, and how wide the band between the classes is."""
    predictions, least = decided(net, test), calibrated(net, train)
    strict = decided(net, test, least)
    trees = [cKDTree(train[labels == label]) for label in (0, 1)]
    to_moons = np.stack([tree.query(test)[0] for tree in trees], 1)
    far = moved & (to_moons.min(1) > FAR)
    middle = moved & ~far & (np.abs(to_moons[:, 0] - to_moons[:, 1]) < MIDDLE)
    cells = grid()
    regions = decided(net, cells)
    gap = float(min(cKDTree(cells[regions == 0]).query(cells[regions == 1])[0]))
    directions = np.linspace(0, 2 * math.pi, 360, endpoint=False)
    circle = np.stack([np.cos(directions), np.sin(directions)], 1)
    centre, reach = train.mean(0), np.linalg.norm(train - train.mean(0), axis=1).max()
    out = {
        f"accepted at {distance:g} beyond the data": float((decided(net, centre + (reach + distance) * circle) >= 0).mean())
        for distance in HORIZON
    }
    inliers = ~moved
    order = np.argsort(far[inliers | far], kind="stable")  # inliers first
    kept = predictions >= 0
    result = {
        "accuracy of decided inliers": float((predictions == answers)[inliers & kept].mean()),
        "rejected inliers": float((~kept)[inliers].mean()),
        "outliers near the middle": int(middle.sum()),
        "rejected outliers near the middle": float((~kept)[middle].mean()) if middle.any() else float("nan"),
        "far outliers": int(far.sum()),
        "rejected far outliers": float((~kept)[far].mean()),
        "width of the band": gap,
        **out,
        "calibrated: rejected inliers": float((strict < 0)[inliers].mean()),
        "calibrated: rejected far outliers": float((strict < 0)[far].mean()),
        "area under the curve, inliers against far outliers": float(
            roc_auc_score(
                np.concatenate([np.ones(inliers.sum()), np.zeros(far.sum())]), scores(net, test[inliers | far])[order]
            )
        ),
    }
    bound = lipschitz_bound(net, (1, 2), channels=1)
    if isinstance(net, CentroidNet):
        centroids = net.centroid_head.centroids
        radii = Centroid("class")(net, as_images(test), bounds=None).radius.numpy()
        nearest = net.centroid_head.distances(net.penultimate(as_images(train))).detach().flatten(1).argmin(1)
        result |= {
            "guaranteed width": ETA * smallest_distance(centroids) / bound.features,
            "width as the thesis prints it": (1 + ETA) * smallest_distance(centroids) / bound.features,
            "dead centroids": int(2 * PER_CLASS - len(nearest.unique())),
            "d_min": smallest_distance(centroids),
            "calibrated: eta": (1 + least) / (1 - least),
        }
    else:
        radii = scores(net, test)
        result |= {"guaranteed width": 2 * EPSILON, "calibrated: epsilon": least}
    return result | {
        "lipschitz": bound.features,
        "median radius of accepted inliers": float(np.median(radii[kept & inliers])),
    }


def run(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The numbers of both networks, and what the figure shows."""
    train, labels = make_moons(POINTS, noise=NOISE, random_state=seed)
    test, answers = make_moons(POINTS, noise=NOISE, random_state=10_000 + seed)
    generator = np.random.default_rng(seed)
    moved = generator.random(POINTS) < MOVED
    test = test + moved[:, None] * generator.normal(0, SPREAD, test.shape)
    images, targets = as_images(train), torch.tensor(labels)
    nets = {
        "gloro": trained(gloro_net(seed), gloro_loss, images, targets),
        "centroid": trained(centroid_net(seed, images, targets), centroid_loss, images, targets),
    }
    numbers = {name: shares(net, train, labels, test, answers, moved) for name, net in nets.items()}
    cells = grid()
    drawing = {"train": train, "labels": labels, "test": test, "answers": answers, "moved": moved}
    for name, net in nets.items():
        for kind, least in (("", None), ("_calibrated", calibrated(net, train))):
            drawing[f"{name}{kind}_grid"] = decided(net, cells, least).astype(np.int8)
            drawing[f"{name}{kind}_test"] = decided(net, test, least).astype(np.int8)
    return numbers, drawing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("bench/results/certified_moons.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs: dict[str, list[dict[str, Any]]] = {"gloro": [], "centroid": []}
    for seed in range(arguments.seeds):
        numbers, drawing = run(seed)
        for name, row in numbers.items():
            runs[name].append(row)
            print(seed, name, {key: round(value, 4) for key, value in row.items()}, flush=True)
        if seed == 0:
            shape = [len(np.arange(*GRID[2:], CELL)), len(np.arange(*GRID[:2], CELL))]
            np.savez_compressed(arguments.out.with_suffix(".npz"), extent=GRID, shape=shape, **drawing)
    means = {
        name: {key: [round(number, 4) for number in _mean(rows, key)] for key in rows[0]} for name, rows in runs.items()
    }
    settings = {"epsilon": EPSILON, "eta": ETA, "pull": PULL, "steps": STEPS, "seeds": arguments.seeds, "cell": CELL}
    result = {"settings": settings, "mean, least and most over the seeds": means, "runs": runs}
    write_atomically(arguments.out, json.dumps(result, indent=1) + "\n")
    print(json.dumps(means, indent=1))


def _mean(rows: list[dict[str, Any]], key: str) -> tuple[float, float, float]:
    values = [row[key] for row in rows if not math.isnan(row[key])]
    return (sum(values) / len(values), min(values), max(values)) if values else (math.nan,) * 3


if __name__ == "__main__":
    main()
