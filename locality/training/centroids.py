"""The centroids of the network under training, for losses and regularisers of Centroid Nets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from locality.errors import ArgumentError, Problem
from locality.training.network import Network
from locality.training.settings import problems_in
from locality.training.step import TrainingBatch
from locality.zoo.nets.centroid import CentroidNet

if TYPE_CHECKING:
    from locality.training.recipe import Recipe


def centroid_network(network: Network) -> CentroidNet:
    """The network as a Centroid Net; raises if it is another one."""
    net = network.model.net
    if not isinstance(net, CentroidNet):
        raise ArgumentError("net", "a Centroid Net", type(net).__name__, "choose centroid_net")
    return net


def centroids_at(batch: TrainingBatch) -> Tensor:
    """The K×k×D centroids at the batch's weights."""
    parameter = centroid_network(batch.network).centroid_head.centroids
    return next(batch.weights[name] for name, weight in batch.network.weights.items() if weight is parameter)


def centroid_net_problems(recipe: Recipe) -> list[Problem]:
    """A problem unless the recipe's network has centroids. The network is built without its weights."""
    if problems_in(recipe.net):
        return []  # listed already
    try:
        net = recipe.net.without_weights()
    except (TypeError, ValueError):
        return []  # reported when the network is built
    if isinstance(net, CentroidNet):
        return []
    return [Problem("", f"needs a network with centroids, which {recipe.net.name} does not have: choose centroid_net")]
