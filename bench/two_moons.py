"""Two Moons (thesis, Figures 4.1 and 4.2): what TrH on the top layer does to the Hessian of all layers.

    python bench/two_moons.py [--seeds 10] [--out bench/results/two_moons.json]

500 points, Dense(100)–ReLU–Dense(100)–ReLU–Dense(2), AT at ℓ∞ 0.02 with one step, SGD with learning rate 0.1, 100 epochs;
`standard`, `top` (+ 0.5 · trace of the top layer) and `full` (+ 0.05 · trace of all layers). After every fourth epoch: sum
and deviation of the eigenvalues of the AT loss's Hessian over all points, for all 10,602 weights and for each layer. The
thesis does not state the batch size, so there are two: 50 and 500 (one step per epoch). Our choices for what else it does
not state are the constants below. A finished run is not run again.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_moons
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from locality.curvature.moments import mlp_traces, spectrum_moments
from locality.files import write_atomically
from locality.intervals import mean_interval

KINDS = ("standard", "top", "full")
BATCH_SIZES = (50, 500)
EPOCHS, EVERY = 100, 4
LATE = 60  # the thesis compares from this epoch on
POINTS, TEST_POINTS, NOISE = 500, 2000, 0.1
WIDTH, LEARNING_RATE, MOMENTUM, EPSILON = 100, 0.1, 0.9, 0.02
TOP_WEIGHT, FULL_WEIGHT = 0.5, 0.05
GRID = (-1.5, 2.5, 80, -1.0, 1.5, 50)  # of the decision regions: first, last and number of x; the same of y


def moons(count: int, seed: int) -> tuple[Tensor, Tensor]:
    points, labels = make_moons(count, noise=NOISE, random_state=seed)
    return torch.tensor(points, dtype=torch.float32), torch.tensor(labels)


def attacked(model: nn.Module, points: Tensor, labels: Tensor) -> Tensor:
    """One step of ε from the point itself."""
    leaf = points.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(model(leaf), labels), leaf)
    return points + EPSILON * gradient.sign()


def penalty(model: nn.Sequential, points: Tensor, kind: str) -> Tensor | float:
    if kind == "top":
        return TOP_WEIGHT * mlp_traces(model, points, bias=False)[2]  # as published: without the bias
    return FULL_WEIGHT * mlp_traces(model, points).sum() if kind == "full" else 0.0


def accuracy(model: nn.Module, points: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((model(points).argmax(1) == labels).float().mean())


def train(kind: str, batch_size: int, seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=MOMENTUM)
    points, labels = moons(POINTS, 0)
    sums, deviations = [], []
    for epoch in range(EPOCHS + 1):
        if epoch % EVERY == 0:
            moments = spectrum_moments(copy.deepcopy(model).double(), attacked(model, points, labels).double(), labels)
            sums.append([float(f"{value:.3g}") for value in moments.sums.tolist()])
            deviations.append([float(f"{value:.3g}") for value in moments.deviations.tolist()])
        if epoch == EPOCHS:
            break
        for rows in torch.randperm(POINTS).split(batch_size):
            near = attacked(model, points[rows], labels[rows])
            loss = cross_entropy(model(near), labels[rows]) + penalty(model, near, kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    others, answers = moons(TEST_POINTS, 1)
    result: dict[str, Any] = {
        "clean": round(accuracy(model, others, answers), 4),
        "attacked": round(accuracy(model, attacked(model, others, answers), answers), 4),
        "sums": sums,
        "deviations": deviations,
    }
    return result | ({"regions": regions(model)} if seed == 0 else {})


def regions(model: nn.Module) -> str:
    """The probability of class 1 on the grid in fifteenths, as one hexadecimal digit each, row by row from the lowest y."""
    left, right, columns, low, high, rows = GRID
    y, x = torch.meshgrid(torch.linspace(low, high, rows), torch.linspace(left, right, columns), indexing="ij")
    with torch.no_grad():
        shares = model(torch.stack([x, y], -1).view(-1, 2)).softmax(1)[:, 1]
    return "".join(f"{round(15 * share):x}" for share in shares.tolist())


def late_means(results: dict[str, Any], kind: str, batch_size: int, measure: str) -> NDArray[np.float64]:
    """Seeds × columns: the logarithm's mean over the epochs from LATE on."""
    names = sorted(name for name in results["runs"] if name.startswith(f"{kind} {batch_size} "))
    curves = np.log([results["runs"][name][measure] for name in names])
    return np.asarray(curves[:, LATE // EVERY :].mean(1))


def with_interval(logarithms: NDArray[np.float64]) -> list[float]:
    """The geometric mean over the seeds, and its 95 % interval."""
    return [float(f"{math.exp(value):.3g}") for value in (logarithms.mean(), *mean_interval(logarithms))]


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Ratios from epoch LATE on, paired over the seeds: mean, low and high of all layers and of each."""
    rows: dict[str, Any] = {}
    for batch_size in BATCH_SIZES:
        for measure in ("sums", "deviations"):
            late = {kind: late_means(results, kind, batch_size, measure) for kind in KINDS}
            first = np.log(
                [results["runs"][f"standard {batch_size} {seed}"][measure][0] for seed in range(len(late["full"]))]
            )
            ratios = {
                "standard / its start": late["standard"] - first,
                "top / standard": late["top"] - late["standard"],
                "full / standard": late["full"] - late["standard"],
                "top / full": late["top"] - late["full"],
            }
            for name, values in ratios.items():
                rows[f"{batch_size} {measure} {name}"] = [with_interval(column) for column in values.T]
        late_sums = late_means(results, "standard", batch_size, "sums")
        rows[f"{batch_size} share of layer 1 in standard"] = with_interval(late_sums[:, 1] - late_sums[:, 0])
        for kind in KINDS:
            runs = [run for name, run in results["runs"].items() if name.startswith(f"{kind} {batch_size} ")]
            for accuracy_of in ("clean", "attacked"):
                shares = [run[accuracy_of] for run in runs]
                rows[f"{batch_size} {accuracy_of} accuracy of {kind}"] = round(sum(shares) / len(shares), 4)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("bench/results/two_moons.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = {
        "points": POINTS,
        "noise": NOISE,
        "width": WIDTH,
        "learning_rate": LEARNING_RATE,
        "momentum": MOMENTUM,
        "epsilon": EPSILON,
        "top_weight": TOP_WEIGHT,
        "full_weight": FULL_WEIGHT,
        "epochs": EPOCHS,
        "every": EVERY,
        "grid": GRID,
        "torch": torch.__version__,
    }
    results: dict[str, Any] = {"settings": settings, "columns": ["all", "layer 1", "layer 2", "layer 3"], "runs": {}}
    if arguments.out.exists():
        before = json.loads(arguments.out.read_text(encoding="utf-8"))
        if before["settings"] == json.loads(json.dumps(settings)):
            results = before
    for seed in range(arguments.seeds):
        for batch_size in BATCH_SIZES:
            for kind in KINDS:
                name = f"{kind} {batch_size} {seed}"
                if name in results["runs"]:
                    continue
                run = results["runs"][name] = train(kind, batch_size, seed)
                write(results, arguments.out)
                sums, deviations = run["sums"][-1], run["deviations"][-1]
                print(f"{name}: sum {sums[0]:.3g}, deviation {deviations[0]:.3g}, accuracy {run['clean']:.3f}", flush=True)
    results["summary"] = summary(results)
    write(results, arguments.out)
    for name, row in results["summary"].items():
        print(f"{name}: {row}")


def write(results: dict[str, Any], path: Path) -> None:
    lines = json.dumps(results, separators=(",", ":")).replace('},"', '},\n"').replace('],"', '],\n"')
    write_atomically(path, lines + "\n")


if __name__ == "__main__":
    main()
