"""What a network returns, as N×K logits: outputs of other libraries, one logit, one label of a multi-label network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from locality.errors import ArgumentError

KEYS = ("logits", "out")  # of a dictionary, in this order


def logits_of(output: Any, images: int) -> Any:
    """The logits in what a network returns for so many images: its `.logits`, its "logits" or "out", or its first element.

    One logit f per image, N×1 or N, becomes the two logits (−f/2, f/2) of the classes 0 and 1: their softmax is the sigmoid
    of f, their difference is f, and the boundary is where f is 0. What has no logits is returned as it is.

    >>> logits_of({"loss": 3.0, "logits": torch.tensor([[1.0, 2.0]])}, 1).tolist()
    [[1.0, 2.0]]
    >>> logits_of((torch.tensor([[3.0]]), "features"), 1).tolist()
    [[-1.5, 1.5]]
    """
    if not isinstance(output, Tensor):
        inner = getattr(output, "logits", None)
        if inner is None and isinstance(output, Mapping):
            inner = next((output[key] for key in KEYS if key in output), None)
        if inner is None and isinstance(output, tuple | list) and output:
            inner = output[0]
        if not isinstance(inner, Tensor):
            return output
        output = inner
    if output.shape in ((images,), (images, 1)):
        half = output.reshape(-1, 1) / 2
        return torch.cat([-half, half], dim=1)
    return output


class PlainLogits(nn.Module):
    """A network that returns `logits_of` what `net` returns, for libraries that expect a tensor."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = logits_of(self.net(images), len(images))
        return logits


class OneLabel(nn.Module):
    """One label of a multi-label network as a network of two classes: 1 if the label's logit is above 0, else 0.

    >>> network = OneLabel(nn.Flatten(), 1)
    >>> network(torch.tensor([[[[0.5, -2.0, 1.0]]]])).tolist()  # label 1 is absent: its logit is −2
    [[1.0, -1.0]]
    """

    def __init__(self, net: nn.Module, label: int) -> None:
        super().__init__()
        if isinstance(label, bool) or not isinstance(label, int) or label < 0:
            raise ArgumentError("label", "the number of one of the network's logits", label)
        self.net, self.label = net, label

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = logits_of(self.net(images), len(images))
        if self.label >= logits.shape[1]:
            raise ArgumentError("label", f"a label from 0 to {logits.shape[1] - 1}", self.label)
        two: Tensor = logits_of(logits[:, self.label], len(images))
        return two
