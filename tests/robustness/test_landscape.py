"""Landscapes: planes and quadratics with known flatness, filter norms, and nothing of the caller's changed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from known_models import linear_layer, small_network
from search_checks import caller_state
from torch import Tensor, nn

from locality.errors import ArgumentError
from locality.robustness.landscape import input_landscape, random_direction, weight_landscape
from locality.robustness.landscape_grids import Landscapes, flatness, read_landscapes
from locality.types import Threat

WEIGHT = torch.tensor([[0.3, -0.7, 0.2, 0.9]])
IMAGES = torch.tensor([[0.5, 0.4, 0.6, 0.5], [0.2, 0.9, 0.1, 0.4]]).view(2, 1, 2, 2)
LABELS = torch.zeros(2, dtype=torch.long)


def linear(images: Tensor) -> Tensor:
    """Margin loss −w·x."""
    value = images.flatten(1) @ WEIGHT.T.to(images)
    return torch.cat([value, torch.zeros_like(value)], dim=1)


def quadratic(images: Tensor) -> Tensor:
    """Margin loss 3·(Σx)² + w·x."""
    flat = images.flatten(1)
    value = 3 * flat.sum(1, keepdim=True) ** 2 + flat @ WEIGHT.T.to(images)
    return torch.cat([torch.zeros_like(value), value], dim=1)


def test_a_linear_model_is_a_plane() -> None:
    grid = input_landscape(linear, IMAGES, LABELS, radius=0.1, points=5, loss="margin")
    total = float(WEIGHT.abs().sum())
    assert grid.slopes[:, 0] == pytest.approx(total, rel=1e-6)
    for index, image in enumerate(IMAGES):
        along_random = grid.slopes[index, 1]
        start = float(-(WEIGHT @ image.flatten()))
        expected = start + grid.offsets[:, None] * total + grid.offsets * along_random
        assert grid.losses[index] == pytest.approx(expected, abs=1e-6)
    flat = flatness(grid)
    assert flat.deviation == pytest.approx(0, abs=1e-6)
    assert flat.nonlinearity == pytest.approx(0, abs=1e-6)
    assert flat.curvature["gradient"] == pytest.approx(0, abs=1e-3)  # rounding over a step² of 0.0025
    expected_range = 0.2 * (total + np.abs(grid.slopes[:, 1]))
    assert flat.range == pytest.approx(expected_range, abs=1e-6)


def test_a_quadratic_has_its_curvature() -> None:
    """Along a direction r the second derivative of 3(Σx)² is 6(Σr)²."""
    grid = input_landscape(quadratic, IMAGES, LABELS, radius=0.2, points=9, loss="margin")
    flat = flatness(grid)
    gradient = 6 * IMAGES.flatten(1).sum(1, keepdim=True) + WEIGHT
    total_sign = gradient.sign().sum(1)
    assert flat.curvature["gradient"] == pytest.approx((6 * total_sign**2).numpy(), rel=1e-3, abs=1e-3)
    slope = (gradient.sign() * gradient).sum(1).numpy()
    assert grid.slopes[:, 0] == pytest.approx(slope, rel=1e-5)
    # Beside the plane: 3(a·Σr₁ + b·Σr₂)², largest at a corner.
    sums = np.round(np.sqrt(np.stack([flat.curvature["gradient"], flat.curvature["random"]]) / 6))
    assert flat.nonlinearity == pytest.approx(3 * (0.2 * sums.sum(0)) ** 2, rel=1e-3)
    a, b = np.meshgrid(grid.offsets, grid.offsets, indexing="ij")
    for sign in (1, -1):  # the random direction may sum to a negative number: the same root mean square by symmetry
        away = 3 * (a * sums[0, 0] + sign * b * sums[1, 0]) ** 2
        assert flat.deviation[0] == pytest.approx(np.sqrt((away**2).mean()), rel=1e-3)


def test_pixels_are_not_clipped() -> None:
    grid = input_landscape(linear, torch.ones(1, 1, 2, 2), LABELS[:1], radius=0.5, points=3, loss="margin")
    assert flatness(grid).nonlinearity == pytest.approx(0, abs=1e-6)


def test_an_image_has_its_own_landscape() -> None:
    model = small_network().eval()
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 1, 2])
    together = input_landscape(model, images, labels, points=5, seed=4)
    for row in range(3):
        alone = input_landscape(model, images[row : row + 1], labels[row : row + 1], points=5, seed=4)
        assert alone.losses[0] == pytest.approx(together.losses[row], abs=1e-6)
    other = input_landscape(model, images, labels, points=5, seed=5)
    assert np.abs(other.losses - together.losses).max() > 1e-4  # other random signs
    assert other.losses[:, :, 2] == pytest.approx(together.losses[:, :, 2], abs=1e-6)  # the same gradient


def test_filters_of_a_direction_are_as_long_as_those_of_the_weights() -> None:
    model = small_network()
    direction = dict(random_direction(model, "filter", seed=3, index=0))
    assert list(direction) == ["0.weight", "4.weight"]  # neither biases nor BatchNorm
    for name, weight in model.named_parameters():
        if name in direction:
            lengths = direction[name].flatten(1).norm(dim=1)
            assert torch.allclose(lengths, weight.detach().flatten(1).norm(dim=1), rtol=1e-5)
    layer = dict(random_direction(model, "layer", seed=3, index=0))
    assert torch.allclose(layer["0.weight"].norm(), model.get_parameter("0.weight").detach().norm())
    assert not torch.allclose(layer["0.weight"], direction["0.weight"])
    other = dict(random_direction(model, "filter", seed=3, index=1))
    assert not torch.allclose(other["0.weight"], direction["0.weight"])


@pytest.mark.parametrize("attack", [None, Threat("linf", 0.02)])
def test_the_loss_along_the_weights_is_that_of_a_moved_copy(attack: Threat | None) -> None:
    model = small_network().eval()
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 1, 2, 3])
    grid = weight_landscape(model, images, labels, directions=2, points=5, attack=attack, steps=3, seed=7)
    assert grid.losses.shape == (4, 2, 5)
    assert np.ptp(grid.losses[:, :, 2], axis=1).max() == 0  # all directions share the centre
    moved = small_network().eval()
    with torch.no_grad():
        for name, weight in random_direction(model, "filter", 7, 1):
            moved.get_parameter(name).add_(-0.5 * weight)
        clean = nn.functional.cross_entropy(moved(images), labels, reduction="none").double().numpy()
    if attack is None:
        assert grid.losses[:, 1, 1] == pytest.approx(clean, abs=1e-5)
    else:
        assert (grid.losses[:, 1, 1] > clean).all()  # attacked at these weights
        alone = weight_landscape(model, images[1:2], labels[1:2], directions=2, points=5, attack=attack, steps=3, seed=7)
        assert alone.losses[0] == pytest.approx(grid.losses[1], abs=1e-5)


def test_a_loss_that_is_linear_in_the_weights_is_flat() -> None:
    """Cross-entropy of two classes far on the wrong side is linear in the margin, so in the weights of one layer."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        linear_layer(model).weight.copy_(torch.tensor([[-40.0] * 4, [40.0] * 4]))
    grid = weight_landscape(model, IMAGES + 0.1, LABELS, directions=3, points=5, span=0.25)
    flat = flatness(grid)
    assert grid.losses.min() > 50
    assert flat.nonlinearity == pytest.approx(0, abs=1e-3)
    assert (flat.range > 1).all()


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.calls = small_network(), 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 5:
            raise RuntimeError("broken")
        logits: Tensor = self.net(images)
        return logits


@pytest.mark.parametrize("make", [input_landscape, weight_landscape])
def test_nothing_of_the_caller_s_changes(make: Any) -> None:
    images, labels = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1])
    for model in (small_network().train(), Failing().train()):
        before, pixels = caller_state(model), images.clone()
        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        if isinstance(model, Failing):
            with pytest.raises(RuntimeError, match="broken"):
                make(model, images, labels, points=5)
        else:
            make(model, images, labels, points=3)
        assert str(caller_state(model)) == str(before)
        assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
        assert torch.equal(images, pixels)
        assert all(part.training for part in model.modules())


def test_files_and_differences(tmp_path: Path) -> None:
    model, other = small_network().eval(), small_network().eval()
    with torch.no_grad():
        other.get_parameter("4.weight").mul_(3)
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.zeros(6, dtype=torch.long)
    ids = tuple("abcdef")
    grids = {
        name: input_landscape(one, images, labels, points=5, ids=ids) for name, one in (("one", model), ("three", other))
    }
    both = Landscapes(grids, {"seed": 0})
    change = both.differences["range"]
    assert change.difference == pytest.approx(both.means["three"]["range"].mean - both.means["one"]["range"].mean, rel=1e-9)
    assert change.low > 0
    both.write(tmp_path, data="some")
    read = read_landscapes(tmp_path)
    assert read.settings == {"seed": 0}
    for name, grid in grids.items():
        assert np.array_equal(read.by_model[name].losses, grid.losses)
        assert np.array_equal(read.by_model[name].slopes, grid.slopes)
        assert read.by_model[name].ids == ids
    assert read.to_json() == both.to_json()
    (tmp_path / "landscape.parquet").unlink()
    with pytest.raises(ArgumentError, match=r"`folder` must be one with landscape\.parquet and landscape\.json"):
        read_landscapes(tmp_path)


@pytest.mark.parametrize(
    ("make", "given", "sentence"),
    [
        (input_landscape, {"points": 4}, "`points` must be an odd number of at least 3"),
        (input_landscape, {"radius": 0}, "`radius` must be a positive number"),
        (input_landscape, {"labels": torch.tensor([0, 9])}, "`labels`"),
        (input_landscape, {"loss": "mse"}, "`loss` must be one of ce, margin"),
        (input_landscape, {"ids": ("a",)}, "`ids` must be 2 names"),
        (weight_landscape, {"directions": 0}, "`directions` must be a whole number"),
        (weight_landscape, {"normalise": "net"}, "`normalise` must be one of filter, layer"),
        (weight_landscape, {"model": nn.Flatten()}, "`model` must be an nn.Module with weight matrices, got 'Flatten'"),
    ],
)
def test_bad_input_is_one_sentence(make: Any, given: dict[str, Any], sentence: str) -> None:
    arguments = {"model": small_network(), "images": torch.rand(2, 3, 8, 8), "labels": torch.tensor([0, 1])} | given
    with pytest.raises(ValueError, match="`") as caught:
        make(**arguments)
    assert str(caught.value).startswith(sentence)
