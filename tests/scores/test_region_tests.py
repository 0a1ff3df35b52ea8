"""Region tests: closed forms of linear models, images without a region, abstentions, batches, bounds and counts."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from locality.errors import ArgumentError
from locality.model_calls.randomness import image_seeds
from locality.scores.interventions import background_images, moved_masks
from locality.scores.region_tests import NOISES, PLACES, TESTS, RegionSettings, RegionTests, region_tests

SIZE = 12


@pytest.fixture
def images() -> Tensor:
    return torch.rand(5, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def masks() -> Tensor:
    masks = torch.zeros(5, 1, SIZE, SIZE, dtype=torch.bool)
    for row in range(5):
        masks[row, :, row : row + 5, 2:7] = True
    return masks


def linear(weights: Tensor) -> nn.Module:
    """Logits w·x and 0.1."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(weights.numel(), 2))
    net[1].weight.data = torch.stack([weights.flatten(), torch.zeros(weights.numel())])
    net[1].bias.data = torch.tensor([0.0, 0.1])
    return net


def logit_changes(tests: RegionTests, place: str) -> dict[str, Tensor]:
    return {name: tests.outcomes[name, place].logit_change for name in TESTS}


@pytest.mark.parametrize("inside", [True, False])
def test_a_linear_model_that_sees_one_side_of_the_region(images: Tensor, masks: Tensor, inside: bool) -> None:
    """Its logit changes by w·(grey − x) on its own side, and never on the other."""
    side = masks if inside else ~masks
    own, other = ("inside", "outside") if inside else ("outside", "inside")
    weights = torch.rand(5, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))
    for row in range(5):
        weighted = weights[row] * side[row]
        found = region_tests(linear(weighted), images[row : row + 1], masks[row : row + 1], [(0,)])
        assert found.prediction.tolist() == [0]
        changes = logit_changes(found, "region")
        grey = images[row].mean((1, 2), keepdim=True)
        assert changes[f"{own}_greyed"].item() == pytest.approx(float((weighted * (grey - images[row])).sum()), abs=1e-3)
        for name in ("greyed", "blurred", "noise"):
            assert changes[f"{other}_{name}"].item() == pytest.approx(0, abs=1e-4)
            assert changes[f"{own}_{name}"].abs().item() > 1e-3
        assert found.outcomes[f"{other}_greyed", "region"].kept.tolist() == [1.0]
        half = region_tests(
            linear(weighted), images[row : row + 1], masks[row : row + 1], [(0,)], settings=RegionSettings(grey="half")
        )
        expected = float((weighted * (0.5 - images[row])).sum())
        assert logit_changes(half, "region")[f"{own}_greyed"].item() == pytest.approx(expected, abs=1e-3)


def test_chance_is_the_same_change_elsewhere(images: Tensor, masks: Tensor) -> None:
    """A model of equal weights: greying a region changes its logit by the region's own deviation from the mean."""
    found = region_tests(linear(torch.ones(3, SIZE, SIZE)), images, masks, [(0,)] * 5, settings=RegionSettings())
    moved, overlap = moved_masks(masks, image_seeds(images, 0))
    deviation = (images.mean((2, 3), keepdim=True) - images).sum(1, keepdim=True)
    for place, region in (("region", masks), ("elsewhere", moved)):
        changes = logit_changes(found, place)
        expected = (deviation * region).sum((1, 2, 3))
        assert torch.allclose(changes["inside_greyed"], expected, atol=1e-3)
        assert torch.allclose(changes["outside_greyed"], -expected, atol=1e-3)  # all deviations add up to 0
    assert found.share.tolist() == pytest.approx([25 / 144] * 5)
    assert torch.equal(found.overlap, overlap)


def test_the_logit_is_that_of_the_first_prediction_and_draws_are_averaged(images: Tensor, masks: Tensor) -> None:
    """Greying turns the decision: class 1 has a constant logit between those of the image and of the grey one."""
    weights = torch.where(masks[0], images[0], torch.zeros(1))
    before, grey = float((weights * images[0]).sum()), float((weights * images[0].mean((1, 2), keepdim=True)).sum())
    assert before > grey + 0.1

    class Turned(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            logit = (inputs * weights).sum((1, 2, 3))
            return torch.stack((logit, torch.full_like(logit, (before + grey) / 2)), 1)

    found = region_tests(Turned(), images[:1], masks[:1], [(0,)], settings=RegionSettings(draws=3, sigma=1e-4))
    greyed = found.outcomes["inside_greyed", "region"]
    assert (found.prediction.item(), greyed.prediction.item(), greyed.kept.item()) == (0, 1, 0.0)
    assert greyed.logit_change.item() == pytest.approx(grey - before, abs=1e-4)
    for name in ("inside_noise", "outside_noise"):  # too little noise to turn the decision, in any draw
        noisy = found.outcomes[name, "region"]
        assert (noisy.kept.item(), noisy.correct.item()) == (1.0, 1.0)
        assert abs(noisy.logit_change.item()) < 0.1


def test_a_swapped_background_is_the_donor_s_without_its_object(images: Tensor, masks: Tensor) -> None:
    donors, theirs = torch.full_like(images, 0.25), torch.zeros_like(masks)
    theirs[..., 3:9] = True
    donors = torch.where(theirs, torch.ones_like(donors), donors)  # objects as bright as can be
    backgrounds = background_images(donors, theirs, blur=0.1)
    found = region_tests(linear(torch.ones(3, SIZE, SIZE)), images, masks, [(0,)] * 5, backgrounds)
    expected = ((0.25 - images) * ~masks).sum((1, 2, 3))
    assert torch.allclose(logit_changes(found, "region")["outside_swapped"], expected, atol=0.05)
    assert found.outcomes["outside_swapped", "region"].prediction.tolist() == [0] * 5
    backgrounds[1] = math.nan  # none of another class
    fewer = region_tests(linear(torch.ones(3, SIZE, SIZE)), images, masks, [(0,)] * 5, backgrounds)
    swapped = fewer.outcomes["outside_swapped", "region"]
    assert swapped.kept.isnan().tolist() == swapped.correct.isnan().tolist() == [False, True, False, False, False]
    assert swapped.prediction[1] == -1
    assert not fewer.outcomes["outside_greyed", "region"].kept.isnan().any()


def test_a_region_that_is_empty_or_everything_is_undefined(images: Tensor, masks: Tensor) -> None:
    masks[0], masks[3] = False, True
    found = region_tests(network(), images, masks, [(0,)] * 5, images.flip(0))
    undefined = [True, False, False, True, False]
    for outcome in found.outcomes.values():
        for numbers in (outcome.correct, outcome.kept, outcome.logit_change):
            assert numbers.isnan().tolist() == undefined
    assert found.correct.isnan().tolist() == [False] * 5
    assert found.overlap.isnan().tolist() == undefined


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * (SIZE - 2) ** 2, 5))


def test_neither_the_batch_nor_its_order_matters(images: Tensor, masks: Tensor) -> None:
    whole = region_tests(network(), images, masks, [(0,)] * 5, images.flip(0))
    order = torch.tensor([3, 0, 4])
    some = region_tests(network(), images[order], masks[order], [(0,)] * 3, images.flip(0)[order])
    for key, outcome in whole.outcomes.items():
        assert torch.allclose(outcome.logit_change[order], some.outcomes[key].logit_change, atol=1e-5), key
        assert torch.equal(outcome.kept[order], some.outcomes[key].kept), key
    other = region_tests(network(), images, masks, [(0,)] * 5, seed=1)
    assert not torch.equal(
        other.outcomes["inside_noise", "region"].logit_change, whole.outcomes["inside_noise", "region"].logit_change
    )


class Seen(nn.Module):
    """Two logits; it keeps the range and the number of the images it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high, self.count = 1.0, 0.0, 0

    def forward(self, images: Tensor) -> Tensor:
        self.low, self.high = min(self.low, float(images.min())), max(self.high, float(images.max()))
        self.count += len(images)
        mean = images.mean((1, 2, 3))
        return torch.stack([2 * mean, 1 - mean], dim=1)


@pytest.mark.parametrize("draws", [1, 3])
def test_pixels_stay_in_bounds_and_forwards_are_as_stated(images: Tensor, masks: Tensor, draws: int) -> None:
    model, settings = Seen(), RegionSettings(sigma=2.0, draws=draws)
    extremes = images.round()  # noise would leave [0, 1] everywhere
    found = region_tests(model, extremes, masks, [(0,)] * 5, extremes.flip(0), settings)
    assert model.low >= 0
    assert model.high <= 1
    assert model.count == 5 * settings.forwards == 5 * found.forwards
    assert settings.forwards == 1 + 2 * (5 + 2 * draws)


class Undecided(Seen):
    """Abstains on dark images."""

    def abstains(self, logits: Tensor) -> Tensor:
        return logits[:, 0] < 0.8


def test_an_abstention_is_neither_right_nor_kept(masks: Tensor) -> None:
    images = torch.full((2, 3, SIZE, SIZE), 0.6)
    images[1] = 0.3
    images = torch.where(masks[:2], images, images * torch.tensor([0.9, 1.0]).view(2, 1, 1, 1))
    donors = torch.zeros_like(images)
    found = region_tests(Undecided(), images, masks[:2], [(0,), (0,)], donors)
    assert found.prediction.tolist() == [0, -1]
    assert found.correct.tolist() == [1, 0]
    swapped = found.outcomes["outside_swapped", "region"]  # now dark
    assert swapped.prediction.tolist() == [-1, -1]
    assert swapped.correct.tolist() == [0, 0]
    assert swapped.kept[0] == 0
    assert swapped.kept[1].isnan()
    assert swapped.logit_change[0] < 0
    assert swapped.logit_change[1].isnan()


def test_any_accepted_label_is_right_and_an_unknown_one_is_undefined(images: Tensor, masks: Tensor) -> None:
    model = linear(torch.ones(3, SIZE, SIZE))
    found = region_tests(model, images[:3], masks[:3], [(1, 0), (1,), ()])
    assert found.correct.tolist()[:2] == [1, 0]
    assert found.correct[2].isnan()
    outcome = found.outcomes["inside_greyed", "region"]
    assert outcome.correct.tolist()[:2] == [1, 0]
    assert outcome.correct[2].isnan()
    assert outcome.kept.tolist() == [1, 1, 1]


def test_arguments_are_left_alone_and_checked(images: Tensor, masks: Tensor) -> None:
    before = images.clone()
    model = network().train()
    found = region_tests(model, images, masks, [(0,)] * 5)
    assert torch.equal(images, before)
    assert model.training
    assert set(found.outcomes) == {(name, place) for name in TESTS for place in PLACES}
    assert all(found.outcomes[name, "region"].kept.isnan().all() == (name == "outside_swapped") for name in TESTS)
    with pytest.raises(ArgumentError, match="`masks` must be 5×1×12×12 bool, got"):
        region_tests(model, images, masks.float(), [(0,)] * 5)
    with pytest.raises(ArgumentError, match="`masks` must be 5×1×12×12 bool, got"):
        region_tests(model, images, masks[..., 1:], [(0,)] * 5)
    with pytest.raises(ArgumentError, match="`accepted` must be the labels of each of the 5 images, got 4"):
        region_tests(model, images, masks, [(0,)] * 4)
    with pytest.raises(ArgumentError, match="`backgrounds` must be images of the same shape"):
        region_tests(model, images, masks, [(0,)] * 5, images[..., 1:])
    settings = RegionSettings()
    for wrong, message in (
        (replace(settings, grey="black"), "`grey` must be one of mean, half"),  # type: ignore[arg-type]
        (replace(settings, blur=0.0), "`blur` must be above 0"),
        (replace(settings, sigma=-1.0), "`sigma` must be above 0"),
        (replace(settings, edge=1.0), "`edge` must be a share"),
        (replace(settings, draws=0), "`draws` must be a whole number"),
    ):
        with pytest.raises(ArgumentError, match=message):
            wrong.check()
    assert NOISES[0] in TESTS
