"""What a benchmark knows about its models: who is whose twin, how each was trained, what its weights are."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Any

from locality.results.schema import MODELS
from locality.robustness.attack_cache import model_fingerprint
from locality.runner.suite import trained
from locality.runner.suite_file import ModelChoice, Suite
from locality.types import ModelSpec
from locality.zoo.catalog import entries
from locality.zoo.load import load_model
from locality.zoo.pixel_model import PixelModel
from locality.zoo.state_dict import weights_hash

# Where a catalogued name stops naming the architecture: resnet50_l2_3, tiny_resnet_robust8, vit_b16_robust.
VARIANT = re.compile(r"_(?:robust|random|trades|l2|linf)")


@dataclass(frozen=True)
class PlannedModel:
    """A model of a suite after it was loaded once."""

    choice: ModelChoice
    spec: ModelSpec
    data: str  # the name of the data set it is measured on
    family: str
    training: str
    norm: str | None
    epsilon: float | None
    weights_sha256: str
    fingerprint: str  # of weights, layers and their source: what its numbers depend on
    counterpart: str | None = None

    @property
    def name(self) -> str:
        return self.choice.name

    @property
    def kind(self) -> str | None:
        """Standard, robust or random; None where the training is unknown."""
        if self.training == "unknown":
            return None
        return self.training if self.training in ("standard", "random") else "robust"


def described(choice: ModelChoice, model: PixelModel, data: str) -> PlannedModel:
    """What the suite says about the model, else what the catalog does."""
    entry = entries().get(choice.source)
    norm, epsilon = (None, None) if entry is None else (entry.norm, entry.epsilon)
    return PlannedModel(
        choice=choice,
        spec=model.spec,
        data=data,
        family=choice.family or family_of(choice.source if entry else choice.name),
        training=trained(choice),
        norm=choice.norm or norm,
        epsilon=epsilon if choice.epsilon is None else choice.epsilon,
        weights_sha256=weights_hash(model),
        fingerprint=model_fingerprint(model),
    )


def family_of(name: str) -> str:
    """The name without what says how the model was trained.

    >>> family_of("resnet50_linf_4_transfer"), family_of("tiny_vit_robust"), family_of("vgg16")
    ('resnet50', 'tiny_vit', 'vgg16')
    """
    return VARIANT.split(name, maxsplit=1)[0]


def with_counterparts(models: tuple[PlannedModel, ...], suite: Suite) -> tuple[PlannedModel, ...]:
    """Each model beside the standard one of its family and data, or the one that `pairs` names; a random one has none."""
    given = dict(suite.pairs)
    standard = {(model.family, model.data): model.name for model in reversed(models) if model.training == "standard"}

    def counterpart(model: PlannedModel) -> str | None:
        if model.name in given:
            return given[model.name]
        if model.training in ("standard", "random"):
            return None
        return standard.get((model.family, model.data))

    return tuple(replace(model, counterpart=counterpart(model)) for model in models)


def model_rows(models: tuple[PlannedModel, ...]) -> list[dict[str, Any]]:
    """One row per model, with the columns of `Results.models`, as JSON can keep it."""
    return [
        {"model": model.name} | {column: getattr(model, column) for column in MODELS if column != "model"}
        for model in models
    ]


@functools.lru_cache(maxsize=1)
def loaded(planned: PlannedModel, device: str) -> PixelModel:
    """The model, if it is the one that was planned; a process keeps the last one, as units come model by model."""
    choice = planned.choice
    model = load_model(choice.source, arch=choice.arch, num_classes=choice.num_classes)
    if model_fingerprint(model) != planned.fingerprint:
        raise ValueError(
            f"`{choice.source}` must be the same model wherever it is loaded, got other weights or other code here: "
            "install the same version of everything on every machine"
        )
    return model.to(device)
