"""Empirical robust accuracy (ERA): the share of images that are classified correctly and stay so under attack."""

from __future__ import annotations

import functools
import itertools
import warnings
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from locality import __version__
from locality.errors import ArgumentError
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import check_labels
from locality.model_calls.decisions import correct, decisions
from locality.model_calls.devices import on_device
from locality.progress import Progress, no_progress
from locality.robustness import check_request, parse_attack
from locality.robustness.attack_batches import Outcome, attack_batch, batches, clean_predictions
from locality.robustness.attack_cache import AttackCache, batch_name
from locality.robustness.autoattack import attacks_of, check_sizes
from locality.robustness.fingerprint import model_fingerprint
from locality.robustness.gradient_masking import Caveat, examine, square_caveat
from locality.robustness.results import RobustAccuracy as RobustAccuracy
from locality.types import Batch, Norm, Threat
from locality.zoo.preprocessing import model_preprocessing
from locality.zoo.state_dict import weights_hash

if TYPE_CHECKING:
    from locality.data.dataset import ImageDataset


def robust_accuracy(
    model: Model,
    images: Tensor | Batch | ImageDataset,
    labels: Tensor | None = None,
    norm: Norm = "linf",
    epsilon: float = 4 / 255,
    attack: str = "paper",
    batch_size: int = 32,
    seed: int = 0,
    device: torch.device | str | None = None,
    store: str | Path | None = None,
    progress: Progress = no_progress,
) -> RobustAccuracy:
    """Accuracy under attack within `epsilon` (ℓ∞ or ℓ2, in pixels of [0, 1]), image by image.

    - `attack="paper"` is APGD-CE then APGD-DLR, one start each (chapter 4 of the thesis); "standard" is all of AutoAttack;
      "pgd20" and "cw20" are 20 steps of PGD on the cross-entropy and on the margin, with any number from 1 to 10,000.
      "rays" needs predicted classes only (10,000 queries; "rays2000": fewer) and also gives `distances`, in ℓ∞.
    - Only images that are classified correctly are attacked, each attack on those that the attacks before it did not break.
      A point counts if it lies in the ball and in [0, 1] and a second evaluation gives it a label that is not accepted. A
      model that abstains under attack counts as broken.
    - AutoAttack draws its random numbers for a whole batch, so its result depends on `batch_size`. The PGDs draw them per
      image.
    - `store` is a folder for finished batches: an interrupted run resumes there. Any other model, image or setting starts
      from the beginning.

    >>> linear = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    >>> with torch.no_grad():
    ...     _ = linear[1].weight.copy_(torch.eye(2))
    >>> images = torch.tensor([[0.6, 0.5], [0.8, 0.5], [0.4, 0.5]]).view(3, 1, 1, 2)  # margins 0.1, 0.3, −0.1
    >>> result = robust_accuracy(linear, images, torch.tensor([0, 0, 0]), epsilon=0.1, attack="cw20")
    >>> result.clean.tolist(), result.robust.tolist()  # robust: margin > 2·0.1
    ([True, True, False], [False, True, False])
    """
    check_request(norm, epsilon, attack, batch_size)
    threat = Threat(norm, epsilon)
    check_attacked(images, labels)
    given_device = images.device if isinstance(images, Tensor) else torch.device("cpu")
    model, device = on_device(model, device, given_device)
    if store is not None and not isinstance(model, nn.Module):
        raise ValueError(
            f"`store` needs a model that can be hashed, an nn.Module, got {type(model).__name__}: wrap it in one"
        )
    provenance = model_provenance(model, device)
    cache = AttackCache(None if store is None else Path(store))
    decide = functools.partial(decisions, model)
    caveats: dict[Caveat, None] = {}

    def add(caveat: Caveat) -> None:
        if caveat not in caveats:
            caveats[caveat] = None
            if caveat.kind != "probabilities":  # `Calls` has warned of those
                warnings.warn(caveat.text, stacklevel=3)

    ids: list[str] = []
    outcomes: list[Outcome] = []
    examined = False
    waiting = batches(images, labels, batch_size, device)
    progress(0, len(images))  # the start: after the first batch, rate and time left are known
    first = next(waiting)
    with open_model(model, first.images) as calls:
        attacks, difference = attacks_of(attack, calls.logits(first.images[:1]).shape[1])
        check_sizes(attacks, threat, first.images)
        if difference is not None:
            add(difference)
        settings: dict[str, Any] = {"norm": norm, "epsilon": epsilon, "seed": seed, "attack": attack, "attacks": attacks}
        settings |= {"batch_size": batch_size, **provenance}
        for batch in itertools.chain([first], waiting):
            name = batch_name(settings, batch.images, batch.accepted)
            predictions = clean_predictions(calls, batch, decide)
            clean = correct(predictions, batch.accepted)
            if not examined and bool(clean.any()):
                examined = True
                for caveat in _examined(calls, batch.images[clean], predictions[clean], threat, seed, cache, name, attacks):
                    add(caveat)
            outcome = Outcome.from_json(cache.load(name))
            # Predictions are compared too: functions that a model calls may change while its class and weights do not.
            if outcome is None or list(outcome.predictions) != predictions.tolist():
                outcome = attack_batch(calls, batch, predictions, attacks, threat, seed, decide, parse_attack(attack).count)
                cache.save(name, {"ids": batch.ids, **asdict(outcome), "settings": settings})
            for caveat in outcome.caveats:
                add(caveat)
            outcomes.append(outcome)
            ids += batch.ids
            progress(len(ids), len(images))
    columns = {
        name: torch.tensor([value for outcome in outcomes for value in getattr(outcome, name)])
        for name in ("labels", "predictions", "clean", "broken_by")
    }
    distances = [torch.nan if value is None else value for outcome in outcomes for value in outcome.distances]
    if "square" in attacks:
        broken_by_square = int((columns["broken_by"] == attacks.index("square")).sum())
        if doubt := square_caveat(broken_by_square, int((columns["labels"] >= 0).sum())):
            add(doubt)
    return RobustAccuracy(
        ids=tuple(ids),
        **columns,
        distances=torch.tensor(distances),
        attacks=attacks,
        threat=threat,
        attack=attack,
        batch_size=batch_size,
        seed=seed,
        warnings=tuple(caveat.text for caveat in caveats),
        provenance=provenance | data_hashes(model, images),
    )


def _examined(
    calls: Calls,
    images: Tensor,
    predictions: Tensor,
    threat: Threat,
    seed: int,
    cache: AttackCache,
    name: str,
    attacks: tuple[str, ...],
) -> tuple[Caveat, ...]:
    """What `examine` says, from the cache if it is there."""
    stored = cache.load(f"{name}-examination")
    if stored is None:
        gradients = attacks != ("rays",)  # the only attack that needs none
        found = examine(calls, images, predictions, threat, seed, gradients=gradients)
        stored = {"caveats": [asdict(caveat) for caveat in found]}
        cache.save(f"{name}-examination", stored)
    return tuple(Caveat(**caveat) for caveat in stored["caveats"])


def check_attacked(images: Tensor | Batch | ImageDataset, labels: Tensor | None) -> None:
    """Raise if there is no image, or labels are missing or given twice."""
    if len(images) == 0:
        raise ArgumentError("images", "at least one image", 0)
    if isinstance(images, Tensor):
        check_labels(labels, len(images))
    elif labels is not None:
        raise ValueError("`labels` are part of the data: pass labels only with a tensor of images")


def model_provenance(model: Model, device: torch.device) -> dict[str, str]:
    """What a result depends on besides its settings."""
    return {
        "model": model_fingerprint(model) if isinstance(model, nn.Module) else "",
        "device": device.type,
        "locality": __version__,
        "torch": torch.__version__,
        "pyautoattack": version("pyautoattack"),
    }


def data_hashes(model: Model, images: Tensor | Batch | ImageDataset) -> dict[str, str]:
    """Preprocessing, and hashes of weights and data; the cache is not keyed by them, so that a run may add images."""
    if isinstance(images, Tensor | Batch) or not isinstance(model, nn.Module):
        return {}
    return {
        "weights_sha256": weights_hash(model),
        "preprocessing": model_preprocessing(model),
        "data_sha256": images.fingerprint(),
    }
