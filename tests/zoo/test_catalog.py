"""The catalog against the facts it was written from, and against what torchvision and timm say themselves."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from locality.zoo import cards, catalog
from locality.zoo.architectures import build
from locality.zoo.cards import Card, write_card
from locality.zoo.catalog import PUBLISHED, entries, find_entry
from locality.zoo.entry import Address, Entry, ModelError, Package, Shipped
from locality.zoo.load import entry_classes, entry_spec

# name, how the address ends, clean, robust: as their publishers list them.
ROBUST = [
    ("vgg16_robust", "advtrain_models/advtrain_vgg16_ep4.pth", 59.96, 25.92),
    ("resnet50_robust", "examples/adversarial_training/model_best.pth.tar", 65.1, 34.9),
    ("vit_b32_robust", "advtrain_models/advtrain_vit_base_patch32_224_ep4.pth", 65.58, 37.38),
    ("vit_b16_robust", "advtrain_models/advtrain_vit_base_patch16_224_ep4.pth", 70.64, 43.04),
    ("vit_s16_robust", "advtrain_models/advtrain_vit_small_patch16_224_ep4.pth", 66.43, 39.20),
    ("resnet101_robust", "advtrain_models/advtrain_resnet101_ep4.pth", 69.51, 41.04),
    ("swin_b_robust", "advtrain_models/advtrain_swin_base_patch4_window7_224_ep4.pth", 75.05, 47.42),
    ("densenet121_robust", "advtrain_models/advtrain_densenet121_ep4.pth", 60.90, 29.78),
    ("cifar_resnet50", "/s/yhpp4yws7sgi6lj/cifar_nat.pt?dl=1", 95.25, 0.14),
    ("cifar_resnet50_l2_05", "/s/1zazwjfzee7c8i4/cifar_l2_0_5.pt?dl=1", 90.83, 70.11),
    ("resnet50_l2_3", "/s/knf4uimlqsi1yz8/imagenet_l2_3_0.pt?dl=1", 57.90, 35.09),
    ("resnet50_linf_4", "/s/axfuary2w1cnyrg/imagenet_linf_4.pt?dl=1", 62.42, 33.38),
    ("resnet50_linf_8", "/s/yxn15a9zklz3s8q/imagenet_linf_8.pt?dl=1", 47.91, 19.52),
    ("resnet50_l2_3_transfer", "robust-imagenet-models/resolve/main/resnet50_l2_eps3.ckpt", None, None),
    ("resnet50_linf_4_transfer", "robust-imagenet-models/resolve/main/resnet50_linf_eps4.0.ckpt", 64.02, 34.96),
]
STANDARD = ["squeezenet", "vgg16", "resnet50", "vit_b32", "vit_b16"]
ARCHITECTURES = {entry.architecture: entry for entry in PUBLISHED}


@pytest.mark.parametrize(("name", "address", "clean", "robust"), ROBUST)
def test_robust_models_are_as_published(name: str, address: str, clean: float | None, robust: float | None) -> None:
    entry = find_entry(name)
    assert isinstance(entry.weights, Address)
    assert entry.weights.url.endswith(address)
    assert (entry.clean, entry.robust) == (clean, robust)
    assert (entry.attack is None) == (robust is None)


@pytest.mark.parametrize("name", STANDARD)
def test_standard_models_are_what_torchvision_says(name: str) -> None:
    from locality.torchvision_shim import import_torchvision

    import_torchvision()
    from torchvision.models import get_model_weights

    entry = find_entry(name)
    published = get_model_weights(entry.architecture.removeprefix("torchvision:"))["IMAGENET1K_V1"]
    assert isinstance(entry.weights, Address)
    assert entry.weights.url == published.url
    assert entry.weights.checksum == "sha256:" + published.url[-12:-4]
    assert entry.parameters == published.meta["num_params"]
    assert entry.clean == pytest.approx(published.meta["_metrics"]["ImageNet-1K"]["acc@1"], abs=0.01)
    recipe = published.transforms()
    assert [*entry.input_size, entry.resize] == [*recipe.crop_size * 2, *recipe.resize_size]
    assert (list(entry.mean), list(entry.std)) == (recipe.mean, recipe.std)
    assert entry.interpolation == recipe.interpolation.value


@pytest.mark.parametrize("number", [0, 1, 2])
def test_efficientnet_lite_is_what_timm_says(number: int) -> None:
    from locality.zoo.architectures import timm_input

    entry = find_entry(f"efficientnet_lite{number}")
    with torch.device("meta"):
        theirs = timm_input(build(entry.architecture, 1000), entry.name)
    assert replace(entry_spec(entry), classes=()) == theirs
    assert isinstance(entry.weights, Package)
    assert entry.weights.checksum.removeprefix("sha256:")[:8] in entry.weights.file


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_exists_and_has_the_stated_parameters(architecture: str) -> None:
    entry = ARCHITECTURES[architecture]
    with torch.device("meta"):  # shapes, no numbers
        net = build(architecture, len(entry_classes(entry)))
    assert sum(weight.numel() for weight in net.parameters()) == entry.parameters


def test_entries_are_consistent() -> None:
    assert len({entry.name for entry in PUBLISHED}) == len(PUBLISHED)
    files = [entry.weights.file for entry in PUBLISHED if isinstance(entry.weights, Address)]
    assert len(set(files)) == len(files)  # or one would overwrite the other in the cache
    for entry in PUBLISHED:
        assert (entry.epsilon is None) == (entry.norm is None) == (entry.training in ("standard", "random"))
        assert entry.licence
        assert entry.paper
        assert entry_spec(entry).name == entry.name  # and the spec accepts the sizes
    assert {len(entry_classes(entry)) for entry in PUBLISHED} == {1000, 10}


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"`vitb16_robust` is no model: did you mean 'vit_b16_robust'\?"):
        find_entry("vitb16_robust")
    with pytest.raises(ModelError, match="`locality models` lists the names"):
        find_entry("???")


def test_trained_says_the_threat() -> None:
    assert find_entry("resnet50_linf_8").trained == "AT linf 8/255"
    assert find_entry("cifar_resnet50_l2_05").trained == "AT l2 0.5"
    assert find_entry("resnet50").trained == "standard"


@pytest.fixture
def card() -> Card:
    return Card(
        name="toy_robust",
        net="shapes_cnn",
        classes=tuple("abcdefghij"),
        input_size=(64, 64),
        mean=(0.45, 0.45, 0.45),
        std=(0.25, 0.25, 0.25),
        training="trades",
        norm="linf",
        epsilon=8 / 255,
        data="shapes",
        data_hash="0" * 64,
        accuracy={"clean": 0.912, "linf 8/255 pgd10": 0.534, "none": 0.9},
        parameters=153_482,
        weights_sha256="a" * 64,
        recipe={"epochs": 3},
        seed=0,
        minutes=1.5,
        versions={"torch": "2"},
    )


def test_shipped_models_are_read_from_their_cards(card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr(catalog, "CHECKPOINTS", tmp_path)
    write_card(card, tmp_path / "toy_robust.json")
    entry = find_entry("toy_robust")
    assert next(iter(entries())) == "toy_robust"
    assert entry.weights == Shipped(str(tmp_path / "toy_robust.safetensors"), "sha256:" + "a" * 64)
    assert entry.architecture == "net:shapes_cnn"
    assert (entry.label_space, entry.trained) == ("shapes", "TRADES linf 8/255")
    assert (entry.clean, entry.robust) == (pytest.approx(91.2), pytest.approx(53.4))
    assert entry.attack == "linf 8/255 pgd10"
    spec = entry_spec(entry)
    assert (spec.classes, spec.input_size, spec.resize, spec.mean) == (card.classes, (64, 64), 64, card.mean)


def test_tiny_imagenet_and_random_cards(card: Card) -> None:
    entry: Entry = catalog._of_card(
        "x", replace(card, data="tiny-imagenet", training="random", norm=None, epsilon=None, accuracy={})
    )
    assert (entry.label_space, entry.trained) == ("tiny-imagenet-10", "random")
    assert (entry.clean, entry.robust, entry.attack) == (None, None, None)


def test_the_catalog_does_not_import_torch() -> None:
    code = "import sys, locality.zoo.weight_files, locality.zoo.catalog as c; c.entries(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
