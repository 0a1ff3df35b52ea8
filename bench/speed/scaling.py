"""The cost of ImageNet's validation set for the networks of the thesis: core-seconds and FLOPs per gradient, and sums.

    python bench/speed/scaling.py [--images 50000] [--out bench/results/scaling.json]
    python bench/speed/scaling.py --suite similarity [--limit N] [--out bench/results/scaling.json]

Weights do not change the cost, so they are random. Seconds are processor time (one thread), not wall-clock time: other
programs on the machine do not count. `docs/scaling.md` explains the sums.

With --suite, the estimate of the dry run is compared with a run from the beginning. These seconds are wall-clock time, so
nothing else should run. Other measurements in the file of --out are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measuring import about
from torch.utils.flop_counter import FlopCounterMode

from locality.model_calls import open_model
from locality.progress import progress
from locality.runner.dry_run import estimate
from locality.runner.plan import make_plan
from locality.runner.run import Machine, machine_here, run_suite
from locality.runner.suite_file import draft_suite, with_images
from locality.runner.work import Work, maps_work
from locality.zoo.architectures import build
from locality.zoo.catalog import find_card

# Number of models per architecture: with the robust version, which squeezenet lacks, and a random resnet50.
NETWORKS = {"squeezenet": 1, "vgg16": 2, "resnet50": 3, "vit_b32": 2, "vit_b16": 2}
METHODS = ("SM", "IG", "BIG")
GPU_FLOPS = 8e12  # per second, sustained: two fifths of an A100's 19.5 TFLOP/s in float32; an assumption, not measured
HOUR = 3600


def evaluation(name: str, images: int) -> dict[str, float]:
    """Core-seconds of a gradient and of a forward pass for one image, and their FLOPs."""
    card = find_card(name)
    torch.manual_seed(0)
    model = build(card.architecture, 1000).eval()
    batch = torch.rand(images, 3, *card.spec.input_size)
    with open_model(model, batch) as calls:

        def gradient() -> object:
            return calls.gradient(batch, lambda logits: logits.amax(1))

        def forward() -> object:
            return calls.logits(batch)

        row: dict[str, float] = {}
        for what, call in (("gradient", gradient), ("forward", forward)):
            with FlopCounterMode(display=False) as counter:
                call()
            row[f"{what}_gflops"] = counter.get_total_flops() / images / 1e9
            seconds = []
            for _ in range(2):
                start = time.process_time()
                call()
                seconds.append((time.process_time() - start) / images)
            row[f"{what}_seconds"] = min(seconds)
    return row


def hours(row: dict[str, float], work: Work, images: int) -> tuple[float, float]:
    """Core-hours, and hours of one GPU, for all images."""
    seconds = work.gradients * row["gradient_seconds"] + work.forwards * row["forward_seconds"]
    flops = 1e9 * (work.gradients * row["gradient_gflops"] + work.forwards * row["forward_gflops"])
    return images * seconds / HOUR, images * flops / GPU_FLOPS / HOUR


def predicted(suite: str, limit: int | None, machine: Machine) -> dict[str, Any]:
    """The dry run's estimate of a suite's time on this machine, and the time that it took."""
    draft = with_images(draft_suite(suite), limit=limit)
    plan = make_plan(draft.suite, draft.problems, machine.device)
    with progress("calibrating", "models and parts") as report:
        cost = estimate(plan, machine, plan.units, progress=report)
    if cost.failed:
        raise SystemExit(f"some parts cannot be measured here: {cost.failed}")
    with tempfile.TemporaryDirectory() as folder, progress(plan.suite.name) as report:
        outcome = run_suite(plan, folder, machine, report)
    if len(outcome.faults):
        raise SystemExit(f"{len(outcome.faults)} units have faults: the times cannot be compared")
    return {
        "models": len(plan.models),
        "images": {model.name: max(unit.last for unit in plan.units if unit.model == model.name) for model in plan.models},
        "parts": list(plan.parts),
        "methods": plan.suite.methods,
        "search": plan.suite.search,
        "processes": cost.processes,
        "calibration_seconds": round(cost.calibration, 3),
        "predicted_seconds": round(cost.seconds, 3),
        "measured_seconds": round(outcome.seconds, 3),
        "error": round(outcome.seconds / cost.seconds - 1, 3),
    }


def imagenet(images: int, batch: int) -> dict[str, Any]:
    """Every network's cost, and the sums."""
    torch.set_num_threads(1)
    works = {search: maps_work(search, METHODS) for search in ("fast", "paper")}
    rows: dict[str, Any] = {}
    columns = ("s/gradient", "s/forward", "GFLOP", "models", "core-h", "GPU-h")
    print(f"{'network':12s} {' '.join(f'{column:>10s}' for column in columns)}")
    for name, models in NETWORKS.items():
        row = evaluation(name, batch)
        for search, work in works.items():
            cores, gpus = hours(row, work, images)
            row |= {f"{search}_core_hours": models * cores, f"{search}_gpu_hours": models * gpus}
        rows[name] = {key: float(f"{value:.4g}") for key, value in row.items()} | {"models": models}
        shown = [row["gradient_seconds"], row["forward_seconds"], row["gradient_gflops"], models]
        shown += [row["fast_core_hours"], row["fast_gpu_hours"]]
        print(f"{name:12s} {' '.join(f'{value:10.4g}' for value in shown)}", flush=True)
    total = {key: round(sum(row[key] for row in rows.values()), 1) for key in rows["vgg16"] if key.endswith("_hours")}
    for search, work in works.items():
        count = work.gradients * images * sum(NETWORKS.values())
        cores, gpus = total[f"{search}_core_hours"], total[f"{search}_gpu_hours"]
        print(f"{search}: {work.gradients:g} gradients per image, {count:,.0f} in total: ", end="")
        print(f"{cores:,.0f} core-hours or {gpus:,.1f} GPU-hours")
    about_run: dict[str, Any] = {"command": f"python bench/speed/scaling.py --images {images} --batch {batch}"}
    about_run |= {"machine": f"{platform.machine()}, one thread", "torch": torch.__version__, "gpu_flops": GPU_FLOPS}
    return about_run | {"networks": rows, "total": total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--suite", help="predict and measure this suite instead")
    parser.add_argument("--limit", type=int, help="of the suite's images")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before: dict[str, Any] = json.loads(given.out.read_text()) if given.out is not None and given.out.is_file() else {}
    if given.suite is None:
        results = imagenet(given.images, given.batch)
    else:
        measured_with = about(sys.argv, ("locality", "torch"))  # before the run, for the load of other programs
        row = predicted(given.suite, given.limit, machine_here())
        print(", ".join(f"{key} {row[key]}" for key in ("predicted_seconds", "measured_seconds", "error")))
        results = {"predicted": before.get("predicted", {}) | {given.suite: measured_with | row}}
    if given.out is not None:
        given.out.write_text(json.dumps(before | results, indent=2) + "\n")


if __name__ == "__main__":
    main()
