"""Models of RobustBench as `robustbench:NAME` or `robustbench:DATASET/THREAT/NAME`; the package downloads its own files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from locality.errors import MissingWeightsError, ModelError, did_you_mean
from locality.imagenet_classes import imagenet_wnids
from locality.types import ModelSpec
from locality.zoo.architectures import IDENTITY
from locality.zoo.catalog import CIFAR10
from locality.zoo.pixel_model import PixelModel
from locality.zoo.preprocessing import all_from
from locality.zoo.weight_files import models_folder, verified

PREFIX = "robustbench:"
RESIZED = re.compile(r"(Bicubic)?Res(\d+)(?:Crop(\d+))?")  # RobustBench's names of transforms of ImageNet
CLASSES: dict[str, tuple[str, ...]] = {"cifar10": CIFAR10}


def from_robustbench(name: str, download: bool = False, trust_first: bool = False) -> PixelModel:
    """A model of the package `robustbench`, from its file in our cache, or downloaded by the package.

    RobustBench publishes no checksums, so a first download needs `trust_first`, too. Its files are read by `torch.load`,
    whose `weights_only=True` is the default of every torch that locality supports.
    """
    if find_spec("robustbench") is None:
        raise ModelError(f"`{name}` needs the Python package robustbench: pip install 'locality[robustbench]'")
    dataset, threat, own = _found(name.removeprefix(PREFIX))
    folder = models_folder() / "robustbench"
    present = _files(folder / dataset / threat, own)
    if not present and not (download and trust_first):
        raise MissingWeightsError(
            f"`{name}` has no file in `{folder / dataset / threat}` and no published sha256: if you trust RobustBench's "
            f"files, `locality models fetch {name} --trust-first-download` downloads them and stores their sha256"
        )
    for path in present:
        verified(path, None)
    try:
        net: nn.Module = import_module("robustbench.utils").load_model(
            model_name=own, model_dir=str(folder), dataset=dataset, threat_model=threat
        )
    except Exception as error:  # the package and its networks raise errors of many kinds
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ModelError(f"`{name}` cannot be loaded by robustbench: {reason}") from error
    for path in _files(folder / dataset / threat, own):
        verified(path, None)
    spec, source = _input(dataset, _table()[dataset][threat][own], name)
    return PixelModel(net, spec, all_from(source))


def _table() -> dict[str, dict[str, dict[str, Any]]]:
    """Data set → threat → model → what RobustBench says about it."""
    listed = import_module("robustbench.model_zoo").model_dicts
    return {data.value: {threat.value: dict(models) for threat, models in table.items()} for data, table in listed.items()}


def _found(name: str) -> tuple[str, str, str]:
    """Data set, threat and name of the one model that is meant."""
    every = [
        (data, threat, own) for data, threats in _table().items() for threat, models in threats.items() for own in models
    ]
    given = name.split("/")
    matches = [one for one in every if list(one[-len(given) :]) == given]
    if not matches:
        hint = did_you_mean(given[-1], [own for _, _, own in every])
        raise ModelError(f"RobustBench has no model `{name}`{hint and f': {hint}'}")
    if len(matches) > 1:
        listed = " or ".join(PREFIX + "/".join(one) for one in matches[:3])
        raise ModelError(f"RobustBench has {len(matches)} models `{name}`: pass {listed}")
    return matches[0]


def _files(folder: Path, name: str) -> list[Path]:
    """The files of a model: one, or one for each member of an ensemble."""
    return [path for path in sorted(_checkpoints(folder)) if re.fullmatch(rf"{re.escape(name)}(_m\d+)?", path.stem)]


def _checkpoints(folder: Path) -> Iterator[Path]:
    return folder.glob("*.pt")


def _input(dataset: str, entry: dict[str, Any], name: str) -> tuple[ModelSpec, str]:
    """RobustBench's networks take pixels and normalise them themselves."""
    if dataset != "imagenet":
        return replace(ModelSpec(name, (32, 32), 32, classes=CLASSES.get(dataset, ())), **IDENTITY), "as RobustBench has it"
    spec = replace(ModelSpec(name, classes=imagenet_wnids()), **IDENTITY)
    match = RESIZED.fullmatch(str(entry.get("preprocessing")))
    if match is None:
        return spec, "guessed for ImageNet"
    resize, crop = int(match[2]), match[3]
    size = int(crop or resize)
    spec = replace(spec, input_size=(size, size), resize=resize if crop else None)
    return replace(spec, interpolation="bicubic" if match[1] else "bilinear"), "as RobustBench has it"
