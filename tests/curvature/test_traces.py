"""Layer traces against autograd's Hessian, curvlinops and known answers; the promises to the caller."""

from __future__ import annotations

import copy
import math
import re
from typing import Any

import pytest
import torch
from curvature_networks import HiddenGelu, Twice, Viewing, block_hessian, block_traces, convolutional, images_and_labels
from known_models import linear_layer
from torch import Tensor, nn

from locality import layer_traces, load_model
from locality.curvature.layers import is_piecewise_linear, weight_layers
from locality.curvature.traces import TRACES, LayerTraces
from locality.errors import ArgumentError
from locality.zoo.nets import NETS


def tiny(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).double()
    with torch.no_grad():
        linear_layer(net).weight.mul_(3.0)
    return net


def test_exact_is_the_trace_of_each_block() -> None:
    model, (images, labels) = convolutional(), images_and_labels(7)
    result = layer_traces(model, images, labels, "exact")
    assert result.names == tuple(weight_layers(model))
    assert len(result.names) == 5
    torch.testing.assert_close(result.traces, block_traces(model, images, labels), rtol=1e-10, atol=1e-13)
    assert result.errors.tolist() == [0.0] * 5
    torch.testing.assert_close(result.norms, torch.stack([w.detach().norm() for w in weight_layers(model).values()]))
    assert (result.gradients, result.forwards, result.images, result.probes) == (7 * 3, 7, 7, 0)
    smallest = torch.linalg.eigvalsh(block_hessian(model, images, labels, result.names[1])).min()
    assert smallest > -1e-12  # positive semi-definite, so that the index is always defined


def test_a_network_that_flattens_with_view() -> None:
    torch.manual_seed(0)
    model, (images, labels) = Viewing().double(), images_and_labels(3, side=4)
    for method in ("exact", "probed"):
        assert layer_traces(model, images, labels, method).method == method
    exact = layer_traces(model, images, labels).traces
    torch.testing.assert_close(exact, block_traces(model, images, labels), rtol=1e-10, atol=1e-13)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_exact_equals_curvlinops() -> None:
    from curvlinops import HessianLinearOperator

    model, (images, labels) = tiny().eval(), images_and_labels(4, side=4)
    for place, weight in enumerate(weight_layers(model).values()):
        operator = HessianLinearOperator(
            model, nn.CrossEntropyLoss(), [weight], [(images, labels)], check_deterministic=False
        )
        trace = (operator @ torch.eye(weight.numel(), dtype=torch.float64)).trace()
        assert float(layer_traces(model, images, labels, "exact").traces[place]) == pytest.approx(float(trace), rel=1e-10)


@pytest.mark.parametrize(("method", "probes"), [("sampled", 4), ("probed", 16)])
def test_estimates_and_their_errors_are_right_over_200_draws(method: str, probes: int) -> None:
    model, (images, labels) = tiny(), images_and_labels(10, side=4)
    truth = layer_traces(model, images, labels, "exact").traces
    draws = [layer_traces(model, images, labels, method, probes, seed) for seed in range(200)]
    estimates, errors = torch.stack([d.traces for d in draws]), torch.stack([d.errors for d in draws])
    standard_error = estimates.std(0) / math.sqrt(200)
    assert bool(((estimates.mean(0) - truth).abs() < 4 * standard_error).all())
    # The stated variance is that of the estimates: over 200 draws their ratio is within 4 · √(2/200) of 1.
    ratio = errors.square().mean(0) / estimates.var(0)
    assert bool(((ratio - 1).abs() < 0.4).all()), ratio
    assert float(((estimates - truth) / errors).abs().lt(1.96).double().mean()) > 0.88
    if method == "sampled":
        assert float(estimates.min()) >= 0
    else:
        assert draws[0].gradients == 10 * (1 + 2 * 16)
    assert draws[0].probes == probes


def test_a_probe_of_all_layers_has_the_variance_of_its_formula() -> None:
    """Var = 2 Σ_{i≠j} (H_kk)_ij² + Σ_{l≠k} ‖H_kl‖²: what the docstring says about `probed`."""
    from torch.autograd.functional import hessian
    from torch.func import functional_call
    from torch.nn.functional import cross_entropy

    model, (images, labels) = tiny(), images_and_labels(3, side=4)
    weights = weight_layers(model)
    sizes = [weight.numel() for weight in weights.values()]

    def loss(flat: Tensor) -> Tensor:
        parts = {name: part.view_as(weights[name]) for name, part in zip(weights, flat.split(sizes), strict=True)}
        return cross_entropy(functional_call(model, parts, (images,)), labels)

    full: Tensor = hessian(loss, torch.cat([weight.detach().flatten() for weight in weights.values()]))
    estimates = torch.stack(
        [layer_traces(model, images, labels, "probed", probes=1, seed=seed).traces for seed in range(400)]
    )
    start = 0
    for place, size in enumerate(sizes):
        rows = full[start : start + size]
        own = rows[:, start : start + size]
        variance = (rows**2).sum() + (own**2).sum() - 2 * (own.diagonal() ** 2).sum()
        assert float(estimates[:, place].var() / variance) == pytest.approx(1, abs=0.4)
        start += size


def test_one_probe_has_no_error() -> None:
    model, (images, labels) = tiny(), images_and_labels(3, side=4)
    assert bool(layer_traces(model, images, labels, "sampled", probes=1).errors.isnan().all())


@pytest.mark.parametrize("method", ["exact", "sampled", "probed"])
def test_chunks_and_the_model_s_mode_do_not_matter(method: str) -> None:
    model, (images, labels) = convolutional(), images_and_labels(11)
    whole = layer_traces(model.eval(), images, labels, method, chunk=64)
    parts = layer_traces(model.train(), images, labels, method, chunk=3)
    torch.testing.assert_close(parts.traces, whole.traces, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(parts.covariance, whole.covariance, rtol=1e-8, atol=1e-13)
    assert (parts.gradients, parts.forwards) == (whole.gradients, whole.forwards)
    other = layer_traces(model, images, labels, method, seed=1)
    assert bool((other.traces == whole.traces).all()) == (method == "exact")


def test_an_image_s_probe_does_not_depend_on_the_others() -> None:
    model, (images, labels) = tiny(), images_and_labels(6, side=4)
    whole = layer_traces(model, images, labels, "sampled").traces
    halves = [layer_traces(model, images[part], labels[part], "sampled").traces for part in (slice(3), slice(3, 6))]
    torch.testing.assert_close(torch.stack(halves).mean(0), whole, rtol=1e-12, atol=0)
    backwards = layer_traces(model, images.flip(0), labels.flip(0), "sampled").traces
    torch.testing.assert_close(backwards, whole, rtol=1e-12, atol=0)


def test_labels_matter_only_where_logits_are_curved() -> None:
    model, (images, labels) = convolutional(), images_and_labels(5)
    assert torch.equal(
        layer_traces(model, images, labels, "exact").traces, layer_traces(model, images, labels.flip(0), "exact").traces
    )


@pytest.mark.parametrize("method", list(TRACES))
def test_nothing_of_the_caller_changes(method: str) -> None:
    model, (images, labels) = convolutional().train(), images_and_labels(5)
    for weight in model.parameters():
        weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    pixels, state = images.clone(), torch.get_rng_state()
    with torch.inference_mode():
        layer_traces(model, images, labels, method)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training and not module._forward_hooks for module in model.modules())
    assert all(not weight.requires_grad and weight.grad is None for weight in model.parameters())
    assert torch.equal(images, pixels)
    assert torch.equal(torch.get_rng_state(), state)


def test_state_comes_back_after_an_error() -> None:
    model, (images, labels) = Twice().double().train(), images_and_labels(2, side=2)
    with pytest.raises(ArgumentError, match="used twice"):
        layer_traces(model, images, labels, "exact")
    assert all(module.training and not module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("network", [HiddenGelu, Twice])
def test_what_no_module_says_is_seen_in_the_pass(network: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, (images, labels) = network().double(), images_and_labels(8, side=2)
    assert is_piecewise_linear(model)
    result = layer_traces(model, images, labels, probes=1500)
    assert result.method == "probed"
    truth = block_traces(model, images, labels)
    assert bool(((result.traces - truth).abs() < 4 * result.errors).all())
    assert bool((result.errors < 0.15 * truth.abs()).all())


def test_a_transformer_is_probed() -> None:
    torch.manual_seed(0)
    model = NETS["tiny_vit"](3, width=8, depth=1, heads=2).double()
    images, labels = images_and_labels(9, side=64)
    assert not is_piecewise_linear(model)
    result = layer_traces(model, images, labels)
    assert result.method == "probed"
    assert bool(torch.isfinite(result.traces).all())
    for method in ("exact", "sampled"):
        with pytest.raises(ArgumentError, match="must be probed for this network") as caught:
            layer_traces(model, images, labels, method)
        assert "\n" not in str(caught.value)


def test_shared_weights_count_once_and_are_probed() -> None:
    first, second = nn.Linear(12, 12), nn.Linear(12, 12)
    second.weight = first.weight
    model = nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU(), nn.Linear(12, 3)).double()
    assert list(weight_layers(model)) == ["1.weight", "5.weight"]
    assert not is_piecewise_linear(model)
    images, labels = images_and_labels(16, side=2)
    result = layer_traces(model, images, labels, probes=64)
    assert bool(((result.traces - block_traces(model, images, labels)).abs() < 4 * result.errors).all())


@pytest.mark.parametrize("net", ["shapes_cnn", "tiny_vgg", "tiny_resnet"])
def test_shipped_convolutional_nets_are_exact(net: str) -> None:
    model = NETS[net](4)
    result = layer_traces(model, torch.rand(2, 3, 64, 64), torch.tensor([0, 3]))
    assert result.method == "exact"
    assert bool((result.traces > 0).all())


def test_many_classes_are_sampled() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 21))
    assert layer_traces(model, torch.rand(2, 3, 2, 2), torch.tensor([0, 20])).method == "sampled"


def test_a_loaded_model_and_half_precision() -> None:
    model = load_model("shapes_cnn_robust")
    images = torch.rand(3, 3, 64, 64)
    labels = torch.tensor([1, 2, 3])
    result = layer_traces(model, images, labels)
    assert len(result.names) == 5
    half = layer_traces(copy.deepcopy(model).half(), images, labels)
    torch.testing.assert_close(half.traces, result.traces, rtol=0.05, atol=0)


def test_zero_weights_have_a_known_trace() -> None:
    """Tr = s(x) (1 − 1/K) where all logits are 0."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    images, labels = images_and_labels(5, side=2)
    result = layer_traces(model, images, labels)
    assert float(result.traces) == pytest.approx(float(images.square().sum((1, 2, 3)).mean()) * 0.75, rel=1e-12)
    assert float(result.norms) == 0


def test_progress_counts_images() -> None:
    model, (images, labels) = tiny(), images_and_labels(10, side=4)
    seen: list[tuple[int, int | None]] = []
    for method in ("exact", "probed"):
        layer_traces(model, images, labels, method, chunk=8, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 10), (8, 10), (10, 10)] * 2


def bad(**changed: Any) -> LayerTraces:
    images, labels = images_and_labels(2, side=4)
    arguments: dict[str, Any] = {"model": tiny(), "images": images, "labels": labels}
    return layer_traces(**(arguments | changed))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"method": "exakt"}, "`method` must be one of exact, sampled, probed, auto, got 'exakt': did you mean 'exact'?"),
        ({"probes": 0}, "`probes` must be a whole number"),
        ({"model": nn.Flatten()}, "`model` must be a network with weights of two or more dimensions"),
        ({"model": nn.Flatten().forward}, "`model` must be a torch module"),
        ({"labels": torch.tensor([0, 3])}, "`labels` must be a class from 0 to 2, got 3"),
        ({"labels": torch.tensor([0])}, "`labels` must be a tensor of 2 whole class numbers"),
        ({"images": torch.full((2, 3, 4, 4), 2.0)}, "`images` must be in"),
        ({"model": nn.Conv2d(3, 2, 3)}, "`model` must be one that returns N×K logits"),
        ({"chunk": 0}, "`chunk` must be a whole number of images"),
    ],
)
def test_bad_input_is_one_sentence(changed: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(text)):
        bad(**changed)
