"""The models of a suite after they were loaded once: training, weights, and the standard model each is compared with."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass, replace
from typing import Any, get_args

from locality.results.schema import MODELS
from locality.robustness.fingerprint import model_fingerprint, module_source, probe_logits, same_logits
from locality.runner.suite import ModelChoice, Suite, card_of
from locality.types import NORMS, ModelSpec, Threat
from locality.zoo.architectures import is_function
from locality.zoo.catalog import model_cards
from locality.zoo.load import load_model
from locality.zoo.model_card import ModelCard
from locality.zoo.pixel_model import PixelModel
from locality.zoo.state_dict import weights_hash
from locality.zoo.trainings import TRAININGS, UNKNOWN, Kind

# Where a catalogued name stops naming the architecture: resnet50_l2_3, tiny_resnet_robust8, vit_b16_robust.
VARIANT = re.compile(rf"_(?:{'|'.join([*TRAININGS, *get_args(Kind), *NORMS])})(?![a-z])")


@dataclass(frozen=True)
class PlannedModel:
    """A model of a suite after it was loaded once."""

    choice: ModelChoice
    card: ModelCard  # with what the suite says about its training
    spec: ModelSpec  # of the loaded model
    data: str  # the name of the data set it is measured on
    family: str
    weights_sha256: str
    fingerprint: str  # of weights, layers, hooks and their source: what its numbers depend on
    probe: tuple[float, ...]  # rounded logits of fixed images
    counterpart: str | None = None
    preprocessing: str = ""  # in one line
    has_regions: bool = True  # the data have boxes or outlines

    @property
    def name(self) -> str:
        return self.choice.name


def described(choice: ModelChoice, model: PixelModel, data: str) -> PlannedModel:
    """What the suite says about the model, else what its card does."""
    known = card_of(choice)
    card = known or ModelCard(
        spec=model.spec,
        architecture=choice.arch or choice.source,
        parameters=sum(weight.numel() for weight in model.parameters()),
        data="",
    )
    return PlannedModel(
        choice=choice,
        card=replace(card, training=choice.training or card.training, threat=threat_of(choice, card.threat)),
        spec=model.spec,
        data=data,
        family=choice.family or family_of(choice.source if choice.source in model_cards() else choice.name),
        weights_sha256=weights_hash(model),
        fingerprint=fingerprint_of(choice, model),
        probe=probe_logits(model, model.spec.input_size),
        preprocessing=model.preprocessing,
    )


def fingerprint_of(choice: ModelChoice, model: PixelModel) -> str:
    """A hash of the model and of the file of the function that made it, if there is one."""
    sources = [module_source(text.partition(":")[0]) for text in (choice.source, choice.arch or "") if is_function(text)]
    return hashlib.sha256("".join([model_fingerprint(model), *sources]).encode()).hexdigest()


def threat_of(choice: ModelChoice, known: Threat | None) -> Threat | None:
    """The threat that the suite gives, each part of it that is missing taken from the known one."""
    norm = choice.norm or (known.norm if known else None)
    epsilon = choice.epsilon if choice.epsilon is not None else (known.radius if known else None)
    if norm is None and epsilon is None:
        return None
    if norm is None or epsilon is None:
        raise ValueError(f"`norm` and `epsilon` of {choice.name} must be given together, got {norm!r} and {epsilon!r}")
    return Threat(norm, epsilon)


def family_of(name: str) -> str:
    """The name without what says how the model was trained.

    >>> family_of("resnet50_linf_4_transfer"), family_of("tiny_vit_robust8"), family_of("my_attention")
    ('resnet50', 'tiny_vit', 'my_attention')
    """
    return VARIANT.split(name, maxsplit=1)[0]


def with_counterparts(models: tuple[PlannedModel, ...], suite: Suite) -> tuple[PlannedModel, ...]:
    """Each model with the standard one of its family and data, or the one in `pairs`; a random model has none."""
    given = dict(suite.pairs)
    standard = {(model.family, model.data): model.name for model in reversed(models) if model.card.kind == "standard"}

    def counterpart(model: PlannedModel) -> str | None:
        if model.name in given:
            return given[model.name]
        if model.card.kind in ("standard", "random"):
            return None
        return standard.get((model.family, model.data))

    return tuple(replace(model, counterpart=counterpart(model)) for model in models)


def model_rows(models: tuple[PlannedModel, ...]) -> list[dict[str, Any]]:
    """One row per model, with the columns of `results.schema.MODELS`, as plain values."""
    return [_model_row(model) for model in models]


def _model_row(model: PlannedModel) -> dict[str, Any]:
    return model_row(model.name, model.card, model.family, model.data, model.weights_sha256, model.counterpart)


def model_row(
    name: str, card: ModelCard | None, family: str, data: str, weights_sha256: str, counterpart: str | None = None
) -> dict[str, Any]:
    """A row of `results.schema.MODELS`; a model without a card is of unknown training."""
    threat = None if card is None else card.threat
    row = {
        "model": name,
        "family": family,
        "training": UNKNOWN if card is None else card.training,
        "kind": UNKNOWN if card is None else card.kind,
        "norm": threat and threat.norm,
        "epsilon": threat and threat.radius,
        "counterpart": counterpart,
        "data": data,
        "weights_sha256": weights_sha256,
    }
    return {column: row[column] for column in MODELS}


@functools.lru_cache(maxsize=1)
def loaded(planned: PlannedModel, device: str) -> PixelModel:
    """The model, if it is the one that was planned. A process caches the last one, because units come model by model."""
    choice = planned.choice
    model = load_model(choice.source, **choice.loading)
    is_same = fingerprint_of(choice, model) == planned.fingerprint
    if not is_same or not same_logits(planned.probe, probe_logits(model, model.spec.input_size)):
        raise ValueError(
            f"`{choice.source}` differs from the model that was planned, in its weights or its code: "
            "install the same versions on every machine"
        )
    return model.to(device)


# The other model of a unit has a cache of its own, so that neither is loaded anew for every unit.
loaded_surrogate = functools.lru_cache(maxsize=1)(loaded.__wrapped__)
