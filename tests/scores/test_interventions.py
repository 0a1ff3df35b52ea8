"""Changed images: what is changed is exactly the region, moved regions keep their shape, and noise has the stated norm."""

import math

import pytest
import torch
from torch import Tensor

from locality.attribution.baselines import blurred
from locality.errors import ArgumentError
from locality.scores.interventions import (
    background_images,
    edge_weights,
    grey_images,
    mixed,
    moved_masks,
    noise_norms,
    noise_of_norm,
)


def rectangle(top: int, left: int, height: int, width: int, size: int = 16) -> Tensor:
    mask = torch.zeros(1, 1, size, size, dtype=torch.bool)
    mask[..., top : top + height, left : left + width] = True
    return mask


@pytest.fixture
def images() -> Tensor:
    return torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_grey_is_the_image_s_own_mean_colour_or_a_half(images: Tensor) -> None:
    grey = grey_images(images)
    assert torch.allclose(grey[1, 2], images[1, 2].mean().expand(16, 16))
    assert not torch.allclose(grey[0], grey[1])
    assert (grey_images(images, "half") == 0.5).all()
    with pytest.raises(ArgumentError, match="did you mean 'mean'"):
        grey_images(images, "meen")  # type: ignore[arg-type]


def test_hard_edges_change_the_region_alone_and_soft_ones_fall_off(images: Tensor) -> None:
    mask = rectangle(4, 4, 8, 8)
    changed = mixed(images, torch.ones_like(images), edge_weights(mask, images))
    assert (changed[:, :, 4:12, 4:12] == 1).all()
    assert torch.equal(changed.masked_fill(mask, 0), images.masked_fill(mask, 0))
    rounded_up = torch.full_like(images, 1 + 2e-7)  # as a blur of white may be
    assert mixed(images, rounded_up, edge_weights(mask, images)).max() == 1
    soft = edge_weights(mask, images, edge=0.1)[0, 0, 8]
    assert float(soft.min()) >= 0
    assert float(soft.max()) <= 1
    assert soft[8] > 0.95
    assert soft[0] < 0.05
    assert 0.3 < float(soft[4]) < 0.8


def test_the_blur_grows_with_the_image() -> None:
    """σ is a share of the shorter side: a large picture of a line is as blurred as a small one."""
    small, large = torch.zeros(1, 1, 20, 20), torch.zeros(1, 1, 80, 80)
    small[..., 10], large[..., 40:44] = 1.0, 1.0
    reduced = torch.nn.functional.avg_pool2d(blurred(large, 0.1), 4)
    assert torch.allclose(blurred(small, 0.1), reduced, atol=0.02)
    assert blurred(small, 0.1).max() < blurred(small, 0.05).max()


@pytest.mark.parametrize("seed", range(8))
def test_a_moved_region_keeps_its_shape_and_hardly_overlaps(seed: int) -> None:
    mask = rectangle(5, 6, 4, 3)
    mask[..., 5, 6] = False  # not a rectangle
    moved, overlap = moved_masks(mask, [seed])
    rows, columns = (moved[0, 0].any(axis).nonzero()[:, 0] for axis in (1, 0))
    assert torch.equal(moved[0, 0, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], mask[0, 0, 5:9, 6:9])
    assert overlap.item() == pytest.approx(int((moved & mask).sum()) / 11)
    assert overlap.item() <= 11 / 256  # what a random pixel would have
    again, _ = moved_masks(mask, [seed])
    assert torch.equal(moved, again)


def test_places_are_spread_over_the_image() -> None:
    mask = rectangle(6, 6, 4, 4)
    covered = moved_masks(mask.expand(200, 1, 16, 16), range(200))[0].any(0)
    assert (covered | mask).all()  # every pixel but those of the region itself


def test_a_large_region_goes_where_it_overlaps_itself_least() -> None:
    mask = rectangle(1, 0, 14, 14)  # may move by −1, 0, 1 down and 0, 1, 2 right
    moved, overlap = moved_masks(mask, [3])
    assert overlap.item() == pytest.approx(13 * 12 / 14**2)
    assert moved[0, 0, :, 0].sum() == 0


def test_a_region_that_touches_all_borders_goes_round_the_edges() -> None:
    mask = ~rectangle(4, 4, 6, 6)
    moved, overlap = moved_masks(mask, [1])
    assert moved.sum() == mask.sum()
    assert overlap.item() < 1
    assert math.isnan(moved_masks(torch.ones_like(mask), [1])[1].item())
    assert math.isnan(moved_masks(torch.zeros_like(mask), [1])[1].item())


def test_only_the_background_of_a_donor_is_used(images: Tensor) -> None:
    """The donor's object is red; none of its red may appear."""
    mask = rectangle(2, 2, 12, 12)
    donor = torch.zeros(1, 3, 16, 16)
    donor[:, 2] = 0.6
    donor = torch.where(mask, torch.tensor([1.0, 0, 0]).view(1, 3, 1, 1), donor)
    painted = background_images(donor, mask, blur=0.1)
    assert torch.allclose(painted[:, 2], torch.full((1, 16, 16), 0.6), atol=1e-4)
    assert float(painted[:, 0].max()) < 1e-5
    outside = ~mask.expand_as(donor)
    assert torch.equal(painted[outside], donor[outside])
    full = torch.ones(1, 1, 16, 16, dtype=torch.bool)
    assert torch.allclose(background_images(images[:1], full, 0.1), grey_images(images[:1]), atol=1e-6)


def test_noise_on_either_side_has_the_same_norm(images: Tensor) -> None:
    mask = rectangle(0, 0, 4, 8).expand(2, 1, 16, 16)
    norms = noise_norms(mask, 0.25, channels=3)
    assert norms.tolist() == pytest.approx([0.25 * math.sqrt(3 * 32)] * 2)
    assert torch.equal(noise_norms(~mask, 0.25, 3), norms)
    draws = torch.randn(images.shape, generator=torch.Generator().manual_seed(5))
    for side in (mask, ~mask):
        noise = noise_of_norm(side, norms, draws)
        assert noise.flatten(1).norm(dim=1).tolist() == pytest.approx(norms.tolist(), rel=1e-5)
        assert (noise.masked_fill(side, 0) == 0).all()
