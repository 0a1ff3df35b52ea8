"""Landscapes of one model, or of two, on the images of a data set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from locality.data.dataset import ImageDataset
from locality.errors import ArgumentError
from locality.model_calls import model_device
from locality.progress import progress
from locality.robustness import Space
from locality.robustness.landscape import input_landscape, weight_landscape
from locality.robustness.landscape_grids import Landscapes
from locality.runner.provenance import provenance
from locality.types import Threat
from locality.zoo.pixel_model import PixelModel
from locality.zoo.preprocessing import check_same_pixels


def measure_landscapes(
    models: Mapping[str, PixelModel], data: ImageDataset, space: Space, *, seed: int = 0, **options: Any
) -> Landscapes:
    """The landscape of each model on the images whose classes they know; `options` go to the function of the space."""
    first, *others = models.values()
    for other in others:
        check_same_pixels(first.spec, other.spec, "against")
    batch = data.batch(range(len(data)))
    known = (batch.labels >= 0).nonzero()[:, 0]
    if len(known) == 0:
        raise ArgumentError("data", "images of classes that the model knows", data.name)
    ids = tuple(batch.ids[row] for row in known.tolist())
    make = input_landscape if space == "input" else weight_landscape
    attack: Threat | None = options.get("attack")
    loss = "cross-entropy" if attack is None else f"cross-entropy under attack, {attack}"
    by_model = {}
    for name, model in models.items():
        device = model_device(model) or torch.device("cpu")
        images, labels = batch.images[known].to(device), batch.labels[known].to(device)
        with progress(f"landscape of {name}", "images" if space == "input" else "points") as report:
            by_model[name] = make(model, images, labels, seed=seed, ids=ids, progress=report, **options)
    settings = {key: str(value) if isinstance(value, Threat) else value for key, value in options.items()}
    data_sha256 = data.fingerprint()
    origins = {name: provenance(model, data, settings, data_sha256) for name, model in models.items()}
    return Landscapes(by_model, {"loss": loss, "seed": seed, **settings, "provenance": origins})


def interval_text(mean: float, low: float, high: float, *, signed: bool = False) -> str:
    """A number of any size with its interval.

    >>> interval_text(0.012345, 0.01, 0.015), interval_text(1234.5, math.nan, math.nan)
    ('0.0123 [0.01, 0.015]', '1.23e+03')
    """
    form = "+.3g" if signed else ".3g"
    return f"{mean:{form}}" if math.isnan(low) else f"{mean:{form}} [{low:{form}}, {high:{form}}]"
