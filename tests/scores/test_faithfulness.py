"""INFD and completeness: linear and quadratic models in closed form, Captum's infidelity on the same perturbations."""

import dataclasses
import math
from typing import Any

import captum.metrics  # type: ignore[import-untyped]
import pytest
import torch
from known_models import linear_model, small_network
from torch import Tensor, nn

from locality.attribution import boundary_integrated_gradients, integrated_gradients, saliency_map
from locality.boundary import find_boundary
from locality.model_calls import open_model
from locality.model_calls.randomness import image_seeds
from locality.scores.faithfulness import Faithfulness, completeness_gap, faithfulness
from locality.scores.infidelity import (
    BaselineStep,
    GaussianNoise,
    Infidelity,
    Noise,
    PathNoise,
    SquareRemoval,
    explained_and_change,
    infidelity,
)
from locality.types import Boundary, PathMaps

NUMBERS = [field.name for field in dataclasses.fields(Infidelity) if field.name not in ("noise", "samples")]


@pytest.fixture
def images() -> Tensor:
    return torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def smooth_network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        first = nn.Linear(192, 24)
        net = nn.Sequential(nn.Flatten(), first, nn.Tanh(), nn.Linear(24, 4))
        nn.init.normal_(first.weight, std=0.1)  # curved: the gradient varies
        return net


def squares(images: Tensor) -> Tensor:
    """One logit an input value: its square."""
    return images.flatten(1) ** 2


def parts(found: Faithfulness) -> dict[str, Infidelity]:
    return {name: getattr(found, name) for name in ("gaussian", "removal", "path", "step")}


def same(one: Faithfulness, other: Faithfulness, rows: Any = slice(None), atol: float = 1e-5) -> None:
    for name, part in parts(one).items():
        for number in NUMBERS:
            values = getattr(part, number)
            assert torch.allclose(values[rows], getattr(parts(other)[name], number), atol=atol, equal_nan=True), (
                name,
                number,
            )
    assert torch.allclose(one.gap[rows], other.gap, atol=atol, equal_nan=True)


def test_a_linear_model_is_explained_exactly() -> None:
    model, images, _, _ = linear_model([0.1, 0.2, 0.3, 0.4])
    edge = find_boundary(model, images)
    explained: list[tuple[Tensor | PathMaps, Any]] = [
        (saliency_map(model, images), "black"),
        (integrated_gradients(model, images), None),
        (boundary_integrated_gradients(model, images, edge), edge.points),
    ]
    for maps, baseline in explained:
        found = faithfulness(model, images, maps, baseline=baseline, samples=20)
        for part in parts(found).values():
            assert part.raw.max() < 1e-9, part.noise
            assert part.normalised.max() < 1e-8, part.noise
            assert part.scaled.max() < 1e-9, part.noise
            assert torch.allclose(part.scale, torch.ones(4), atol=1e-3), part.noise
        if isinstance(maps, PathMaps):
            assert found.gap.max() < 1e-4
    # What is left out of SM's sum is the map times (1 − x).
    sm = saliency_map(model, images)
    gap = completeness_gap(model, images, sm)
    assert torch.allclose(gap, ((1 - images) * sm).flatten(1).sum(1).abs(), atol=1e-4)


def test_a_square_in_closed_form() -> None:
    """f = x²: SM misses −ε² under N(0, σ²), IG misses x²(t − t²) along its path."""
    images = torch.rand(3, 1, 1, 2, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.5
    first = images[:, 0, 0, 0]
    gaussian = infidelity(squares, images, saliency_map(squares, images, 0), GaussianNoise(0.2), 0, samples=4000)
    assert gaussian.samples == 4000
    assert ((gaussian.raw - 3 * 0.2**4).abs() < 4 * gaussian.raw_error).all()
    assert gaussian.raw_error.max() < 0.1 * 3 * 0.2**4
    # E[(2xε + ε²)²] = 4x²σ² + 3σ⁴
    expected = 3 * 0.2**4 / (4 * first**2 * 0.2**2 + 3 * 0.2**4)
    assert ((gaussian.normalised - expected).abs() < 4 * gaussian.normalised_error).all()
    path = infidelity(squares, images, integrated_gradients(squares, images, 0), PathNoise(), 0, samples=4000)
    assert ((path.raw - first**4 / 30).abs() < 4 * path.raw_error).all()
    assert ((path.normalised - 1 / 16).abs() < 4 * path.normalised_error).all()
    assert path.normalised_error.max() < 0.003
    # The best multiple of −tx² for x²(t² − 2t) is β = 3(2/3 − 1/4) = 5/4, which leaves 8/15 − 25/48 of x⁴.
    assert path.scale.tolist() == pytest.approx([5 / 4] * 3, abs=0.01)
    assert ((path.scaled / first**4 - (8 / 15 - 25 / 48)).abs() < 4 * path.scaled_error / first**4).all()


@pytest.mark.parametrize("noise", [GaussianNoise(0.1), PathNoise("white")])
def test_standard_errors_are_those_of_repetition(noise: Noise) -> None:
    """Images whose second pixel, without effect, differs: the same question with other draws."""
    images = torch.full((300, 1, 1, 2), 0.6)
    images[:, 0, 0, 1] = torch.linspace(0, 1, 300)
    maps = torch.zeros_like(images)
    maps[:, 0, 0, 0] = 1.5
    found = infidelity(squares, images, maps, noise, 0, samples=120)
    for name in ("raw", "normalised", "scaled"):
        spread = getattr(found, name).std().item()
        assert getattr(found, f"{name}_error").mean() == pytest.approx(spread, rel=0.2), name


def perturbations(noise: Noise, images: Tensor, samples: int, seed: int = 0) -> Tensor:
    """N×samples×C×H×W of the perturbations that `infidelity` draws."""
    draw = noise.draw(images, image_seeds(images, seed), (0.0, 1.0))
    return torch.stack([draw(torch.full((samples,), number)) for number in range(len(images))])


@pytest.mark.parametrize("noise", [GaussianNoise(0.1), PathNoise(0.5), SquareRemoval("white"), BaselineStep()])
def test_captum_agrees(images: Tensor, noise: Noise) -> None:
    model = small_network().eval()
    maps = saliency_map(model, images, 2) + 0.02 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    found = infidelity(model, images, maps, noise, 2, samples=40)
    drawn = perturbations(noise, images, 40).flatten(0, 1)

    def perturb(inputs: Tensor) -> tuple[Tensor, Tensor]:
        return -drawn, inputs + drawn

    options = {"target": 2, "n_perturb_samples": 40}
    raw = captum.metrics.infidelity(model, perturb, images, maps, normalize=False, **options)
    scaled = captum.metrics.infidelity(model, perturb, images, maps, normalize=True, **options)
    assert torch.allclose(found.raw, raw, rtol=1e-3, atol=1e-7)
    # Captum expands the square, which loses digits where little is left: with one direction, nothing is.
    assert torch.allclose(found.scaled, scaled, rtol=1e-3, atol=1e-5)
    assert found.raw.min() > 1e-5
    assert (found.scaled <= found.raw * 1.0001).all()


def test_the_saliency_map_is_right_in_the_limit(images: Tensor) -> None:
    model = smooth_network()
    maps = saliency_map(model, images)
    order = torch.randperm(192, generator=torch.Generator().manual_seed(0))
    shuffled = maps.flatten(1)[:, order].view_as(maps)
    right, wrong = (
        [infidelity(model, images, each, GaussianNoise(sigma)).normalised for sigma in (0.3, 0.03, 0.003)]
        for each in (maps, shuffled)
    )
    assert (right[1] < 0.1 * right[0]).all()
    assert (right[2] < 0.1 * right[1]).all()
    assert right[2].max() < 1e-4
    assert min(values.min() for values in wrong) > 0.5


def test_at_the_baseline_infd_is_the_squared_gap(images: Tensor) -> None:
    model = smooth_network()
    edge = find_boundary(model, images)
    for points, least in ((5, 1e-6), (60, 0.0)):
        for maps, baseline in (
            (integrated_gradients(model, images, baseline="white", points=points), "white"),
            (boundary_integrated_gradients(model, images, edge, points=points), edge.points),
        ):
            found = faithfulness(model, images, maps, baseline=baseline, samples=10)
            assert torch.allclose(found.step.raw, maps.gap**2, atol=1e-9)
            assert torch.allclose(found.gap, maps.gap, atol=1e-5)
            assert found.step.raw_error.tolist() == [0] * 5
            assert found.step.samples == 1
            if baseline == "white":
                assert found.step.raw.max() > least
                assert found.step.normalised.max() < (1e-3 if points == 5 else 1e-7)
                assert found.path.normalised.min() > 1e-5  # not so along the rest of the path


def test_the_path_is_the_methods_own(images: Tensor) -> None:
    """BIG's weights fit its short path, not IG's long one."""
    model = smooth_network()
    edge = find_boundary(model, images)
    maps = boundary_integrated_gradients(model, images, edge)
    own = faithfulness(model, images, maps, baseline=edge.points).path
    other = infidelity(model, images, maps, PathNoise("black"))
    assert (own.normalised < other.normalised).all()
    assert own.noise == "path from given points"
    with pytest.raises(
        ValueError, match=r"`baseline` must be where the path of `maps` starts, which fails for 5 of 5 images"
    ):
        faithfulness(model, images, maps)
    ig = integrated_gradients(model, images, baseline="white")
    with pytest.raises(ValueError, match="`baseline` must be where the path"):
        faithfulness(model, images, ig)


def test_gaussian_noise_and_path_are_what_they_say(images: Tensor) -> None:
    noise = perturbations(GaussianNoise(0.2), images, 300)
    assert noise.std().item() == pytest.approx(0.2, rel=0.01)
    assert noise.mean().abs() < 0.002
    assert not torch.equal(noise[0], noise[1])
    path = perturbations(PathNoise("white"), images, 2000)
    places = path / (1 - images)[:, None]
    assert places.flatten(2).std(2).max() < 1e-4
    along = places.flatten(2).mean(2)
    assert along.min() >= 0
    assert along.max() <= 1
    assert along.mean(1).tolist() == pytest.approx([0.5] * 5, abs=0.03)
    assert along.std(1).tolist() == pytest.approx([12**-0.5] * 5, abs=0.02)
    assert torch.allclose(perturbations(BaselineStep("white"), images, 3), (1 - images)[:, None].expand(-1, 3, -1, -1, -1))


def test_squares_are_squares_inside_the_image() -> None:
    images = torch.rand(2, 3, 12, 18, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.25
    noise = perturbations(SquareRemoval(), images, 3000)
    removed = noise != 0
    assert torch.equal(noise[removed], (-images[:, None].expand_as(noise))[removed])
    assert (removed.all(2) == removed.any(2)).all()  # all channels
    plane = removed[:, :, 0].flatten(0, 1)
    heights, widths = plane.any(2).sum(1), plane.any(1).sum(1)
    assert torch.equal(heights, widths)
    assert torch.equal(plane.sum((1, 2)), heights * widths)
    assert sorted(heights.unique().tolist()) == [1, 2, 3, 4]
    assert heights.float().mean().item() == pytest.approx(2.5, abs=0.06)
    cover = plane[heights == 4].float().mean(0)
    assert cover.min() > 0  # every corner is reached, and those only by squares that touch it
    assert cover[0, 0].item() == pytest.approx(1 / (9 * 15), rel=0.6)
    white = perturbations(SquareRemoval("white", 0.05), images, 20)
    assert white.sum((2, 3, 4)).min() > 0
    assert ((white != 0).sum((2, 3, 4)) == 3).all()  # at least one pixel


def test_neither_batch_nor_order_nor_chunk_matters(images: Tensor) -> None:
    model = small_network()
    maps = integrated_gradients(model, images)
    whole = faithfulness(model, images, maps, samples=15)
    assert whole.removal.raw.min() > 1e-6
    order = [3, 0, 4, 1, 2]
    moved = PathMaps(maps.maps[order], maps.integral[order], maps.delta[order])
    same(whole, faithfulness(model, images[order], moved, samples=15), order)
    single = PathMaps(maps.maps[2:3], maps.integral[2:3], maps.delta[2:3])
    same(whole, faithfulness(model, images[2:3], single, samples=15), slice(2, 3))
    for chunk in (1, 7):
        same(whole, faithfulness(model, images, maps, samples=15, chunk=chunk))
    other = faithfulness(model, images, maps, samples=15, seed=1)
    for name in ("gaussian", "path", "removal"):
        assert not torch.allclose(getattr(whole, name).raw, getattr(other, name).raw)


def test_all_at_once_is_one_by_one(images: Tensor) -> None:
    model = small_network()
    maps = saliency_map(model, images, 1)
    found = faithfulness(model, images, maps, 1, "mean", sigma=0.2, fill="blur", largest=0.5, samples=12, seed=3)
    noises: list[Noise] = [GaussianNoise(0.2), SquareRemoval("blur", 0.5), PathNoise("mean"), BaselineStep("mean")]
    for noise, part in zip(noises, parts(found).values(), strict=True):
        alone = infidelity(model, images, maps, noise, 1, samples=12, seed=3)
        assert part.noise == alone.noise == str(noise)
        for number in NUMBERS:
            assert torch.equal(getattr(part, number), getattr(alone, number))
    assert torch.equal(found.gap, completeness_gap(model, images, maps, 1, "mean"))
    predicted = infidelity(model, images, maps, samples=12)
    classes = model.eval()(images).argmax(1)
    assert torch.equal(predicted.raw, infidelity(model, images, maps, target=classes, samples=12).raw)
    assert not torch.equal(predicted.raw, infidelity(model, images, maps, target=(classes + 1) % 5, samples=12).raw)
    with open_model(model, images) as calls:
        faithfulness(calls, images, integrated_gradients(model, images), samples=12)
        assert calls.forwards == 5 * (3 * 12 + 3)


def test_maps_without_a_path_have_none(images: Tensor) -> None:
    model = small_network()
    found = faithfulness(model, images, saliency_map(model, images), samples=5)
    assert found.gap.isnan().all()
    for part in (found.path, found.step):
        assert (part.noise, part.samples) == ("no path", 0)
        assert all(getattr(part, name).isnan().all() for name in NUMBERS)
    assert found.gaussian.raw.isfinite().all()


def test_undefined_maps_are_nan_and_cost_nothing(images: Tensor) -> None:
    model = small_network()
    edge = find_boundary(model, images)
    where = torch.tensor([True, False, True, True, False])
    edge = Boundary(edge.points, edge.distance, where, edge.labels, edge.crossed_to, edge.optimality)
    maps = boundary_integrated_gradients(model, images, edge)
    with open_model(model, images) as calls:
        found = faithfulness(calls, images, maps, baseline=edge.points, samples=6)
        assert calls.forwards == 5 + 5 + 3 * (3 * 6 + 1)
    for part in parts(found).values():
        for number in NUMBERS:
            assert torch.equal(getattr(part, number).isfinite(), where), (part.noise, number)
    assert torch.equal(found.gap.isfinite(), where)
    full = faithfulness(
        model,
        images[where],
        PathMaps(maps.maps[where], maps.integral[where], maps.delta[where]),
        samples=6,
        baseline=edge.points[where],
    )
    same(found, full, where)
    nothing = infidelity(model, images, torch.full_like(images, math.nan), samples=6)
    assert nothing.raw.isnan().all()


def test_degenerate_maps_and_models(images: Tensor) -> None:
    zero = infidelity(smooth_network(), images, torch.zeros_like(images))
    assert zero.normalised.tolist() == pytest.approx([1] * 5)
    assert zero.scale.tolist() == [0] * 5
    assert torch.allclose(zero.scaled, zero.raw)
    constant = infidelity(lambda pixels: pixels.flatten(1)[:, :3] * 0 + torch.tensor([1.0, 2.0, 5.0]), images, images)
    assert constant.normalised.isnan().all()
    assert constant.normalised_error.isnan().all()
    assert constant.scaled.tolist() == [0] * 5
    one = infidelity(smooth_network(), images, images, samples=1)
    assert one.raw.isfinite().all()
    assert one.raw_error.isnan().all()


def test_what_was_added_is_what_counts() -> None:
    """x + ε is rounded: with the ε that was meant, a linear model of large weights would not be explained exactly."""
    weights = 1e3 * torch.randn(192, 2, generator=torch.Generator().manual_seed(0))
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    maps = weights[:, 0].view(1, 3, 8, 8).expand(2, -1, -1, -1)
    with open_model(lambda pixels: pixels.flatten(1).double() @ weights.double(), images) as calls:
        target = torch.zeros(2, dtype=torch.int64)
        logit = calls.logits(images)[:, 0]
        from locality.attribution.class_gradient import ClassGradient

        draw = GaussianNoise(1e-6).draw(images, [1, 2], None)
        explained, change = explained_and_change(calls, images, maps, ClassGradient(target, logit, None), draw, 50)
    rounding = 2**-23 * logit.abs().max().item()
    assert (explained - change).abs().max() < 2 * rounding


def test_nothing_of_the_callers_changes(images: Tensor) -> None:
    model = small_network().train()
    images.requires_grad_()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    pixels, state = images.detach().clone(), torch.get_rng_state()
    maps = integrated_gradients(model, images)
    kept = maps.maps.clone(), maps.integral.clone()
    faithfulness(model, images, maps, samples=4)
    assert model.training
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert torch.equal(images, pixels)
    assert images.grad is None
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(maps.maps, kept[0])
    assert torch.equal(maps.integral, kept[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "`samples` must be a whole number of perturbations per image, got 0"),
        ({"sigma": 0.0}, "`sigma` must be a positive number of pixels, got 0.0"),
        ({"largest": 2.0}, r"`largest` must be a share of the image's shorter side in \(0, 1\], got 2.0"),
        (
            {"maps": torch.zeros(5, 1, 8, 8)},
            r"`maps` must be of the shape of the images, \(5, 3, 8, 8\), got \(5, 1, 8, 8\)",
        ),
        ({"images": torch.full((5, 3, 8, 8), 2.0)}, r"`images` must be in \[0, 1\]"),
        ({"target": 9}, "`target` must be a class from 0 to 3"),
    ],
)
def test_wrong_arguments_are_named(images: Tensor, options: dict[str, Any], message: str) -> None:
    arguments = {"images": images, "maps": torch.zeros_like(images)} | options
    with pytest.raises(ValueError, match=message):
        faithfulness(smooth_network(), **arguments)
