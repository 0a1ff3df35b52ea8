"""The monitor: at the ends of epochs, losses and errors on fixed images, clean and attacked, and the curvature of the loss.

It measures a copy of the network in eval mode and float32, with random numbers of its own, so it changes no bit of the
training. The attack is PGD without early stop: points of an attack that stops at its first success have right errors, but
far too small losses.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from locality.curvature.attacked_losses import BLOCK, attacked_split
from locality.curvature.closed_forms import squared_length, trace_cross_entropy
from locality.curvature.index import weight_curvature
from locality.curvature.traces import layer_traces
from locality.errors import ArgumentError, Problem
from locality.training.batches import TrainingImages, eval_images
from locality.training.monitor_settings import MonitorSettings
from locality.training.recipe import Recipe, RecipeError
from locality.training.schedules import Moment
from locality.training.step import TrainingStep
from locality.types import Threat
from locality.zoo.pixel_model import PixelModel

Split = tuple[Tensor, Tensor]  # images and labels


@dataclass(frozen=True, eq=False)
class Monitor:
    """Measures a run at the ends of epochs."""

    settings: MonitorSettings
    threat: Threat
    train: Split
    eval: Split
    epoch_gradients: int  # images × gradients of an epoch of training

    def __call__(self, moment: Moment, logged: Mapping[str, float], step: TrainingStep) -> dict[str, Any] | None:
        """A line of `monitor.jsonl`, the same in every process; None where nothing is to be measured."""
        if not moment.ends_epoch or (moment.epoch + 1) % self.settings.every:
            return None
        line: dict[str, Any] = {}
        if step.accelerator.is_main_process:
            line = {"step": logged["step"], "epoch": logged["epoch"], "share": (moment.step + 1) / moment.steps}
            line |= {"learning_rate": logged["learning_rate"]}
            line |= self.measure(self._model(step), seed=moment.epoch)
        if step.accelerator.num_processes > 1:
            from accelerate.utils import broadcast_object_list

            (line,) = broadcast_object_list([line])
        return line

    def measure(self, model: PixelModel, seed: int) -> dict[str, Any]:
        """Losses, errors and curvature of a model in eval mode; undefined numbers are None. `seed` is that of the probes."""
        numbers: dict[str, Any] = {}
        gradients = 0
        attacked: dict[str, Tensor] = {}
        variances = dict.fromkeys(("loss", "error"), 0.0)
        for name, split in (("train", self.train), ("eval", self.eval)):
            under_attack = attacked_split(model, split, self.threat, self.settings.steps, device=model.mean.device)
            losses, attacked[name] = under_attack.losses, under_attack.images
            gradients += under_attack.gradients
            numbers |= {
                f"{name}_images": len(losses),
                f"{name}_loss": float(losses.clean_loss.mean()),
                f"{name}_error": float(losses.clean_error.mean()),
                f"{name}_robust_loss": float(losses.robust_loss.mean()),
                f"{name}_robust_error": float(losses.robust_error.mean()),
            }
            for kind, values in (("loss", losses.robust_loss), ("error", losses.robust_error)):
                variances[kind] += float(values.var()) / len(values)
        for kind, variance in variances.items():
            numbers[f"{kind}_gap"] = numbers[f"eval_robust_{kind}"] - numbers[f"train_robust_{kind}"]
            numbers[f"{kind}_gap_error"] = math.sqrt(variance)
        points = attacked["train"]
        labels = self.train[1].to(points.device)
        traces = layer_traces(model, points, labels, self.settings.method, self.settings.probes, seed)
        index = weight_curvature(traces)
        numbers |= {
            "wci": index.index,
            "wci_error": index.error,
            "upper": index.upper,
            "squared_norm": float(traces.norms.square().sum()),
            "trace": float(traces.traces.sum()),
            "trace_error": float(traces.covariance.sum().clamp_min(0).sqrt()),
            **self._top_layer(model, points),
            "gradients": gradients + traces.gradients,
            "epoch_gradients": self.epoch_gradients,
        }
        columns = zip(traces.names, traces.norms.tolist(), traces.traces.tolist(), traces.errors.tolist(), strict=True)
        layers = [{"name": name, "norm": norm, "trace": one, "error": error} for name, norm, one, error in columns]
        return _defined(numbers) | {"layers": [_defined(layer) for layer in layers]}

    @torch.no_grad()
    def _top_layer(self, model: PixelModel, points: Tensor) -> dict[str, float]:
        """Means over attacked images: the trace ‖z‖² σ(p) of the last layer, and ‖z‖², which may shrink in its place."""
        passes = [model.forward_pass(part) for part in points.split(BLOCK)]
        return {
            "top_trace": float(torch.cat([trace_cross_entropy(seen) for seen in passes]).mean()),
            "squared_features": float(torch.cat([squared_length(seen.features) for seen in passes]).mean()),
        }

    def _model(self, step: TrainingStep) -> PixelModel:
        """A copy of the model to measure; nothing that is done to it reaches the training."""
        model = copy.deepcopy(step.network.model)
        if self.settings.average:
            model.net.load_state_dict(step.average.result())
        return model.eval().requires_grad_(False)


def open_monitor(recipe: Recipe, model: PixelModel, images: TrainingImages) -> Monitor | None:
    """The monitor that a recipe asks for; its images are read here."""
    settings = recipe.monitor
    if settings is None:
        return None
    if settings.average and recipe.average(model.net.state_dict(), None).stale_statistics:
        text = "must be false for an average whose BatchNorm statistics are estimated at the end of the run"
        raise RecipeError(recipe.name, [Problem("monitor.average", text)])
    threat = recipe.threat or Threat("linf", recipe.evaluate_epsilon)
    if settings.epsilon is not None:
        try:
            threat = replace(threat, radius=settings.epsilon)
        except ArgumentError as error:
            raise error.renamed("monitor.epsilon") from None
    attack = getattr(recipe.loss, "attack", None)
    epoch_gradients = len(images) * (1 + (0 if attack is None else getattr(attack, "steps", 1)))
    count = settings.images or settings.affordable_images(epoch_gradients, len(model.spec.classes))
    train = images.balanced(count)
    # Two images are enough to find out whether the method suits the network.
    layer_traces(copy.deepcopy(model).eval(), train[0][:2], train[1][:2], settings.method, 1)
    held_out = eval_images(recipe.data.name, model.spec, count, images.data, **recipe.data.options)
    batch = held_out.batch(range(len(held_out)))
    return Monitor(settings, threat, train, (batch.images, batch.labels), epoch_gradients)


def _defined(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers for JSON, which has no nan: None in its place."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in numbers.items()
    }
