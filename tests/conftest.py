"""Fixtures: real photographs where the machine has them, and small data sets made for the test."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_cifar10 import write_batches

# Small nets gain nothing from several threads and lose much where the machine is busy.
torch.set_num_threads(1)
HEADER = "id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence"


@pytest.fixture(scope="session")
def tiny_imagenet_path() -> Path:
    """The ten classes of Tiny-ImageNet, or a skip that says what is missing."""
    place = os.environ.get("LOCALITY_TINY_IMAGENET")
    if not place or not Path(place).exists():
        pytest.skip("real photographs are not here: set LOCALITY_TINY_IMAGENET to tiny-imagenet-10.zip to run this test")
    return Path(place)


@pytest.fixture(scope="session")
def cifar10_path() -> Path:
    """Real batches of CIFAR-10, or a skip that says what is missing."""
    place = os.environ.get("LOCALITY_CIFAR10")
    if not place or not Path(place).exists():
        pytest.skip("real images are not here: set LOCALITY_CIFAR10 to cifar10-12k.zip to run this test")
    return Path(place)


def image_bytes(width: int = 20, height: int = 10, mode: str = "RGB", form: str = "PNG", seed: int = 0) -> bytes:
    """An image file of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels).convert(mode)
    buffer = io.BytesIO()
    picture.save(buffer, form)
    return buffer.getvalue()


@pytest.fixture
def write_image() -> Callable[..., str]:
    """Writes an image file and gives its sha256."""

    def write(path: Path, *args: object, **options: object) -> str:
        data = image_bytes(*args, **options)  # type: ignore[arg-type]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return hashlib.sha256(data).hexdigest()

    return write


@pytest.fixture
def write_csv(tmp_path: Path) -> Callable[..., Path]:
    """Writes a manifest of the given rows; a row is a dictionary of what differs from a good one."""

    def write(*rows: dict[str, object] | str, header: str = HEADER, name: str = "data.csv") -> Path:
        lines = [header]
        for row in rows:
            if isinstance(row, str):
                lines.append(row)
                continue
            good: dict[str, object] = {
                "id": "a",
                "path": "a.png",
                "sha256": "",
                "label": 0,
                "wnid": "n01443537",
                "x0": 2,
                "y0": 1,
                "x1": 12,
                "y1": 9,
                "width": 20,
                "height": 10,
                "source": "test",
                "licence": "CC0",
            }
            assert set(row) <= set(good)
            lines.append(",".join(str(value) for value in (good | row).values()))
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def small_tiny_imagenet(tmp_path: Path) -> Path:
    """A folder in Tiny-ImageNet's layout: two classes, 402 training photographs each, three for validation."""
    top = tmp_path / "tiny-imagenet-200"
    wnids = ["n02000002", "n01000001"]  # not sorted, on purpose
    (top / "val/images").mkdir(parents=True)
    (top / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (top / "words.txt").write_text("n01000001\tone\nn02000002\ttwo\n")
    photograph = image_bytes(64, 64, form="JPEG")
    for wnid in wnids:
        images = top / "train" / wnid / "images"
        images.mkdir(parents=True)
        numbers = sorted(range(402), key=str)  # the official files are in the order of names, not of numbers
        (top / "train" / wnid / f"{wnid}_boxes.txt").write_text("".join(f"{wnid}_{n}.JPEG\t0\t0\t31\t63\n" for n in numbers))
        for number in (0, 399, 400, 401):
            (images / f"{wnid}_{number}.JPEG").write_bytes(photograph)
    (top / "val/val_annotations.txt").write_text(
        "val_0.JPEG\tn01000001\t10\t20\t10\t20\nval_1.JPEG\tn02000002\t0\t0\t63\t63\nval_2.JPEG\tn02000002\t0\t0\t62\t50\n"
    )
    for number in range(3):
        (top / f"val/images/val_{number}.JPEG").write_bytes(photograph)
    return tmp_path


@pytest.fixture
def small_cifar10(tmp_path: Path) -> Path:
    """A folder of CIFAR-10's binary version with 40 training and 20 test images."""
    return write_batches(tmp_path / "cifar-10-batches-bin")
