"""The proof of a convolution's norm row by row: against dense SVD, refusing what is too small, and where it is used."""

import math

import pytest
import torch
from torch import Tensor

from locality import conv_norms
from locality.conv_norms import banded_norm_upper, conv_norm_upper
from locality.operator_norms import Pair, conv_matrix, torus_norm_upper


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def block(channels: int, seed: int = 0) -> Tensor:
    """The kernel of a linear residual block."""
    kernel = 0.1 * drawn(channels, channels, 3, 3, seed=seed)
    kernel[range(channels), range(channels), 1, 1] += 1
    return kernel


def exact_norm(kernel: Tensor, size: Pair, stride: int | Pair = 1, padding: int | Pair = 0) -> float:
    return float(torch.linalg.svdvals(conv_matrix(kernel, size, stride, padding))[0])


CONVOLUTIONS: list[tuple[tuple[int, ...], Pair, int | Pair, int | Pair]] = [
    ((3, 2, 3, 3), (9, 9), 1, 1),
    ((4, 6, 5, 5), (11, 9), 2, 2),
    ((6, 3, 7, 7), (16, 16), 4, 3),
    ((2, 3, 4, 4), (10, 7), 2, 1),
    ((3, 3, 3, 5), (7, 8), (2, 1), (1, 3)),
    ((1, 5, 2, 3), (6, 5), (1, 2), (2, 0)),
    ((2, 2, 5, 5), (3, 3), 1, 5),  # a kernel larger than the image
    ((4, 4, 2, 2), (7, 5), 2, 2),
    ((2, 3, 3, 3), (8, 8), 3, 0),  # a stride that leaves out rows
    ((3, 3, 1, 1), (5, 5), 1, 0),
]


@pytest.mark.parametrize(("shape", "size", "stride", "padding"), CONVOLUTIONS)
@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_rows_prove_the_norm_with_zero_padding(
    shape: tuple[int, ...], size: Pair, stride: int | Pair, padding: int | Pair, scale: float
) -> None:
    kernel = drawn(*shape, seed=len(shape) + size[0])
    bound = banded_norm_upper(kernel * scale, size, stride, padding) / scale
    assert 1 + 1e-9 < bound / exact_norm(kernel, size, stride, padding) < 1 + 2e-6


def test_either_side_may_be_factorised() -> None:
    sides = {conv_norms._cheaper_band(drawn(*one[0]), *one[1:]).transposed for one in CONVOLUTIONS}
    assert sides == {False, True}


def test_zero_kernels_and_kernels_that_see_no_pixel() -> None:
    assert banded_norm_upper(torch.zeros(2, 2, 3, 3), (9, 9), padding=1) == 0
    assert banded_norm_upper(torch.ones(1, 1, 1, 1), (1, 1), 3, 1) == math.inf  # all outputs lie in the padding


def test_nothing_below_the_norm_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, proposed = block(3), conv_norms._proposed
    exact = exact_norm(kernel, (9, 9), padding=1)
    band = conv_norms._cheaper_band(kernel, (9, 9), 1, 1)
    products = band.products()
    assert conv_norms._proved(band, products, exact * (1 - 1e-6)) is None
    assert conv_norms._proved(band, products, exact * (1 + 1e-6)) == pytest.approx(exact, rel=2e-6)
    # A proposal that is too small, as power iteration's may be, costs a second attempt, or the proof.
    monkeypatch.setattr(conv_norms, "_proposed", lambda *layer: proposed(*layer) * (1 - 3e-5))
    assert 1 <= banded_norm_upper(kernel, (9, 9), padding=1) / exact < 1 + 1e-4
    monkeypatch.setattr(conv_norms, "_proposed", lambda *layer: proposed(*layer) / 2)
    assert banded_norm_upper(kernel, (9, 9), padding=1) == math.inf
    monkeypatch.setattr(conv_norms, "EXPLICIT_SIDE", 0)
    assert conv_norm_upper(kernel, (9, 9), padding=1) == torus_norm_upper(kernel, (9, 9), padding=1)


@pytest.mark.parametrize(("channels", "side"), [(10, 8), (16, 8), (7, 10), (6, 14)])
def test_residual_blocks_too_large_for_a_matrix(channels: int, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The torus is up to 1.04 times too large on maps of 8×8."""
    kernel, size = block(channels), (side, side)
    exact = exact_norm(kernel, size, padding=1)
    assert 1 <= conv_norm_upper(kernel, size, padding=1) / exact < 1 + 1e-5
    monkeypatch.setattr(conv_norms, "CHEAP", 0)
    torus = conv_norm_upper(kernel, size, padding=1)
    assert torus == torus_norm_upper(kernel, size, padding=1) > exact * (1 + 1e-3)
    assert 1 <= conv_norm_upper(kernel, size, padding=1, tight=True) / exact < 1 + 1e-5
    monkeypatch.setattr(conv_norms, "TIGHT", 0)
    assert conv_norm_upper(kernel, size, padding=1, tight=True) == torus
