"""Empirical robust accuracy (ERA): the share of images that are classified correctly and stay so under attack."""

from __future__ import annotations

import copy
import difflib
import itertools
import warnings
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from locality import __version__
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import check_labels
from locality.progress import Progress
from locality.robustness.attack_batches import HELD, Outcome, attack_part, correct, parts, predicted
from locality.robustness.attack_cache import BatchStore, batch_name, model_fingerprint
from locality.robustness.autoattack import SUITES, Threat, attacks_of, check_sizes
from locality.robustness.gradient_masking import PROBABILITIES, examine, square_sentence
from locality.robustness.pgd import Norm, check_budget
from locality.robustness.robust_accuracy_result import Attack, RobustAccuracy

if TYPE_CHECKING:
    from locality.data.dataset import ImageDataset


def robust_accuracy(
    model: Model,
    images: Tensor | ImageDataset,
    labels: Tensor | None = None,
    norm: Norm = "linf",
    epsilon: float = 4 / 255,
    attack: Attack = "paper",
    batch_size: int = 32,
    seed: int = 0,
    device: torch.device | str | None = None,
    store: str | Path | None = None,
    progress: Progress | None = None,
) -> RobustAccuracy:
    """Accuracy under attack within `epsilon` (ℓ∞ or ℓ2, in pixels of [0, 1]), image by image.

    - `attack="paper"` is APGD-CE then APGD-DLR, one start each (chapter 4 of the thesis); "standard" the whole AutoAttack;
      "pgd20" and "cw20" are 20 steps of PGD on the cross-entropy and on the margin.
    - Only images that are classified correctly are attacked, each attack on what those before it left. A point counts if it
      lies in the ball and in [0, 1] and the model, asked once more, gives it a label that is not accepted.
    - AutoAttack draws its random numbers for a whole batch, so there `batch_size` is a setting like the others. The PGDs
      draw them for each image.
    - `store` is a folder for finished batches: a run that was killed goes on where it stopped; any other model, image or
      setting starts anew.

    >>> linear = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    >>> with torch.no_grad():
    ...     _ = linear[1].weight.copy_(torch.eye(2))
    >>> images = torch.tensor([[0.6, 0.5], [0.8, 0.5], [0.4, 0.5]]).view(3, 1, 1, 2)  # margins 0.1, 0.3, −0.1
    >>> result = robust_accuracy(linear, images, torch.tensor([0, 0, 0]), epsilon=0.1, attack="cw20")
    >>> result.clean.tolist(), result.robust.tolist()  # robust: margin > 2·0.1
    ([True, True, False], [False, True, False])
    """
    check_request(norm, epsilon, attack, batch_size)
    _check_images(images, labels)
    threat = Threat(norm, epsilon, seed)
    model, place = _on_device(model, images, device)
    if store is not None and not isinstance(model, nn.Module):
        raise ValueError(
            f"`store` needs a model that can be hashed, an nn.Module, got {type(model).__name__}: wrap it in one"
        )
    provenance = _provenance(model, place)
    saved = BatchStore(None if store is None else Path(store))
    sentences: dict[str, None] = {}

    def note(sentence: str) -> None:
        if sentence not in sentences:
            sentences[sentence] = None
            if sentence != PROBABILITIES:  # `Calls` has warned of those
                warnings.warn(sentence, stacklevel=3)

    ids: list[str] = []
    outcomes: list[Outcome] = []
    examined = False
    waiting = parts(images, labels, batch_size, place)
    first = next(waiting)
    with open_model(model, first.images) as calls:
        attacks, difference = attacks_of(attack, calls.logits(first.images[:1]).shape[1])
        check_sizes(attacks, threat, first.images)
        if difference is not None:
            note(difference)
        settings = {**asdict(threat), "attack": attack, "attacks": attacks, "batch_size": batch_size, **provenance}
        for part in itertools.chain([first], waiting):
            name = batch_name(settings, part.images, part.accepted)
            predictions = predicted(calls, part)
            clean = correct(predictions, part.accepted)
            if not examined and bool(clean.any()):
                examined = True
                for sentence in _examined(calls, part.images[clean], predictions[clean], threat, saved, name):
                    note(sentence)
            outcome = Outcome.from_json(saved.load(name))
            # Predictions are compared too: functions that a model calls may change where its class and weights do not.
            if outcome is None or list(outcome.predictions) != predictions.tolist():
                outcome = attack_part(calls, part, predictions, attacks, threat)
                saved.save(name, {"ids": part.ids, **asdict(outcome), "settings": settings})
            for sentence in outcome.notes:
                note(sentence)
            outcomes.append(outcome)
            ids += part.ids
            if progress is not None:
                progress(len(ids), len(images))
    columns = {
        name: torch.tensor([value for one in outcomes for value in getattr(one, name)])
        for name in ("labels", "predictions", "clean", "broken_by")
    }
    if "square" in attacks:
        by_square = int((columns["broken_by"] == attacks.index("square")).sum())
        if doubt := square_sentence(by_square, int((columns["labels"] >= 0).sum())):
            note(doubt)
    return RobustAccuracy(
        ids=tuple(ids),
        **columns,
        robust=columns["clean"] & (columns["broken_by"] == HELD),
        attacks=attacks,
        norm=norm,
        epsilon=epsilon,
        attack=attack,
        batch_size=batch_size,
        seed=seed,
        warnings=tuple(sentences),
        provenance=provenance,
    )


def check_request(norm: str, epsilon: float, attack: str, batch_size: int) -> None:
    """Raise where these settings make no sense; quick, before a model is loaded."""
    check_budget(epsilon, norm)
    if attack not in SUITES:
        near = difflib.get_close_matches(attack, SUITES, n=1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"`attack` must be one of {', '.join(SUITES)}, got {attack!r}{hint}")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"`batch_size` must be a whole number of images, got {batch_size!r}")


def _examined(
    calls: Calls, images: Tensor, predictions: Tensor, threat: Threat, saved: BatchStore, name: str
) -> tuple[str, ...]:
    """What `examine` says, from the store where it is there."""
    stored = saved.load(f"{name}-examination")
    if stored is None:
        stored = {"notes": examine(calls, images, predictions, threat)}
        saved.save(f"{name}-examination", stored)
    return tuple(stored["notes"])


def _check_images(images: Tensor | ImageDataset, labels: Tensor | None) -> None:
    if len(images) == 0:
        raise ValueError("`images` must hold at least one image, got none")
    if isinstance(images, Tensor):
        check_labels(labels, len(images))
    elif labels is not None:
        raise ValueError("`labels` are part of the data set: pass None, or a tensor of images")


def _on_device(model: Model, images: Tensor | ImageDataset, device: torch.device | str | None) -> tuple[Model, torch.device]:
    """The model on `device`, a copy where it is on another; without a device, where the model is."""
    tensors = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    given = images.device if isinstance(images, Tensor) else torch.device("cpu")
    there = tensors[0].device if tensors else given
    place = there if device is None else torch.empty(0, device=device).device  # "cuda" becomes "cuda:0"
    if isinstance(model, nn.Module) and place != there:
        model = copy.deepcopy(model).to(place)
    return model, place


def _provenance(model: Model, device: torch.device) -> dict[str, str]:
    """What a result depends on beside its settings."""
    return {
        "model": model_fingerprint(model) if isinstance(model, nn.Module) else "",
        "device": device.type,
        "locality": __version__,
        "torch": torch.__version__,
        "pyautoattack": version("pyautoattack"),
    }
