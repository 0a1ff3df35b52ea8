"""AutoAttack (Croce & Hein, ICML 2020) through pyautoattack, one attack of a suite at a time.

pyautoattack reseeds the global generators for every batch, adds to the gradients of a model's parameters (FAB), and asks
`sys.settrace` for a look at the model. Here its attacks see a module without parameters, within generators that are
restored, and the settings are those that its own `AutoAttack` gives them. APGD treats each image by itself, so the network
is not asked again about an image that is broken: standard models cost a small share of the gradients, the rest is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from locality.model_calls import Calls
from locality.model_calls.third_party import FoolboxBridge
from locality.perturbation import per_image
from locality.robustness.pgd import Loss, Norm, pgd

Note = Callable[[str], None]  # takes a sentence to warn of and to remember
Holds = Callable[[Tensor], Tensor]  # N predictions ↦ N bool: those that leave the image unbroken

# Attack by name → what runs on the images that are still classified correctly, in this order.
SUITES: dict[str, tuple[str, ...]] = {
    "paper": ("apgd-ce", "apgd-dlr"),
    "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "pgd20": ("pgd-ce",),
    "cw20": ("pgd-margin",),
}
LOSS_OF_PGD: dict[str, Loss] = {"pgd-ce": "ce", "pgd-margin": "margin"}
NAME_OF_NORM = {"linf": "Linf", "l2": "L2"}
TARGETS = 9  # classes that the targeted attacks try, nearest first
CLASSES_FOR_DLR = 3  # it divides by the difference of the first and the third logit
CLASSES_FOR_TARGETED_DLR = 4
SMALLEST_SIDE_FOR_L2_SQUARE = 5  # pixels: it starts from five squares a side
ZERO_GRADIENTS = (
    "the gradient is exactly zero at some points of an attack: it cannot leave them, the model may mask gradients"
)


@dataclass(frozen=True)
class Threat:
    """What an attack may do, and the seed of its random numbers."""

    norm: Norm
    epsilon: float
    seed: int


def attacks_of(attack: str, classes: int) -> tuple[tuple[str, ...], str | None]:
    """The attacks of a suite for a model of so many classes, and a sentence where they are not the published ones.

    The DLR loss needs three classes and its targeted version four. With three, APGD-DLR stands in for APGD-T; with two there
    is none, which loses little: cross-entropy is then a rising function of the margin.

    >>> attacks_of("standard", 10)
    (('apgd-ce', 'apgd-t', 'fab-t', 'square'), None)
    >>> attacks_of("paper", 2)[0]
    ('apgd-ce',)
    """
    suite = SUITES[attack]
    if classes < CLASSES_FOR_TARGETED_DLR:
        suite = tuple("apgd-dlr" if name == "apgd-t" else name for name in suite)
    if classes < CLASSES_FOR_DLR:
        suite = tuple(name for name in suite if name != "apgd-dlr")
    if suite == SUITES[attack]:
        return suite, None
    return suite, f"`attack` {attack} runs as {', '.join(suite)}: the DLR loss of {attack} needs more than {classes} classes"


def check_sizes(attacks: tuple[str, ...], threat: Threat, images: Tensor) -> None:
    """Raise where pyautoattack would divide by zero."""
    if "square" in attacks and threat.norm == "l2" and images.shape[-2] < SMALLEST_SIDE_FOR_L2_SQUARE:
        raise ValueError(
            f"`images` must be {SMALLEST_SIDE_FOR_L2_SQUARE} pixels high or more for the Square attack in l2, got shape "
            f"{tuple(images.shape)}: use attack='paper'"
        )


def attacked(
    calls: Calls, name: str, images: Tensor, labels: Tensor, threat: Threat, note: Note, holds: Holds | None = None
) -> Tensor:
    """What the attack `name` makes of the images, whose predictions are `labels`; any point of the ball where it fails.

    `holds` says which predictions of the images leave them unbroken; only `labels` do if it is not given.
    """
    if name in LOSS_OF_PGD:
        return pgd(calls, images, labels, threat.epsilon, threat.norm, loss=LOSS_OF_PGD[name], seed=threat.seed)
    untargeted = name in ("apgd-ce", "apgd-dlr")
    bridge = UnbrokenBridge(calls, images, holds or labels.eq) if untargeted else FoolboxBridge(calls)
    attack = _attack(bridge, name, images, threat, note)
    # It seeds torch's generators on all devices, so all that are in use are restored.
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=cuda), torch.no_grad():
        points: Tensor = attack.perturb(images, labels).detach()
    if isinstance(bridge, UnbrokenBridge):
        points = torch.where(per_image(bridge.broken), bridge.points, points)
    return points


class UnbrokenBridge(FoolboxBridge):
    """The model, asked only about images that no step of the attack has broken yet; `points` are those that broke them.

    A broken image keeps its last logits and gets a gradient of zero. The attack must ask about all images at every step, in
    their order, and treat each by itself.
    """

    def __init__(self, calls: Calls, images: Tensor, holds: Holds) -> None:
        super().__init__(calls)
        self.holds = holds
        self.points = images.clone()
        self.broken = torch.zeros(len(images), dtype=torch.bool, device=images.device)
        self.seen: Tensor | None = None  # N×K, the logits last given

    def forward(self, images: Tensor) -> Tensor:
        if not (images.requires_grad and torch.is_grad_enabled()) or len(images) != len(self.broken):
            return super().forward(images)
        left = ~self.broken
        if self.seen is None:
            logits = super().forward(images)
        else:
            # The term of zeros joins the graph to all images, also where none is left.
            logits = self.seen + 0 * images.flatten(1)[:, :1]
            if left.any():
                logits = logits.index_put((left.nonzero()[:, 0],), super().forward(images[left]))
        self.seen = logits.detach()
        new = left & ~self.holds(self.seen.argmax(dim=1))
        self.points[new] = images.detach()[new]
        self.broken |= new
        return logits


def _attack(bridge: FoolboxBridge, name: str, images: Tensor, threat: Threat, note: Note) -> Any:
    """One of pyautoattack's attacks, with the settings of its standard version."""
    from pyautoattack import AutoAttack  # type: ignore[import-untyped]

    suite = AutoAttack(
        bridge,
        norm=NAME_OF_NORM[threat.norm],
        eps=threat.epsilon,
        seed=threat.seed,
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
    attack.logger = SimpleNamespace(warning=lambda message: note(ZERO_GRADIENTS))
    return attack
