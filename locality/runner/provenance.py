"""Where a number comes from: package versions, weights, data, settings."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from locality.data.dataset import ImageDataset
from locality.files import source_hash
from locality.zoo.preprocessing import model_preprocessing
from locality.zoo.state_dict import weights_hash

SOURCES = "locality sources"  # beside the versions: a hash of the files that numbers depend on
PACKAGES = ("locality", "torch", "captum", "foolbox", "timm", "numpy")


def provenance(model: nn.Module, data: ImageDataset, settings: Mapping[str, Any], data_sha256: str) -> dict[str, Any]:
    """Everything that decides the rows of an evaluation, as plain values."""
    return {
        "weights_sha256": weights_hash(model),
        "preprocessing": model_preprocessing(model),
        "data": data.name,
        "data_sha256": data_sha256,
        "region": data.region,
        "cue": None if data.source.cue is None else {k: v for k, v in asdict(data.source.cue).items() if v is not None},
        "settings": {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()},
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in PACKAGES}
        | {SOURCES: source_hash()[:16]},
        "threads": torch.get_num_threads(),
    }
