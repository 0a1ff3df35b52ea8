"""The network under training, as losses and attacks call it: with its features, at its own weights or at others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from locality.training.inner_attack import Mode
from locality.zoo.nets.forward_pass import ForwardPass
from locality.zoo.nets.lipschitz import LipschitzNet
from locality.zoo.pixel_model import PixelModel

Weights = Mapping[str, Tensor]  # by the names that checkpoints use


class FeatureModel(nn.Module):
    """A model whose forward pass gives features, too. It is what gets wrapped, since wrappers pass on `forward` alone.

    With `frozen_statistics`, BatchNorm stays in eval mode: it uses the statistics that the model came with.
    """

    def __init__(self, model: PixelModel, frozen_statistics: bool = False) -> None:
        super().__init__()
        self.model = model
        self.frozen_statistics = frozen_statistics

    def train(self, mode: bool = True) -> Self:
        """Training mode, or eval mode."""
        super().train(mode)
        if self.frozen_statistics:
            for layer in self.modules():
                if isinstance(layer, _BatchNorm):
                    layer.eval()
        return self

    def forward(self, images: Tensor) -> ForwardPass:
        return self.model.forward_pass(images)


class _MarginNorms(nn.Module):
    """The estimates of a network as a forward pass, which is what can be made at other weights."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, steps: int) -> Tensor:
        assert isinstance(self.net, LipschitzNet)  # the recipe has been checked
        return self.net.margin_norms(steps)


def _of_one_process(value: Tensor) -> Tensor:
    return value


@dataclass(frozen=True, eq=False)
class Network:
    """The network in training mode.

    `wrapped` averages the gradients of the weights over the processes, and expects one backward pass after each of its
    forward passes; `bare` is the same network without the wrapper, in the same precision.
    """

    wrapped: nn.Module
    bare: FeatureModel
    mean_over_processes: Callable[[Tensor], Tensor] = _of_one_process

    @property
    def model(self) -> PixelModel:
        return self.bare.model

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The parameters themselves, by name."""
        return dict(self.model.net.named_parameters())

    @cached_property
    def head_weight(self) -> str:
        """The name of the weight of the head, which must be a linear layer."""
        head = self.model.head
        return next(name for name, weight in self.weights.items() if weight is head.weight)

    def forget_body_gradients(self) -> None:
        """Drop the gradients of all layers before the head, so that the optimizer leaves these layers as they are."""
        head = {id(weight) for weight in self.model.head.parameters()}
        for weight in self.weights.values():
            if id(weight) not in head:
                weight.grad = None

    def forward(self, images: Tensor, weights: Weights) -> ForwardPass:
        """The pass to train on: it updates BatchNorm's statistics, and its gradients are averaged over the processes."""
        if weights is self.weights:
            trained: ForwardPass = self.wrapped(images)
        else:
            trained = functional_call(self.wrapped, self._named(self.wrapped, weights), (images,))
        return trained

    def trial(self, images: Tensor, weights: Weights) -> ForwardPass:
        """A pass on the side: it leaves BatchNorm's statistics alone, and its gradients stay in this process."""
        copies = {name: buffer.clone() for name, buffer in self.bare.named_buffers()}
        tried: ForwardPass = functional_call(self.bare, self._named(self.bare, weights) | copies, (images,))
        return tried

    def attacked_logits(self, images: Tensor, weights: Weights, mode: Mode) -> Tensor:
        """Logits as an attack sees them: without the wrapper, which would wait for gradients of the weights."""
        with in_mode(self.bare, mode):
            seen: ForwardPass = self.bare(images) if weights is self.weights else self.trial(images, weights)
        return seen.logits

    def margin_norms(self, steps: int, weights: Weights, on_the_side: bool = False) -> Tensor:
        """K×K estimates of how fast the margins f_j − f_i can change with the pixels; see `LipschitzNet.margin_norms`.

        Power iterations go on from where the last ones ended, and on the side leave that place as it was.
        """
        of_net = _MarginNorms(self.model.net)
        tensors = {} if weights is self.weights else {f"net.{name}": weight for name, weight in weights.items()}
        if on_the_side:
            tensors |= {name: buffer.clone() for name, buffer in of_net.named_buffers()}
        norms: Tensor = functional_call(of_net, tensors, (steps,))
        return norms / self.model.std.min()  # a division of pixels multiplies how fast margins change

    def _named(self, module: nn.Module, weights: Weights) -> dict[str, Tensor]:
        """The weights under the names that they have in a module around the network."""
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        return {names[id(parameter)]: weights[name] for name, parameter in self.weights.items()}


@contextmanager
def in_mode(model: nn.Module, mode: Mode) -> Iterator[None]:
    """The model in eval mode for a while, or left in training mode."""
    if mode == "train":
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()
