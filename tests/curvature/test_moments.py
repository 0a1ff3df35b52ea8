"""Moments of the spectrum against the eigenvalues of the full Hessian."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from locality.curvature.moments import mlp_traces, spectrum_moments
from locality.errors import ArgumentError


def network(seed: int, width: int = 7, other: int = 5) -> nn.Sequential:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, other), nn.ReLU(), nn.Linear(other, 2)).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2.0)
    return net


def full_hessian(model: nn.Sequential, inputs: Tensor, labels: Tensor) -> tuple[Tensor, list[int]]:
    parameters = dict(model.named_parameters())
    sizes = [parameter.numel() for parameter in parameters.values()]

    def loss(flat: Tensor) -> Tensor:
        parts = {name: part.view_as(parameters[name]) for name, part in zip(parameters, flat.split(sizes), strict=True)}
        return cross_entropy(functional_call(model, parts, (inputs,)), labels)

    full: Tensor = hessian(loss, torch.cat([parameter.detach().flatten() for parameter in parameters.values()]))
    return full, [0, sizes[0] + sizes[1], sum(sizes[:4]), sum(sizes)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_moments_are_those_of_the_eigenvalues(seed: int) -> None:
    model = network(seed)
    inputs, labels = torch.randn(20, 2, dtype=torch.float64), torch.randint(2, (20,))
    full, edges = full_hessian(model, inputs, labels)
    blocks = [full] + [full[a:b, a:b] for a, b in pairwise(edges)]
    values = [torch.linalg.eigvalsh(block) for block in blocks]
    moments = spectrum_moments(model, inputs, labels)
    torch.testing.assert_close(moments.sums, torch.stack([value.sum() for value in values]), rtol=0, atol=1e-9)
    torch.testing.assert_close(
        moments.deviations, torch.stack([value.std(unbiased=False) for value in values]), rtol=0, atol=1e-9
    )
    # Each of the three couplings matters here: without the residual the deviation differs.
    assert abs(float(values[0].square().sum() - sum(value.square().sum() for value in values[1:]))) > 1e-3
    torch.testing.assert_close(mlp_traces(model, inputs), moments.sums[1:], rtol=1e-12, atol=0)


def test_traces_are_differentiable_and_may_leave_biases_out() -> None:
    model = network(3)
    inputs, labels = torch.randn(6, 2, dtype=torch.float64), torch.randint(2, (6,))
    full, _ = full_hessian(model, inputs, labels)
    start, without = 0, []
    for parameter in model.parameters():
        if parameter.dim() == 2:
            without.append(full[start : start + parameter.numel(), start : start + parameter.numel()].trace())
        start += parameter.numel()
    torch.testing.assert_close(mlp_traces(model, inputs, bias=False), torch.stack(without), rtol=1e-10, atol=0)

    weight = model.get_parameter("2.weight")
    (gradient,) = torch.autograd.grad(mlp_traces(model, inputs).sum(), weight)
    step = 1e-6
    differences = []
    for sign in (1, -1):
        with torch.no_grad():
            weight[1, 2] += sign * step
            differences.append(float(full_hessian(model, inputs, labels)[0].trace()))
            weight[1, 2] -= sign * step
    assert float(gradient[1, 2]) == pytest.approx((differences[0] - differences[1]) / (2 * step), rel=1e-6)


def test_other_networks_are_refused() -> None:
    inputs, labels = torch.rand(3, 2), torch.zeros(3, dtype=torch.int64)
    for other in (nn.Sequential(nn.Linear(2, 2)), nn.Sequential(*list(network(0).children())[:4], nn.Linear(5, 3))):
        with pytest.raises(ArgumentError, match="Linear, ReLU, Linear, ReLU and Linear"):
            spectrum_moments(other, inputs, labels)
    with pytest.raises(ArgumentError, match="`inputs` must be N×2 numbers"):
        spectrum_moments(network(0).float(), torch.rand(3, 4), labels)
    with pytest.raises(ArgumentError, match="`labels` must be a class from 0 to 1"):
        spectrum_moments(network(0).float(), inputs, labels + 2)
