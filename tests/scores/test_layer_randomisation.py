"""Cascading randomisation: which layers in which order, how they are drawn, what stays, and what the curve says."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from known_models import small_network
from scipy import stats
from skimage.metrics import structural_similarity
from torch import Tensor, nn
from torch.nn import functional

from locality.attribution import METHODS, saliency_map
from locality.scores.layer_randomisation import layers_from_top, randomised_copy, sanity_check


@pytest.fixture
def images() -> Tensor:
    return torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Mixed(nn.Module):
    """Made in another order than it runs in, with tied weights, attention, BatchNorms and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 6)
        self.unused = nn.Linear(2, 2)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.norm = nn.BatchNorm2d(6)
        self.stem = nn.Conv2d(3, 6, 2, 2)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.head.weight
        self.plain = nn.BatchNorm2d(6, affine=False)
        self.place = nn.Parameter(torch.full((1, 1, 6), 0.5))
        self.input_norm = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        features = self.plain(self.norm(self.stem(self.input_norm(images))).relu())
        tokens = features.flatten(2).transpose(1, 2) + self.place
        tokens = self.tied(self.attention(tokens, tokens, tokens, need_weights=False)[0])
        logits: Tensor = self.head(tokens.mean(1).tanh())
        return logits


def network() -> nn.Module:
    """Weights that move the output, and running statistics that belong to them."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(512, 5),
        )
        for part in model:
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.weight, 1, 0.2)
                nn.init.normal_(part.bias, 0, 0.2)
        with torch.no_grad():
            for _ in range(3):
                model(torch.rand(16, 3, 8, 8))
    return model.eval()


def test_layers_come_in_the_order_of_running(images: Tensor) -> None:
    model = Mixed().eval()
    layers = layers_from_top(model, images)
    assert [layer.name for layer in layers] == ["head", "tied", "attention", "stem", "input_norm", "(model)"]
    by_name = {layer.name: layer for layer in layers}
    assert by_name["head"].parameters == ("head.weight", "head.bias")
    assert by_name["tied"].parameters == ("tied.bias",)  # its weight is the head's, drawn with it
    assert set(by_name["attention"].parameters) == {f"attention.{name}" for name, _ in model.attention.named_parameters()}
    assert "attention.out_proj.weight" in by_name["attention"].parameters  # never runs by itself
    assert by_name["stem"].parameters == ("stem.weight", "stem.bias", "norm.weight", "norm.bias")
    assert by_name["stem"].norms == ("norm", "plain")
    assert by_name["input_norm"].norms == ("input_norm",)  # nothing before it to join
    # What never runs belongs to the model itself, the nearest module around it that does.
    assert set(by_name["(model)"].parameters) == {"place", "unused.weight", "unused.bias"}
    drawn = [name for layer in layers for name in layer.parameters]
    assert len(drawn) == len(set(drawn)) == len(list(model.parameters()))


def test_a_module_that_runs_twice_counts_where_it_runs_last(images: Tensor) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.again, self.head = nn.Linear(192, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, pixels: Tensor) -> Tensor:
            logits: Tensor = self.again(self.head(self.again(self.stem(pixels.flatten(1)))))
            return logits

    assert [layer.name for layer in layers_from_top(Twice(), images)] == ["again", "head", "stem"]


def test_norms_are_kept_and_the_rest_is_untouched(images: Tensor) -> None:
    model = network()
    layers = layers_from_top(model, images)
    assert [layer.name for layer in layers] == ["8", "3", "0"]
    random = randomised_copy(model, images, layers[:2])
    before, after = dict(model.named_parameters()), dict(random.named_parameters())
    assert layers[1].parameters == ("3.weight", "4.weight", "4.bias")
    for name in ("8.weight", "8.bias", "3.weight", "4.weight", "4.bias"):
        one, other = before[name].detach(), after[name].detach()
        assert other.norm().item() == pytest.approx(one.norm().item(), rel=1e-5)
        assert abs(functional.cosine_similarity(one.flatten(), other.flatten(), dim=0)) < 0.9
    weights = after["8.weight"].detach().flatten().numpy()
    assert stats.kstest(weights / weights.std(), "norm").pvalue > 0.01
    for name in ("0.weight", "0.bias", "1.weight", "1.bias"):
        assert torch.equal(before[name], after[name])
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert torch.equal(getattr(model[1], name), getattr(random[1], name))  # type: ignore[index]
    # A layer gets the same numbers whatever else is drawn, and others with another seed.
    top = dict(randomised_copy(model, images, layers[:1]).named_parameters())
    assert torch.equal(top["8.weight"], after["8.weight"])
    other_seed = dict(randomised_copy(model, images, layers[:1], seed=1).named_parameters())
    assert not torch.equal(other_seed["8.weight"], after["8.weight"])
    last = nn.Linear(192, 2)
    nn.init.zeros_(last.bias)
    zero = nn.Sequential(nn.Flatten(), last)
    assert (randomised_copy(zero, images, layers_from_top(zero, images))[1].bias == 0).all()  # type: ignore[index]


def test_batchnorm_statistics_are_those_of_the_reference(images: Tensor) -> None:
    model = network()
    reference = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(7)) ** 2
    random = randomised_copy(model, reference, layers_from_top(model, images))
    assert not random.training
    with torch.no_grad():
        for norm in (1, 4):  # the second sees what the first makes of its new statistics
            inputs = random[:norm](reference)  # type: ignore[index]
            found = random[norm]  # type: ignore[index]
            # In training BatchNorm divides by the variance over n and keeps that over n − 1: 0.04 % apart here.
            assert torch.allclose(found.running_mean, inputs.mean((0, 2, 3)), atol=5e-4)
            assert torch.allclose(found.running_var, inputs.var((0, 2, 3)), rtol=2e-3)
            assert found.momentum == 0.1
    upper = randomised_copy(model, reference, layers_from_top(model, images)[:2])
    assert torch.equal(upper[1].running_mean, model[1].running_mean)  # type: ignore[index]
    shuffled = randomised_copy(model, reference.flip(0), layers_from_top(model, images))
    assert torch.allclose(shuffled[4].running_var, random[4].running_var)  # type: ignore[index]


def test_a_large_reference_is_thinned_whatever_its_order(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.scores.layer_randomisation.REFERENCE", 4)
    model = network()
    layers = layers_from_top(model, images)
    reference = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(7))
    one, other = (randomised_copy(model, pixels, layers) for pixels in (reference, reference.flip(0)))
    assert torch.allclose(one[1].running_mean, other[1].running_mean)  # type: ignore[index]
    with torch.no_grad():
        assert not torch.allclose(one[1].running_mean, one[0](reference).mean((0, 2, 3)), atol=1e-4)  # type: ignore[index]


def test_the_curve_is_spearman_and_ssim_of_absolute_maps(images: Tensor) -> None:
    model = network()
    curve = sanity_check(model, images, "SM", layers_at_once=2, seed=5)
    assert curve.layers == ("8", "3", "0")
    assert curve.randomised == (0, 2, 3)
    assert curve.correlation.shape == curve.ssim.shape == (3, 3)
    assert torch.allclose(curve.correlation[0], torch.ones(3))
    assert torch.allclose(curve.ssim[0], torch.ones(3))
    classes = model(images).argmax(1)
    assert torch.equal(curve.target, classes)
    before = saliency_map(model, images, classes).abs().numpy()
    layers = layers_from_top(model, images)
    for step, count in ((1, 2), (2, 3)):
        random = randomised_copy(model, images, layers[:count], seed=5)
        after = saliency_map(random, images, classes).abs().numpy()
        for number in range(3):
            one, other = before[number], after[number]
            expected = stats.spearmanr(one.ravel(), other.ravel()).statistic
            assert curve.correlation[step, number].item() == pytest.approx(expected, abs=1e-5)
            likeness = structural_similarity(
                one / one.max(), other / other.max(), win_size=7, data_range=1.0, channel_axis=0
            )
            assert curve.ssim[step, number].item() == pytest.approx(likeness, abs=1e-5)
    again = sanity_check(model, images, "SM", layers_at_once=2, seed=5)
    assert torch.equal(again.correlation, curve.correlation)
    assert not torch.allclose(sanity_check(model, images, "SM", layers_at_once=2).correlation[1], curve.correlation[1])
    singly = sanity_check(model, images, "SM", layers_at_once=1, seed=5)
    assert singly.randomised == (0, 1, 2, 3)
    assert torch.allclose(singly.correlation[2:], curve.correlation[1:])
    assert sanity_check(model, images, "SM", layers_at_once=50).randomised == (0, 3)
    chosen = sanity_check(model, images, "SM", [4, 4, 1], 2, seed=5)
    assert chosen.target.tolist() == [4, 4, 1]


def test_a_method_that_shows_the_image_stays_up_and_saliency_falls() -> None:
    images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(768, 32), nn.Tanh(), nn.Linear(32, 4))
    seen: list[nn.Module] = []

    def edges(network: nn.Module, pixels: Tensor, target: Tensor) -> Tensor:
        seen.append(network)
        return pixels - pixels.mean((2, 3), keepdim=True)

    blind = sanity_check(model, images, edges, layers_at_once=1)
    assert torch.allclose(blind.correlation, torch.ones(3, 4))
    assert torch.allclose(blind.ssim, torch.ones(3, 4))
    assert model not in seen
    assert [bool((net[1].weight == model[1].weight).all()) for net in seen] == [True, True, False]  # type: ignore[index]
    assert [bool((net[3].weight == model[3].weight).all()) for net in seen] == [True, False, False]  # type: ignore[index]
    seeing = sanity_check(model, images, "SM", layers_at_once=1)
    assert seeing.correlation[-1].abs().max() < 0.15  # one over √768 is 0.036
    assert seeing.ssim[-1].max() < 0.3


WITHOUT_ATTENTION = [name for name in METHODS if not name.endswith("Rollout")]


@pytest.mark.parametrize(
    "name", [*WITHOUT_ATTENTION, "captum:GuidedBackprop", "captum:GradientShap", "captum:LayerGradCam@3"]
)
def test_every_method(images: Tensor, name: str) -> None:
    options: dict[str, Any] = {"AGI": {"classes": 2, "steps": 3}, "SmoothGrad": {"samples": 4}, "BSG": {"samples": 4}}.get(
        name, {}
    )
    model = network()
    weights = copy.deepcopy(model.state_dict())
    curve = sanity_check(model, images, name, layers_at_once=1, **options)
    assert torch.allclose(curve.correlation[0], torch.ones(3))
    assert curve.correlation.isfinite().all()
    assert (curve.correlation[-1] < 0.95).all()
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("interrupted", [False, True])
def test_nothing_of_the_callers_changes(images: Tensor, interrupted: bool) -> None:
    model = network().train()
    model[4].eval()  # type: ignore[index]
    model[8].weight.requires_grad_(False)  # type: ignore[index]
    model[0].weight.grad = torch.ones_like(model[0].weight)  # type: ignore[index]
    images.requires_grad_()
    weights, modes = copy.deepcopy(model.state_dict()), [part.training for part in model.modules()]
    identity = [id(p) for p in model.parameters()]
    pixels, state, numbers = images.detach().clone(), torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    steps = 0

    def stop(done: int, total: int | None) -> None:
        nonlocal steps
        steps = done
        assert total == 4
        if interrupted and done == 2:
            raise StoppedError

    if interrupted:
        with pytest.raises(StoppedError):
            sanity_check(model, images, "captum:GradientShap", layers_at_once=1, progress=stop)
        assert steps == 2
    else:
        sanity_check(model, images, "captum:GradientShap", layers_at_once=1, progress=stop)
        assert steps == 4
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert [part.training for part in model.modules()] == modes
    assert [id(p) for p in model.parameters()] == identity
    assert [p.requires_grad for p in model.parameters()].count(False) == 1
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))  # type: ignore[index]
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())
    assert torch.equal(images, pixels)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.random.get_state()[1].tolist() == numbers  # type: ignore[index]


def test_images_do_not_see_each_other_where_the_reference_is_fixed(images: Tensor) -> None:
    model = network()
    reference = torch.rand(9, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    whole = sanity_check(model, images, "IG", layers_at_once=1, reference=reference)
    order = [2, 0, 1]
    shuffled = sanity_check(model, images[order], "IG", layers_at_once=1, reference=reference)
    assert torch.allclose(shuffled.correlation, whole.correlation[:, order], atol=1e-4)
    single = sanity_check(model, images[:1], "IG", layers_at_once=1, reference=reference)
    assert torch.allclose(single.correlation, whole.correlation[:, :1], atol=1e-4)
    assert not torch.allclose(sanity_check(model, images, "IG", layers_at_once=1).correlation[-1], whole.correlation[-1])


def test_undefined_maps_are_nan(images: Tensor) -> None:
    made = iter(range(10))

    def sometimes(network: nn.Module, pixels: Tensor, target: Tensor) -> Tensor:
        maps = pixels.clone()
        if next(made):  # after the first
            maps[0] = math.nan
            maps[1] = 0
            maps[2] = -3
        return maps

    curve = sanity_check(network(), images, sometimes)
    assert curve.correlation[0].isfinite().all()
    assert curve.correlation[1].isnan().tolist() == [True, True, True]
    assert curve.ssim[1].isnan().tolist() == [True, True, False]
    small = torch.rand(2, 3, 2, 4, generator=torch.Generator().manual_seed(0))
    tiny = sanity_check(nn.Sequential(nn.Flatten(), nn.Linear(24, 3)), small, "SM")
    assert tiny.ssim.isnan().all()  # no window fits
    assert tiny.correlation.isfinite().all()


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            lambda images: {"model": lambda pixels: pixels.flatten(1)},
            TypeError,
            "`model` must be an nn.Module, got function",
        ),
        (lambda images: {"model": nn.Flatten()}, ValueError, "`model` must have parameters to randomise, got none"),
        (lambda images: {"layers_at_once": 0}, ValueError, "`layers_at_once` must be a whole number of at least 1, got 0"),
        (lambda images: {"method": "BIGG"}, ValueError, "`method` must be one of .* did you mean 'BIG'?"),
        (lambda images: {"images": images * 3}, ValueError, r"`images` must be in \[0, 1\]"),
        (lambda images: {"reference": images * 3}, ValueError, r"must be in \[0, 1\]"),
        (lambda images: {"target": 7}, ValueError, "`target` must be a class from 0 to 4"),
    ],
)
def test_wrong_arguments_are_named(
    images: Tensor, change: Callable[[Tensor], dict[str, Any]], kind: type, message: str
) -> None:
    arguments: dict[str, Any] = {"model": small_network(), "images": images, "method": "SM"} | change(images)
    with pytest.raises(kind, match=message):
        sanity_check(**arguments)


def test_one_image_is_too_few_for_some_batchnorms(images: Tensor) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    with pytest.raises(ValueError, match="`reference` must be two images or more for this model, got 1"):
        sanity_check(model, images[:1], "SM")
    assert sanity_check(model, images[:1], "SM", reference=images).correlation.shape == (2, 1)
