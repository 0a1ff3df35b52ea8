"""SM + IG + BSM + BIG on EfficientNet-Lite0: `attribute_all` against four Captum calls with the same boundary points.

    python bench/speed/attribution.py --images 8 [--rounds 2] [--out FILE.json]

Captum runs with its defaults, which evaluate all points of a path at once, and with several values of
`internal_batch_size`, its option to save memory (values below the number of images are raised to that). Each variant runs in
its own process, so that its peak memory can be measured; the boundary points are found beforehand in another process.
`attribute_all` also runs without its cheaper layers and without keeping memory, to show what each of them saves. Variants
alternate, --rounds times, because the machine's speed drifts; the fastest run of each counts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from boundary import model_and_images
from measuring import about
from torch import Tensor

from locality import attribute_all, find_boundary
from locality.types import Boundary

POINTS = 20
WITHOUT: dict[str, dict[str, Any]] = {  # the optimisations switched off
    "attribute_all": {},
    "attribute_all, torch's layers": {"has_cheaper_layers": lambda parts: False},
    "attribute_all, memory not kept": {"memory_kept": nullcontext},
}


def captum_maps(model: torch.nn.Module, images: Tensor, edge: Boundary, batch: int | None) -> None:
    from captum.attr import IntegratedGradients, Saliency  # type: ignore[import-untyped]

    saliency, path = Saliency(model), IntegratedGradients(model)
    options: dict[str, Any] = {"n_steps": POINTS, "method": "riemann_trapezoid", "internal_batch_size": batch}
    saliency.attribute(images, target=edge.labels, abs=False)
    saliency.attribute(edge.points, target=edge.labels, abs=False)
    path.attribute(images, baselines=0.0, target=edge.labels, **options)
    path.attribute(images, baselines=edge.points, target=edge.labels, **options)


def search(count: int, file: str) -> None:
    model, images = model_and_images("efficientnet_lite0", None, count)
    torch.save(vars(find_boundary(model, images)), file)


def run(name: str, batch: int | None, count: int, file: str, queue: multiprocessing.Queue[dict[str, Any]]) -> None:
    model, images = model_and_images("efficientnet_lite0", None, count)
    edge = Boundary(**torch.load(file))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(2):  # the first call includes loading and compiling
        start = time.perf_counter()
        if name in WITHOUT:
            with patch.multiple("locality.model_calls", **WITHOUT[name]) if WITHOUT[name] else nullcontext():
                attribute_all(model, images, ["SM", "IG", "BSM", "BIG"], boundary=edge)
        else:
            captum_maps(model, images, edge, batch)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    queue.put({"seconds": round(min(seconds), 2), "peak_mb": round(peak / 1024), "more_mb": round((peak - before) / 1024)})


def measured(count: int, rounds: int, file: str) -> dict[str, dict[str, Any]]:
    """Seconds and memory of each variant; every round is printed as it finishes."""
    context = multiprocessing.get_context("spawn")
    first = context.Process(target=search, args=(count, file))
    first.start()
    first.join()
    batches = dict.fromkeys([*WITHOUT, "captum, defaults"]) | {f"captum, internal_batch_size={n}": n for n in (8, 16, 32)}
    rows: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for name, batch in batches.items():
            queue: multiprocessing.Queue[dict[str, Any]] = context.Queue()
            process = context.Process(target=run, args=(name, batch, count, file, queue))
            process.start()
            row = queue.get()
            process.join()
            print(f"{name:32s} {row['seconds']:7.2f} s  peak {row['peak_mb']:5d} MB", flush=True)
            every = [*rows.get(name, {}).get("seconds_of_rounds", []), row["seconds"]]
            peak = {key: max(row[key], rows.get(name, row)[key]) for key in ("peak_mb", "more_mb")}
            rows[name] = {"seconds": min(every), "seconds_of_rounds": every} | peak
    for name, row in rows.items():
        row["times_ours"] = round(row["seconds"] / rows["attribute_all"]["seconds"], 2)
        print(f"{name:32s} {row['seconds']:7.2f} s  {row['times_ours']:6.2f} ×  peak {row['peak_mb']:5d} MB")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(given.images, given.rounds, f"{folder}/boundary.pt")
    if given.out is not None:
        result = about(sys.argv, ("torch", "captum", "timm")) | {"points": POINTS, "rows": rows}
        given.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
