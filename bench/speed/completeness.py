"""The completeness gap of Integrated Gradients and its cost in gradients, for several numbers of points.

    python bench/speed/completeness.py [--model efficientnet_lite0] [--images 8] [--out bench/results/completeness.json]

The gap is |ΣIG − (f(x) − f(b))| relative to |f(x) − f(b)|, with a black baseline. "auto" doubles nested points until the gap
is at most 5 %.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from measuring import about

from locality.attribution.integrated_gradients import Points, integrated_gradients, relative_gap
from locality.data.dataset import load_dataset
from locality.data.defaults import default_data
from locality.model_calls import open_model
from locality.zoo.load import load_model
from locality.zoo.pixel_model import PixelModel

POINTS: tuple[Points, ...] = (20, 100, "auto")


def row(model: PixelModel, points: Points, limit: int) -> dict[str, Any]:
    """Gaps and gradients, image by image: with "auto" they differ."""
    data = load_dataset(default_data(model.spec), limit=limit, spec=model.spec)
    gaps, gradients = [], []
    for index in range(len(data)):
        images = data[index].image[None]
        with open_model(model, images) as calls:
            gaps.append(float(relative_gap(integrated_gradients(calls, images, points=points))))
            gradients.append(calls.gradients)
    listed = np.array(gaps)
    return {
        "points": points,
        "images": len(listed),
        "median": round(float(np.median(listed)), 4),
        "least": round(float(listed.min()), 4),
        "most": round(float(listed.max()), 4),
        "above 5 %": int((listed > 0.05).sum()),
        "gradients": {"median": int(np.median(gradients)), "least": min(gradients), "most": max(gradients)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model = load_model(given.model)
    rows = []
    for points in POINTS:
        rows.append(row(model, points, given.images))
        print(rows[-1], flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps({**about(sys.argv, ["torch"]), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
