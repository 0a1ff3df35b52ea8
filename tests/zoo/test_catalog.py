"""The catalog against the facts it was written from, and against what torchvision and timm say themselves."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from locality.errors import ModelError
from locality.types import ModelSpec
from locality.zoo import catalog
from locality.zoo.architectures import build
from locality.zoo.catalog import PUBLISHED, find_card, model_cards
from locality.zoo.load import card_spec
from locality.zoo.model_card import Address, ModelCard, Package, WeightFile, write_card

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
ARCHITECTURES = {card.architecture: card for card in PUBLISHED}


@pytest.mark.parametrize(("name", "address", "clean", "robust"), ROBUST)
def test_robust_models_are_as_published(name: str, address: str, clean: float | None, robust: float | None) -> None:
    card = find_card(name)
    assert isinstance(card.weights, Address)
    assert card.weights.url.endswith(address)
    assert card.clean == (None if clean is None else pytest.approx(clean / 100))
    assert (card.robust and card.robust.share) == (None if robust is None else pytest.approx(robust / 100))


@pytest.mark.parametrize("name", STANDARD)
def test_standard_models_are_what_torchvision_says(name: str) -> None:
    from torchvision.models import get_model_weights

    card = find_card(name)
    published = get_model_weights(card.architecture.removeprefix("torchvision:"))["IMAGENET1K_V1"]
    assert isinstance(card.weights, Address)
    assert card.weights.url == published.url
    assert card.weights.checksum is not None
    assert card.weights.checksum.startswith("sha256:" + published.url[-12:-4])
    assert card.parameters == published.meta["num_params"]
    assert card.clean == pytest.approx(published.meta["_metrics"]["ImageNet-1K"]["acc@1"] / 100, abs=0.0001)
    recipe = published.transforms()
    spec = card.spec
    assert [*spec.input_size, spec.resize] == [*recipe.crop_size * 2, *recipe.resize_size]
    assert (list(spec.mean), list(spec.std)) == (recipe.mean, recipe.std)
    assert spec.interpolation == recipe.interpolation.value


@pytest.mark.parametrize("number", [0, 1, 2])
def test_efficientnet_lite_is_what_timm_says(number: int) -> None:
    from locality.zoo.architectures import timm_input

    card = find_card(f"efficientnet_lite{number}")
    with torch.device("meta"):
        theirs = timm_input(build(card.architecture, 1000), card.name)
    assert replace(card_spec(card), classes=()) == theirs
    assert isinstance(card.weights, Package)
    assert card.weights.checksum.removeprefix("sha256:")[:8] in card.weights.file


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_exists_and_has_the_stated_parameters(architecture: str) -> None:
    card = ARCHITECTURES[architecture]
    with torch.device("meta"):  # shapes, no numbers
        net = build(architecture, len(card_spec(card).classes))
    assert sum(weight.numel() for weight in net.parameters()) == card.parameters


def test_entries_are_consistent() -> None:
    assert len({card.name for card in PUBLISHED}) == len(PUBLISHED)
    files = [card.weights.file for card in PUBLISHED if isinstance(card.weights, Address)]
    assert len(set(files)) == len(files)  # or one would overwrite the other in the cache
    for card in PUBLISHED:
        assert (card.threat is None) == (card.kind in ("standard", "random"))
        assert card.licence
        assert card.paper
        assert card_spec(card).name == card.name  # and the spec accepts the sizes
    assert {len(card_spec(card).classes) for card in PUBLISHED} == {1000, 10}


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"`vitb16_robust` is not a model: did you mean 'vit_b16_robust'\?"):
        find_card("vitb16_robust")
    with pytest.raises(ModelError, match="is not a model: `locality models` lists all"):
        find_card("???")


def test_trained_says_the_threat() -> None:
    assert find_card("resnet50_linf_8").trained == "AT ℓ∞ 8/255"
    assert find_card("cifar_resnet50_l2_05").trained == "AT ℓ2 0.5"
    assert find_card("resnet50").trained == "standard"


def test_shipped_models_are_read_from_their_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CHECKPOINTS", tmp_path)
    weights = WeightFile(str(tmp_path / "toy_robust.safetensors"), "sha256:" + "a" * 64)
    spec = ModelSpec("toy_robust", (64, 64), 64, classes=tuple("abcdefghij"))
    card = ModelCard(spec=spec, architecture="net:shapes_cnn", weights=weights, parameters=1, data="shapes", training="at")
    write_card(card, tmp_path / "toy_robust.json")
    assert find_card("toy_robust") == card
    assert next(iter(model_cards())) == "toy_robust"


def test_the_catalog_does_not_import_torch() -> None:
    code = "import sys, locality.zoo.weight_files, locality.zoo.catalog as c; "
    code += "c.model_cards(); assert not {'torch', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
