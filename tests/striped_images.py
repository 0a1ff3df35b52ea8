"""Data for calibration: a square with stripes across or down on grey noise, and a network that tells the two apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from locality.data.dataset import ImageDataset
from locality.data.manifest import Entry, Manifest
from locality.data.source import Pixels, Source
from locality.types import ModelSpec

SIDE, SQUARE = 32, 12
CLASSES = ("across", "down")


@dataclass(frozen=True)
class Stripes:
    """Draws image i: its class is that of the number's last bit."""

    def place(self, index: int) -> tuple[int, int, NDArray[np.uint8]]:
        generator = np.random.default_rng(index)
        left, top = generator.integers(0, SIDE - SQUARE, 2)
        noise = generator.integers(110, 146, (SIDE, SIDE)).astype(np.uint8)
        rows = np.where(np.arange(SQUARE) // 2 % 2, 200, 60).astype(np.uint8)
        stripes = np.broadcast_to(rows[:, None] if index % 2 == 0 else rows[None], (SQUARE, SQUARE))
        noise[top : top + SQUARE, left : left + SQUARE] = stripes
        return int(left), int(top), noise

    def __call__(self, index: int, outline: bool = False) -> Pixels:
        left, top, levels = self.place(index)
        mask = torch.zeros(1, SIDE, SIDE, dtype=torch.bool)
        mask[:, top : top + SQUARE, left : left + SQUARE] = True
        return Pixels(torch.from_numpy(levels).expand(3, SIDE, SIDE).clone(), mask)


def striped(count: int, has_boxes: bool = True) -> ImageDataset:
    """So many images with their boxes, in two classes."""
    entries = []
    for index in range(count):
        left, top, _ = Stripes().place(index)
        corners = np.array([[left, top, left + SQUARE, top + SQUARE]], dtype=np.float64)
        boxes = corners if has_boxes else np.empty((0, 4))
        entries.append(Entry(f"striped-{index}", "", index % 2, CLASSES[index % 2], SIDE, SIDE, boxes))
    source = Source("striped", Manifest.of(entries, "striped", "CC0-1.0"), CLASSES, Stripes(), has_regions=has_boxes)
    return ImageDataset.select(source)


def small_classifier(classes: tuple[str, ...] = ()) -> nn.Module:
    """A network of random weights that tells stripes and colours apart, wherever they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Linear(24, 2),
        )
    net.spec = ModelSpec("small", (SIDE, SIDE), SIDE, classes=classes)  # type: ignore[assignment]
    return net
