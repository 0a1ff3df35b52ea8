"""Locality and the scores of other papers for 1,000 maps of 224×224, against Quantus in the same run; and the memory.

    python bench/speed/scores.py [--maps 1000] [--quantus-maps 32] [--out bench/results/scores.json]

One thread, one channel (Quantus takes no more), the two side by side five times. Ours are twelve scores of each map: all of
SCORES except the area under the curve, which is timed apart. Quantus has six of these; it is slow, so it gets fewer maps,
and time per map is compared. Most of its time goes into checks of its input, so its arithmetic alone (`evaluate_batch`) is
timed, too. Memory is measured in separate processes, beyond the maps themselves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locality.scores import SCORES, score_maps
from locality.scores.locality import locality_curve, map_scores

REPEATS = 5
TWELVE = [name for name in SCORES if name != "curve_area"]
# Quantus' metrics, with the options that make them what their papers say, and our names for them.
METRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "pointing_game": ("PointingGame", {}),
    "attribution_localisation": ("AttributionLocalisation", {"abs": False, "positive_attributions": True}),
    "relevance_mass_accuracy": ("RelevanceMassAccuracy", {"abs": True}),
    "relevance_rank_accuracy": ("RelevanceRankAccuracy", {}),
    "top_k_intersection": ("TopKIntersection", {}),
    "roc_auc": ("AUC", {}),
}


def maps_and_masks(count: int, channels: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    maps = torch.empty(count, channels, 224, 224).normal_(generator=generator)
    masks = torch.zeros(count, 1, 224, 224, dtype=torch.bool)
    masks[:, :, 40:170, 50:180] = True
    return maps, masks


def our_scores(maps: Tensor, masks: Tensor) -> dict[str, Tensor]:
    return score_maps(maps, masks, TWELVE)


def milliseconds(run: Callable[[], object], count: int) -> float:
    """Processor time per map: with one thread what the clock shows on an idle machine, and comparable on a busy one."""
    start = time.process_time()
    run()
    return 1e3 * (time.process_time() - start) / count


def speed(count: int, quantus_count: int) -> dict[str, Any]:
    import numpy as np
    import quantus

    maps, masks = maps_and_masks(count)
    few = maps[:quantus_count]
    arrays = {"x_batch": few.numpy(), "a_batch": few.numpy(), "s_batch": masks[:quantus_count].numpy()}
    metrics = {name: getattr(quantus, kind)(disable_warnings=True, **options) for name, (kind, options) in METRICS.items()}

    def whole(name: str) -> Any:
        return metrics[name](model=None, y_batch=np.zeros(quantus_count, dtype=int), **arrays)

    def arithmetic(name: str) -> Any:
        weights = np.abs(arrays["a_batch"]) if metrics[name].abs else arrays["a_batch"]
        return metrics[name].evaluate_batch(**(arrays | {"a_batch": weights}))

    ours = our_scores(few, masks[:quantus_count])  # also warms up
    apart = {name: float(np.abs(ours[name].numpy() - np.asarray(whole(name), dtype=float)).max()) for name in METRICS}
    rows = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        row = {"ours": milliseconds(lambda: our_scores(maps, masks), count)}
        row["ours_by_the_clock"] = 1e3 * (time.perf_counter() - begin) / count
        row["locality_alone"] = milliseconds(lambda: map_scores(maps, masks), count)
        for kind, run in (("quantus", whole), ("quantus_arithmetic", arithmetic)):
            begin = time.perf_counter()
            times = {name: milliseconds(partial(run, name), quantus_count) for name in METRICS}
            row[f"{kind}_by_the_clock"] = 1e3 * (time.perf_counter() - begin) / quantus_count
            row |= {kind: sum(times.values())} | {f"{kind}: {name}": value for name, value in times.items()}
        rows.append(row)
        print(f"ours {row['ours']:.2f} ms, Quantus {row['quantus']:.1f} ms per map", flush=True)
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    coloured, regions = maps_and_masks(max(1, count // 4), channels=3)
    ratios = {
        "times_faster": ("quantus", "ours"),
        "times_faster_by_the_clock": ("quantus_by_the_clock", "ours_by_the_clock"),
        "times_faster_than_its_arithmetic": ("quantus_arithmetic", "ours"),
    }
    per_run = {name: [round(row[theirs] / row[mine], 1) for row in rows] for name, (theirs, mine) in ratios.items()}
    return {name: statistics.median(values) for name, values in per_run.items()} | {
        "in_each_run": per_run,
        "milliseconds_per_map": {name: round(value, 3) for name, value in medians.items()},
        "largest_difference_from_quantus": apart,
        "ours_with_three_channels_ms": round(milliseconds(lambda: our_scores(coloured, regions), len(coloured)), 3),
        "locality_curve_ms": round(milliseconds(lambda: locality_curve(maps, masks), count), 3),
    }


def memory(count: int) -> dict[str, Any]:
    """What scoring adds to the peak memory of a process that holds the maps."""
    maps, masks = maps_and_masks(count)
    our_scores(maps[:2], masks[:2])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    our_scores(maps, masks)
    locality_curve(maps, masks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"maps": count, "maps_mb": round(maps.nbytes / 2**20), "more_mb": round((peak - before) / 1024)}


def _measured(measure: Callable[..., dict[str, Any]], counts: tuple[int, ...], queue: multiprocessing.Queue[Any]) -> None:
    torch.set_num_threads(1)
    queue.put(measure(*counts))


def in_own_process(measure: Callable[..., dict[str, Any]], *counts: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[dict[str, Any]] = context.Queue()
    process = context.Process(target=_measured, args=(measure, counts, queue))
    process.start()
    result = queue.get()
    process.join()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maps", type=int, default=1000)
    parser.add_argument("--quantus-maps", type=int, default=32)
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    arguments = parser.parse_args()
    from importlib.metadata import version

    import numpy

    results: dict[str, Any] = {
        "command": f"python bench/speed/scores.py --maps {arguments.maps} --quantus-maps {arguments.quantus_maps}",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}; one thread",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
        | {name: version(name) for name in ("quantus", "scikit-learn")},
        "maps": arguments.maps,
        "size": [1, 224, 224],
        "quantus_maps": arguments.quantus_maps,
        "repeats": REPEATS,
        "speed": in_own_process(speed, arguments.maps, arguments.quantus_maps),
        "memory": [in_own_process(memory, count) for count in (arguments.maps // 10, arguments.maps, 2 * arguments.maps)],
    }
    json.dump(results, sys.stdout, indent=2)
    print()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
