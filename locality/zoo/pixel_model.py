"""A network together with the preprocessing it expects."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from locality.model_calls.outputs import logits_of
from locality.types import ModelSpec
from locality.zoo.nets.forward_pass import ForwardPass, forward_pass, head_of, pass_through
from locality.zoo.preprocessing import Origin, model_preprocessing


class PixelModel(nn.Module):
    """A network on pixels in [0, 1]: it normalises them as its `spec` says, then calls `net`. It abstains where `net` does.

    >>> model = PixelModel(nn.Flatten(), ModelSpec("flat", (2, 2), 2, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)))
    >>> model(torch.ones(1, 3, 2, 2)).unique().tolist()
    [1.0]
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, spec: ModelSpec, origin: Origin | None = None) -> None:
        super().__init__()
        self.net = net
        self.spec = spec
        self.origin: Origin = origin or {}  # where each part of the preprocessing comes from
        self.head_name: str | None = None  # of the layer that makes the logits, if `zoo.heads` looked for it
        # Not in the state dict: mean and standard deviation belong to the spec, and a checkpoint holds the network alone.
        self.register_buffer("mean", torch.tensor(spec.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(spec.std).view(1, 3, 1, 1), persistent=False)

        if hasattr(net, "abstains"):  # a network that may decline to decide
            self.abstains = net.abstains

    @property
    def preprocessing(self) -> str:
        """The preprocessing in one line, and where it comes from."""
        return model_preprocessing(self)

    def respecify(self, spec: ModelSpec, origin: Origin) -> None:
        """Give the model another spec, with its mean and standard deviation."""
        self.spec, self.origin = spec, origin
        self.mean.copy_(torch.tensor(spec.mean).view(1, 3, 1, 1))
        self.std.copy_(torch.tensor(spec.std).view(1, 3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = logits_of(self.net(self.normalised(images)), len(images))
        return logits

    def forward_pass(self, images: Tensor) -> ForwardPass:
        """Logits and penultimate features; a TypeError says so where `net` does not expose them and no head was found."""
        if self.head_name is None:
            return forward_pass(self.net, self.normalised(images))
        return pass_through(self, self.head, images)

    @property
    def head(self) -> nn.Module:
        """The layer that makes the logits; a TypeError says so where it is not known."""
        if self.head_name is None:
            return head_of(self.net)
        return self.get_submodule(self.head_name)

    def normalised(self, images: Tensor) -> Tensor:
        """What `net` is given."""
        return (images - self.mean) / self.std
