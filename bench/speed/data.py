"""Speed and memory of reading images and boxes on one core: manifest rows, shapes, decoded photographs, polygons.

    python bench/speed/data.py [--out bench/results/data.json]

Each measurement runs in its own process, so that its peak memory is its own; "more memory" is what it adds to a process that
has imported the libraries. The usual alternative is measured side by side.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import locality  # noqa: F401  before torchvision, whose compiled operators may be missing

IMAGES = 50_000
SHAPES = 2_000
PHOTOGRAPHS = 300


def write_large_manifest(path: Path) -> int:
    """A manifest like ImageNet's validation set: 50,000 images, three in ten with a second box. Returns its rows."""
    from locality.data.manifest_csv import COLUMNS

    rows = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(COLUMNS) + "\n")
        for image in range(IMAGES):
            for box in range(1 + (image % 10 < 3)):
                name = f"ILSVRC2012_val_{image:08d}"
                file.write(
                    f"{name},val/{name}.JPEG,{image:064x},{image % 1000},n{image % 1000:08d},"
                    f"{10 + box},20.5,{300 + box},310.25,500,375,imagenet,ImageNet terms of access\n"
                )
                rows += 1
    return rows


def manifest(folder: Path) -> dict[str, object]:
    import pandas as pd

    from locality.data.manifest_csv import read_manifest

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = folder / "large.csv"
    start = time.perf_counter()
    read, faults = read_manifest(path)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(read) == IMAGES
    assert not faults
    start = time.perf_counter()
    pd.read_csv(path)
    plain = time.perf_counter() - start
    return {
        "images": IMAGES,
        "rows": len(read.corners),
        "seconds": round(seconds, 2),
        "rows_per_second": round(len(read.corners) / seconds),
        "more_memory_mb": round((peak - before) / 1024),
        "pandas_read_csv_seconds_without_checks": round(plain, 2),
    }


def shapes(_: Path) -> dict[str, object]:
    from locality.data.sources.shapes import shape_image

    shape_image(0, 0)
    start = time.perf_counter()
    for index in range(SHAPES):
        shape_image(0, index)
    return {"images": SHAPES, "images_per_second": round(SHAPES / (time.perf_counter() - start))}


def photographs(folder: Path) -> dict[str, object]:
    """500×375 JPEG files, decoded, resized to 256 and cropped to 224: locality and torchvision's usual transform."""
    import torch
    from PIL import Image
    from torchvision import transforms

    from locality import ModelSpec, load_dataset

    torch.set_num_threads(1)
    data = load_dataset(str(folder / "photographs.csv"), spec=ModelSpec("m", interpolation="bicubic"), max_box_share=None)
    paths = [folder / path for path in data.manifest.images["path"]]
    usual = transforms.Compose(
        [transforms.Resize(256, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(224), transforms.ToTensor()]
    )

    def ours(index: int) -> object:
        return data[index % len(data)]

    def theirs(index: int) -> object:
        with Image.open(paths[index % len(paths)]) as picture:
            return usual(picture.convert("RGB"))

    rates: dict[str, list[float]] = {"ours": [], "torchvision": []}
    for _ in range(3):  # alternating, because the machine's speed drifts
        for name, read in (("ours", ours), ("torchvision", theirs)):
            rates[name].append(PHOTOGRAPHS / 3 / _seconds(read))
    best = {name: max(values) for name, values in rates.items()}
    return {
        "photographs": PHOTOGRAPHS,
        "per_second": round(best["ours"]),
        "torchvision_per_second": round(best["torchvision"]),
        "ratio": round(best["ours"] / best["torchvision"], 2),
    }


def polygons(_: Path) -> dict[str, object]:
    """An outline of 120 points in a photograph of 640×480: numpy, scikit-image and pycocotools."""
    import numpy as np
    from pycocotools import mask as coco_mask
    from skimage.draw import polygon2mask

    from locality.data.polygons import polygon_mask

    turn = np.linspace(0, 2 * np.pi, 120, endpoint=False)
    radius = 150 + 40 * np.sin(5 * turn)
    points = np.stack([320 + radius * np.cos(turn), 240 + radius * np.sin(turn)], axis=1)
    rings = [points.ravel().tolist()]

    def theirs() -> Any:
        return coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(rings, 480, 640)))

    fills: dict[str, Callable[[], object]] = {
        "milliseconds": lambda: polygon_mask(points, 480, 640),
        "scikit_image_milliseconds": lambda: polygon2mask((480, 640), points[:, ::-1] - 0.5),
        "pycocotools_milliseconds": theirs,
    }
    assert np.array_equal(polygon_mask(points, 480, 640), theirs())
    best = dict.fromkeys(fills, float("inf"))
    for _round in range(10):  # alternating, because the machine's speed drifts
        for name, fill in fills.items():
            start = time.perf_counter()
            fill()
            best[name] = min(best[name], 1000 * (time.perf_counter() - start))
    return {name: round(value, 2) for name, value in best.items()}


def _seconds(read: Callable[[int], object]) -> float:
    start = time.perf_counter()
    for index in range(PHOTOGRAPHS // 3):
        read(index)
    return time.perf_counter() - start


def write_photographs(folder: Path) -> None:
    """JPEG files of ImageNet's usual size, from the photographs in scikit-image."""
    import torch
    from PIL import Image

    from locality import load_dataset

    header = "id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence"
    rows = [header]
    for sample in load_dataset("photos", max_box_share=None):
        pixels = (sample.image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        Image.fromarray(pixels).resize((500, 375)).save(folder / f"{sample.id}.jpg", quality=92)
        rows.append(f"{sample.id},{sample.id}.jpg,,0,n00000000,10,10,100,100,500,375,bench,CC0")
    (folder / "photographs.csv").write_text("\n".join(rows) + "\n")


def _alone(
    measure: Callable[[Path], dict[str, object]], path: Path, queue: multiprocessing.Queue[dict[str, object]]
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    numbers = measure(path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    queue.put(numbers | {"peak_memory_mb": round(peak / 1024)})


def in_own_process(measure: Callable[[Path], dict[str, object]], path: Path) -> dict[str, object]:
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[dict[str, object]] = context.Queue()
    process = context.Process(target=_alone, args=(measure, path, queue))
    process.start()
    numbers = queue.get()
    process.join()
    return numbers


MEASURES: dict[str, Callable[[Path], dict[str, object]]] = {
    "manifest": manifest,
    "shapes": shapes,
    "photographs": photographs,
    "polygons": polygons,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    parser.add_argument("--only", choices=MEASURES, help="measure this alone; the other numbers in --out stay")
    given = parser.parse_args()
    out = given.out
    import numpy
    import pandas
    import PIL
    import torch

    versions = {"python": platform.python_version(), "numpy": numpy.__version__, "pandas": pandas.__version__}
    results: dict[str, object] = {
        "command": "python bench/speed/data.py",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": versions | {"torch": torch.__version__, "pillow": PIL.__version__},
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_large_manifest(folder / "large.csv")
        write_photographs(folder)
        for name, measure in MEASURES.items():
            if given.only in (None, name):
                results[name] = in_own_process(measure, folder)
            elif out is not None:
                results[name] = json.loads(out.read_text(encoding="utf-8"))[name]
    json.dump(results, sys.stdout, indent=2)
    print()
    if out is not None:
        out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
