"""ROAD: Quantus where it is right, its faults, grad-cam's combination, and a network whose evidence is known."""

import importlib
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_models import small_network
from torch import Tensor

from locality.model_calls import open_model
from locality.scores.imputation import linear_imputation
from locality.scores.road import road

quantus: Any = importlib.import_module("quantus")  # untyped
noisy_linear_imputation: Any = importlib.import_module("quantus.functions.perturb_func").noisy_linear_imputation

TIGHT: dict[str, Any] = {"noise": 0.0, "tolerance": 1e-6}


@pytest.fixture
def images() -> Tensor:
    return torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def normal_maps(seed: int, count: int = 6, channels: int = 3) -> Tensor:
    return torch.randn(count, channels, 8, 8, generator=torch.Generator().manual_seed(seed))


def edges(images: Tensor) -> Tensor:
    """Logits: the squared differences of neighbours in the left and in the right half, which imputation destroys."""
    rough = (images.diff(dim=2) ** 2).mean(1)
    return 100 * torch.stack((rough[..., :4].mean((1, 2)), rough[..., 4:].mean((1, 2))), 1)


def quantus_road(images: Tensor, maps: Tensor, classes: Any, percentages: list[int], batch_size: int = 64) -> list[float]:
    metric = quantus.ROAD(percentages=percentages, noise=0.0, disable_warnings=True, normalise=False)

    class Edges(torch.nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return edges(inputs.float())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = metric(
            model=Edges().eval(),
            x_batch=images.numpy(),
            y_batch=classes.numpy(),
            a_batch=maps.numpy(),
            batch_size=batch_size,
        )
    return [float(found[percentage]) for percentage in percentages]


def test_quantus_agrees_on_one_channel() -> None:
    images = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    maps = normal_maps(0, 40, 1)
    classes = edges(images).argmax(1)
    found = road(edges, images, maps, classes, shares=(0.25, 0.5, 0.75), **TIGHT)["map"]
    percentages = [25, 50, 75]
    assert found.kept_most.mean(0).tolist() == pytest.approx(quantus_road(images, maps, classes, percentages))
    assert found.kept_least.mean(0).tolist() == pytest.approx(quantus_road(images, -maps, classes, percentages))
    assert 0.1 < float(found.kept_most.mean()) < 0.9


def test_quantus_refuses_colour_and_forgets_all_batches_but_the_first(images: Tensor) -> None:
    """It takes the places of channels' values for those of pixels, and of the scores of all batches it returns the first."""
    maps = normal_maps(0, channels=1)
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 64"):
        quantus_road(images, maps, torch.zeros(6, dtype=torch.int64), [50])
    grey = images[:, :1]
    classes = edges(grey).argmax(1)
    found = road(edges, grey, maps, classes, shares=(0.5,), **TIGHT)["map"]
    first = quantus_road(grey, maps, classes, [50], batch_size=2)
    assert first == pytest.approx([float(found.kept_most[:2].mean())])


def test_grad_cam_in_its_own_steps(images: Tensor) -> None:
    """Its definition on colour: impute, then the mean over percentiles of the change in confidence, halved."""
    model, maps = small_network().eval(), normal_maps(3)
    shares = (0.25, 0.5, 0.75)
    found = road(model, images, maps, 2, shares=shares, **TIGHT)["map"]
    combined = []
    for image, values in zip(images, maps.sum(1), strict=True):
        confidence = []
        for sign in (-1, 1):
            for share in shares:
                gone = (sign * values).flatten().argsort()[: int(64 * share)].numpy()
                filled = torch.from_numpy(noisy_linear_imputation(image.numpy(), gone, noise=0)).float()
                confidence.append(model(filled[None]).softmax(1)[0, 2].item())
        combined.append((np.mean(confidence[3:]) - np.mean(confidence[:3])) / 2)
    assert found.probability_gap.numpy() / 2 == pytest.approx(np.array(combined), abs=1e-4)


def test_kept_is_the_prediction_also_below_one_half() -> None:
    """Of several classes the most probable one counts, although it seldom has more than half of the probability."""
    images = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(1))

    def thirds(inputs: Tensor) -> Tensor:
        rough = (inputs.diff(dim=2) ** 2).mean((1, 2))
        return 10 * torch.stack([rough[:, start::4].mean(1) for start in range(4)], 1)

    shares = (0.3, 0.6)
    maps = normal_maps(4, 12)
    found = road(thirds, images, maps, shares=shares, **TIGHT)["map"]
    kept = []
    for image, values in zip(images, maps.sum(1), strict=True):
        predicted = thirds(image[None]).argmax()
        order = (-values).flatten().argsort()
        holes = [order[: round(64 * share)].numpy() for share in shares]
        filled = [torch.from_numpy(noisy_linear_imputation(image.numpy(), gone, noise=0)).float() for gone in holes]
        kept.append([float(thirds(one[None]).argmax() == predicted) for one in filled])
    assert found.kept_most.tolist() == kept
    assert (found.kept_most != (found.probability_most > 0.5)).any()


def test_the_imputation_of_all_variants_is_the_factorisation() -> None:
    """Of an image as large as those that networks take: pixels to 1e-4, probabilities to 1e-6 per unit of a logit."""
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    maps = torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(2))
    maps = torch.nn.functional.avg_pool2d(maps, 9, 1, 4)
    seen: list[Tensor] = []

    def model(inputs: Tensor) -> Tensor:
        seen.append(inputs.clone())
        return edges(inputs) / 100

    shares = (0.1, 0.5, 0.9)
    found = road(model, image, maps, 0, shares=shares, **TIGHT)["map"]
    order = (-maps).flatten().argsort()
    counts = [round(64 * 64 * share) for share in shares]
    removed = [order[:count] for count in counts] + [order.flip(0)[:count] for count in counts]
    exact = torch.stack(
        [torch.from_numpy(noisy_linear_imputation(image[0].numpy(), gone.numpy(), noise=0)).float() for gone in removed]
    )
    assert (torch.cat(seen)[-6:] - exact).abs().max() < 1e-4
    probability = (edges(exact) / 100).softmax(1)[:, 0]
    assert torch.allclose(torch.cat((found.probability_most[0], found.probability_least[0])), probability, atol=1e-6)


def test_a_network_with_known_evidence() -> None:
    """Only the left half counts. Removing it loses the class, removing the other half does not."""
    images = torch.full((8, 3, 8, 8), 0.5)
    images[..., :4] = torch.rand(8, 3, 8, 4, generator=torch.Generator().manual_seed(1))
    images[..., 4:] += 0.1 * torch.rand(8, 3, 8, 4, generator=torch.Generator().manual_seed(2))
    right = torch.zeros_like(images)
    right[..., :4] = 1
    found = road(edges, images, {"right": right, "wrong": -right}, shares=(0.5,), noise=0.0)
    assert found["right"].most.tolist() == [0.0] * 8
    assert found["right"].least.tolist() == [1.0] * 8
    assert found["right"].gap.tolist() == [1.0] * 8
    assert found["wrong"].gap.tolist() == [-1.0] * 8


@given(st.integers(0, 50))
@settings(max_examples=4, deadline=None)
def test_the_opposite_map_has_the_opposite_gap(seed: int) -> None:
    """So a random order, whose opposite is as likely, has a gap of 0 in expectation."""
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    maps = normal_maps(seed)
    found = road(edges, images, {"map": maps, "opposite": -maps, "monotone": maps.sum(1, keepdim=True).exp()})
    assert torch.equal(found["map"].kept_most, found["opposite"].kept_least)
    assert torch.allclose(found["map"].probability_gap, -found["opposite"].probability_gap, atol=1e-6)
    assert torch.equal(found["map"].probability_most, found["monotone"].probability_most)


def test_chance_is_zero() -> None:
    images = torch.rand(80, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    found = road(edges, images, torch.zeros_like(images), shares=(0.2, 0.6))["map"]
    for gap in (found.gap, found.probability_gap):
        assert gap.mean().abs() < 4 * gap.std() / 80**0.5
        assert gap.std() > 0.05


def test_noise_is_added_to_what_was_removed(images: Tensor) -> None:
    seen: list[Tensor] = []

    def model(inputs: Tensor) -> Tensor:
        seen.append(inputs.clone())
        return edges(inputs)

    wide = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    maps = torch.randn(1, 1, 32, 32, generator=torch.Generator().manual_seed(2))
    road(model, wide, maps, 0, shares=(0.5,), noise=0.02)
    variants = torch.cat(seen)
    removed = maps >= maps.flatten().sort(descending=True).values[511]
    for variant, holes in zip(variants, (removed, ~removed), strict=True):
        noise = variant - linear_imputation(wide, holes)[0]
        assert (noise[:, ~holes[0, 0]] == 0).all()
        assert noise[:, holes[0, 0]].std() == pytest.approx(0.02, rel=0.1)
    assert torch.equal(road(edges, images, maps=normal_maps(0), noise=0.1)["map"].gap[1:2], _alone(images, 1))


def _alone(images: Tensor, row: int) -> Tensor:
    return road(edges, images[row, None], normal_maps(0)[row, None], noise=0.1, chunk=3)["map"].gap


def test_undefined_maps_and_the_number_of_passes(images: Tensor) -> None:
    maps = normal_maps(1)
    maps[1, 0, 3, 3], maps[2, 2, 0, 0] = torch.nan, torch.inf
    with open_model(edges, images) as calls:
        found = road(calls, images, {"a": maps, "b": normal_maps(2)}, 0, shares=(0.3, 0.6, 0.9))
        assert calls.forwards == 2 * 3 * (4 + 6)
    for values in (found["a"].gap, found["a"].most, found["a"].probability_gap):
        assert values.isnan().tolist() == [False, True, True, False, False, False]
    assert road(edges, images, torch.full_like(images, torch.nan))["map"].gap.isnan().all()
    assert found["b"].share.tolist() == pytest.approx([0.3, 0.6, 0.9], abs=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shares": ()}, "`shares` must be numbers between 0 and 1"),
        ({"shares": (0.5, 1.0)}, "`shares` must be numbers between 0 and 1"),
        ({"noise": -1.0}, "`noise` must be a standard deviation in pixels, 0 or larger, got -1"),
    ],
)
def test_bad_arguments_are_named(images: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        road(edges, images, images, **options)
