"""The weight-curvature index: known answers, invariance, its bound and its error."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from curvature_networks import convolutional, images_and_labels
from hypothesis import given, settings
from hypothesis import strategies as st
from known_models import linear_layer
from torch import nn

from locality import layer_traces, weight_curvature
from locality.curvature.traces import LayerTraces


def made_up(traces: list[float], covariance: list[list[float]], norms: list[float]) -> LayerTraces:
    values, errors, lengths = (torch.tensor(part, dtype=torch.float64) for part in (traces, covariance, norms))
    return LayerTraces(tuple("abcdef"[: len(traces)]), values, errors, lengths, 0, 0, 4, 1, "probed")


def test_one_linear_layer() -> None:
    """‖W‖ √⟨s(x) σ(p)⟩."""
    torch.manual_seed(0)
    model, (images, labels) = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double(), images_and_labels(6, side=2)
    spread = 1 - model(images).detach().softmax(1).square().sum(1)
    expected = linear_layer(model).weight.detach().norm() * (images.square().sum((1, 2, 3)) * spread).mean().sqrt()
    result = weight_curvature(layer_traces(model, images, labels))
    assert result.index == pytest.approx(float(expected), rel=1e-12)
    assert result.upper == pytest.approx(result.index, rel=1e-12)
    assert (result.clipped, result.error) == (0, 0.0)


def rescale(model: nn.Sequential, layer: int, scale: float) -> None:
    """Multiply a layer's weights by `scale` so that the logits stay as they are."""
    parts: list[Any] = list(model)
    parts[layer].weight.mul_(scale)
    if layer == 3:  # the BatchNorm after it divides by √(variance + ε)
        parts[4].running_mean.mul_(scale)
        parts[4].running_var.copy_(scale**2 * (parts[4].running_var + parts[4].eps) - parts[4].eps)
    elif layer == 8:
        parts[8].bias.mul_(scale)
        parts[10].weight.div_(scale)
    else:  # through a residual sum, whose convolution keeps its weights
        parts[0].bias.mul_(scale)
        parts[2].norm.running_mean.mul_(scale)
        parts[2].norm.bias.mul_(scale)
        parts[3].weight.div_(scale)


@settings(deadline=None, max_examples=25)
@given(scale=st.floats(0.05, 20), seed=st.integers(0, 5), layer=st.sampled_from([0, 3, 8]))
def test_rescaling_layers_against_each_other_changes_nothing(scale: float, seed: int, layer: int) -> None:
    """Remark 2.7: W → aW with the next layer divided by a; before BatchNorm, with its running statistics."""
    model, (images, labels) = convolutional(seed), images_and_labels(4)
    before = layer_traces(model, images, labels)
    with torch.no_grad():
        rescale(model, layer, scale)
    after = layer_traces(model, images, labels)
    assert weight_curvature(after).index == pytest.approx(weight_curvature(before).index, rel=1e-9)
    assert weight_curvature(after).layers.tolist() == pytest.approx(weight_curvature(before).layers.tolist(), rel=1e-9)
    assert float(after.traces.sum()) != pytest.approx(float(before.traces.sum()), rel=1e-6) or math.isclose(
        scale, 1, rel_tol=0.1
    )


@given(
    st.lists(st.tuples(st.floats(-1, 1e3), st.just(0.0) | st.floats(1e-6, 1e3)), min_size=1, max_size=6),
)
def test_the_index_never_exceeds_equation_6(layers: list[tuple[float, float]]) -> None:
    traces, norms = [list(column) for column in zip(*layers, strict=True)]
    size = len(traces)
    result = weight_curvature(made_up(traces, [[0.0] * size] * size, norms))
    assert result.index <= result.upper * (1 + 1e-12)
    assert result.index == pytest.approx(sum(n * math.sqrt(max(0, t)) for t, n in layers), rel=1e-12)
    assert result.clipped == sum(trace < 0 for trace in traces)


def test_weights_of_zero_have_no_curvature() -> None:
    model, (images, labels) = convolutional(), images_and_labels(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    result = weight_curvature(layer_traces(model, images, labels))
    assert (result.index, result.upper, result.error) == (0.0, 0.0, 0.0)


def test_the_error_is_that_of_200_draws() -> None:
    model, (images, labels) = convolutional(), images_and_labels(12)
    draws = [weight_curvature(layer_traces(model, images, labels, "sampled", seed=seed)) for seed in range(200)]
    spread = torch.tensor([draw.index for draw in draws], dtype=torch.float64).std()
    stated = torch.tensor([draw.error for draw in draws], dtype=torch.float64).square().mean().sqrt()
    assert float(stated / spread) == pytest.approx(1, abs=0.2)


def test_layers_share_their_probes() -> None:
    """Two layers with the same noise: the errors add, they do not add in squares."""
    together = weight_curvature(made_up([4.0, 4.0], [[0.16, 0.16], [0.16, 0.16]], [1.0, 1.0]))
    apart = weight_curvature(made_up([4.0, 4.0], [[0.16, 0.0], [0.0, 0.16]], [1.0, 1.0]))
    assert together.error == pytest.approx(2 * 0.4 / (2 * 2))
    assert apart.error == pytest.approx(math.sqrt(2) * 0.1)


def test_negative_traces_are_clipped_and_counted() -> None:
    result = weight_curvature(made_up([-1.0, 4.0], [[0.25, 0.0], [0.0, 0.0]], [3.0, 2.0]))
    assert (result.index, result.clipped, result.layers.tolist()) == (4.0, 1, [0.0, 4.0])
    assert result.error == pytest.approx(3 * math.sqrt(0.5))
    assert math.isnan(weight_curvature(made_up([1.0], [[math.nan]], [1.0])).error)
