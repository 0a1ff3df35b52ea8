"""Table 5.3 in miniature: how loose Lipschitz bounds are, for standard networks and for those trained for a small constant.

    python bench/lipschitz_bounds.py [--models tiny_vgg,tiny_resnet,tiny_liresnet] [--images 20] [--steps 60]
                                     [--out bench/results/lipschitz_bounds.json]

Upper bound: the largest K_ji over all pairs of classes, proven. Lower bounds: the steepest secant found from the images,
anywhere (largest) and within ℓ2 36/255 of each (mean over images), by `gradients` and by `pairs` with as many steps. The
thesis makes 7,500 and 5,000 steps from 100 pairs and images. A model that is in the file already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from locality import lipschitz_bound, load_dataset, load_model
from locality.certified.lipschitz_lower import global_lower, local_lower
from locality.files import write_atomically

RADIUS = 36 / 255


def measure(name: str, images: int, steps: int) -> dict[str, Any]:
    model = load_model(name).eval()
    data = load_dataset("tiny-imagenet", limit=images, spec=model.spec)
    pixels = data.batch(range(len(data))).images
    started = time.process_time()
    upper = lipschitz_bound(model, model.spec.input_size).largest
    row: dict[str, Any] = {"images": len(pixels), "steps": steps, "upper": upper}
    for method in ("gradients", "pairs"):
        row[f"global lower by {method}"] = global_lower(model, pixels, method, steps=steps).largest
        row[f"local lower by {method}"] = local_lower(model, pixels, RADIUS, method, steps=steps).mean
    lower = max(row["global lower by gradients"], row["global lower by pairs"])
    local = max(row["local lower by gradients"], row["local lower by pairs"])
    return row | {
        "upper over global lower": upper / lower,
        "global lower over upper": lower / upper,
        "local lower over upper": local / upper,
        "seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="tiny_vgg,tiny_resnet,tiny_liresnet")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("bench/results/lipschitz_bounds.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
    for name in arguments.models.split(","):
        title = Path(name).stem
        if title not in results:
            results[title] = measure(name, arguments.images, arguments.steps)
            write_atomically(arguments.out, json.dumps(results, indent=1) + "\n")
        print(title, json.dumps(results[title]), flush=True)


if __name__ == "__main__":
    main()
