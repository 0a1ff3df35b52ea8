"""Layer traces to 5 % standard error on every layer, against PyHessian and curvlinops in one run; moments of Two Moons.

    python bench/speed/curvature.py [--model NAME] [--images 64] [--pilot 24] [--out bench/results/curvature_speed.json]

One thread, processor time. Images are attacked at ℓ∞ 8/255. A backward pass of one image counts as one gradient, a product
of the Hessian with a vector as two, and the gradient that the product is taken of as one.

- ours: `exact` has no error; `sampled` is run with as many probes as its own standard error asks for.
- PyHessian 0.1 has the trace of the whole network only. Here its loop is repeated with the same calls, keeping v · Hv of
  each tensor; it uses one probe for all layers.
- curvlinops: `hutchinson_trace` of each layer's Hessian, one layer after the other.

The libraries get `--pilot` probes. Their deviation and cost per probe, and the exact traces, say what 5 % would cost; most
would take too long to run. PyHessian's own rule to stop (relative change below 1e-3) is not used: it does not bound the
error.

A probe of ours is compared with a plain step of SGD and with a step of AT on the same images. The full Hessian of the Two
Moons network is computed once, without eigenvalues; its trace and Frobenius norm must agree with the moments.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import about
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from locality import layer_traces, load_dataset, load_model
from locality.curvature.attacked_losses import attacked_split
from locality.curvature.layers import weight_layers
from locality.curvature.moments import spectrum_moments
from locality.data.defaults import default_data
from locality.types import Threat

GOAL = 0.05  # standard error of each layer's trace, relative to the trace
REPEATS = 7


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def probes_needed(deviations: Tensor, traces: Tensor) -> list[int]:
    """Per layer, from the deviation of a single probe."""
    return [max(2, math.ceil(float(ratio) ** 2)) for ratio in deviations / traces / GOAL]


def ours(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Any]]:
    exact_time, exact = seconds(lambda: layer_traces(model, images, labels, "exact"))
    pilot = layer_traces(model, images, labels, "sampled", probes=8, seed=1)
    probes = max(probes_needed(pilot.errors * math.sqrt(8), exact.traces))
    sampled_time, sampled = seconds(lambda: layer_traces(model, images, labels, "sampled", probes=probes))
    return exact.traces, {
        "exact": {"gradients": exact.gradients, "seconds": round(exact_time, 2), "largest_error": 0.0},
        "sampled": {
            "probes": probes,
            "gradients": sampled.gradients,
            "seconds": round(sampled_time, 2),
            "largest_error": round(float((sampled.errors / exact.traces).max()), 4),
            "largest_deviation_from_exact": round(float((sampled.traces / exact.traces - 1).abs().max()), 4),
        },
    }


def pyhessian(model: nn.Module, images: Tensor, labels: Tensor, traces: Tensor, pilot: int) -> dict[str, Any]:
    from pyhessian import hessian
    from pyhessian.utils import hessian_vector_product

    own = copy.deepcopy(model).requires_grad_()
    layers = {id(weight) for weight in weight_layers(own).values()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a graph in `.grad`, which is how PyHessian works
        set_up, computer = seconds(lambda: hessian(own, nn.CrossEntropyLoss(), data=(images, labels), cuda=False))

    def probe() -> list[float]:
        vectors = [torch.randint_like(one, high=2) * 2 - 1 for one in computer.params]
        products = hessian_vector_product(computer.gradsH, computer.params, vectors)
        triples = zip(computer.params, vectors, products, strict=True)
        return [float((vector * product).sum()) for one, vector, product in triples if id(one) in layers]

    probe()
    time_of_probes, rows = seconds(lambda: [probe() for _ in range(pilot)])
    own.zero_grad()  # breaks the cycle of graphs
    values = torch.tensor(rows, dtype=torch.float64)
    needed = max(probes_needed(values.std(0), traces))
    return {
        "probes": needed,
        "gradients": len(images) * (1 + 2 * needed),
        "seconds": round(set_up + needed * time_of_probes / pilot, 1),
        "seconds_per_probe": round(time_of_probes / pilot, 3),
        "share_negative": round(float((values < 0).double().mean()), 3),
        "pilot_off_by_errors": round(float(((values.mean(0) - traces) / values.std(0)).abs().max()) * math.sqrt(pilot), 2),
    }


def curvlinops(model: nn.Module, images: Tensor, labels: Tensor, traces: Tensor, pilot: int) -> dict[str, Any]:
    from curvlinops import HessianLinearOperator, hutchinson_trace

    own = copy.deepcopy(model).requires_grad_().eval()
    needed, cost, off = [], 0.0, 0.0

    def probes(operator: Any) -> list[float]:
        return [float(hutchinson_trace(operator, 1)) for _ in range(pilot)]

    for trace, weight in zip(traces, weight_layers(own).values(), strict=True):
        operator = HessianLinearOperator(own, nn.CrossEntropyLoss(), [weight], [(images, labels)], check_deterministic=False)
        hutchinson_trace(operator, 1)
        time_of_probes, draws = seconds(partial(probes, operator))
        values = torch.tensor(draws, dtype=torch.float64)
        needed.append(probes_needed(values.std(), trace[None])[0])
        cost += needed[-1] * time_of_probes / pilot
        off = max(off, float((values.mean() - trace).abs() / values.std()) * math.sqrt(pilot))
    return {
        "probes_per_layer": needed,
        "gradients": len(images) * 3 * sum(needed),
        "seconds": round(cost, 1),
        "pilot_off_by_errors": round(off, 2),
    }


def one_probe(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, float]:
    """A probe of all layers against a plain step of SGD on the same images, and a step of AT whose attack has two steps."""
    own = copy.deepcopy(model).requires_grad_().train()
    optimizer = torch.optim.SGD(own.parameters(), 1e-3, momentum=0.9)

    def step(shown: Tensor = images) -> None:
        optimizer.zero_grad()
        cross_entropy(own(shown), labels).backward()
        optimizer.step()

    def adversarial_step() -> None:
        own.requires_grad_(False)
        shown = images
        for _ in range(2):
            leaf = shown.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(cross_entropy(own(leaf), labels), leaf)
            shown = (shown + 4 / 255 * gradient.sign()).clamp(0, 1)
        own.requires_grad_()
        step(shown)

    def probes(count: int) -> None:
        layer_traces(model, images, labels, "sampled", probes=count)

    runs: dict[str, Callable[[], None]] = {
        "plain_step": step,
        "adversarial_step": adversarial_step,
        "one_probe": partial(probes, 1),
        "five_probes": partial(probes, 5),
    }
    for run in runs.values():
        run()
    rows = [{name: seconds(run)[0] for name, run in runs.items()} for _ in range(REPEATS)]
    ratios = {
        "one_probe_of_plain_step": [row["one_probe"] / row["plain_step"] for row in rows],
        "each_of_five_probes_of_plain_step": [row["five_probes"] / 5 / row["plain_step"] for row in rows],
        "one_probe_of_adversarial_step": [row["one_probe"] / row["adversarial_step"] for row in rows],
    }
    medians = {f"{name}_seconds": round(statistics.median(row[name] for row in rows), 4) for name in runs}
    return medians | {name: round(statistics.median(values), 3) for name, values in ratios.items()}


def two_moons(width: int) -> dict[str, Any]:
    """Moments of all eigenvalues against the full Hessian, which is computed once, a few hundred rows at a time."""
    torch.manual_seed(0)
    layers = [nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)]
    model = nn.Sequential(*layers).double()
    points, labels = torch.randn(500, 2, dtype=torch.float64), torch.arange(500) % 2
    names, sizes = zip(*[(name, one.numel()) for name, one in model.named_parameters()], strict=True)
    shapes = [one.shape for one in model.parameters()]

    def loss(flat: Tensor) -> Tensor:
        parts = {name: part.view(shape) for name, part, shape in zip(names, flat.split(sizes), shapes, strict=True)}
        return cross_entropy(torch.func.functional_call(model, parts, (points,)), labels)

    weights = torch.cat([one.detach().flatten() for one in model.parameters()])
    spectrum_moments(model, points, labels)
    times = [seconds(lambda: spectrum_moments(model, points, labels))[0] for _ in range(REPEATS)]
    moments = spectrum_moments(model, points, labels)
    full_time, full = seconds(lambda: torch.func.jacrev(torch.func.grad(loss), chunk_size=256)(weights))
    size = len(weights)
    total, deviation = full.trace(), (full.square().sum() / size - (full.trace() / size) ** 2).sqrt()
    ours_time = statistics.median(times)
    return {
        "weights": size,
        "moments_seconds": round(ours_time, 4),
        "full_hessian_seconds": round(full_time, 1),
        "times_faster": round(full_time / ours_time),
        "difference_of_sums": float(abs(total - moments.sums[0])),
        "difference_of_deviations": float(abs(deviation - moments.deviations[0])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="shapes_cnn_robust")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--pilot", type=int, default=24, help="probes of the other libraries that are run")
    parser.add_argument("--width", type=int, default=100, help="of the Two Moons network")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results: dict[str, Any] = about(sys.argv, ["torch", "pyhessian", "curvlinops-for-pytorch"])
    model = load_model(arguments.model)
    spec: Any = model.spec
    data = load_dataset(default_data(spec), limit=arguments.images, spec=spec)
    split = attacked_split(model, data, Threat("linf", 8 / 255))
    images, labels = split.images, split.labels
    traces, mine = ours(model, images, labels)
    results |= {"model": arguments.model, "images": len(images), "traces": [round(one, 4) for one in traces.tolist()]}
    results |= mine
    print(json.dumps(mine), flush=True)
    for name, measure in (("pyhessian", pyhessian), ("curvlinops", curvlinops)):
        results[name] = theirs = measure(model, images, labels, traces, arguments.pilot)
        best = mine["exact"], mine["sampled"]
        for unit in ("gradients", "seconds"):
            theirs[f"times_{unit}_of_exact"] = round(theirs[unit] / best[0][unit], 1)
            theirs[f"times_{unit}_of_sampled"] = round(theirs[unit] / best[1][unit], 1)
        print(name, json.dumps(theirs), flush=True)
    results["one_probe"] = one_probe(model, images, labels)
    print(json.dumps(results["one_probe"]), flush=True)
    results["two_moons"] = two_moons(arguments.width)
    print(json.dumps(results["two_moons"]), flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
