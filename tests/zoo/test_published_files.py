"""Every entry of the catalog loads a file as its publisher made it: names, shapes, sections, prefixes, file format.

The tensors are one number each, expanded to the published shape, and the network has no data (`meta`), so that 528 MB of
VGG16 take none. What is checked is that each tensor of the file arrives at one of the network, and that no other file does.
"""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import published_layouts as layouts
import pytest
import torch
from torch import Tensor, nn

from locality.errors import ModelError, NeedsCodeError
from locality.zoo import architectures, catalog
from locality.zoo.catalog import PUBLISHED, find_card
from locality.zoo.load import load_model
from locality.zoo.model_card import Address, ModelCard, Package
from locality.zoo.state_dict import read_tensors

LAYOUTS: dict[str, Callable[[], layouts.Shapes]] = {
    "squeezenet": layouts.squeezenet,
    "vgg16": layouts.torchvision_vgg16,
    "resnet50": layouts.resnet50,
    "vit_b32": lambda: layouts.torchvision_vit(32),
    "vit_b16": lambda: layouts.torchvision_vit(16),
    "vgg16_robust": layouts.timm_vgg16,
    "resnet50_robust": layouts.resnet50,
    "vit_b32_robust": lambda: layouts.timm_vit(32, 768),
    "vit_b16_robust": lambda: layouts.timm_vit(16, 768),
    "vit_s16_robust": lambda: layouts.timm_vit(16, 384),
    "resnet101_robust": layouts.resnet101,
    "swin_b_robust": layouts.timm_swin_base,
    "densenet121_robust": layouts.timm_densenet121,
    "cifar_resnet50": layouts.cifar_resnet50,
    "cifar_resnet50_l2_05": layouts.cifar_resnet50,
    "resnet50_l2_3": layouts.resnet50,
    "resnet50_linf_4": layouts.resnet50,
    "resnet50_linf_8": layouts.resnet50,
    "resnet50_l2_3_transfer": layouts.resnet50,
    "resnet50_linf_4_transfer": layouts.resnet50,
}
FETCHED = [card.name for card in PUBLISHED if isinstance(card.weights, Address)]
Tensors = dict[str, Tensor]


def filled(shapes: layouts.Shapes, as_parameters: bool = False, first: int = 1) -> Tensors:
    """Tensors of these shapes, each of one number of its own, which is all that the file holds."""
    tensors: Tensors = {}
    for number, (name, shape) in enumerate(shapes.items(), first):
        if name.endswith("num_batches_tracked"):
            tensors[name] = torch.tensor(number)
            continue
        value = torch.tensor(float(number)).expand(shape)
        tensors[name] = nn.Parameter(value, requires_grad=False) if as_parameters else value
    return tensors


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    return {prefix + name: value for name, value in tensors.items()}


def normaliser(card: ModelCard, mean: str, std: str) -> Tensors:
    return {mean: torch.tensor(card.spec.mean).view(3, 1, 1), std: torch.tensor(card.spec.std).view(3, 1, 1)}


def torchvision_files(card: ModelCard) -> dict[str, Any]:
    return {"plain": filled(LAYOUTS[card.name](), as_parameters=True)}


def easyrobust_files(card: ModelCard) -> dict[str, Any]:
    """As timm saves them, and as `DataParallel(Sequential(normaliser, network))` does."""
    tensors = filled(LAYOUTS[card.name]())
    if card.name == "swin_b_robust":
        net = built(card.architecture)
        tensors |= {name: value for name, value in net.named_buffers() if name.endswith(("_index", "attn_mask"))}
    wrapped = normaliser(card, "module.0.mean", "module.0.std") | prefixed("module.1.", tensors)
    run = {"epoch": 4, "arch": card.architecture, "metric": 65.1, "args": argparse.Namespace(lr=0.1)}
    average = filled(LAYOUTS[card.name](), first=10_000)
    return {
        "timm": run | {"state_dict": tensors, "state_dict_ema": average, "optimizer": {"state": {}}},
        "wrapped": {"state_dict": wrapped, "epoch": 4},
    }


def madrylab_files(card: ModelCard) -> dict[str, Any]:
    """An AttackerModel inside DataParallel: the network twice, and two normalisers."""
    tensors = filled(LAYOUTS[card.name]())
    model = normaliser(card, "module.normalizer.new_mean", "module.normalizer.new_std")
    model |= normaliser(card, "module.attacker.normalize.new_mean", "module.attacker.normalize.new_std")
    model |= prefixed("module.model.", tensors) | prefixed("module.attacker.model.", tensors)
    return {"model": {"model": model, "epoch": 104}, "state_dict": {"state_dict": model, "epoch": 104}}


def files_of(card: ModelCard) -> dict[str, Any]:
    if card.training == "standard" and card.architecture.startswith("torchvision:"):
        return torchvision_files(card)
    return easyrobust_files(card) if card.architecture.startswith("timm:") else madrylab_files(card)


def built(architecture: str) -> nn.Module:
    """The network without data; Swin with the buffers that it computes, which the file must have equal."""
    net = empty(architecture)
    for name, _ in net.named_buffers() if "swin" in architecture else ():
        parent, _, own = name.rpartition(".")
        # Those of one depth and size of window are the same in every Swin.
        same_kind = re.sub(r"blocks\.(\d+)", lambda found: f"blocks.{int(found[1]) % 2}", name)
        net.get_submodule(parent)._buffers[own] = computed_by_swin()[same_kind]
    return net


@functools.cache
def empty(architecture: str) -> nn.Module:
    with torch.device("meta"):
        return BUILD(architecture, 10 if "cifar" in architecture else 1000)


@functools.cache
def computed_by_swin() -> dict[str, Tensor]:
    kind: Any = import_module("timm.models.swin_transformer").SwinTransformer
    return dict(kind(embed_dim=8, depths=(2, 2, 2, 2), num_heads=(1, 1, 1, 1), window_size=7).named_buffers())


BUILD = architectures.build


@pytest.fixture
def light(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[Tensors]:
    """Networks without data; the list receives what is loaded into them."""
    loaded: list[Tensors] = []

    def note(self: nn.Module, tensors: Tensors, *_: Any, **__: Any) -> None:
        assert self.state_dict().keys() == tensors.keys()
        loaded.append(tensors)

    unverified = tuple(
        replace(card, weights=replace(card.weights, checksum=None)) if isinstance(card.weights, Address) else card
        for card in PUBLISHED
    )
    monkeypatch.setattr(catalog, "PUBLISHED", unverified)
    monkeypatch.setattr("locality.zoo.checkpoint.build", lambda architecture, *_: built(architecture))
    monkeypatch.setattr("locality.zoo.state_dict.check_tensors", lambda *_: None)  # it refuses expanded tensors
    monkeypatch.setattr("locality.zoo.state_dict.check_finite", lambda *_: None)  # of each of a billion numbers
    monkeypatch.setattr(nn.Module, "load_state_dict", note)
    (cache / "models").mkdir(parents=True)
    return loaded


def saved(card: ModelCard, content: object, cache: Path) -> Path:
    assert isinstance(card.weights, Address)
    path = cache / "models" / card.weights.file
    path.with_name(f"{path.name}.sha256").unlink(missing_ok=True)
    # torchvision's file of 2017 is of torch's format before 1.6.
    torch.save(content, path, _use_new_zipfile_serialization=card.name != "vgg16")
    return path


def test_every_entry_to_fetch_has_a_layout() -> None:
    assert list(LAYOUTS) == FETCHED
    others = {type(card.weights).__name__ for card in PUBLISHED if card.name not in LAYOUTS}
    assert others == {Package.__name__, "Seed"}  # test_load.py loads the installed ones themselves


@pytest.mark.parametrize("name", FETCHED)
def test_the_publishers_file_loads(name: str, cache: Path, light: list[Tensors]) -> None:
    card = find_card(name)
    shapes = LAYOUTS[name]()
    parameters = (shape for key, shape in shapes.items() if "running" not in key and "num_batches" not in key)
    assert sum(torch.Size(shape).numel() for shape in parameters) == card.parameters
    for kind, content in files_of(card).items():
        path = saved(card, content, cache)
        assert path.stat().st_size < 2_000_000
        model = load_model(name, device="meta")
        (loaded,) = light
        own = model.net.state_dict()
        assert {key: value.shape for key, value in loaded.items()} == {key: value.shape for key, value in own.items()}
        numbers = [float(value.flatten()[0]) for value in loaded.values()]
        assert sorted(numbers) == [float(number) for number in range(1, len(shapes) + 1)], kind
        light.clear()
    logits = model(torch.empty(2, 3, *card.spec.input_size, device="meta"))
    assert logits.shape == (2, len(model.spec.classes))


@pytest.mark.parametrize("name", ["squeezenet", "vgg16_robust", "vit_b16", "swin_b_robust", "cifar_resnet50"])
def test_another_file_does_not(name: str, cache: Path, light: list[Tensors]) -> None:
    card = find_card(name)
    changes: tuple[tuple[Callable[[str], Tensors], str], ...] = (
        (lambda _: {}, "1 missing: "),
        (lambda bias: {bias: torch.ones(10), f"{bias}_scale": torch.ones(1)}, "1 unexpected: "),
        (lambda bias: {bias: torch.ones(7)}, "1 of another shape: "),
    )
    for change, words in changes:
        tensors = filled(LAYOUTS[name]())
        *_, bias = (key for key in tensors if key.endswith(".bias"))
        changed = change(bias)
        if len(changed) == 2:
            changed[bias] = tensors[bias]
        del tensors[bias]
        path = saved(card, {"state_dict": tensors | changed}, cache)
        with pytest.raises(ModelError, match=words) as refused:
            load_model(name, device="meta")
        assert str(path) in str(refused.value)
    assert light == []


class Schedule:
    """Something in a file that only code can load, as in MadryLab's."""


def test_files_pickled_with_code_say_how_to_convert_them(cache: Path, light: list[Tensors]) -> None:
    """MadryLab's have a schedule beside the tensors; `convert` keeps the tensors under their names (test_convert.py)."""
    card = find_card("resnet50_l2_3")
    assert "--trust-pickle" in card.note
    content = files_of(card)["model"]
    path = saved(card, content | {"schedule": Schedule()}, cache)
    with pytest.raises(NeedsCodeError, match=f"`locality models convert {path} --trust-pickle`"):
        load_model(card.name)
    assert read_tensors(saved(card, content, cache)).keys() == content["model"].keys()
