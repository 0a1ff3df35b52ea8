"""What a stranger brings: 40 images of two sizes with boxes in four formats, and a checkpoint of a fine-tuned ResNet-18."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import cross_entropy

CLASSES = ("Red Disc", "blue square")  # as the network's owner writes them; the annotations say red_disc and blue square
NAMES = ("red_disc", "blue square")
SIZES = ((64, 48), (40, 60))  # width, height
SIDE = 16  # of the network's input


@dataclass(frozen=True)
class Picture:
    """One image: half-open corners, and the index of its class."""

    name: str
    pixels: NDArray[np.uint8]
    label: int
    box: tuple[int, int, int, int]


def pictures(count: int = 40, seed: int = 0) -> list[Picture]:
    """Discs and squares on grey noise, in the part of the image that a crop to a square keeps."""
    generator = np.random.default_rng(seed)
    made = []
    for number in range(count):
        label, (width, height) = number % 2, SIZES[number // 2 % 2]
        pixels = generator.integers(90, 166, (height, width, 1)).repeat(3, 2).astype(np.uint8)
        side, seen = int(generator.choice([14, 18, 22])), min(width, height)
        # Odd corners: no edge falls on the centre of a pixel after resizing, where rounding would decide.
        places = [np.arange((length - seen) // 2 | 1, (length + seen) // 2 - side, 2) for length in (width, height)]
        x0, y0 = (int(generator.choice(place)) for place in places)
        y, x = np.ogrid[:height, :width]
        inside = (x >= x0) & (x < x0 + side) & (y >= y0) & (y < y0 + side)
        if label == 0:
            inside &= (x + 0.5 - x0 - side / 2) ** 2 + (y + 0.5 - y0 - side / 2) ** 2 <= side**2 / 4
        pixels[inside] = [(230, 30, 30), (30, 30, 230)][label]
        made.append(Picture(f"{number:03d}", pixels, label, (x0, y0, x0 + side, y0 + side)))
    return made


def write_images(folder: Path, made: list[Picture]) -> None:
    (folder / "images").mkdir(parents=True)
    for one in made:
        Image.fromarray(one.pixels).save(folder / f"images/{one.name}.png")


def write_coco(folder: Path, made: list[Picture]) -> None:
    boxes = [(x0, y0, x1 - x0, y1 - y0) for x0, y0, x1, y1 in (one.box for one in made)]
    content = {
        "info": {"description": "Discs and squares"},
        "licenses": [{"id": 1, "name": "CC0-1.0"}],
        "images": [
            {"id": n, "file_name": f"{one.name}.png", "width": one.pixels.shape[1], "height": len(one.pixels), "license": 1}
            for n, one in enumerate(made)
        ],
        "categories": [{"id": n, "name": name} for n, name in enumerate(NAMES)],
        "annotations": [
            {"id": n, "image_id": n, "category_id": one.label, "bbox": list(box)}
            for n, (one, box) in enumerate(zip(made, boxes, strict=True))
        ],
    }
    (folder / "instances.json").write_text(json.dumps(content))


def write_voc(folder: Path, made: list[Picture]) -> None:
    """XML files as the VOC devkit defines them: pixels count from 1, both corners are inside."""
    (folder / "Annotations").mkdir()
    for one in made:
        x0, y0, x1, y1 = one.box
        size = f"<size><width>{one.pixels.shape[1]}</width><height>{len(one.pixels)}</height><depth>3</depth></size>"
        corners = f"<xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax>"
        shown = f"<object><name>{NAMES[one.label]}</name><bndbox>{corners}</bndbox></object>"
        (folder / f"Annotations/{one.name}.xml").write_text(f"<annotation>{size}{shown}</annotation>")


def write_yolo(folder: Path, made: list[Picture]) -> None:
    (folder / "labels").mkdir()
    (folder / "classes.txt").write_text("\n".join(NAMES))
    for one in made:
        (x0, y0, x1, y1), (height, width) = one.box, one.pixels.shape[:2]
        shares = ((x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height)
        line = " ".join([str(one.label), *(f"{share:.6f}" for share in shares)])
        (folder / f"labels/{one.name}.txt").write_text(f"{line}\n")


def write_table(folder: Path, made: list[Picture]) -> None:
    rows = [f"{one.name}.png,{','.join(map(str, one.box))},{NAMES[one.label]}" for one in made]
    (folder / "boxes.csv").write_text("\n".join(["filename,xmin,ymin,xmax,ymax,label", *rows]) + "\n")


WRITERS = {"coco": write_coco, "voc": write_voc, "yolo": write_yolo, "csv": write_table}


def write_checkpoint(folder: Path, made: list[Picture], steps: int = 8) -> Path:
    """Fine-tune a ResNet-18 on the pictures, and write its weights and the names of its classes, as a stranger would."""
    from torchvision.models import resnet18

    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = resnet18(num_classes=2)
        images = torch.stack([_as_input(one) for one in made])
        labels = torch.tensor([one.label for one in made])
        optimiser = torch.optim.Adam(net.parameters(), 1e-3)
        for layer in net.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.momentum = 0.5  # a few steps have to be enough
        for _ in range(steps):
            optimiser.zero_grad()
            cross_entropy(net(images), labels).backward()
            optimiser.step()
    torch.save(net.state_dict(), folder / "mine.pt")
    (folder / "names.txt").write_text("\n".join(CLASSES))
    return folder / "mine.pt"


def _as_input(one: Picture) -> torch.Tensor:
    """3×16×16: the picture resized, cropped around its centre and normalised."""
    picture = Image.fromarray(one.pixels)
    scale = SIDE / min(picture.size)
    width, height = (round(side * scale) for side in picture.size)
    left, top = (width - SIDE) // 2, (height - SIDE) // 2
    crop = picture.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + SIDE, top + SIDE))
    pixels = torch.from_numpy(np.array(crop)).permute(2, 0, 1).float() / 255
    return (pixels - 0.5) / 0.25
