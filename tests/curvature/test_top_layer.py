"""The trace of the last linear layer, found by a hook in networks of any kind."""

import pytest
import torch
from torch import Tensor, nn

from locality import layer_traces, load_model
from locality.curvature.top_layer import top_layer_traces
from locality.zoo.architectures import build


@pytest.mark.parametrize("name", ["shapes_cnn_robust", "tiny_resnet"])
def test_it_is_the_last_layer_s_trace_of_the_hessian(name: str) -> None:
    model, images = load_model(name), torch.rand(5, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    top = top_layer_traces(model, images, chunk=2)
    traces = layer_traces(model, images, torch.zeros(5, dtype=torch.int64), "exact")
    assert top is not None
    assert float(top.mean()) == pytest.approx(float(traces.traces[-1]), rel=1e-4)
    assert top.shape == (5,)


@pytest.mark.parametrize("architecture", ["net:shapes_vit", "torchvision:resnet18"])
def test_transformers_and_networks_of_others_have_one(architecture: str) -> None:
    model = build(architecture, 7).train()
    top = top_layer_traces(model, torch.rand(2, 3, 64, 64))
    assert top is not None
    assert bool((top > 0).all())
    assert model.training
    assert not any(part._forward_hooks for part in model.modules())


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = 2 * self.head(images.flatten(1))
        return logits


@pytest.mark.parametrize(
    ("model", "size"),
    [(Doubled(), 1), (nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten()), 1), (build("torchvision:squeezenet1_1", 4), 64)],
    ids=["doubled", "convolution", "squeezenet"],
)
def test_networks_whose_logits_no_linear_layer_returns_have_none(model: nn.Module, size: int) -> None:
    assert top_layer_traces(model, torch.rand(2, 3, size, size)) is None
    assert not any(part._forward_hooks for part in model.modules())
