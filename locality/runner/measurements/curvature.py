"""Curvature of the loss at training images, and losses of training and test images under attack (WCI, TrH, robust gap)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from locality.curvature import TraceMethod
from locality.curvature.attacked_losses import STEPS, AttackedSplit, attacked_split
from locality.curvature.index import weight_curvature
from locality.curvature.model_curvature import loss_rows
from locality.curvature.top_layer import top_layer_traces
from locality.curvature.traces import layer_traces
from locality.errors import ArgumentError, Problem
from locality.results.schema import Schema
from locality.runner.measurement import Block, Measurement, Part, Split, Tables, as_json, given_once
from locality.runner.suite import Suite
from locality.runner.work import Work
from locality.types import Norm, Threat

# One row per model × layer. A unit that was measured in pieces has rows of each piece: a trace is a mean over `images`, so
# the trace of all is the mean of the pieces', weighted by `images`.
LAYERS: Schema = {
    "model": str,
    "layer": str,
    "images": int,
    "weight_norm": float,
    "trace": float,
    "error": float,  # standard error of the estimate; nan for a single probe
}
# One row per model (and piece).
MODELS: Schema = {
    "model": str,
    "images": int,
    "wci": float,
    "wci_error": float,
    "upper": float,
    "top_trace": float,  # nan where no linear layer returns the logits
    "clipped": int,  # layers with a negative trace
    "method": str,
    "probes": int,
    "gradients": int,
    "forwards": int,
    "norm": str,
    "epsilon": float,
    "steps": int,
}
# One row per model × image of either split: the gap is the difference of their means.
IMAGES: Schema = {
    "model": str,
    "split": str,  # train, test
    "image_id": str,
    "clean_loss": float,
    "robust_loss": float,
    "clean_error": bool | None,  # missing where the model does not know the label
    "robust_error": bool | None,
    "top_trace": float,  # of training images
}
TYPICAL_CLASSES = 10  # backward passes per image of exact traces


@dataclass(frozen=True)
class CurvatureSettings:
    """The attack, the estimator of traces, and the data set trained on where the models' cards do not name it."""

    norm: Norm = "linf"
    epsilon: float = 8 / 255
    steps: int = STEPS
    method: TraceMethod = "auto"
    probes: int | None = None
    train: str = ""
    limit: int = 64
    models: tuple[str, ...] = ()

    @property
    def threat(self) -> Threat:
        return Threat(self.norm, self.epsilon)


def parts(suite: Suite) -> Iterator[Part]:
    """Two parts. All training images of a model are one unit: probes are shared by images, and errors are of all of them."""
    for settings in suite.requested("curvature"):
        attack = {"norm": settings.norm, "epsilon": settings.epsilon, "steps": settings.steps, "seed": suite.seed}
        traces = {"method": settings.method, "probes": settings.probes}
        splits: tuple[tuple[str, Split, dict[str, object], int | None], ...] = (
            ("curvature", "train", attack | traces, settings.limit),
            ("curvature test", "test", attack, suite.block),
        )
        for name, split, numbers, block in splits:
            yield Part(
                name,
                "curvature",
                settings,
                as_json(numbers | {"split": split}),
                limit=settings.limit,
                block=block,
                models=settings.models,
                split=split,
                train=settings.train,
            )


def rows(block: Block) -> Tables:
    """One row per image, and for training images one per layer and one for the model."""
    settings: CurvatureSettings = block.settings
    train = block.part.split == "train"
    seed = block.suite.seed
    split = attacked_split(block.model, block.batch, settings.threat, settings.steps, seed, device=block.device, keep=train)
    if not train:
        return {"curvature_images": _image_rows(block, split, "test")}
    if not len(split.images):  # the model knows none of the classes
        return {"curvature_images": _image_rows(block, split, "train")}
    traces = layer_traces(block.model, split.images, split.labels, settings.method, settings.probes, seed)
    index = weight_curvature(traces)
    top = top_layer_traces(block.model, split.images)
    layers = pd.DataFrame({"model": block.name, "layer": traces.names, "images": traces.images})
    layers["weight_norm"], layers["trace"], layers["error"] = (
        column.numpy() for column in (traces.norms, traces.traces, traces.errors)
    )
    model = {
        "model": block.name,
        "images": traces.images,
        "wci": index.index,
        "wci_error": index.error,
        "upper": index.upper,
        "top_trace": math.nan if top is None else float(top.mean()),
        "clipped": index.clipped,
        "method": traces.method,
        "probes": traces.probes,
        "gradients": traces.gradients + split.gradients,
        "forwards": traces.forwards + split.forwards,
        "norm": settings.norm,
        "epsilon": settings.epsilon,
        "steps": settings.steps,
    }
    images = _image_rows(block, split, "train")
    if top is not None:
        images.loc[images["robust_loss"].notna(), "top_trace"] = top.numpy()
    tables = {"curvature": layers, "curvature_models": pd.DataFrame([model]), "curvature_images": images}
    return {name: table[list(TABLES[name])] for name, table in tables.items()}


def _image_rows(block: Block, split: AttackedSplit, name: Split) -> pd.DataFrame:
    table = loss_rows(split.losses).assign(model=block.name, split=name, top_trace=math.nan)
    return table[list(IMAGES)]


def problems(suite: Suite) -> list[Problem]:
    """Numbers out of range."""
    found = given_once(suite, "curvature")
    for where, settings in suite.located("curvature"):
        try:
            Threat(settings.norm, settings.epsilon)
        except ArgumentError as error:
            found.append(Problem.of(f"{where}.{error.argument}", error))
        for key in ("steps", "probes"):
            value = getattr(settings, key)
            if value is not None and value < 1:
                found.append(Problem(f"{where}.{key}", f"must be at least 1, got {value}"))
    return found


def work(suite: Suite, part: Part) -> Work:
    """Of the attack, and of the traces of training images."""
    attack = Work(part.settings.steps, 2)
    return attack + Work(TYPICAL_CLASSES, 2) if part.split == "train" else attack


TABLES = {"curvature": LAYERS, "curvature_models": MODELS, "curvature_images": IMAGES}
CURVATURE = Measurement("curvature", CurvatureSettings, TABLES, parts, rows, problems, work)
