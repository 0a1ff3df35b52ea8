"""Penultimate features and the head: what a classifier computes before its logits, and the layer that makes logits of it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn


class ForwardPass(NamedTuple):
    """What one pass through a network gives. It is a tuple because wrappers of a network look for tensors in tuples.

    >>> import torch
    >>> halves = ForwardPass(torch.zeros(4, 3), torch.zeros(4, 2)).chunk(2)
    >>> [half.features.shape[0] for half in halves]
    [2, 2]
    """

    features: Tensor  # N×D, the input of the head
    logits: Tensor  # N×K

    def chunk(self, parts: int) -> list[ForwardPass]:
        """The pass as several passes of equally many images, in order."""
        return [ForwardPass(*pair) for pair in zip(self.features.chunk(parts), self.logits.chunk(parts), strict=True)]


@runtime_checkable
class HasFeatures(Protocol):
    """A network in two parts: logits are `head(penultimate(inputs))`."""

    @property
    def head(self) -> nn.Module: ...

    def penultimate(self, inputs: Tensor) -> Tensor:
        """N×D features."""
        ...


class FeatureSequential(nn.Sequential):
    """A sequence of layers, the last of which is the head.

    >>> import torch
    >>> net = FeatureSequential(nn.Flatten(), nn.Linear(12, 5))
    >>> forward_pass(net, torch.zeros(2, 3, 2, 2)).features.shape
    torch.Size([2, 12])
    """

    @property
    def head(self) -> nn.Module:
        return self[-1]

    def penultimate(self, inputs: Tensor) -> Tensor:
        """N×D features."""
        for layer in list(self)[:-1]:
            inputs = layer(inputs)
        return inputs


def forward_pass(net: nn.Module, inputs: Tensor) -> ForwardPass:
    """Features and logits of `net`, which must have `penultimate` and `head`, or be one of timm's classifiers."""
    if isinstance(net, HasFeatures):
        features = net.penultimate(inputs)
        return ForwardPass(features, net.head(features))
    if _is_timm(net):
        timm_net: Any = net
        features = timm_net.forward_head(timm_net.forward_features(inputs), pre_logits=True)
        return ForwardPass(features, head_of(net)(features))
    raise _without_features(net)


def pass_through(model: nn.Module, head: nn.Module, inputs: Tensor) -> ForwardPass:
    """Features and logits of a model by its head: the features are all inputs of that layer, in one row per image.

    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 7, 1), nn.AdaptiveAvgPool2d(1), nn.Conv2d(7, 5, 1), nn.Flatten())
    >>> [tuple(part.shape) for part in pass_through(net, net[2], torch.zeros(2, 3, 4, 4))]
    [(2, 7), (2, 5)]
    """
    seen: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda layer, given: seen.append(given[0]))
    try:
        logits = model(inputs)
    finally:
        hook.remove()
    return ForwardPass(seen[-1].flatten(1), logits)


def head_of(net: nn.Module) -> nn.Module:
    """The layer that makes logits of the penultimate features.

    >>> head_of(FeatureSequential(nn.Flatten(), nn.Linear(12, 5)))
    Linear(in_features=12, out_features=5, bias=True)
    """
    if isinstance(net, HasFeatures):
        return net.head
    if _is_timm(net):
        timm_net: Any = net
        head: nn.Module = timm_net.get_classifier()
        return head
    raise _without_features(net)


def _is_timm(net: nn.Module) -> bool:
    return all(hasattr(net, name) for name in ("forward_features", "forward_head", "get_classifier"))


def _without_features(net: nn.Module) -> TypeError:
    return TypeError(
        f"`net` must have a method `penultimate` and a layer `head`, or be a classifier of timm, got {type(net).__name__}: "
        "build it as a FeatureSequential if its last layer is the head"
    )
