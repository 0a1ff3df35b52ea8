"""A stranger's images and a stranger's checkpoint: the same right table by each format of boxes, in one command each."""

from __future__ import annotations

import json
from pathlib import Path

import own_images
import pytest
import torch
from typer.testing import CliRunner

from locality import load_dataset
from locality.cli import app
from locality.data.boxes import box_mask
from locality.results.folder import read_results
from locality.types import Box, ModelSpec


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, boxes in all four formats, and a checkpoint with the names of its classes."""
    folder = tmp_path_factory.mktemp("mine")
    made = own_images.pictures()
    own_images.write_images(folder, made)
    for write in own_images.WRITERS.values():
        write(folder, made)
    own_images.write_checkpoint(folder, made)
    return folder


def run(mine: Path, *words: str) -> tuple[str, str]:
    side = str(own_images.SIDE)
    model = ["--model", f"{mine}/mine.pt", "--arch", "torchvision:resnet18", "--input-size", side]
    more = ["--mean", "0.5", "--std", "0.25", "--methods", "SM", "--classes", f"{mine}/names.txt"]
    done = CliRunner().invoke(app, ["eval", *model, *more, *words], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def right(mine: Path) -> dict[str, float]:
    """The mean scores of the saliency maps by their formulas, on masks that are checked against the pictures' own boxes."""
    from torchvision.models import resnet18

    net = resnet18(num_classes=2)
    net.load_state_dict(torch.load(mine / "mine.pt", weights_only=True))
    spec = ModelSpec("mine", (own_images.SIDE,) * 2, own_images.SIDE, mean=(0.5,) * 3, std=(0.25,) * 3)
    data = load_dataset(f"coco:{mine}", spec=spec)
    made = own_images.pictures()
    for sample, picture in zip(data, made, strict=True):
        height, width = picture.pixels.shape[:2]
        scale = own_images.SIDE / min(height, width)
        sizes = round(width * scale), round(height * scale)
        left, top = ((size - own_images.SIDE) // 2 for size in sizes)
        x0, x1 = (x * sizes[0] / width - left for x in picture.box[::2])
        y0, y1 = (y * sizes[1] / height - top for y in picture.box[1::2])
        assert torch.equal(sample.mask, box_mask([Box(x0, y0, x1, y1)], own_images.SIDE, own_images.SIDE))
        assert sample.label == picture.label
    batch = data.batch(range(40))
    images = batch.images.requires_grad_()
    logits = net.eval()((images - 0.5) / 0.25)
    assert torch.equal(logits.argmax(1), batch.labels)
    (maps,) = torch.autograd.grad(logits.max(1).values.sum(), images)
    inside, positive = batch.masks.expand_as(maps), maps.clamp(min=0)
    precision = (positive * inside).sum((1, 2, 3)) / positive.sum((1, 2, 3))
    recall = (positive * inside).sum((1, 2, 3)) / (maps.abs() * inside).sum((1, 2, 3))
    f1 = 2 * precision * recall / (precision + recall)
    return {"precision": precision.mean().item(), "recall": recall.mean().item(), "f1": f1.mean().item()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the classes of mine are taken")
def test_every_format_gives_the_same_right_table(mine: Path, right: dict[str, float]) -> None:
    tables = {}
    for kind in own_images.WRITERS:
        out, error = run(mine, "--data", f"{kind}:{mine}")
        first, *table = out.splitlines()
        assert f"on {kind}:{mine.name}: 40 images of 2 classes, 20 each" in first
        assert "red_disc = Red Disc, blue_square = blue square" in error
        tables[kind] = table
    assert tables["voc"] == tables["yolo"] == tables["csv"] == tables["coco"]
    text = "\n".join(tables["coco"])
    assert "accuracy 1.000" in text
    (line,) = [line for line in tables["coco"] if line.startswith(" SM ")]
    assert [round(mean, 3) for mean in right.values()] == [float(line.split()[column]) for column in (1, 4, 7)]


def test_a_manifest_states_the_source_and_licence_of_its_owner(mine: Path, tmp_path: Path) -> None:
    words = [
        "data",
        "build",
        f"voc:{mine}",
        "--out",
        f"{tmp_path}/mine.csv",
        "--origin",
        "my camera",
        "--licence",
        "CC0-1.0",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    rows = (tmp_path / "mine.csv").read_text().splitlines()[1:]
    assert len(rows) == 40
    assert all(row.endswith(",my camera,CC0-1.0") for row in rows)


def test_a_folder_alone_is_guessed_or_asks_for_the_boxes(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = CliRunner().invoke(app, ["eval", "--model", "shapes_cnn", "--data", str(mine)])
    for words in ("several places", "Annotations/000.xml", "(voc)", "(yolo)", "(coco)", "(csv)", "--boxes Annotations"):
        assert words in str(asked.exception)
    out, error = run(mine, "--data", str(mine), "--boxes", "boxes.csv", "--limit", "4", "--json")
    assert f"{mine} is read as csv:{mine}, because `boxes` boxes.csv is a CSV" in error
    assert json.loads(out)["n"] == 4


def test_a_class_that_the_model_writes_differently_is_no_other_prediction(mine: Path, tmp_path: Path) -> None:
    run(mine, "--data", f"voc:{mine}", "--limit", "2", "--figures", "--out", str(tmp_path))
    found = {(image.label, *image.predictions.values()) for image in read_results(tmp_path).gallery}
    assert found == {("red_disc", "red_disc"), ("blue_square", "blue_square")}
