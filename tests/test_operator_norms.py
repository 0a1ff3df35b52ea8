"""Upper bounds on norms against dense SVD, exact rational arithmetic and a published library; power iteration from below."""

import math
import warnings
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import conv2d

from locality.conv_norms import conv_norm_upper
from locality.operator_norms import (
    UNIT_ROUNDOFF,
    absolute_conv_norm_upper,
    conv_matrix,
    conv_transpose,
    gamma,
    gram_norm_upper,
    matrix_norm_upper,
    output_size,
    polyphase,
    power_iteration,
    torus_norm_upper,
)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def exact_norm(matrix: Tensor) -> float:
    return float(torch.linalg.svdvals(matrix)[0])


def is_upper_bound(matrix: Tensor, bound: float) -> bool:
    """Whether s²I − AᵀA is positive semidefinite, by LDLᵀ in exact rational arithmetic: no rounding anywhere."""
    entries = [[Fraction(value) for value in row] for row in matrix.double().tolist()]
    size = len(entries[0])
    rest = [[-sum((row[i] * row[j] for row in entries), Fraction(0)) for j in range(size)] for i in range(size)]
    for i in range(size):
        rest[i][i] += Fraction(bound) ** 2
    for i in range(size):
        if rest[i][i] < 0 or (rest[i][i] == 0 and any(rest[i][i:])):
            return False
        for j in range(i + 1, size):
            if rest[i][i]:
                factor = rest[j][i] / rest[i][i]
                rest[j] = [value - factor * other for value, other in zip(rest[j], rest[i], strict=True)]
    return True


def special_matrices() -> dict[str, Tensor]:
    rotation = torch.linalg.qr(drawn(6, 6)).Q
    return {
        "random": drawn(7, 5),
        "wide": drawn(3, 8),
        "identity": torch.eye(6, dtype=torch.float64),
        "rotation": rotation,
        "rank one": torch.outer(drawn(5), drawn(6, seed=1)),
        "equal top values": rotation @ torch.diag(torch.tensor([2.0, 2.0, 2.0, 1.0, 0.5, 0.0]).double()) @ rotation.T,
        "one entry": torch.tensor([[-3.0]]),
        "single precision": drawn(6, 4).float(),
        "mixed scales": drawn(6, 5) * torch.logspace(-12, 3, 5, dtype=torch.float64),
    }


@pytest.mark.parametrize("name", special_matrices())
@pytest.mark.parametrize("bound", [matrix_norm_upper, gram_norm_upper])
def test_matrix_bounds_hold_in_exact_arithmetic(name: str, bound: type[object]) -> None:
    matrix = special_matrices()[name]
    upper = float(bound(matrix))  # type: ignore[call-arg, arg-type]
    assert is_upper_bound(matrix, upper)
    assert not is_upper_bound(matrix, upper * (1 - 1e-6))


def test_the_exact_oracle_sees_the_last_digit() -> None:
    """A plain SVD is sometimes too small by a rounding: the oracle must notice."""
    matrices = [drawn(4, 4, seed=seed) for seed in range(20)]
    assert 0 < sum(not is_upper_bound(matrix, exact_norm(matrix)) for matrix in matrices) < 20
    assert all(is_upper_bound(matrix, float(matrix_norm_upper(matrix))) for matrix in matrices)
    assert is_upper_bound(torch.eye(3), 1.0)
    assert not is_upper_bound(torch.eye(3), 1 - UNIT_ROUNDOFF)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
def test_matrix_bounds_at_extreme_scales(scale: float) -> None:
    matrix = drawn(6, 4) * scale
    for bound in (matrix_norm_upper, gram_norm_upper):
        assert is_upper_bound(matrix, float(bound(matrix)))
        assert float(bound(matrix)) / scale == pytest.approx(exact_norm(drawn(6, 4)), rel=1e-6)
    kernel = drawn(2, 2, 3, 3)
    assert torus_norm_upper(kernel * scale, (9, 9), padding=1) / scale == pytest.approx(
        torus_norm_upper(kernel, (9, 9), padding=1), rel=1e-12
    )


def test_the_smallest_numbers_are_not_rounded_away() -> None:
    matrix = torch.full((3, 3), 5e-324, dtype=torch.float64)
    for bound in (matrix_norm_upper, gram_norm_upper):
        assert is_upper_bound(matrix, float(bound(matrix)))
        assert float(bound(torch.zeros(3, 4))) == 0


@pytest.mark.parametrize("shape", [(200, 120), (64, 256), (300, 300)])
def test_matrix_bounds_of_large_matrices(shape: tuple[int, int]) -> None:
    matrix = drawn(*shape)
    exact = exact_norm(matrix)
    assert 1 <= float(matrix_norm_upper(matrix)) / exact < 1 + 2e-8
    assert 1 <= float(gram_norm_upper(matrix)) / exact < 1 + 1e-4


def test_a_batch_of_complex_matrices() -> None:
    batch = torch.complex(drawn(5, 4, 6), drawn(5, 4, 6, seed=1))
    exact = torch.linalg.svdvals(batch)[:, 0]
    for bound in (matrix_norm_upper, gram_norm_upper):
        ratio = bound(batch) / exact
        assert (ratio >= 1).all()
        assert (ratio < 1 + 1e-6).all()


def test_the_proof_does_not_trust_the_svd(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SVD that is wrong by one part in ten thousand proposes a value that Cholesky refuses."""
    matrix, svd = drawn(8, 8), torch.linalg.svdvals
    monkeypatch.setattr(torch.linalg, "svdvals", lambda values: svd(values) * (1 - 1e-5))
    assert is_upper_bound(matrix, float(matrix_norm_upper(matrix)))
    monkeypatch.setattr(torch.linalg, "svdvals", lambda values: svd(values) / 2)
    with pytest.raises(ArithmeticError, match="no upper bound could be proved for a 8×8 matrix"):
        matrix_norm_upper(matrix)


def test_weights_that_are_no_numbers() -> None:
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="`weights` must be finite"):
            matrix_norm_upper(torch.full((2, 2), bad))


@settings(max_examples=220, deadline=None, derandomize=True)
@given(data=st.data())
def test_convolutions_are_never_below_dense_svd(data: st.DataObject) -> None:
    """Even kernels, strides that do not divide the size, kernels larger than the image, rectangles, any padding."""
    seed = data.draw(st.integers(0, 10_000), label="seed")
    channels = [data.draw(st.integers(1, 3), label="channels") for _ in range(2)]
    taps, stride = [(data.draw(st.integers(1, top)), data.draw(st.integers(1, top))) for top in (5, 3)]
    padding = (data.draw(st.integers(0, taps[0])), data.draw(st.integers(0, taps[1])))
    size = (data.draw(st.integers(1, 7), label="height"), data.draw(st.integers(1, 7), label="width"))
    kernel = drawn(*channels, *taps, seed=seed)
    if 0 in output_size(kernel, size, stride, padding):
        with pytest.raises(ValueError, match="`size` must be large enough for a kernel"):
            conv_norm_upper(kernel, size, stride, padding)
        return
    matrix = conv_matrix(kernel, size, stride, padding)
    exact = exact_norm(matrix)
    assert torus_norm_upper(kernel, size, stride, padding) >= exact
    assert 1 <= conv_norm_upper(kernel, size, stride, padding) / max(exact, 1e-300) < 1 + 2e-8 or exact == 0
    assert absolute_conv_norm_upper(kernel, stride, padding) >= exact_norm(matrix.abs())


@pytest.mark.parametrize(
    ("shape", "size", "stride", "padding", "excess"),
    [
        ((6, 6, 3, 3), 8, 1, 1, 1.05),
        ((8, 3, 5, 5), 12, 2, 2, 1.2),
        ((8, 3, 7, 7), 16, 4, 3, 1.2),
        ((8, 4, 4, 4), 12, 4, 0, 1 + 3e-8),  # patches: exact
        ((4, 4, 2, 2), 9, 2, 1, 1.2),
    ],
)
def test_tightness_of_the_torus(shape: tuple[int, ...], size: int, stride: int, padding: int, excess: float) -> None:
    """A lost stride would show here: it makes the bound 1.5 to 2.1 times too large."""
    kernel = drawn(*shape)
    exact = exact_norm(conv_matrix(kernel, (size, size), stride, padding))
    assert 1 <= torus_norm_upper(kernel, (size, size), stride, padding) / exact < excess


def test_residual_kernels_are_bounded_tightly() -> None:
    kernel = 0.02 * drawn(8, 8, 3, 3)
    kernel[range(8), range(8), 1, 1] += 1
    exact = exact_norm(conv_matrix(kernel, (10, 10), padding=1))
    assert 1 <= torus_norm_upper(kernel, (10, 10), padding=1) / exact < 1.02


def test_a_torus_of_the_images_size_is_no_bound() -> None:
    """Sedghi et al.'s FFT at N = n is the norm of the circular layer: it can be far below that of zero padding."""
    taps = torch.tensor([-0.5, 1.0, -0.5], dtype=torch.float64)
    kernel = taps.view(1, 1, 1, 3)
    at_own_size = abs(float(taps.sum()))  # the only frequency of a torus of side 1
    exact = exact_norm(conv_matrix(kernel, (1, 1), padding=(0, 1)))
    assert (at_own_size, exact) == (0, 1)
    assert torus_norm_upper(kernel, (1, 1), padding=(0, 1)) >= exact


def test_orthogoniums_bound_is_looser() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (DeprecationWarning, SyntaxWarning))
        from orthogonium.layers.conv.singular_values import get_conv_sv
    layer = nn.Conv2d(4, 4, 3, padding=1, bias=False)
    layer.weight.data = drawn(4, 4, 3, 3).float()
    theirs = float(get_conv_sv(layer, n_iter=3, imsize=9, return_stab_rank=False))
    exact = exact_norm(conv_matrix(layer.weight, (9, 9), padding=1))
    assert exact <= torus_norm_upper(layer.weight, (9, 9), padding=1) <= theirs * (1 + 1e-5)


def test_polyphase_gives_the_same_outputs() -> None:
    images, kernel = drawn(2, 3, 12, 12), drawn(5, 3, 7, 7, seed=1)
    strided = conv2d(images, kernel, stride=4, padding=3)
    blocks = nn.functional.pixel_unshuffle(images, 4)
    same = conv2d(blocks, polyphase(kernel, 4, 3), padding=1)[:, :, :3, :3]
    assert torch.allclose(strided, same, atol=1e-12)


@pytest.mark.parametrize(("size", "stride", "padding"), [(8, 1, 1), (9, 2, 1), (10, 4, 0), (7, 3, 2)])
def test_the_transpose_is_the_matrix_transpose(size: int, stride: int, padding: int) -> None:
    kernel = drawn(4, 3, 3, 3)
    matrix = conv_matrix(kernel, (size, size), stride, padding)
    outputs = output_size(kernel, (size, size), stride, padding)
    image = drawn(1, 4, *outputs, seed=2)
    back = conv_transpose(image, kernel, (size, size), stride, padding)
    assert torch.allclose(back.flatten(), matrix.T @ image.flatten(), atol=1e-12)
    assert torch.allclose(
        conv2d(back, kernel, stride=stride, padding=padding).flatten(), matrix @ back.flatten(), atol=1e-12
    )


def iterate(matrix: Tensor, direction: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    estimates, directions = power_iteration(lambda v: v @ matrix.T, lambda u: u @ matrix, direction[None], steps)
    return estimates[0], directions[0]


def test_power_iteration_stays_below_and_warm_starts() -> None:
    matrix, direction = drawn(30, 30), drawn(30, seed=1)
    upper, estimates = float(matrix_norm_upper(matrix)), []
    for _ in range(60):
        estimate, direction = iterate(matrix, direction, 5)
        estimates.append(float(estimate))
    assert max(estimates) <= upper
    assert estimates == pytest.approx(sorted(estimates), abs=1e-12)
    assert estimates[0] < 0.999 * upper
    assert estimates[-1] == pytest.approx(upper, rel=1e-6)


def test_an_orthogonal_start_misleads_power_iteration_but_not_the_bound() -> None:
    """The top direction is orthogonal to the all-ones start that published code uses (here exactly, by Hadamard columns)."""
    hadamard = torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]).double() / 2
    matrix = hadamard @ torch.diag(torch.tensor([1.0, 100, 1, 1]).double()) @ hadamard.T
    estimate, _ = iterate(matrix, torch.ones(4).double(), 1)
    assert estimate == pytest.approx(1)
    assert float(matrix_norm_upper(matrix)) >= 100


def test_power_iteration_of_tiny_and_zero_operators() -> None:
    start = drawn(6).float()
    estimate, _ = iterate(1e-30 * torch.eye(6), start, 3)
    assert estimate == pytest.approx(1e-30)
    zero, direction = iterate(torch.zeros(6, 6), start, 3)
    assert zero == 0
    assert torch.allclose(direction, start / start.norm())


def test_operators_are_iterated_on_as_if_each_was_alone() -> None:
    matrices, start = torch.stack([drawn(5, 5), torch.zeros(5, 5).double(), 1e3 * drawn(5, 5, seed=1)]), drawn(3, 5, seed=2)
    together, directions = power_iteration(
        lambda v: (matrices @ v[..., None])[..., 0], lambda u: (matrices.mT @ u[..., None])[..., 0], start, 4
    )
    alone = [iterate(matrix, one, 4) for matrix, one in zip(matrices, start, strict=True)]
    assert torch.allclose(together, torch.stack([estimate for estimate, _ in alone]))
    assert torch.allclose(directions, torch.stack([direction for _, direction in alone]))
    assert together[1] == 0
    assert torch.allclose(directions[1], start[1] / start[1].norm())


def test_the_gradient_is_that_of_the_largest_singular_value() -> None:
    matrix = drawn(5, 4).requires_grad_()
    estimate, _ = iterate(matrix, drawn(4, seed=1), 500)
    (gradient,) = torch.autograd.grad(estimate, matrix)
    (expected,) = torch.autograd.grad(torch.linalg.svdvals(matrix)[0], matrix)
    assert torch.allclose(gradient, expected, atol=1e-6)


def test_gamma() -> None:
    assert gamma(6) == pytest.approx(10 * UNIT_ROUNDOFF)
    assert gamma(6, is_complex=True) == pytest.approx(40 * UNIT_ROUNDOFF)
