"""Where a number comes from: package versions, weights, data, settings."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from locality.data.dataset import ImageDataset
from locality.runner.evaluate import Settings
from locality.zoo.state_dict import weights_hash

PACKAGES = ("locality", "torch", "captum", "foolbox", "timm", "numpy")


def provenance(model: nn.Module, data: ImageDataset, settings: Settings) -> dict[str, Any]:
    """Everything that decides the rows of an evaluation, as plain values."""
    return {
        "weights_sha256": weights_hash(model),
        "data": data.name,
        "data_sha256": data.fingerprint(),
        "settings": asdict(settings),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
    }
