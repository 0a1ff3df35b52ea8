"""All removal and localisation scores of maps of 224×224, against Quantus in the same run; forward passes are counted.

    python bench/speed/removal.py [--images 4] [--repeats 3] [--out bench/results/removal.json]

One thread, the two side by side. Ours: deletion, insertion, ROAD (most and least relevant first), the thirteen scores of the
table, MaxBoxAccV2 and PxAP, of maps of three kinds (noise, blurred noise, smooth). Passes are counted on a model of known
cost, and arithmetic is the processor time of the same calls with a model that costs nothing: the mean of three channels.

Quantus has deletion (pixel flipping), ROAD (most relevant first) and six of the localisation scores. Its ROAD refuses colour
images, so both get grey images there, with as many steps, the same shares and the same 224×224 pixels; ROAD of Quantus is
compared with half of ours, which goes in both directions. Its localisation scores are those of bench/speed/scores.py.

How far 14 steps are from the paper's 224 is measured with squeezenet on photographs, where `real_models` is on the path.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scores import METRICS
from torch import Tensor, nn
from torch.nn import functional

from locality.model_calls import open_model
from locality.model_calls.malloc import memory_kept
from locality.scores import score_maps
from locality.scores.localisation import box_overlaps, level_histograms
from locality.scores.removal import STEPS, removal_curves
from locality.scores.road import SHARES, road
from locality.types import Box

SIZE = 224
KINDS = {"noise": 1, "blurred noise": 9, "smooth": 61}  # side of the averaging window


class Mean(nn.Module):
    """Two logits that cost almost nothing: mean brightness of the upper and of the lower half."""

    def forward(self, images: Tensor) -> Tensor:
        halves: Tensor = images.flatten(2).unflatten(2, (2, -1)).mean((1, 3))
        return 100 * halves


def maps_of(kind: str, count: int, channels: int = 3) -> Tensor:
    maps = torch.randn(count, channels, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    window = KINDS[kind]
    return functional.avg_pool2d(maps, window, 1, window // 2) if window > 1 else maps


def images_of(count: int, channels: int = 3) -> Tensor:
    images = torch.rand(count, channels, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    return functional.avg_pool2d(images, 5, 1, 2)


def regions(count: int) -> tuple[Tensor, list[list[Box]]]:
    masks = torch.zeros(count, 1, SIZE, SIZE, dtype=torch.bool)
    masks[:, :, 40:170, 50:180] = True
    return masks, [[Box(50, 40, 180, 170)]] * count


def processor_ms(run: Callable[[], object], count: int) -> float:
    start = time.process_time()
    run()
    return 1e3 * (time.process_time() - start) / count


def parts(images: Tensor, maps: Tensor) -> dict[str, Callable[[], object]]:
    """Our scores by group, with a model that costs nothing."""
    model, classes = Mean(), torch.zeros(len(images), dtype=torch.int64)
    masks, boxes = regions(len(images))
    return {
        "deletion and insertion": lambda: removal_curves(model, images, maps, classes),
        "ROAD": lambda: road(model, images, maps, classes),
        "table of scores": lambda: score_maps(maps, masks, channels="sum"),
        "MaxBoxAccV2": lambda: box_overlaps(maps, boxes),
        "PxAP": lambda: level_histograms(maps, masks),
    }


def passes(images: Tensor, maps: Tensor) -> int:
    """Forward passes per image and map; ROAD is given the class that deletion found, as in suites."""
    with open_model(Mean(), images) as calls:
        removal_curves(calls, images, maps)
        road(calls, images, maps, torch.zeros(len(images), dtype=torch.int64))
        return calls.forwards // len(images)


def quantus_parts(images: Tensor, maps: Tensor) -> dict[str, Callable[[], object]]:
    """Its metrics on grey images, with the options that make them ours."""
    quantus: Any = importlib.import_module("quantus")
    arrays = {"x_batch": images.numpy(), "y_batch": np.zeros(len(images), dtype=int), "a_batch": maps.numpy()}
    masks = regions(len(images))[0].numpy()
    options = {"disable_warnings": True, "normalise": False}
    shares = [round(100 * share) for share in SHARES]
    flipping = quantus.PixelFlipping(features_in_step=SIZE * SIZE // STEPS, perturb_baseline="mean", **options)
    imputing = quantus.ROAD(percentages=shares, noise=0.01, **options)
    six = {name: getattr(quantus, kind)(disable_warnings=True, **more) for name, (kind, more) in METRICS.items()}
    model = Mean().eval()
    return {
        "deletion": lambda: flipping(model=model, softmax=True, **arrays),
        "ROAD": lambda: imputing(model=model, **arrays),
        "six scores of the table": lambda: [one(model=None, s_batch=masks, **arrays) for one in six.values()],
    }


def speed(count: int, repeats: int) -> dict[str, Any]:
    images, found = images_of(count), {}
    for kind in KINDS:
        maps = maps_of(kind, count)
        grey, grey_maps = images[:, :1].contiguous(), maps[:, :1].contiguous()
        rows = []
        for _ in range(repeats):
            with memory_kept():
                ours = {name: processor_ms(run, count) for name, run in parts(images, maps).items()}
                on_grey = {name: processor_ms(run, count) for name, run in parts(grey, grey_maps).items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs = {name: processor_ms(run, count) for name, run in quantus_parts(grey, grey_maps).items()}
            rows.append((ours, on_grey, theirs))
            print(
                kind,
                {name: round(value, 1) for name, value in (ours | {f"Quantus {n}": v for n, v in theirs.items()}).items()},
            )
        ours, on_grey, theirs = (
            {name: statistics.median(row[side][name] for row in rows) for name in rows[0][side]} for side in range(3)
        )
        same = {
            "deletion": on_grey["deletion and insertion"] / 2,
            "ROAD": on_grey["ROAD"] / 2,
            "six scores of the table": on_grey["table of scores"],
        }
        found[kind] = {
            "ours_ms": rounded(ours) | {"all": round(sum(ours.values()), 1)},
            "ours_on_grey_ms": rounded(on_grey),
            "quantus_on_grey_ms": rounded(theirs),
            "times_faster": {name: round(theirs[name] / same[name], 1) for name in theirs},
            "times_faster_together": round(sum(theirs.values()) / sum(same.values()), 1),
        }
    return found


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}


def steps_error(limit: int) -> dict[str, Any]:
    """The areas of 14 steps and fewer or more, against the paper's 224, of SM on real photographs."""
    from locality.attribution import saliency_map
    from locality.data.dataset import load_dataset
    from locality.zoo.load import load_model

    model = load_model("real_models:squeezenet1_0")
    batch = load_dataset("photos", limit=limit, spec=model.spec).batch(range(limit))
    maps = saliency_map(model, batch.images)
    exact = removal_curves(model, batch.images, maps, steps=SIZE)["map"]
    errors = {}
    for steps in (7, STEPS, 28):
        some = removal_curves(model, batch.images, maps, steps=steps)["map"]
        errors[steps] = {
            name: round(float((getattr(some, name).area - getattr(exact, name).area).abs().mean()), 4)
            for name in ("deletion", "insertion")
        }
    areas = {name: round(float(getattr(exact, name).area.mean()), 4) for name in ("deletion", "insertion")}
    return {"model": "squeezenet1_0", "images": len(batch), "area_of_224_steps": areas, "mean_absolute_error": errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--photos", type=int, default=8, help="for the error of few steps; 0: none")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = {
        "command": f"python bench/speed/removal.py --images {arguments.images} --repeats {arguments.repeats} "
        f"--photos {arguments.photos}",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}; one thread",
        "versions": {"torch": torch.__version__} | {name: version(name) for name in ("numpy", "quantus", "scipy")},
        "forward_passes_per_map": passes(images_of(2), maps_of("noise", 2)),
        "processor_time_per_map": speed(arguments.images, arguments.repeats),
    }
    if arguments.photos:
        results["few_steps"] = steps_error(arguments.photos)
    json.dump(results, sys.stdout, indent=2)
    print()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
