"""AutoAttack (Croce & Hein, ICML 2020) through pyautoattack, one attack at a time.

pyautoattack reseeds the global generators for every batch, adds to the gradients of a model's parameters (FAB), and inspects
the model with `sys.settrace`. Here its attacks see a module without parameters and run inside generators that are restored;
their settings are those of pyautoattack's own `AutoAttack`. APGD treats each image by itself, so a broken image is not
evaluated again: standard models cost a small share of the gradients, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from locality.boundary import find_boundary
from locality.errors import ArgumentError
from locality.model_calls import Calls
from locality.model_calls.third_party import FoolboxBridge
from locality.perturbation import per_image
from locality.robustness import parse_attack
from locality.robustness.gradient_masking import Caveat
from locality.robustness.pgd import Loss, pgd
from locality.types import Norm, Threat

OnCaveat = Callable[[Caveat], None]
Unbroken = Callable[[Tensor], Tensor]  # N predictions ↦ N bool: those that leave the image unbroken

LOSS_OF_PGD: dict[str, Loss] = {"pgd-ce": "ce", "pgd-margin": "margin"}
PYAUTOATTACK_NORMS: dict[Norm, str] = {"linf": "Linf", "l2": "L2"}
STEPS = 20  # of a PGD, unless the name of the attack says otherwise
TARGETS = 9  # classes that the targeted attacks try, nearest first
CLASSES_FOR_DLR = 3  # it divides by the difference of the first and the third logit
CLASSES_FOR_TARGETED_DLR = 4
SMALLEST_SIDE_FOR_L2_SQUARE = 5  # pixels: it starts from five squares per side
ZERO_GRADIENTS = Caveat(
    "zero gradients",
    "the gradient is exactly zero at some points of an attack: the attack cannot leave them, the model may mask gradients",
)


def attacks_of(attack: str, classes: int) -> tuple[tuple[str, ...], Caveat | None]:
    """The attacks that `attack` runs on a model of that many classes, and a caveat if they are not the published ones.

    The DLR loss needs three classes and its targeted version four. With three, APGD-DLR replaces APGD-T. With two there is
    neither, which loses little: cross-entropy is then an increasing function of the margin.

    >>> attacks_of("standard", 10)
    (('apgd-ce', 'apgd-t', 'fab-t', 'square'), None)
    >>> attacks_of("paper", 2)[0]
    ('apgd-ce',)
    """
    published = attacks = parse_attack(attack).attacks
    if classes < CLASSES_FOR_TARGETED_DLR:
        attacks = tuple("apgd-dlr" if name == "apgd-t" else name for name in attacks)
    if classes < CLASSES_FOR_DLR:
        attacks = tuple(name for name in attacks if name != "apgd-dlr")
    if attacks == published:
        return attacks, None
    text = f"`attack` {attack} runs as {', '.join(attacks)}: the DLR loss of {attack} needs more than {classes} classes"
    return attacks, Caveat("few classes", text)


def check_sizes(attacks: tuple[str, ...], threat: Threat, images: Tensor) -> None:
    """Raise if pyautoattack would divide by zero."""
    if "square" in attacks and threat.norm == "l2" and images.shape[-2] < SMALLEST_SIDE_FOR_L2_SQUARE:
        raise ArgumentError(
            "images",
            f"{SMALLEST_SIDE_FOR_L2_SQUARE} pixels high or more for the Square attack in l2",
            tuple(images.shape),
            "use attack='paper'",
        )


def run_attack(
    calls: Calls,
    name: str,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    seed: int = 0,
    count: int | None = None,
    on_caveat: OnCaveat | None = None,
    unbroken: Unbroken | None = None,
) -> Tensor:
    """Points of the attack `name` on images whose predictions are `labels`; any point of the ball where it fails.

    `unbroken` says which predictions leave an image unbroken; by default only `labels` do.
    `count` is the number in the attack's name: steps of a PGD, queries of RayS.
    """
    if name == "rays":
        options: dict[str, Any] = {} if count is None else {"queries": count}
        return find_boundary(calls, images, labels, "rays", threat.norm, seed, **options).points
    if name in LOSS_OF_PGD:
        return pgd(calls, images, labels, threat.radius, threat.norm, count or STEPS, loss=LOSS_OF_PGD[name], seed=seed)
    untargeted = name in ("apgd-ce", "apgd-dlr")
    bridge = UnbrokenBridge(calls, images, unbroken or labels.eq) if untargeted else FoolboxBridge(calls)
    attack = _attack(bridge, name, images, threat, seed, on_caveat)
    # It seeds torch's generators on all devices, so all that are in use are restored.
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=cuda), torch.no_grad():
        points: Tensor = attack.perturb(images, labels).detach()
    if isinstance(bridge, UnbrokenBridge):
        points = torch.where(per_image(bridge.broken), bridge.points, points)
    return points


class UnbrokenBridge(FoolboxBridge):
    """The model, evaluated only on images that no step of the attack has broken yet; `points` are those that broke them.

    A broken image keeps its last logits and gets a gradient of zero. The attack must pass all images at every step, in
    their order, and treat each by itself.
    """

    def __init__(self, calls: Calls, images: Tensor, unbroken: Unbroken) -> None:
        super().__init__(calls)
        self.unbroken = unbroken
        self.points = images.clone()
        self.broken = torch.zeros(len(images), dtype=torch.bool, device=images.device)
        self.last_logits: Tensor | None = None  # N×K

    def forward(self, images: Tensor) -> Tensor:
        if not (images.requires_grad and torch.is_grad_enabled()) or len(images) != len(self.broken):
            return super().forward(images)
        left = ~self.broken
        if self.last_logits is None:
            logits = super().forward(images)
        else:
            # The term of zeros joins the graph to all images, also where none is left.
            logits = self.last_logits + 0 * images.flatten(1)[:, :1]
            if left.any():
                logits = logits.index_put((left.nonzero()[:, 0],), super().forward(images[left]))
        self.last_logits = logits.detach()
        newly_broken = left & ~self.unbroken(self.last_logits.argmax(dim=1))
        self.points[newly_broken] = images.detach()[newly_broken]
        self.broken |= newly_broken
        return logits


def _attack(
    bridge: FoolboxBridge, name: str, images: Tensor, threat: Threat, seed: int, on_caveat: OnCaveat | None = None
) -> Any:
    """One of pyautoattack's attacks, with the settings of its standard version."""
    from pyautoattack import AutoAttack  # type: ignore[import-untyped]

    suite = AutoAttack(
        bridge,
        norm=PYAUTOATTACK_NORMS[threat.norm],
        eps=threat.radius,
        seed=seed,
        device=images.device,
        version="custom",
        attacks=[name],
    )
    attack = {"apgd-t": suite.apgd_targeted, "fab-t": suite.fab, "square": suite.square}.get(name, suite.apgd)
    if attack is suite.apgd:
        attack.loss = name.removeprefix("apgd-")
    attack.targeted = name == "fab-t"
    attack.n_restarts = 1  # the custom version keeps 5
    attack.n_target_classes = min(TARGETS, bridge.calls.logits(images[:1]).shape[1] - 1)
    # Its only warning is about zero gradients.
    attack.logger = SimpleNamespace(warning=lambda message: on_caveat(ZERO_GRADIENTS) if on_caveat else None)
    return attack
