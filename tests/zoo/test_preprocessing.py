"""What the caller says about a model's images is used, and where each part comes from is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from locality.data.dataset import load_dataset
from locality.errors import ArgumentError, ModelError
from locality.types import ModelSpec
from locality.zoo.architectures import build
from locality.zoo.catalog import CIFAR10, model_cards
from locality.zoo.expected_accuracy import low_accuracy_text, published_accuracy
from locality.zoo.load import load_model, needs_architecture
from locality.zoo.pixel_model import PixelModel
from locality.zoo.preprocessing import GivenPreprocessing, model_preprocessing, read_classes

Write = Callable[..., Path]
SIZE_64: dict[str, Any] = {"input_size": 64, "mean": 0.45, "std": 0.25, "interpolation": "bilinear"}


@pytest.fixture
def checkpoint(write: Write) -> Path:
    """A checkpoint of ten classes without a card."""
    return write(build("net:shapes_cnn", 10, seed=5).state_dict(), "mine.pth")


def write_card(path: Path, **table: object) -> None:
    path.with_suffix(".json").write_text(json.dumps(table), encoding="utf-8")


def test_a_guess_is_said_to_be_one_and_what_is_given_is_used(checkpoint: Path) -> None:
    guessed = load_model(checkpoint, arch="net:shapes_cnn")
    assert guessed.preprocessing.endswith("(guessed from net:shapes_cnn)")
    given = load_model(checkpoint, arch="net:shapes_cnn", input_size=(32, 48), resize=64, mean=0.5, classes=CIFAR10)
    assert given.spec == ModelSpec("mine", (32, 48), 64, "bilinear", (0.5,) * 3, (0.25,) * 3, CIFAR10)
    assert given.preprocessing == (
        "resize 64 bilinear, crop 32×48, mean 0.5, std 0.25 (input size, resize, mean: as given; interpolation, std: "
        "guessed from net:shapes_cnn)"
    )
    images = torch.rand(2, 3, 32, 48)
    assert torch.equal(given(images), given.net((images - 0.5) / 0.25))


def test_every_kind_of_model_says_where_its_preprocessing_comes_from() -> None:
    assert load_model("shapes_cnn").preprocessing.endswith("(from the model's card)")
    with pytest.warns(UserWarning, match=r"has random weights: .*--arch torchvision:resnet18"):
        model = load_model("torchvision.models:resnet18")
    assert model.preprocessing == (
        "resize 256 bilinear, crop 224×224, no normalisation (guessed from torchvision.models:resnet18)"
    )
    assert model_preprocessing(nn.Flatten()) == "none, since the model has no `.spec`"
    assert model_preprocessing(PixelModel(nn.Flatten(), ModelSpec("own", (2, 2), 2))).startswith("resize 2 bilinear, crop")


def test_a_network_of_64_pixels_is_right_once_its_size_is_given(write: Write, tmp_path: Path) -> None:
    """The card's network, saved as others save theirs: without a card, under a foreign architecture's preprocessing."""
    shipped = load_model("shapes_cnn")
    path = write(shipped.net.state_dict(), "plain.pth")
    (tmp_path / "classes.txt").write_text("\n".join(shipped.spec.classes) + "\n", encoding="utf-8")
    arch, data = "zoo_preprocessing_nets:shapes_net", load_dataset("shapes", limit=20, count=40)

    def shares(**given: Any) -> float:
        model = load_model(path, arch=arch, num_classes=10, classes=tmp_path / "classes.txt", **given)
        fitted = load_dataset("shapes", limit=20, count=40, spec=model.spec)
        batch = fitted.batch(range(len(data)))
        return float((model(batch.images).argmax(1) == batch.labels).float().mean())

    import sys
    from types import ModuleType

    module: Any = ModuleType("zoo_preprocessing_nets")
    module.shapes_net = lambda num_classes: build("net:shapes_cnn", num_classes)
    sys.modules[module.__name__] = module
    try:
        assert shares() < 0.6  # 224 pixels and no normalisation
        assert shares(**SIZE_64) == 1.0
    finally:
        del sys.modules[module.__name__]


def test_a_card_that_a_person_writes_is_read(checkpoint: Path) -> None:
    write_card(
        checkpoint,
        spec={"input_size": [32, 32], "resize": 40, "mean": [0.4] * 3, "classes": list(CIFAR10)},
        architecture="net:shapes_cnn",
        data="shapes",
        accuracy={"clean": 0.9},
    )
    model = load_model(checkpoint)
    assert (model.spec.input_size, model.spec.resize, model.spec.mean) == ((32, 32), 40, (0.4,) * 3)
    assert (model.spec.classes, model.spec.name) == (CIFAR10, "mine")
    assert "from the model's card" in model.preprocessing
    assert published_accuracy(str(checkpoint), "shapes") == 0.9
    assert load_model(checkpoint, resize=32).preprocessing.startswith("resize 32 bilinear, crop 32×32")


def test_a_card_without_architecture_or_classes_gives_its_preprocessing(checkpoint: Path) -> None:
    write_card(checkpoint, spec={"input_size": [32, 32], "resize": 32})
    with pytest.raises(ModelError, match="does not name its architecture"):
        load_model(checkpoint)
    assert needs_architecture(str(checkpoint))
    model = load_model(checkpoint, arch="net:shapes_cnn")
    assert model.spec.input_size == (32, 32)
    assert model.preprocessing.endswith("(from the card beside the checkpoint)")
    write_card(checkpoint, spec={"input_size": [32, 32], "resize": 32}, architecture="net:shapes_cnn")
    assert not needs_architecture(str(checkpoint))
    assert load_model(checkpoint)(torch.rand(1, 3, 32, 32)).shape == (1, 10)


def test_a_card_of_other_weights_is_ignored_with_a_warning(checkpoint: Path) -> None:
    write_card(checkpoint, spec={"input_size": [32, 32], "resize": 32}, weights={"sha256": "0" * 64})
    with pytest.warns(UserWarning, match="is ignored, because it describes other weights"):
        assert load_model(checkpoint, arch="net:shapes_cnn").spec.input_size == (64, 64)


@pytest.mark.parametrize("text", ['{"epochs": 3}', "[1, 2]", "not JSON"])
def test_a_json_file_of_another_program_is_no_card(checkpoint: Path, text: str) -> None:
    checkpoint.with_suffix(".json").write_text(text, encoding="utf-8")
    assert load_model(checkpoint, arch="net:shapes_cnn").spec.input_size == (64, 64)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"input_size": 0}, "`input_size` must be a number of pixels"),
        ({"input_size": (1, 2, 3)}, "`input_size` must be a number of pixels"),
        ({"mean": (0.5, 0.5)}, "`mean` must be one number, or one for each of 3 channels"),
        ({"std": 0}, "`std` must be one positive number"),
        ({"mean": 123.7}, "`mean` must be for pixels in .* divide it by 255"),
        ({"input_size": 64, "resize": 32}, "`resize` must be at least"),
        ({"interpolation": "cubic"}, "`interpolation` must be one of"),
        ({"classes": ["a", "b"]}, r"returns 10 logits, its `\.spec` lists 2 classes"),
        ({"classes": "no/such/file"}, "`classes` must be a file with one class per line"),
    ],
)
def test_mistakes_are_one_sentence(checkpoint: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ArgumentError, ModelError), match=sentence):
        load_model(checkpoint, arch="net:shapes_cnn", **given)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a\nb\na\n", "different names, got 'a'"),
        ("a\n\nb\n", "line 2"),
        ("[1, 2]", "line 1"),
        ("a", "two or more"),
        ("[", "JSON"),
    ],
)
def test_a_file_of_classes_that_is_wrong(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "classes.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ArgumentError, match=sentence):
        read_classes(path)
    path.write_text('["a", "b"]', encoding="utf-8")
    assert GivenPreprocessing(classes=path).applied(ModelSpec("m")).classes == ("a", "b")


def test_an_accuracy_far_below_is_a_sentence() -> None:
    assert published_accuracy("tiny_resnet", "tiny-imagenet:/some/where.zip") == model_cards()["tiny_resnet"].clean
    assert published_accuracy("efficientnet_lite0", "photos") is None
    assert low_accuracy_text("m", 0, 0, 0.9, "its card") is None
    assert low_accuracy_text("m", 85, 100, 0.9, "its card") is None
    assert "40.0% on 50 images, far below the 90.0%" in (low_accuracy_text("m", 20, 50, 0.9, "its card") or "")


def test_a_model_of_unknown_classes_says_how_many_it_has(checkpoint: Path) -> None:
    spec = load_model(checkpoint, arch="net:shapes_cnn").spec
    assert (spec.classes, spec.num_classes) == ((), 10)
    with pytest.raises(ModelError, match=r"returns 10 logits, its `\.spec` lists 2 classes"):
        load_model("shapes_cnn", classes=["a", "b"])


def test_the_same_weights_are_the_same_network_to_timm_and_torchvision(write: Write) -> None:
    path = write(build("torchvision:resnet18", 3, seed=1).state_dict(), "mine.pth")
    architectures = ("torchvision:resnet18", "timm:resnet18")
    guessed = [load_model(path, arch=arch).preprocessing for arch in architectures]
    assert guessed[0] != guessed[1]  # resize 256 bilinear, resize 235 bicubic
    for arch, line in zip(architectures, guessed, strict=True):
        assert line.endswith(f"(guessed from {arch})")
    one, other = (load_model(path, arch=arch, **SIZE_64) for arch in architectures)
    assert (one.preprocessing, one.spec) == (other.preprocessing, other.spec)
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(one(images), other(images))
