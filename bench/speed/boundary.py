"""Boundary searches side by side in one run: success, distance, gradients and forwards per image, seconds.

    python bench/speed/boundary.py --model tiny_resnet --images 64 [--seed 1] [--paper-images N] [--reference-steps 1000]
        [--searches paper,DDN-100,fast,thorough] [--boxes FILE] [--out FILE.json] [--known FILE.json]

The model is anything that `load_model` accepts, with images of its own classes unless --data names others. Ratios compare
mean distances with those of Foolbox's DDN with --reference-steps, over the images that both searches were given and found;
their 95 % interval resamples these images (bootstrap). `fast+stop_cosine=0.9995` in --searches is a search with options.
--known reuses the reference of an earlier result for the same model and images, to test a changed search.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import about
from torch import Tensor, nn

from locality import find_boundary, load_dataset
from locality.data.defaults import default_data
from locality.zoo.load import load_model

RESAMPLES = 10_000
CLOCK = ("seconds_per_image", "times_faster_than_paper", "times_fewer_gradients")


def model_and_images(
    name: str, data: str | None, count: int, seed: int = 0, boxes: str | None = None
) -> tuple[nn.Module, Tensor]:
    """A model and images for it; a smaller data set is extended by mirrored and shifted copies."""
    model = load_model(name)
    options: dict[str, Any] = {} if boxes is None else {"boxes": boxes}
    dataset = load_dataset(
        data or default_data(model.spec), limit=count, seed=seed, spec=model.spec, max_box_share=None, **options
    )
    images = dataset.batch(range(min(count, len(dataset)))).images
    copies = [images, images.flip(-1), images.roll(9, -1), images.roll(9, -2)]
    return model, torch.cat(copies)[:count]


def measured(model: nn.Module, images: Tensor, search: str, **options: Any) -> dict[str, Any]:
    """One search on some images."""
    start = time.perf_counter()
    edge = find_boundary(model, images, search=search, **options)
    seconds = time.perf_counter() - start
    return {
        "images": len(images),
        "success": round(edge.found.float().mean().item(), 3),
        "mean": round(edge.distance[edge.found].mean().item(), 4) if edge.found.any() else None,
        "median": round(edge.distance[edge.found].median().item(), 4) if edge.found.any() else None,
        "gradients": round(edge.gradients / len(images), 1),
        "forwards": round(edge.forwards / len(images), 1),
        "seconds_per_image": round(seconds / len(images), 3),
        "distances": [round(value, 5) for value in edge.distance.tolist()],
    }


def chosen_searches(given: argparse.Namespace) -> dict[str, tuple[str, dict[str, Any], int]]:
    """Name ↦ search, its options, and its number of images; the reference first."""
    searches: dict[str, tuple[str, dict[str, Any], int]] = {}
    for name in (f"DDN-{given.reference_steps}", *given.searches.split(",")):
        count = given.paper_images if name == "paper" and given.paper_images is not None else given.images
        if name.startswith("DDN-"):
            searches[name] = "foolbox:DDNAttack", {"steps": int(name.removeprefix("DDN-"))}, count
        else:
            search, *options = name.split("+")
            given_options = (option.partition("=") for option in options)
            searches[name] = search, {key: json.loads(value) for key, _, value in given_options}, count
    return searches


def ratio_interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the ratio of mean distances; each pair is of one image."""
    drawn = np.random.default_rng(0).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    sums = np.asarray(pairs)[drawn].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], (0.025, 0.975))
    return round(float(low), 4), round(float(high), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--data", help="default: images of the model's classes")
    parser.add_argument("--boxes", help="of the data, where it needs them to be read")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of images")
    parser.add_argument("--paper-images", type=int, help="fewer images for paper, which takes over 1000 gradients each")
    parser.add_argument("--reference-steps", type=int, default=1000, help="steps of the reference DDN")
    parser.add_argument("--searches", default="DDN-100,fast,thorough,paper")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--known", type=Path, help="an earlier result whose reference is reused")
    given = parser.parse_args()
    model, images = model_and_images(given.model, given.data, given.images, given.seed, given.boxes)
    find_boundary(model, images[:4])  # the first call includes loading and compiling
    rows: dict[str, dict[str, Any]] = {}
    for name, (search, options, count) in chosen_searches(given).items():
        known = {} if given.known is None or rows else json.loads(given.known.read_text())["searches"]
        if name in known:  # without its times, which are those of another run
            rows[name] = {key: value for key, value in known[name].items() if key not in CLOCK}
            continue
        rows[name] = measured(model, images[:count], search, **options)
        print(f"{name}: {rows[name]['seconds_per_image']:.3f} s per image", flush=True)
    reference = next(iter(rows))
    for row in rows.values():
        both = [(d, r) for d, r in zip(row["distances"], rows[reference]["distances"], strict=False) if d < 1e9 and r < 1e9]
        row["ratio"] = round(sum(d for d, _ in both) / sum(r for _, r in both), 4) if both else None
        row["ratio_interval"] = ratio_interval(both) if both else None
        if "paper" in rows and "seconds_per_image" in row:
            row["times_faster_than_paper"] = round(rows["paper"]["seconds_per_image"] / row["seconds_per_image"], 1)
            row["times_fewer_gradients"] = round(rows["paper"]["gradients"] / row["gradients"], 1)
    print(f"{'search':10s} images success   mean median   ratio grads forwards  s/image  × paper")
    for name, row in rows.items():
        seconds = row.get("seconds_per_image", math.nan)
        print(
            f"{name:10s} {row['images']:6d} {row['success']:7.1%} {row['mean'] or 0:6.3f} {row['median'] or 0:6.3f} "
            f"{row['ratio']!s:>7s} {row['gradients']:5.1f} {row['forwards']:8.1f} {seconds:8.3f} "
            f"{row.get('times_faster_than_paper')!s:>8s}"
        )
    if given.out is not None:
        result = about(sys.argv, ("torch", "foolbox")) | {"reference": reference, "searches": rows}
        given.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
