"""Transfer: the accuracy of one model on images that were attacked on another, the surrogate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from locality.errors import ArgumentError
from locality.model_calls import Calls, Model, Objective, open_model
from locality.model_calls.checks import check_target
from locality.model_calls.decisions import correct, decisions
from locality.model_calls.devices import on_device
from locality.model_calls.randomness import image_seeds
from locality.perturbation import RELATIVE_STEP_SIZE, ascend, margin, random_in_ball
from locality.progress import Progress, no_progress
from locality.robustness import check_request, check_surrogate, parse_attack
from locality.robustness.attack_batches import AttackBatch, batches
from locality.robustness.attack_cache import AttackCache, batch_name
from locality.robustness.autoattack import LOSS_OF_PGD
from locality.robustness.pgd import LOSSES
from locality.robustness.results import AttackedImages
from locality.robustness.robust_accuracy import check_attacked, data_hashes, model_provenance
from locality.statistics import share_summary
from locality.types import Batch, Norm, Threat
from locality.zoo.preprocessing import check_same_pixels

if TYPE_CHECKING:
    import pandas as pd

    from locality.data.dataset import ImageDataset

COLUMNS = ("labels", "predictions", "clean", "attacked", "surrogate_clean", "surrogate_robust")


@dataclass(frozen=True, eq=False)
class TransferAccuracy(AttackedImages):
    """Each image, attacked on the surrogate. All images of known classes are attacked, also those that are wrong without."""

    attacked: Tensor  # N bool, classified correctly by the model after the attack on the surrogate
    surrogate_clean: Tensor  # N bool, classified correctly by the surrogate without attack
    surrogate_robust: Tensor  # N bool, by the surrogate under its own attack
    surrogate: str  # its name

    file_name = "transfer"

    @property
    def robust(self) -> Tensor:
        """N bool: classified correctly after the attack; an image that was wrong before may be right."""
        return self.attacked

    @property
    def kept(self) -> Tensor:
        """N bool: correct before the attack and after it."""
        return self.clean & self.robust

    @property
    def shares(self) -> dict[str, tuple[int, int]]:
        """Successes and trials of each share, by its name in the JSON."""
        known, clean = int(self.known.sum()), int(self.clean.sum())
        return {
            "clean": (clean, known),
            "robust": (int(self.robust.sum()), known),
            "robust_among_clean": (int(self.kept.sum()), clean),
            "surrogate_clean": (int(self.surrogate_clean.sum()), known),
            "surrogate_robust": (int(self.surrogate_robust.sum()), known),
        }

    @property
    def rows(self) -> pd.DataFrame:
        """One row per image; true and false are missing where the model has no such class."""
        rows = self._rows_without_attack()
        for name in ("robust", "surrogate_clean", "surrogate_robust"):
            self._add(rows, name, getattr(self, name))
        return rows

    def _own_json(self) -> dict[str, Any]:
        others = {name: share_summary(*self.shares[name]) for name in list(self.shares)[2:]}
        return {"surrogate": self.surrogate, **others}


def transfer_accuracy(
    model: Model,
    surrogate: Model,
    images: Tensor | Batch | ImageDataset,
    labels: Tensor | None = None,
    norm: Norm = "linf",
    epsilon: float = 4 / 255,
    attack: str = "pgd20",
    batch_size: int = 32,
    seed: int = 0,
    device: torch.device | str | None = None,
    store: str | Path | None = None,
    name: str = "",
    progress: Progress = no_progress,
) -> TransferAccuracy:
    """Accuracy of `model` on images that PGD made on `surrogate` (`attack`: pgdN or cwN), within `epsilon`.

    - The walk is that of `pgd`, away from the label, but it does not stop where the surrogate's class changes: such a
      point has barely crossed the surrogate's boundary and rarely crosses another's. Of the start and all iterates, the one
      with the smallest margin of the surrogate is used. With the model itself as its surrogate, an image that is classified
      correctly falls if and only if it falls to `robust_accuracy` with the same attack.
    - Both models see the same pixels: they must expect the same size, resizing and classes; each normalises by itself.
    - It is an upper bound of the accuracy under attack, often a loose one: see how far the surrogate itself falls, and
      compare with an attack on the model.
    - `store` is a folder for finished batches, where an interrupted run resumes. `name` is that of the surrogate.

    >>> images = torch.tensor([0.6, 0.5]).view(1, 1, 1, 2)  # its margin of 0.1 is less than 2·0.1
    >>> transfer_accuracy(nn.Flatten(), nn.Flatten(), images, torch.tensor([0]), epsilon=0.1).robust.tolist()
    [False]
    """
    check_request(norm, epsilon, attack, batch_size)
    threat, chosen = Threat(norm, epsilon), parse_attack(attack)
    check_surrogate(attack)
    check_attacked(images, labels)
    specs = [getattr(one, "spec", None) for one in (model, surrogate)]
    if specs[0] is not None and specs[1] is not None:
        check_same_pixels(specs[0], specs[1], "surrogate")
    given_device = images.device if isinstance(images, Tensor) else torch.device("cpu")
    model, device = on_device(model, device, given_device)
    surrogate, _ = on_device(surrogate, device, device)
    if store is not None and not (isinstance(model, nn.Module) and isinstance(surrogate, nn.Module)):
        raise ArgumentError("store", "None for models that cannot be hashed, those that are no nn.Module", str(store))
    provenance = model_provenance(model, device) | {"surrogate": model_provenance(surrogate, device)["model"]}
    cache = AttackCache(None if store is None else Path(store))
    settings = {"transfer": True, "norm": norm, "epsilon": epsilon, "seed": seed, "attack": attack, **provenance}
    attack_surrogate = functools.partial(
        most_adversarial, threat=threat, loss=LOSSES[LOSS_OF_PGD[chosen.attacks[0]]], steps=chosen.count or 1, seed=seed
    )
    ids: list[str] = []
    columns: dict[str, list[Any]] = {column: [] for column in COLUMNS}
    progress(0, len(images))
    for batch in batches(images, labels, batch_size, device):
        key = batch_name(settings, batch.images, batch.accepted)
        outcome = cache.load(key)
        if outcome is None or not set(COLUMNS) <= set(outcome):
            with open_model(model, batch.images) as target, open_model(surrogate, batch.images) as source:
                outcome = _judged((model, surrogate), (target, source), batch, attack_surrogate)
            cache.save(key, {"ids": batch.ids, **outcome, "settings": settings})
        for column in COLUMNS:
            columns[column] += outcome[column]
        ids += batch.ids
        progress(len(ids), len(images))
    return TransferAccuracy(
        ids=tuple(ids),
        **{column: torch.tensor(values) for column, values in columns.items()},
        surrogate=name,
        threat=threat,
        attack=attack,
        batch_size=batch_size,
        seed=seed,
        warnings=(),
        provenance=provenance | data_hashes(model, images),
    )


def most_adversarial(
    calls: Calls, images: Tensor, labels: Tensor, threat: Threat, loss: Objective, steps: int, seed: int = 0
) -> Tensor:
    """Of PGD's start and iterates, without stopping, those with the smallest margin."""
    best, lowest = images.clone(), torch.full((len(images),), torch.inf, device=images.device)

    def remember(points: Tensor, logits: Tensor) -> None:
        value = margin(logits, labels)
        lower = value < lowest
        best[lower], lowest[lower] = points[lower], value[lower]

    def gradient(points: Tensor) -> Tensor:
        logits, slope = calls.gradient(points, loss, labels)
        remember(points, logits)
        return slope

    start = random_in_ball(images, image_seeds(images, seed), threat.radius, threat.norm)
    last = ascend(gradient, images, start, threat, steps, RELATIVE_STEP_SIZE[threat.norm] * threat.radius)
    remember(last, calls.logits(last))
    return best


def _judged(
    models: tuple[Model, Model], calls: tuple[Calls, Calls], batch: AttackBatch, walk: Callable[..., Tensor]
) -> dict[str, list[Any]]:
    """What model and surrogate say about the images before and after the attack; an image of an unknown class stays."""
    (target, source), images = calls, batch.images
    before = target.logits(images), source.logits(images)
    classes = [logits.shape[1] for logits in before]
    if classes[0] != classes[1]:
        raise ArgumentError("surrogate", f"a model of {classes[0]} classes, as many as the model has", classes[1])
    check_target(torch.tensor([label for labels in batch.accepted for label in labels], dtype=torch.int64), classes[0])
    # Away from the surrogate's prediction if it is accepted, else from the first accepted label.
    guesses = zip(before[1].argmax(dim=1).tolist(), batch.accepted, strict=True)
    leaving = [guess if guess in labels else labels[0] for guess, labels in guesses if labels]
    known = torch.tensor([bool(labels) for labels in batch.accepted], device=images.device)
    points = images.clone()
    if leaving:
        points[known] = walk(source, images[known], torch.tensor(leaving, device=images.device))
    after = target.logits(points), source.logits(points)
    predictions, guessed = (decisions(model, logits) for model, logits in zip(models, before, strict=True))
    attacked, guessed_then = (decisions(model, logits) for model, logits in zip(models, after, strict=True))
    return {
        "labels": [labels[0] if labels else -1 for labels in batch.accepted],
        "predictions": predictions.tolist(),
        "clean": correct(predictions, batch.accepted).tolist(),
        "attacked": correct(attacked, batch.accepted).tolist(),
        "surrogate_clean": correct(guessed, batch.accepted).tolist(),
        "surrogate_robust": correct(guessed_then, batch.accepted).tolist(),
    }
