"""One training step, as an object with named terms, and what its exchangeable parts are.

A loss maps a `TrainingBatch` to a `LossValue`. Regularisers are added to it, each with a weight that may follow a schedule.
A weight shift says at which weights the loss is evaluated. All are frozen settings dataclasses that are callable, named by
the tables LOSSES, REGULARISERS and WEIGHT_SHIFTS. Averages and step sizes have modules of their own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from locality.errors import ArgumentError
from locality.perturbation import random_in_ball
from locality.training.averaging import Average
from locality.training.inner_attack import InnerAttack, Mode, Objective, perturbed
from locality.training.network import Network, Weights
from locality.training.schedules import Moment, Schedule
from locality.training.step_size import StepSize
from locality.types import Threat
from locality.zoo.nets.forward_pass import ForwardPass

if TYPE_CHECKING:
    from locality.training.recipe import Recipe

T = TypeVar("T")
Terms = dict[str, Tensor | float]  # named numbers of a step, for the log
NEAR = 1e-3  # radius of the ball around an image that a start "near" it is drawn from


class NotFiniteError(ValueError):
    """A term of a step is nan or infinite; the step has not been made."""

    def __init__(self, term: str, value: float, step: int) -> None:
        self.term, self.value, self.step = term, value, step
        super().__init__(f"`{term}` is {value} at step {step}: lower `learning_rate` or set `clip_norm`")

    def __reduce__(self) -> tuple[type[NotFiniteError], tuple[str, float, int]]:
        return type(self), (self.term, self.value, self.step)


@dataclass(frozen=True, eq=False)
class Passes:
    """The passes that a loss makes through the network; None where it makes no such pass."""

    clean: ForwardPass | None = None
    attacked: ForwardPass | None = None


@dataclass(frozen=True, eq=False)
class LossValue:
    """A loss and what it is made of. `clean` and `attacked` are the passes it saw, None where it made no such pass."""

    total: Tensor
    terms: Terms  # what the log shows, by name
    clean: ForwardPass | None = None
    attacked: ForwardPass | None = None
    fit: Tensor | None = None  # the part of `total` that is fitted to the labels, None where the loss names none

    @property
    def passes(self) -> Passes:
        return Passes(self.clean, self.attacked)


class Loss(Protocol):
    """What is minimised. A loss may have a `threat`, which the model's card then states and measures."""

    def __call__(self, batch: TrainingBatch) -> LossValue: ...


class Regulariser(Protocol):
    """A number that is added to the loss, times `weight` and its `schedule`."""

    @property
    def weight(self) -> float: ...

    @property
    def schedule(self) -> Schedule: ...

    def __call__(self, batch: TrainingBatch, value: LossValue) -> Tensor: ...

    def terms(self, batch: TrainingBatch, value: LossValue) -> Terms:
        """Further numbers for the log."""
        ...


class WeightShift(Protocol):
    """The weights at which the loss is evaluated; the step is then made from `weights`, the network's own.

    Return `weights` itself, or differentiable functions of it such as `weights[name] + offset`, for every name.
    """

    def __call__(self, batch: TrainingBatch, loss: Loss, weights: Weights) -> Weights: ...


@dataclass(frozen=True, eq=False)
class TrainingBatch:
    """Images and labels of one step of one process, and the network to evaluate them with.

    Over several processes, `forward` must be called once per step. Further passes, at these weights or at others, are made
    by `at(weights).forward`.
    """

    images: Tensor  # N×3×H×W in [0, 1]
    labels: Tensor  # N int64
    seeds: Sequence[int]  # one per image: of its random numbers in this epoch
    moment: Moment
    network: Network
    loss: Loss
    weights: Weights  # at which the network is evaluated
    seed: int = 0  # of the run
    on_the_side: bool = False  # whether this is not the pass that the step is made of
    results: dict[str, Any] = field(default_factory=dict)  # of `once`

    def forward(self, images: Tensor) -> ForwardPass:
        """Features and logits in training mode, at `weights`."""
        evaluate = self.network.trial if self.on_the_side else self.network.forward
        return evaluate(images, self.weights)

    def margin_norms(self, steps: int) -> Tensor:
        """K×K estimates of how fast margins can change with the pixels, at `weights`, by `steps` of power iteration."""
        return self.network.margin_norms(steps, self.weights, self.on_the_side)

    def at(self, weights: Weights) -> TrainingBatch:
        """The same batch at other weights, on the side.

        Its passes leave BatchNorm's statistics alone, and their gradients are not averaged over the processes until the
        step's own backward pass reaches the parameters through them. What was computed `once` stays.
        """
        return replace(self, weights=weights, on_the_side=True)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """The result of `compute`, the same for every evaluation of the loss in this step, also at other weights."""
        if name not in self.results:
            self.results[name] = compute()
        result: T = self.results[name]
        return result

    def attack(self, settings: InnerAttack, objective: Objective, start: Literal["random", "near"] = "random") -> Tensor:
        """Images near these at which the objective is larger.

        The attack begins at a random point of the ball or, as TRADES does, of a tiny ball around each image.
        """
        radius = settings.radius(self.moment)
        begin = random_in_ball(self.images, self.seeds, radius if start == "random" else min(NEAR, radius), settings.norm)
        step_size = settings.step_size * radius
        threat = Threat(settings.norm, radius)

        def logits(images: Tensor) -> Tensor:
            return self.attacked_logits(images, settings.mode)

        return perturbed(logits, self.images, objective, begin, threat, settings.steps, step_size)

    def attacked_logits(self, images: Tensor, mode: Mode) -> Tensor:
        """Logits as an attack sees them; the network is in eval mode, or left in training mode."""
        return self.network.attacked_logits(images, self.weights, mode)

    def generator(self, name: str) -> torch.Generator:
        """Random numbers that depend on the run's seed, the step and a name: the same in every process."""
        digest = hashlib.blake2b(f"{self.seed} {self.moment.step} {name}".encode(), digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """The moving parts of a run, and the step that moves them."""

    recipe: Recipe
    accelerator: Any
    network: Network
    optimizer: Any
    average: Average
    step_size: StepSize

    def __call__(self, moment: Moment, images: Tensor, labels: Tensor, seeds: Sequence[int]) -> Terms:
        """Make one step on one batch; give the terms that go to the log."""
        recipe, device = self.recipe, self.accelerator.device
        images = images.to(device).contiguous(memory_format=torch.channels_last)
        weights = self.network.weights
        batch = TrainingBatch(images, labels.to(device), seeds, moment, self.network, recipe.loss, weights, recipe.seed)
        self._seed(moment)
        shifted = recipe.weight_shift(batch, recipe.loss, weights)
        if shifted is not weights:
            batch = replace(batch, weights=shifted)
            self._seed(moment)  # the same dropout as in the evaluations that the shift is based on
        value = recipe.loss(batch)
        total, penalties = self._with_penalties(batch, value)
        learning_rate = recipe.optimizer.learning_rate * self.step_size.size(moment)
        terms = merged(
            {"loss": total.detach()},
            value.terms,
            penalties,
            accuracies(value, batch.labels),
            {"learning_rate": learning_rate},
        )
        self.optimizer.zero_grad()
        self.accelerator.backward(total)
        # The scaler of fp16 skips steps whose gradients are not finite.
        check_finite(moment, terms, self.network.weights if self.accelerator.scaler is None else {})
        if recipe.fine_tuning is not None and not recipe.fine_tuning.trains_body(moment):
            self.network.forget_body_gradients()
        if recipe.optimizer.clip_norm is not None:
            self.accelerator.clip_grad_norm_(self.network.model.parameters(), recipe.optimizer.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group.get("rate", 1.0)  # older states have no rate
        self.optimizer.step()
        self.average.update(moment, self.network.model.net.state_dict())
        return terms

    def _seed(self, moment: Moment) -> None:
        """Make what dropout draws from torch's global stream a function of the step and the process."""
        torch.manual_seed((self.recipe.seed * 1_000_003 + moment.step) * 4_099 + self.accelerator.process_index)

    def _with_penalties(self, batch: TrainingBatch, value: LossValue) -> tuple[Tensor, Terms]:
        total, terms = value.total, Terms()
        for name, regulariser in self.recipe.regularisers.items():
            weight = regulariser.weight * regulariser.schedule(batch.moment)
            penalty = regulariser(batch, value)
            total = total + weight * penalty
            terms = merged(terms, {name: penalty, f"{name}_weight": weight}, regulariser.terms(batch, value))
        return total, terms


def check_finite(moment: Moment, terms: Terms, weights: Weights) -> None:
    """Raise a NotFiniteError if a term, or the gradient of a weight, is nan or infinite; one synchronisation on a GPU."""
    named = {name: value for name, value in terms.items() if isinstance(value, Tensor)}
    gradients = [weight.grad.sum() for weight in weights.values() if weight.grad is not None]
    if torch.stack([value.float() for value in (*named.values(), *gradients)]).isfinite().all():
        return
    # The sum is finite only if its parts are, so it is named last.
    parts = {name: float(named[name]) for name in sorted(named, key=lambda name: name == "loss")}
    bad = {name: value for name, value in parts.items() if not math.isfinite(value)}
    raise NotFiniteError(*next(iter(bad.items()), ("gradient", math.nan)), moment.step + 1)


def accuracies(value: LossValue, labels: Tensor) -> Terms:
    """Shares of the batch that the passes of a loss classify correctly."""
    passes = {"clean_accuracy": value.clean, "attacked_accuracy": value.attacked}
    return {
        name: (seen.logits.detach().argmax(1) == labels).float().mean() for name, seen in passes.items() if seen is not None
    }


def merged(*parts: Terms) -> Terms:
    """All terms in one table; two of one name are an error."""
    entry = Terms()
    for part in parts:
        for name, value in part.items():
            if name in entry or name in ("step", "epoch"):
                raise ArgumentError("terms", "names that no other term of the log has", name)
            entry[name] = value.detach() if isinstance(value, Tensor) else value
    return entry
