"""Whether a recipe's network ends in a linear layer, which closed forms and shifts of the last layer need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from locality.errors import Problem
from locality.training.recipe_parts import Net
from locality.training.settings import problems_in
from locality.zoo.architectures import input_of
from locality.zoo.heads import find_head
from locality.zoo.nets.forward_pass import head_of
from locality.zoo.pixel_model import PixelModel

if TYPE_CHECKING:
    from locality.training.recipe import Recipe


def linear_head_problems(recipe: Recipe) -> list[Problem]:
    """A problem unless the head of the recipe's network is a linear layer. The network is built without its weights."""
    if problems_in(recipe.net):
        return []  # listed already
    try:
        head = _head(recipe.net)
    except (TypeError, ValueError) as error:
        return [Problem("", f"needs the head of the network, which {recipe.net.name} does not show: {error}")]
    if isinstance(head, nn.Linear):
        return []
    return [
        Problem("", f"needs a network whose head is a linear layer, but that of {recipe.net.name} is {type(head).__name__}")
    ]


def _head(net: Net) -> nn.Module:
    built = net.without_weights()
    if net.is_own:
        return head_of(built)
    model = PixelModel(built, input_of(net.architecture, built, net.name))
    return model.get_submodule(find_head(model))
