"""Any minimum-norm attack of Foolbox as a boundary search, `foolbox:NAME` (Rauber et al., JOSS 2020).

Foolbox differentiates with `backward`, which would add to the gradients of the caller's parameters, and it counts nothing.
`FoolboxBridge` stands between the two: Foolbox sees a module without parameters, the model sees `calls.run`.
"""

from __future__ import annotations

import difflib
import inspect
import traceback
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from locality.model_calls import Calls
from locality.model_calls.randomness import own_randomness
from locality.model_calls.third_party import FoolboxBridge, foolbox_model, load_foolbox

if TYPE_CHECKING:
    from locality.boundary import Norm, Search
from locality.progress import Progress

PREFIX = "foolbox:"

# What we pass unless the caller says otherwise. Early abort looks at the loss of the whole batch; Foolbox's 9 × 10,000 steps
# take minutes for one image.
DEFAULTS: dict[str, dict[str, Any]] = {"L2CarliniWagnerAttack": {"abort_early": False, "steps": 1000}}
# Attacks that learn the norm from an argument.
NORM_ARGUMENT = {"HopSkipJumpAttack": "constraint"}
# Read in Foolbox's source and tested: images of a batch do not see each other and no random number matters. All others run
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
# Draws a random direction where a gradient is exactly zero: such images are done again alone, with their own seed.
RANDOM_AT_ZERO_GRADIENT = frozenset({"DDNAttack"})
# Gives a black image where it fails, and black is often another class: a failure would pass for a success.
BLACK_WHERE_FAILED = frozenset({"L2CarliniWagnerAttack"})
UNFIT = {
    "BinarizationRefinementAttack": "it only refines points found by another attack",
    "DatasetAttack": "it needs a data set to draw from",
}
# Foolbox 3.3.4 divides the norm by itself where the paper of FMN divides epsilon by it.
WITHOUT_PROJECTION = {"L2FMNAttack": "DDNAttack"}


def minimum_norm_attacks() -> dict[str, type[Any]]:
    """Foolbox's minimum-norm attacks by class name."""
    attacks = load_foolbox().attacks
    return {
        name: found
        for name, found in vars(attacks).items()
        if inspect.isclass(found) and issubclass(found, attacks.base.MinimizationAttack) and not inspect.isabstract(found)
    }


def foolbox_search(name: str) -> Search:
    """The search of one attack: `foolbox_search("DDNAttack")`, or `"foolbox:DDNAttack"`; options are the attack's arguments.

    Points are those of the attack itself (Foolbox's `epsilons=None`), never clipped to an epsilon.
    """
    name = name.removeprefix(PREFIX)
    known = minimum_norm_attacks()
    if name in UNFIT:
        raise ValueError(f"`search` cannot be {PREFIX}{name}: {UNFIT[name]}; try {PREFIX}DDNAttack")
    if name not in known:
        fixed = "has a fixed epsilon" if hasattr(load_foolbox().attacks, name) else "is unknown"
        nearest = difflib.get_close_matches(name, [one for one in known if one not in UNFIT], n=3, cutoff=0.3)
        raise ValueError(
            f"`search` must name a minimum-norm attack of Foolbox, {PREFIX}{name} {fixed}: "
            f"try {', '.join(PREFIX + one for one in nearest or ['DDNAttack', 'LInfFMNAttack'])}"
        )

    def search(
        calls: Calls, images: Tensor, labels: Tensor, norm: Norm, seeds: list[int], progress: Progress, **options: Any
    ) -> Tensor:
        attack = _build(name, known[name], norm, options)
        if name in WITHOUT_PROJECTION:
            calls.warn(
                f"{PREFIX}{name} of Foolbox 3.3.4 never shrinks its steps to epsilon, so its points are far: "
                f"use {PREFIX}{WITHOUT_PROJECTION[name]}"
            )
        images = images.detach().clamp(0, 1)  # Foolbox insists on exact bounds, `check_images` forgives float noise.
        together = name in BATCHED and not getattr(attack, "abort_early", False)
        done = 0

        def part(chunk: Tensor, classes: Tensor, numbers: Tensor) -> tuple[Tensor, ...]:
            nonlocal done
            own = [seeds[number] for number in numbers.tolist()]
            if together:
                points = _run_together(calls, name, attack, chunk, classes, own)
            else:
                points = torch.cat([_run_alone(calls, name, attack, *one) for one in _one_by_one(chunk, classes, own)])
            if name in BLACK_WHERE_FAILED:
                points = _replaced(points, chunk, points.flatten(1).eq(0).all(dim=1))
            points = _replaced(points, chunk, ~points.flatten(1).isfinite().all(dim=1))
            done += len(chunk)
            progress(done, len(images))
            return (points.clamp(0, 1),)

        return calls.in_chunks(part, images, labels, torch.arange(len(images)))[0]

    return search


def _build(name: str, kind: type[Any], norm: Norm, options: dict[str, Any]) -> Any:
    allowed = [argument for argument in inspect.signature(kind).parameters if argument != "distance"]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise TypeError(f"`{unknown[0]}` is no option of {PREFIX}{name}: it takes {', '.join(allowed) or 'none'}")
    given = DEFAULTS.get(name, {}) | ({NORM_ARGUMENT[name]: norm} if name in NORM_ARGUMENT else {}) | options
    try:
        attack = kind(**given)
    except ImportError as error:
        raise ImportError(
            f"`search` {PREFIX}{name} needs {error.name}, which is not here: pip install {error.name}"
        ) from error
    base = load_foolbox().attacks.base
    if not isinstance(attack, base.FlexibleDistanceMinimizationAttack):
        order = attack.distance.p
        found = {2: "l2", float("inf"): "linf"}.get(order, f"l{order:g}")
        if found != norm:
            raise ValueError(f"`norm` must be that of the attack, {PREFIX}{name} minimises {found}, got {norm!r}")
    return attack


def _one_by_one(images: Tensor, labels: Tensor, seeds: list[int]) -> Iterator[tuple[Tensor, Tensor, int]]:
    for row, seed in enumerate(seeds):
        yield images[row : row + 1], labels[row : row + 1], seed


def _run_together(calls: Calls, name: str, attack: Any, images: Tensor, labels: Tensor, seeds: list[int]) -> Tensor:
    bridge = FoolboxBridge(calls)
    with own_randomness(seeds[0], images.device):
        points: Tensor = attack.run(foolbox_model(bridge, images.device), images, labels)
    if name in RANDOM_AT_ZERO_GRADIENT and bridge.vanished is not None and len(images) > 1:
        points = points.clone()
        for row in bridge.vanished.nonzero()[:, 0].tolist():
            points[row : row + 1] = _run_alone(calls, name, attack, images[row : row + 1], labels[row : row + 1], seeds[row])
    return points.detach()


def _run_alone(calls: Calls, name: str, attack: Any, image: Tensor, label: Tensor, seed: int) -> Tensor:
    with own_randomness(seed, image.device), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*failed to draw sufficient random")
        try:
            points: Tensor = attack.run(foolbox_model(FoolboxBridge(calls), image.device), image, label)
        except (ValueError, AssertionError) as error:
            if not _gave_up(error):
                raise
            calls.warn(f"{PREFIX}{name} gave up on some images, without a starting point: they count as not found")
            return image.clone()
    return points.detach()


def _gave_up(error: ValueError | AssertionError) -> bool:
    """Whether an attack that walks along the boundary found no place to start; errors of the model are not meant."""
    if isinstance(error, ValueError):
        return "init_attack failed" in str(error)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("foolbox.")


def _replaced(points: Tensor, images: Tensor, rows: Tensor) -> Tensor:
    return torch.where(rows.view(-1, 1, 1, 1), images, points)
