"""The `start` of a recipe: what is known about it before its weights are read, and its weights."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch
from torch import Tensor, nn

from locality.errors import ModelError, Problem
from locality.training.recipe_parts import LIBRARIES, Net
from locality.types import ModelSpec
from locality.zoo.architectures import build, check_library_net, input_of, is_function
from locality.zoo.catalog import model_cards, unknown_model
from locality.zoo.checkpoint import card_spec
from locality.zoo.load import is_checkpoint, known_card, load_model, needs_architecture
from locality.zoo.nets.forward_pass import FeatureSequential
from locality.zoo.pixel_model import PixelModel

ELSEWHERE = ("hf:", "robustbench:")  # models whose architecture a card cannot name


def start_problems(start: str) -> list[Problem]:
    """What is wrong with the name of a start, on any machine."""
    if is_function(start) and not start.startswith(LIBRARIES):
        return [Problem("start", f"must be a model or a checkpoint, not code to run, got {start!r}")]
    if start.startswith(ELSEWHERE):
        return [Problem("start", f"must be a model of timm, torchvision or locality, got {start!r}: use locality.fine_tune")]
    if start.startswith(LIBRARIES):
        try:
            check_library_net(start)
        except ModelError as error:
            return [Problem("start", f"is unknown: {error}")]
    if start.startswith("torchvision:"):
        return [Problem("start", f"must be a model with weights, got the architecture {start!r}: give a checkpoint")]
    return []


def start_problems_here(start: str, net: Net | None) -> list[Problem]:
    """Whether there is such a start on this machine, and its network is known; its weights are not read."""
    if start.startswith("timm:") or start in model_cards():
        return []
    if Path(start).expanduser().is_dir():
        return [Problem("start", f"must be a checkpoint, got the folder {start!r}")]
    if not is_checkpoint(start):
        return [Problem("start", f"is unknown: {unknown_model(start, model_cards())}")]
    if not Path(start).expanduser().is_file():
        run = Path(start).stem  # the weights of a run are in a folder of the same name
        hint = f": run `locality train {run}` first" if Path(start).parent.name == run else ""
        return [Problem("start", f"must be a file that exists, got {start!r}{hint}")]
    if net is None and needs_architecture(start):
        return [Problem("net", 'must name the network of a checkpoint without a card, such as net = "timm:resnet18"')]
    return []


def start_net(start: str) -> Net | None:
    """The network of a start; None if neither its name nor a card says what it is."""
    if start.startswith("timm:"):
        return Net(start.partition(".")[0])
    card = known_card(start)
    if card is None or not card.architecture:
        return None
    return Net(card.architecture.removeprefix("net:"), dict(card.options))


def start_input(start: str | None, net: Net) -> ModelSpec:
    """How a start expects its images: as its card says, or as its network was published; without a start, the latter."""
    card = None if start is None else known_card(start)
    if card is not None:
        return card_spec(card)
    architecture = start if start is not None and start.startswith("timm:") else net.architecture
    return input_of(architecture, build(architecture, None), architecture)


def load_start(model: PixelModel, start: str, net: Net) -> str:
    """Give the model the weights of a start, which must be of the same network; the result says what became of the head.

    The head keeps its random weights if the start has other classes, or a head of another kind, as that of a Centroid Net.
    """
    given = load_model(start, arch=net.architecture if needs_architecture(start) else None)
    if (given.spec.mean, given.spec.std) != (model.spec.mean, model.spec.std):
        raise ValueError(f"`start`: {start} has mean {given.spec.mean} and std {given.spec.std}: give the recipe the same")
    classes = f"{len(model.spec.classes)} classes"
    kept = _keeps_head(model, given)
    of_head = {id(value) for value in model.head.parameters()}
    new = [name for name, value in model.net.named_parameters() if id(value) in of_head and not kept]
    try:
        model.net.load_state_dict(start_weights(model.net, given.net, new))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"`start`: {start} is not a {net.name} for {classes}: {reason}") from None
    if new:
        _start_small(model.head)
    if kept and given.spec.classes:
        return f"weights of {start}, head included"
    if kept:
        return f"weights of {start}, head included: it does not name its classes, which are as many"
    return f"weights of {start}, with a new head for {classes}"


@torch.no_grad()
def _start_small(head: nn.Module) -> None:
    """Scale down random weights that are far larger than those of a new layer of torch, U(−1/√n, 1/√n) for n inputs.

    timm draws the heads of EfficientNets and MobileNets by the number of outputs: for two classes they begin with logits of
    ±20, which a short training hardly unlearns.
    """
    if not isinstance(head, nn.Linear | nn.Conv2d):
        return
    usual = (3 * head.weight[0].numel()) ** -0.5  # the standard deviation of that distribution
    deviation = float(head.weight.std())
    if deviation > 2 * usual:
        head.weight.mul_(usual / deviation)


def _keeps_head(model: PixelModel, start: PixelModel) -> bool:
    """Whether the start's head is for the model's classes; classes that it does not name count as these if as many."""
    if start.spec.classes:
        return start.spec.classes == model.spec.classes
    return start.spec.num_classes in (None, len(model.spec.classes))


def start_weights(net: nn.Module, start: nn.Module, new: Collection[str] = ()) -> dict[str, Tensor]:
    """The weights of `start`, with the network's own for the `new` ones, such as those of its head.

    Where both have heads of different kinds, as a Centroid Net has, all from the start's head on are the network's own.
    """
    weights, own = start.state_dict(), net.state_dict()
    if (
        isinstance(net, FeatureSequential)
        and isinstance(start, FeatureSequential)
        and type(net.head) is not type(start.head)
    ):
        head = f"{len(start) - 1}."
        return own | {name: value for name, value in weights.items() if not name.startswith(head)}
    return weights | {name: own[name] for name in new}
