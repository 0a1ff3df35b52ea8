"""Any minimum-norm attack of Foolbox as a boundary search, `foolbox:NAME` (Rauber et al., JOSS 2020).

Foolbox differentiates with `backward`, which would add to the gradients of the caller's parameters, and it does not count
evaluations. `FoolboxBridge` shows Foolbox a module without parameters that calls the model through `calls.run`.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from locality.boundary.search import FOOLBOX, Search, SearchContext, limited_to
from locality.errors import ArgumentError, did_you_mean
from locality.model_calls import Calls
from locality.model_calls.checks import UNIT
from locality.model_calls.randomness import own_randomness
from locality.model_calls.third_party import FoolboxBridge, foolbox_model, load_foolbox
from locality.types import Norm

# Our defaults. Early abort depends on the loss of the whole batch; Foolbox's 9 × 10,000 steps take minutes per image.
DEFAULTS: dict[str, dict[str, Any]] = {"L2CarliniWagnerAttack": {"abort_early": False, "steps": 1000}}
# Attacks that take the norm as an argument.
NORM_ARGUMENT = {"HopSkipJumpAttack": "constraint"}
# Attacks without randomness whose images do not depend on each other (read in Foolbox's source, and tested). All others run
# one image at a time, each with its own seed.
BATCHED = frozenset(
    {
        "BinarySearchContrastReductionAttack",
        "DDNAttack",
        "GaussianBlurAttack",
        "InversionAttack",
        "L2CarliniWagnerAttack",
        "L2DeepFoolAttack",
        "L2FMNAttack",
        "LInfFMNAttack",
        "LinearSearchContrastReductionAttack",
        "LinfDeepFoolAttack",
        "NewtonFoolAttack",
    }
)
# Draws a random direction where a gradient is exactly zero: such images are repeated one at a time, with their own seeds.
RANDOM_AT_ZERO_GRADIENT = frozenset({"DDNAttack"})
# Returns a black image where it fails, and black is often another class: a failure would count as a success.
BLACK_WHERE_FAILED = frozenset({"L2CarliniWagnerAttack"})
UNFIT = {
    "BinarizationRefinementAttack": "it only refines points found by another attack",
    "DatasetAttack": "it needs a data set to draw from",
}
EXAMPLES = f"try {FOOLBOX}DDNAttack (l2) or {FOOLBOX}LInfFMNAttack (linf)"
# Foolbox 3.3.4 divides the norm by itself where the paper of FMN divides epsilon by it.
WITHOUT_PROJECTION = {"L2FMNAttack": "DDNAttack"}


def minimum_norm_attacks() -> dict[str, type[Any]]:
    """Foolbox's minimum-norm attacks by class name."""
    attacks = load_foolbox().attacks
    return {
        name: kind
        for name, kind in vars(attacks).items()
        if inspect.isclass(kind) and issubclass(kind, attacks.base.MinimizationAttack) and not inspect.isabstract(kind)
    }


def foolbox_search(name: str) -> Search:
    """An attack as a search, `foolbox_search("DDNAttack")` or `"foolbox:DDNAttack"`; options are the attack's arguments.

    Points are those of the attack (Foolbox's `epsilons=None`), never clipped to an epsilon.
    """
    name = name.removeprefix(FOOLBOX)
    known = minimum_norm_attacks()
    if name in UNFIT:
        raise ArgumentError("search", "an attack that needs images alone", FOOLBOX + name, f"{UNFIT[name]}; {EXAMPLES}")
    if name not in known:
        hint = did_you_mean(name, [other for other in known if other not in UNFIT]) or EXAMPLES
        if hasattr(load_foolbox().attacks, name):
            hint = f"it has a fixed epsilon; {EXAMPLES}"
        raise ArgumentError("search", f"{FOOLBOX}NAME of a minimum-norm attack", FOOLBOX + name, hint)

    @limited_to(bounds=UNIT)
    def search(context: SearchContext, **options: Any) -> Tensor:
        calls, seeds = context.calls, context.seeds
        attack = _build(name, known[name], context.norm, options)
        if name in WITHOUT_PROJECTION:
            calls.warn(
                f"{FOOLBOX}{name} of Foolbox 3.3.4 never projects its steps onto epsilon, so its points are far away: "
                f"use {FOOLBOX}{WITHOUT_PROJECTION[name]}"
            )
        images = context.images.detach().clamp(0, 1)  # Foolbox requires exact bounds, `check_images` allows float noise.
        batched = name in BATCHED and not getattr(attack, "abort_early", False)
        done = 0

        def attack_chunk(chunk: Tensor, classes: Tensor, indices: Tensor) -> tuple[Tensor, ...]:
            nonlocal done
            own = [seeds[index] for index in indices.tolist()]
            if batched:
                points = _run_batch(calls, name, attack, chunk, classes, own)
            else:
                points = torch.cat([_run_one(calls, name, attack, *one) for one in _one_by_one(chunk, classes, own)])
            if name in BLACK_WHERE_FAILED:
                points = _replaced(points, chunk, points.flatten(1).eq(0).all(dim=1))
            points = _replaced(points, chunk, ~points.flatten(1).isfinite().all(dim=1))
            done += len(chunk)
            context.progress(done, len(images))
            return (points.clamp(0, 1),)

        return calls.in_chunks(attack_chunk, images, context.labels, torch.arange(len(images)))[0]

    search.__name__ = FOOLBOX + name
    return search


def _build(name: str, kind: type[Any], norm: Norm, options: dict[str, Any]) -> Any:
    allowed = [argument for argument in inspect.signature(kind).parameters if argument != "distance"]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise TypeError(f"`{unknown[0]}` is no option of {FOOLBOX}{name}, which takes {', '.join(allowed) or 'none'}")
    given = DEFAULTS.get(name, {}) | ({NORM_ARGUMENT[name]: norm} if name in NORM_ARGUMENT else {}) | options
    try:
        attack = kind(**given)
    except ImportError as error:
        raise ImportError(
            f"`search` {FOOLBOX}{name} needs {error.name}, which is not installed: pip install {error.name}"
        ) from error
    base = load_foolbox().attacks.base
    if not isinstance(attack, base.FlexibleDistanceMinimizationAttack):
        order = attack.distance.p
        minimised = {2: "l2", float("inf"): "linf"}.get(order, f"l{order:g}")
        if minimised != norm:
            raise ArgumentError("norm", f"{minimised!r}, which {FOOLBOX}{name} minimises", norm)
    return attack


def _one_by_one(images: Tensor, labels: Tensor, seeds: list[int]) -> Iterator[tuple[Tensor, Tensor, int]]:
    for row, seed in enumerate(seeds):
        yield images[row : row + 1], labels[row : row + 1], seed


def _run_batch(calls: Calls, name: str, attack: Any, images: Tensor, labels: Tensor, seeds: list[int]) -> Tensor:
    bridge = FoolboxBridge(calls)
    with own_randomness(seeds[0], images.device):
        points: Tensor = attack.run(foolbox_model(bridge, images.device), images, labels)
    if name in RANDOM_AT_ZERO_GRADIENT and bridge.vanished is not None and len(images) > 1:
        points = points.clone()
        for row in bridge.vanished.nonzero()[:, 0].tolist():
            points[row : row + 1] = _run_one(calls, name, attack, images[row : row + 1], labels[row : row + 1], seeds[row])
    return points.detach()


def _run_one(calls: Calls, name: str, attack: Any, image: Tensor, label: Tensor, seed: int) -> Tensor:
    with own_randomness(seed, image.device), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*failed to draw sufficient random")
        try:
            points: Tensor = attack.run(foolbox_model(FoolboxBridge(calls), image.device), image, label)
        except (ValueError, AssertionError) as error:
            if not _gave_up(error):
                raise
            calls.warn(f"{FOOLBOX}{name} found no starting point for some images: they count as not found")
            return image.clone()
    return points.detach()


def _gave_up(error: ValueError | AssertionError) -> bool:
    """Whether an attack that follows the boundary found no starting point; errors of the model are different.

    Foolbox raises plain ValueErrors and AssertionErrors, so its text and its frames are all there is to tell them by.
    """
    if isinstance(error, ValueError):
        return "init_attack failed" in str(error)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("foolbox.")


def _replaced(points: Tensor, images: Tensor, rows: Tensor) -> Tensor:
    return torch.where(rows.view(-1, 1, 1, 1), images, points)
