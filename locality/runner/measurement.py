"""What a measurement of a suite is made of. `measurements/` has one file for each; its `__init__` lists them all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor, nn

from locality.data.dataset import ImageDataset
from locality.errors import Problem
from locality.model_calls import Calls, model_device, open_model
from locality.model_calls.decisions import decisions
from locality.results.schema import Schema
from locality.runner.explain_batch import Explanations, Settings, explain, rows_of_batch
from locality.runner.suite import Suite
from locality.runner.work import Work
from locality.types import ABSTAINED, Batch, Sample

Tables = dict[str, pd.DataFrame]
Split = Literal["suite", "train", "test"]


@dataclass(frozen=True)
class Part:
    """One measurement with one set of settings: what is cut into units of work."""

    name: str  # "locality", "robust 1", "searches paper"
    measurement: str  # its name in MEASUREMENTS
    settings: Any  # an instance of the measurement's settings class
    numbers: str  # JSON of all settings that decide its numbers; part of each unit's key
    limit: int | None = None  # images at most; None: those of the suite
    block: int | None = None  # images per unit; None: by their size
    models: tuple[str, ...] = ()  # none: all
    methods: tuple[str, ...] = ()  # whose maps it needs
    reference: int = 0  # number of first images that every unit reads besides its own
    split: Split = "suite"  # which images: the suite's, or those of a split, whatever their boxes
    train: str = ""  # the data set of the split `train`; if empty, the one that the model's card names
    surrogate: str = ""  # another model of the suite, which its units need, too
    along: str = ""  # the part in whose units it is measured, if that is measured, because it needs the same maps


@dataclass(frozen=True)
class Measurement:
    """Everything about one measurement."""

    name: str  # also the key in the TOML file
    settings: type  # its frozen dataclass; fields `limit`, `models` and `methods` are checked for every measurement
    tables: Mapping[str, Schema]  # the tables that `rows` returns
    parts: Callable[[Suite], Iterable[Part]]
    rows: Callable[[Block], Tables]  # measures one block of images
    problems: Callable[[Suite], list[Problem]]  # what is wrong with its settings
    work: Callable[[Suite, Part], Work]  # evaluations per image, for the dry run; of a part `along` another, those it adds
    needs_regions: bool = False  # measured only on data with boxes or outlines


@dataclass(frozen=True, eq=False)
class Block:
    """The images of a unit, the model, and what several measurements of the same images share."""

    model: nn.Module
    name: str  # the model's name in the suite
    suite: Suite
    part: Part
    data: ImageDataset  # all images of the part
    batch: Batch
    methods: tuple[str, ...]  # of all parts that are measured in this unit
    surrogate: nn.Module | None = None  # the other model that the part names
    decoded: Mapping[int, Sample] = field(default_factory=dict)  # images that were read already, by their index in `data`
    _shared: dict[str, Explanations] = field(default_factory=dict)

    @property
    def settings(self) -> Any:
        """Those of the part."""
        return self.part.settings

    @property
    def device(self) -> torch.device:
        return model_device(self.model) or torch.device("cpu")

    @property
    def images(self) -> Tensor:
        """N×C×H×W, on the model's device."""
        return self.batch.images.to(self.device)

    @property
    def explain_settings(self) -> Settings:
        """The suite's settings with the methods of the part."""
        return replace(self.suite.settings, methods=self.part.methods)

    def explanations(self, calls: Calls | None = None) -> Explanations:
        """Predictions, boundary and maps of the part's methods, computed once for all parts of the unit."""
        if "all" not in self._shared:
            settings = replace(self.suite.settings, methods=self.methods)
            self._shared["all"] = explain(self.model, self.batch, settings, calls)
        shared = self._shared["all"]
        maps = {name: shared.maps[name] for name in self.part.methods if name in shared.maps}
        return replace(shared, maps=maps)

    def of(self, part: Part) -> Block:
        """The same images for another part of the unit."""
        return replace(self, part=part)

    def decided(self) -> Batch:
        """The images that the model decides on. A model that never abstains is not asked."""
        if not hasattr(self.model, "abstains"):
            return self.batch
        with open_model(self.model, self.images) as calls:
            return rows_of_batch(self.batch, decisions(self.model, calls.logits(self.images)) != ABSTAINED)

    def first_images(self, count: int) -> Tensor:
        """The first images of the part, whichever block this is, on the model's device."""
        samples = [self.decoded.get(index) or self.data[index] for index in range(min(count, len(self.data)))]
        return torch.stack([sample.image for sample in samples]).to(self.device)


def as_json(value: Any) -> str:
    """JSON with sorted keys, so that equal settings are equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def map_numbers(suite: Suite, methods: tuple[str, ...], **more: Any) -> str:
    """JSON of what decides the maps of these methods, and of `more`."""
    settings = suite.settings
    maps = {"methods": methods, "search": settings.search, "target": settings.target, "seed": settings.seed}
    return as_json(maps | more)


def given_once(suite: Suite, measurement: str) -> list[Problem]:
    """A problem if the suite has a list of settings of a measurement that takes one."""
    return [Problem(measurement, "must be given once")] if len(suite.requested(measurement)) > 1 else []
