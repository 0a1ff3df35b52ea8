"""Spectral norms of matrices and convolutions: proven upper bounds, with rounding, and a differentiable estimate from below.

All norms are ℓ2 → ℓ2. Upper bounds are float64 and hold for the exact real operator of the given weights: every rounding
error on the way is bounded (Higham, Accuracy and Stability of Numerical Algorithms; Rump 2006) and added. The bounds assume
ordinary inner products in float64 in any order, as BLAS and LAPACK compute them on CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, fold, pad

from locality.errors import ArgumentError

Pair = tuple[int, int]  # height and width
UNIT_ROUNDOFF = 2.0**-53  # of float64
SLIGHTLY_MORE = 1 + 8 * UNIT_ROUNDOFF  # covers a handful of roundings
ATTEMPTS = 40


def gamma(terms: int, is_complex: bool = False) -> float:
    """γ_k = k·u/(1 − k·u), a bound on the error of an inner product of k terms; complex terms count four times."""
    error = (4 if is_complex else 1) * (terms + 4) * UNIT_ROUNDOFF
    return error / (1 - error)


def matrix_norm_upper(matrix: Tensor) -> Tensor:
    """Upper bounds on the largest singular value of …×m×n matrices, at most about 1e-8 above it.

    The SVD proposes s, and a Cholesky factorisation of s²I − AᴴA proves it: if it runs to its end, then
    ‖A‖² ≤ s² + γ/(1 − γ)·tr(s²I − AᴴA) + γ‖A‖²_F. Nothing depends on the accuracy of the SVD.

    >>> bound = matrix_norm_upper(torch.tensor([[3.0, 0.0], [0.0, 4.0]])).item()
    >>> 4 <= bound < 4 * (1 + 2e-8)
    True
    """
    scaled, scale = scaled_to_half(matrix)
    if scaled.shape[-2] < scaled.shape[-1]:
        scaled = scaled.mH
    rows, columns = scaled.shape[-2:]
    gram = scaled.mH @ scaled
    identity = torch.eye(columns, dtype=gram.dtype)
    proposed = torch.linalg.svdvals(scaled)[..., 0] * (1 + 1e-8)
    proposed = proposed.clamp_min(0.5)  # the largest entry is 1/2 or more, except in a zero matrix
    for _ in range(ATTEMPTS):
        rest = proposed.square()[..., None, None] * identity - gram
        unproven = torch.linalg.cholesky_ex(rest).info != 0
        if not unproven.any():
            break
        proposed = torch.where(unproven, proposed * (1 + 1e-6), proposed)
    else:
        raise ArithmeticError(f"no upper bound could be proved for a {rows}×{columns} matrix")
    trace = rest.diagonal(dim1=-2, dim2=-1).real.sum(-1)
    of_factor = gamma(columns, gram.is_complex())
    of_products = gamma(rows, gram.is_complex()) * frobenius_upper(scaled).square()
    squared = proposed.square() * SLIGHTLY_MORE + of_factor / (1 - of_factor) * trace * (1 + 1e-9) + of_products
    # Underflow inside is far below one rounding, because the largest entry was scaled to [1/2, 1).
    return times_power(squared.sqrt() * SLIGHTLY_MORE * scaled.any(-1).any(-1), scale)


def gram_norm_upper(matrix: Tensor, steps: int = 20) -> Tensor:
    """A second, independent bound: ‖A‖ = ‖(AᴴA)^(2^(T−1))‖^(2^−T) ≤ the Frobenius norm of that power (Delattre et al. 2023).

    Each product is scaled by a power of two, which is exact, and its rounding error is carried back to the bound. The excess
    factor is at most n^(2^−(T+1)) plus rounding, where all n singular values are equal.
    """
    current, scale = scaled_to_half(matrix)
    if current.shape[-2] < current.shape[-1]:
        current = current.mH
    scales, errors = [scale], []
    for _ in range(steps):
        errors.append(gamma(current.shape[-2], current.is_complex()) * frobenius_upper(current).square())
        current, scale = scaled_to_half(current.mH @ current)
        scales.append(scale)
    bound = frobenius_upper(current)
    for error, factor in zip(reversed(errors), reversed(scales[1:]), strict=True):
        bound = (times_power(bound, factor) + error).sqrt() * SLIGHTLY_MORE
    return times_power(bound, scales[0])


def torus_norm_upper(kernel: Tensor, size: Pair, stride: int | Pair = 1, padding: int | Pair = 0) -> float:
    """The largest norm of the symbols F(ω) = Σ_t W_t·exp(−i⟨t, ω⟩) on a torus in which the padded image fits.

    Zero padding is a part of circular convolution: T = P·C_N·E with an isometric embedding E and a projection P, so
    ‖T‖ ≤ ‖C_N‖ = max over ω of ‖F(ω)‖, provided that no kept output wraps around the torus of side N. A stride is removed by
    `polyphase` first. The image's own size is too small for N: it gives the norm of the circular layer.
    """
    scaled, scale = scaled_to_half(kernel.flatten())
    phases = polyphase(scaled.view_as(kernel), stride, padding)
    strides, paddings = as_pair(stride), as_pair(padding)
    outputs = output_size(kernel, size, stride, padding)
    turns = []
    for axis in (0, 1):
        taps = phases.shape[2 + axis]
        blocks, lead = math.ceil(size[axis] / strides[axis]), math.ceil(paddings[axis] / strides[axis])
        side = max(blocks + lead, outputs[axis] - lead + taps - 1) if taps > 1 else 1
        turns.append(_turns(side, taps))
    half = turns[1][: len(turns[1]) // 2 + 1]  # ω and −ω have conjugate symbols, because the weights are real
    symbols = torch.einsum("oiab,xa,yb->xyoi", phases.to(half.dtype), turns[0], half).flatten(0, 1)
    taps = phases.shape[2] * phases.shape[3]
    # An entry of `turns` is wrong by 24u at most, and a symbol is a sum of `taps` products of three numbers.
    missed = (8 * taps + 128) * UNIT_ROUNDOFF * math.sqrt(taps) * frobenius_upper(phases.flatten(0, 2))
    return float(times_power((matrix_norm_upper(symbols).max() + missed) * SLIGHTLY_MORE, scale))


def absolute_conv_norm_upper(kernel: Tensor, stride: int | Pair = 1, padding: int | Pair = 0) -> float:
    """Upper bound on the norm of the convolution with |kernel| on images of any size, which bounds forward rounding errors.

    Without negative weights the largest symbol is the one at ω = 0, the sum over the taps.
    """
    phases = polyphase(kernel.detach().double().abs(), stride, padding)
    taps = phases.shape[2] * phases.shape[3]
    return float(matrix_norm_upper(phases.sum((2, 3)))) * (1 + gamma(taps))


def polyphase(kernel: Tensor, stride: int | Pair, padding: int | Pair) -> Tensor:
    """The kernel of stride 1 that gives the same outputs on the blocks of stride×stride pixels taken as channels.

    Rearranging pixels keeps the norm. Zeros in front align the kernel with the blocks. The result is
    C_out × C_in·s² × ⌈(k + (−p mod s))/s⌉².

    >>> polyphase(torch.ones(8, 3, 7, 7), stride=4, padding=3).shape
    torch.Size([8, 48, 2, 2])
    """
    (high, wide), (top, left) = as_pair(stride), as_pair(padding)
    height, width = kernel.shape[-2:]
    above, before = -top % high, -left % wide
    below, behind = -(above + height) % high, -(before + width) % wide
    aligned = pad(kernel, (before, behind, above, below))
    blocks = aligned.unflatten(3, (-1, wide)).unflatten(2, (-1, high))  # out × in × taps × s × taps × s
    phases: Tensor = blocks.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
    return phases


def conv_matrix(kernel: Tensor, size: Pair, stride: int | Pair = 1, padding: int | Pair = 0) -> Tensor:
    """The convolution as a float64 matrix on flattened images. Its entries are those of the kernel, without rounding."""
    weights = kernel.detach().double()
    inputs = kernel.shape[1] * math.prod(size)
    basis = torch.eye(inputs, dtype=torch.float64, device=weights.device).view(inputs, kernel.shape[1], *size)
    return conv2d(basis, weights, stride=stride, padding=padding).flatten(1).T


def output_size(kernel: Tensor, size: Pair, stride: int | Pair, padding: int | Pair) -> Pair:
    """Height and width of the convolution's output; 0 where the kernel does not fit."""
    heights = zip(size, kernel.shape[-2:], as_pair(stride), as_pair(padding), strict=True)
    height, width = (max(0, (pixels + 2 * around - taps) // step + 1) for pixels, taps, step, around in heights)
    return height, width


def power_iteration(
    apply: Callable[[Tensor], Tensor], transpose: Callable[[Tensor], Tensor], directions: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """‖A v‖ with its gradient, and the direction v of length 1 after `steps` rounds v ← AᵀA v, for G operators A at once.

    The first axis of `directions`, and of what `apply` and `transpose` take and give, counts the operators. The estimate is
    a lower bound on ‖A‖, so it is for training only: a certificate needs `matrix_norm_upper` or
    `conv_norm_upper`. The gradient does not go through v, since that of the largest singular value is u vᵀ. Pass v as the
    next `directions`.

    >>> matrix = torch.diag(torch.tensor([3.0, 1.0]))
    >>> estimates, _ = power_iteration(lambda v: v @ matrix.T, lambda u: u @ matrix, torch.ones(1, 2), steps=10)
    >>> round(estimates.item(), 6)
    3.0
    """
    axes = tuple(range(1, directions.dim()))
    with torch.no_grad():
        moved = directions
        for _ in range(steps):
            moved = transpose(apply(_scaled_to_1(moved, axes)))
        # Where an operator is zero the direction stays: it must find the way back once the weights are not zero.
        moved = _scaled_to_1(torch.where(moved.any(axes, keepdim=True), moved, directions), axes)
        directions = moved / torch.linalg.vector_norm(moved, dim=axes, keepdim=True)
    images = apply(directions)
    norms: Tensor = torch.linalg.vector_norm(images, dim=tuple(range(1, images.dim())))
    return norms, directions


def conv_transpose(
    image: Tensor, kernel: Tensor, size: Pair, stride: int | Pair, padding: int | Pair, groups: int = 1
) -> Tensor:
    """Aᵀ of the convolution A on images of `size`, also where the stride leaves out pixels at the end."""
    strides, paddings, taps = as_pair(stride), as_pair(padding), (kernel.shape[2], kernel.shape[3])
    if groups == 1 and min(strides) > 1:  # twice as fast on a CPU
        patches = kernel.flatten(1).T @ image.flatten(2)
        return fold(patches, size, taps, padding=paddings, stride=strides)
    outputs = output_size(kernel, size, stride, padding)
    left_out = tuple(size[axis] - ((outputs[axis] - 1) * strides[axis] - 2 * paddings[axis] + taps[axis]) for axis in (0, 1))
    return conv_transpose2d(image, kernel, stride=strides, padding=paddings, output_padding=left_out, groups=groups)


def _scaled_to_1(vectors: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Each of the vectors divided by its largest entry, so that squares neither overflow nor underflow; zero stays zero."""
    largest = vectors.abs().amax(axes, keepdim=True)  # vector_norm(inf) takes twenty times as long on a CPU
    return vectors / largest.clamp_min(torch.finfo(vectors.dtype).tiny)


def _turns(side: int, taps: int) -> Tensor:
    """exp(−2πi·j·t/side), side×taps; the angle is reduced in whole numbers, so that large ones lose no digits."""
    rest = torch.outer(torch.arange(side), torch.arange(taps)) % side
    angle = 2 * math.pi * rest.double() / side
    return torch.polar(torch.ones_like(angle), -angle)


def scaled_to_half(values: Tensor) -> tuple[Tensor, Tensor]:
    """The values in float64 on the CPU, divided by a power of two per matrix (the last two axes), and its exponent.

    The largest real or imaginary part lies in [1/2, 1) afterwards, so that squares neither overflow nor underflow.
    """
    exact = values.detach().to("cpu", torch.complex128 if values.is_complex() else torch.float64)
    parts = torch.view_as_real(exact) if exact.is_complex() else exact
    if not bool(torch.isfinite(parts).all()):
        raise ArgumentError("weights", "finite", "nan or inf")
    axes = tuple(range(max(0, values.dim() - 2), parts.dim()))
    exponent = torch.frexp(parts.abs().amax(axes))[1]
    scaled = torch.ldexp(parts, -exponent[(..., *(None for _ in axes))])
    return (torch.view_as_complex(scaled) if exact.is_complex() else scaled), exponent


def times_power(values: Tensor, exponent: Tensor) -> Tensor:
    """values·2^exponent, rounded up where the result is too small for all its digits; zero stays zero."""
    product = torch.ldexp(values, exponent)
    return torch.where(values > 0, product.nextafter(torch.full_like(product, math.inf)), product)


def frobenius_upper(matrix: Tensor) -> Tensor:
    """‖A‖_F, rounded up."""
    norm: Tensor = torch.linalg.matrix_norm(matrix)
    return norm * (1 + 4 * matrix.shape[-2] * matrix.shape[-1] * UNIT_ROUNDOFF)


def as_pair(value: int | Pair) -> Pair:
    """Height and width."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])
