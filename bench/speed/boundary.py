"""Boundary searches side by side in one run: success, distance, gradients and forwards an image, seconds.

    python bench/speed/boundary.py --model efficientnet_lite0 --images 8 --paper-images 2 [--out FILE.json]

The model is anything that `load_model` takes, on `photos` unless --data names other images. Ratios are of mean distances
over the images that all searches were given.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from locality import find_boundary, load_dataset
from locality.boundary import SEARCHES
from locality.boundary.foolbox_backend import foolbox_search
from locality.zoo.load import load_model


def model_and_images(name: str, data: str, count: int) -> tuple[nn.Module, Tensor]:
    """A model and images for it; where the data set has fewer, the rest are mirrored and shifted ones."""
    model = load_model(name)
    found = load_dataset(data, spec=model.spec, max_box_share=None)
    images = found.batch(range(min(count, len(found)))).images
    copies = [images, images.flip(-1), images.roll(9, -1), images.roll(9, -2)]
    return model, torch.cat(copies)[:count]


def measured(model: nn.Module, images: Tensor, search: Any, **options: Any) -> dict[str, Any]:
    """One search on some images."""
    seen: list[Any] = []

    def counted(calls: Any, *rest: Any, **more: Any) -> Tensor:
        seen.append(calls)
        return search(calls, *rest, **more)

    start = time.perf_counter()
    edge = find_boundary(model, images, search=counted, **options)
    seconds = time.perf_counter() - start
    calls = seen[0]
    return {
        "images": len(images),
        "success": round(edge.found.float().mean().item(), 3),
        "mean": round(edge.distance[edge.found].mean().item(), 4) if edge.found.any() else None,
        "median": round(edge.distance[edge.found].median().item(), 4) if edge.found.any() else None,
        "gradients": round(calls.gradients / len(images), 1),
        "forwards": round(calls.forwards / len(images), 1),
        "seconds_per_image": round(seconds / len(images), 3),
        "distances": [round(value, 5) for value in edge.distance.tolist()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--data", default="photos")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--paper-images", type=int, default=2, help="the paper's search takes over a thousand gradients")
    parser.add_argument("--reference-steps", type=int, default=300, help="steps of the DDN that ratios refer to")
    parser.add_argument("--thorough", action="store_true", help="also run the thorough search")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model, images = model_and_images(given.model, given.data, given.images)
    reference = f"DDN-{given.reference_steps}"
    rows = {
        reference: measured(model, images, foolbox_search("DDNAttack"), steps=given.reference_steps),
        "DDN-100": measured(model, images, foolbox_search("DDNAttack"), steps=100),
        "fast": measured(model, images, SEARCHES["fast"]),
    }
    if given.thorough:
        rows["thorough"] = measured(model, images, SEARCHES["thorough"])
    if given.paper_images:
        rows["paper"] = measured(model, images[: given.paper_images], SEARCHES["paper"])
    for row in rows.values():
        both = [(d, r) for d, r in zip(row["distances"], rows[reference]["distances"], strict=False) if d < 1e9 and r < 1e9]
        row["ratio"] = round(sum(d for d, _ in both) / sum(r for _, r in both), 4) if both else None
        row["speed_up"] = (
            round(rows["paper"]["seconds_per_image"] / row["seconds_per_image"], 1) if "paper" in rows else None
        )
    print(f"{'search':10s} images success   mean median   ratio grads forwards  s/image  × paper")
    for name, row in rows.items():
        print(
            f"{name:10s} {row['images']:6d} {row['success']:7.1%} {row['mean'] or 0:6.3f} {row['median'] or 0:6.3f} "
            f"{row['ratio']!s:>7s} {row['gradients']:5.0f} {row['forwards']:8.0f} {row['seconds_per_image']:8.3f} "
            f"{row['speed_up']!s:>8s}"
        )
    if given.out is not None:
        about = {"command": f"python bench/speed/boundary.py --model {given.model} --images {given.images}"}
        about |= {"machine": f"{torch.get_num_threads()} threads, {platform.machine()}", "torch": torch.__version__}
        given.out.write_text(json.dumps(about | {"reference": reference, "searches": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
