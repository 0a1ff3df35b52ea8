"""The runner: its overhead over bare calls, images per second with more processes and on Ray, stock libraries, peak memory.

    python bench/speed/runner.py [--images 128] [--stock-images 8] [--memory 200 2000] [--out bench/results/runner.json]

SM + IG + BIG of `shapes_cnn` on `shapes`, one thread per process. Overhead is measured block by block, side by side with the
bare calls in one process, because the machine's speed drifts. The stock loop is what the paper describes: Captum's Saliency
and IntegratedGradients, Foolbox' PGDs and CW for the boundary.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from locality.boundary.pgd_cw import EPSILONS
from locality.data.dataset import load_dataset
from locality.model_calls.third_party import load_foolbox
from locality.runner.explain_batch import explain, rows_of
from locality.runner.plan import Plan, images_of, make_plan
from locality.runner.run import Engine, Machine, run_suite
from locality.runner.store import Store
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.unit import measure
from locality.zoo.load import load_model

MODEL = "shapes_cnn"
BLOCK = 32
METHODS = ("SM", "IG", "BIG")


def plan_of(images: int) -> Plan:
    return make_plan(Suite("speed", (ModelChoice(MODEL),), DataChoice("shapes", limit=images), METHODS, block=BLOCK))


def overhead(images: int) -> dict[str, Any]:
    """The same blocks by bare calls and as units: read, hashed, measured, written and synchronised."""
    torch.set_num_threads(1)
    plan = plan_of(images)
    data = images_of(plan.suite, plan.parts["locality"], plan.models[0])
    model = load_model(MODEL)
    spent: dict[str, list[float]] = {"bare": [], "unit": []}
    with tempfile.TemporaryDirectory() as name:
        store = Store(Path(name))
        with store.opened():
            measure(plan.task(plan.units[0], 1))  # opens the model and the images
            for number, unit in enumerate(plan.units):
                task = plan.task(unit, 1)

                def bare(first: int = unit.first, last: int = unit.last) -> object:
                    return rows_of(
                        explain(model, data.batch(range(first, last)), plan.suite.settings), plan.suite.settings, MODEL
                    )

                pair: list[tuple[str, Callable[[], object]]] = [
                    ("bare", bare),
                    ("unit", lambda task=task: store.save(task, measure(task))),  # type: ignore[misc]
                ]
                for how, call in pair if number % 2 else reversed(pair):
                    start = time.perf_counter()
                    call()
                    spent[how].append(time.perf_counter() - start)
    ratios = [unit / bare for unit, bare in zip(spent["unit"], spent["bare"], strict=True)]
    return {
        "images": images,
        "bare_images_per_second": round(images / sum(spent["bare"]), 2),
        "unit_images_per_second": round(images / sum(spent["unit"]), 2),
        "overhead_percent": round(100 * (statistics.median(ratios) - 1), 2),
    }


def rate(images: int, engine: Engine, processes: int) -> dict[str, Any]:
    """Images per second once all processes work, and seconds until then."""
    plan = plan_of(images)
    reports: list[tuple[float, int]] = []
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        machine = Machine(engine, processes=processes)
        run_suite(plan, name, machine, lambda done, total: reports.append((time.perf_counter() - start, done)))
    # By report number `processes`, each process has finished a unit.
    (first_at, _), (full_at, full), (last_at, last) = reports[1], reports[processes], reports[-1]
    return {
        "images_per_second": round((last - full) / (last_at - full_at), 2),
        "first_unit_after_seconds": round(first_at, 1),
        "seconds": round(time.perf_counter() - start, 1),
    }


def stock(images: int) -> dict[str, Any]:
    """Captum and Foolbox without changes: each image leaves the PGDs at its first success, then CW, then three maps."""
    from captum.attr import IntegratedGradients, Saliency  # type: ignore[import-untyped]

    torch.set_num_threads(1)
    foolbox = load_foolbox()
    model = load_model(MODEL)
    data = load_dataset("shapes", limit=images, spec=model.spec)
    begin = time.perf_counter()
    for first in range(0, images, BLOCK):
        batch = data.batch(range(first, min(first + BLOCK, images))).images
        bounded = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
        labels = model(batch).argmax(1)
        points, left = batch.clone(), torch.arange(len(batch))
        for epsilon in EPSILONS:
            attack = foolbox.attacks.L2PGD(rel_stepsize=2 / 100, steps=100, random_start=False)
            _, found, success = attack(bounded, batch[left], labels[left], epsilons=epsilon)
            points[left] = found
            left = left[~success]
            if not len(left):
                break
        attack = foolbox.attacks.L2CarliniWagnerAttack(binary_search_steps=9, steps=100, stepsize=1e-2, abort_early=False)
        found, _, success = attack(bounded, batch, labels, epsilons=None)
        nearer = success & ((found - batch).flatten(1).norm(dim=1) < (points - batch).flatten(1).norm(dim=1))
        points = torch.where(nearer[:, None, None, None], found, points)
        Saliency(model).attribute(batch.clone(), target=labels, abs=False)
        for baseline in (torch.zeros_like(batch), points):
            IntegratedGradients(model).attribute(
                batch, baseline, target=labels, n_steps=20, method="riemann_trapezoid", internal_batch_size=64
            )
    return {"images": images, "images_per_second": round(images / (time.perf_counter() - begin), 3)}


def memory(images: int) -> dict[str, Any]:
    """Peak memory of the process that plans and writes, and of the one that measures."""
    rate(images, "local", 1)
    peaks = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    writer, worker = peaks
    return {"images": images, "writer_peak_mb": round(writer), "worker_peak_mb": round(worker)}


def alone(work: Callable[..., dict[str, Any]], *given: object) -> dict[str, Any]:
    """Run in a separate process, whose peak memory is not that of this one."""
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[dict[str, Any]] = context.Queue()
    process = context.Process(target=_put, args=(work, given, queue))
    process.start()
    result = queue.get()
    process.join()
    return result


def _put(work: Callable[..., dict[str, Any]], given: tuple[object, ...], queue: Any) -> None:
    queue.put(work(*given))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--stock-images", type=int, default=16)
    parser.add_argument("--memory", type=int, nargs="*", default=[200, 2000], help="numbers of images")
    parser.add_argument("--without-ray", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.images < 4 * BLOCK:
        parser.error(f"--images must be at least {4 * BLOCK}: with fewer units, two processes have no rate")
    command = f"python bench/speed/runner.py --images {given.images} --stock-images {given.stock_images}"
    results: dict[str, Any] = {
        "command": f"{command} --memory {' '.join(map(str, given.memory))}",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f} before",
        "torch": torch.__version__,
        "model": MODEL,
        "methods": METHODS,
        "block": BLOCK,
    }

    def show(name: str, numbers: dict[str, Any]) -> None:
        results[name] = numbers
        print(f"{name:20s} {numbers}", flush=True)

    show("overhead", alone(overhead, given.images))
    show("local, 1 process", alone(rate, given.images, "local", 1))
    show("local, 2 processes", alone(rate, given.images, "local", 2))
    if not given.without_ray:
        show("ray, 2 workers", alone(rate, given.images, "ray", 2))
    show("stock libraries", alone(stock, given.stock_images))
    for images in given.memory:
        show(f"memory, {images} images", alone(memory, images))
    if given.out is not None:
        given.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
