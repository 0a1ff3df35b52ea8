"""Linear imputation: a dense solution of the system, Quantus' factorisation, closed forms and the bounds of a mean."""

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from locality.scores import imputation
from locality.scores.imputation import linear_imputation
from locality.scores.imputation_grids import Grid, coarse_correction

noisy_linear_imputation: Any = importlib.import_module("quantus.functions.perturb_func").noisy_linear_imputation


def image_and_holes(height: int, width: int, share: float, smooth: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(1, 3, height, width, generator=generator)
    field = torch.randn(1, 1, height, width, generator=generator)
    field = functional.avg_pool2d(field, smooth, 1, smooth // 2)[..., :height, :width]
    edge = field.flatten().sort(descending=True).values[max(1, round(share * field.numel())) - 1]
    return image, field >= edge


def dense_solution(image: Tensor, holes: Tensor) -> Tensor:
    """The definition, pixel by pixel, as a dense system in float64."""
    height, width = holes.shape[-2:]
    weights = {(0, 1): 1 / 6, (1, 0): 1 / 6, (1, 1): 1 / 12, (1, -1): 1 / 12}
    weights |= {(-down, -right): weight for (down, right), weight in weights.items()}
    matrix = torch.eye(height * width, dtype=torch.float64)
    for row, column in holes[0, 0].nonzero().tolist():
        near = {
            ((row + down) * width + column + right): weight
            for (down, right), weight in weights.items()
            if 0 <= row + down < height and 0 <= column + right < width
        }
        for place, weight in near.items():
            matrix[row * width + column, place] = -weight / sum(near.values())
    given_values = image.double().flatten(2)[0] * ~holes.flatten()
    solved: Tensor = torch.linalg.solve(matrix, given_values.T)
    return solved.T.reshape(image.shape)


@pytest.mark.parametrize(
    ("height", "width", "share"), [(9, 12, 0.4), (16, 16, 0.9), (7, 3, 0.5), (1, 8, 0.5), (21, 33, 0.97)]
)
def test_the_system_is_solved(height: int, width: int, share: float) -> None:
    for smooth in (1, 3):
        image, holes = image_and_holes(height, width, share, smooth if min(height, width) > 3 else 1)
        found = linear_imputation(image, holes, tolerance=1e-6)
        assert torch.allclose(found.double(), dense_solution(image, holes), atol=3e-5), smooth
        kept = ~holes.expand_as(image)
        assert torch.equal(found[kept], image[kept])


@given(st.integers(2, 24), st.integers(2, 24), st.floats(0.05, 0.95), st.sampled_from([1, 3]), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_quantus_agrees(height: int, width: int, share: float, smooth: int, seed: int) -> None:
    image, holes = image_and_holes(height, width, share, smooth, seed)
    if bool(holes.all()):
        return
    expected = noisy_linear_imputation(image[0].numpy(), holes.flatten().nonzero()[:, 0].numpy(), noise=0)
    found = linear_imputation(image, holes, tolerance=1e-6)[0]
    assert np.allclose(found, expected, atol=1e-4)
    # A mean of what is left lies between its extremes.
    left = image.flatten(2)[0][:, ~holes.flatten()]
    for channel, values in zip(found, left, strict=True):
        assert channel.min() >= values.min() - 1e-4
        assert channel.max() <= values.max() + 1e-4


@pytest.mark.parametrize(("share", "smooth"), [(0.3, 1), (0.7, 1), (0.3, 15), (0.9, 15), (0.9, 3)])
def test_the_default_error_is_a_tenth_of_the_noise(share: float, smooth: int) -> None:
    image, holes = image_and_holes(64, 80, share, smooth)
    expected = noisy_linear_imputation(image[0].numpy(), holes.flatten().nonzero()[:, 0].numpy(), noise=0)
    error = (linear_imputation(image, holes)[0].numpy() - expected)[:, holes[0, 0].numpy()]
    assert np.sqrt((error**2).mean(1)).max() < 1.5e-3


def holes_of(kind: str, height: int, width: int) -> Tensor:
    down, right = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    kinds = {
        "one pixel is known": (down == height // 3) & (right == width // 4),
        "a corner is known": (down == 0) & (right == 0),
        "an edge is known": right == width - 1,
        "every third pixel is known": (down % 3 == 0) & (right % 3 == 0),
        "stripes": right % 8 == 0,
        "a line is known": (down == height // 2) & (right > 2) & (right < width - 3),
        "half": down < height // 2,
    }
    return ~kinds[kind][None, None]


@pytest.mark.parametrize("size", [(64, 64), (57, 83), (1, 300), (3, 129)])
def test_hard_holes_and_odd_sizes_need_few_cycles(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks at the border of an image of odd size are partly outside."""
    monkeypatch.setattr(imputation, "MAX_CYCLES", 6)
    kinds = ["an edge is known", "every third pixel is known", "stripes", "a line is known", "half"]
    kinds += ["one pixel is known", "a corner is known"]
    image = torch.rand(1, 1, *size, generator=torch.Generator().manual_seed(1))
    for kind in kinds:
        holes = holes_of(kind, *size)
        if not bool((~holes).any()):
            continue
        expected = noisy_linear_imputation(image[0].numpy(), holes.flatten().nonzero()[:, 0].numpy(), noise=0)
        error = (linear_imputation(image, holes)[0].numpy() - expected)[:, holes[0, 0].numpy()]
        assert np.sqrt((error**2).mean()) < 1.5e-3, kind


def test_a_ramp_goes_on_through_a_hole() -> None:
    """The weights are symmetric, so a plane solves the system where the hole does not touch the border."""
    down, right = torch.meshgrid(torch.linspace(0, 0.5, 20), torch.linspace(0, 0.3, 24), indexing="ij")
    image = torch.stack((down + right, 0.5 - down))[None]
    holes = torch.zeros(1, 1, 20, 24, dtype=torch.bool)
    holes[..., 3:17, 5:20] = True
    found = linear_imputation(torch.where(holes, 9.0, image), holes, tolerance=1e-6)
    assert torch.allclose(found, image, atol=1e-5)


def test_images_are_independent_and_multigrid_saves_work(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [image_and_holes(48, 40, share, smooth) for share, smooth in ((0.2, 1), (0.9, 9), (0.6, 5))]
    images, holes = (torch.cat(column) for column in zip(*cases, strict=True))
    together = linear_imputation(images, holes)
    for row, (image, hole) in enumerate(cases):
        assert torch.equal(together[row], linear_imputation(image, hole)[0])
    cycles: list[int] = []

    def counted(grids: list[Grid], level: int, *values: imputation.Array) -> imputation.Array:
        cycles.append(len(values[0]))
        return coarse_correction(grids, level, *values)

    monkeypatch.setattr(imputation, "coarse_correction", counted)
    linear_imputation(images, holes)
    assert cycles[0] == 3
    assert 0 < sum(cycles) <= 9  # one to three for each image, however large the holes


def test_edge_cases() -> None:
    image, holes = image_and_holes(8, 8, 0.5)
    assert torch.equal(linear_imputation(image, torch.zeros_like(holes)), image)
    assert linear_imputation(image, torch.ones_like(holes)).isnan().all()
    single = torch.ones_like(holes)
    single[..., 2, 5] = False
    expected = image[..., 2:3, 5:6].expand_as(image)
    assert torch.allclose(linear_imputation(image, single, tolerance=1e-6), expected, atol=1e-4)
    assert linear_imputation(image.double(), holes).dtype == torch.float64
    with pytest.raises(ValueError, match="`removed` must be N×1×H×W bool like the images"):
        linear_imputation(image, holes.float())
    with pytest.raises(ValueError, match="`tolerance` must be a positive number of pixels, got 0"):
        linear_imputation(image, holes, tolerance=0)
