"""The upper bound on the norm of a convolution that certificates use, by the tightest of three proofs that is cheap enough.

A small convolution is a dense matrix (`matrix_norm_upper`). Any one is part of a circular convolution (`torus_norm_upper`),
which is quick, and larger than the norm by up to a few per cent on small images. `banded_norm_upper` is exact to 1e-5 with
zero padding, for about 9·n·(n·C)³ operations on an n×n map of C channels: 6 seconds with 64 channels of 16×16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from locality.errors import ArgumentError
from locality.operator_norms import (
    SLIGHTLY_MORE,
    Pair,
    as_pair,
    conv_matrix,
    conv_transpose,
    frobenius_upper,
    gamma,
    matrix_norm_upper,
    output_size,
    polyphase,
    scaled_to_half,
    times_power,
    torus_norm_upper,
)

EXPLICIT_SIDE, EXPLICIT_ENTRIES = 600, 2**21  # of the largest matrix of a convolution that is built entry by entry
CHEAP, TIGHT = 4e9, 4e12  # operations for a banded proof: a tenth of a second, and about two minutes
EXCESSES = (1e-6, 1e-5, 1e-4, 1e-3)  # of the bound over the proposal, one after the other until a proof succeeds
LANCZOS_STEPS, LANCZOS_CHECK = 300, 10


def conv_norm_upper(
    kernel: Tensor, size: Pair, stride: int | Pair = 1, padding: int | Pair = 0, *, tight: bool = False
) -> float:
    """Upper bound on the norm of x ↦ conv2d(x, kernel) on images of `size`, zeros around them: exact to 1e-8 where small.

    Small convolutions are written as a matrix; others are proved row by row (`banded_norm_upper`) if that is cheap, else
    bounded by `torus_norm_upper`. `tight` allows a row-by-row proof to take two minutes.

    >>> 2 <= conv_norm_upper(2 * torch.eye(3)[:, :, None, None], (8, 8)) < 2 + 1e-7
    True
    """
    outputs = math.prod(output_size(kernel, size, stride, padding)) * kernel.shape[0]
    inputs = math.prod(size) * kernel.shape[1]
    if outputs == 0:
        raise ArgumentError("size", f"large enough for a kernel of {kernel.shape[-2]}×{kernel.shape[-1]}", size)
    if min(inputs, outputs) <= EXPLICIT_SIDE and inputs * outputs <= EXPLICIT_ENTRIES:
        return float(matrix_norm_upper(conv_matrix(kernel, size, stride, padding)))
    bound = torus_norm_upper(kernel, size, stride, padding)
    if polyphase(kernel[:1, :1], stride, padding)[0, 0].numel() == 1:
        return bound  # blocks that do not overlap: exact already
    if _cheaper_band(kernel, size, stride, padding).work > (TIGHT if tight else CHEAP):
        return bound
    return min(bound, banded_norm_upper(kernel, size, stride, padding))


def banded_norm_upper(kernel: Tensor, size: Pair, stride: int | Pair = 1, padding: int | Pair = 0) -> float:
    """Upper bound with zero padding, exact to 1e-5 or infinite: Lanczos proposes s, a block-banded Cholesky proves it.

    TᵀT couples rows of pixels that are at most k − 1 apart, so s²I − TᵀT is a banded matrix of blocks, one per row. If its
    factorisation runs to the end, the bound follows as in `matrix_norm_upper`. TTᵀ takes the place of TᵀT where it is
    smaller. Nothing depends on the accuracy of the proposal, which approaches the norm from below.

    >>> kernel = torch.tensor([[[[0.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 0.0]]]], dtype=torch.float64)
    >>> exact = 1 + 2 * math.cos(math.pi / 41)  # with zeros around 40×40 pixels
    >>> 1 <= banded_norm_upper(kernel, (40, 40), padding=1) / exact < 1 + 2e-6
    True
    """
    flat, exponent = scaled_to_half(kernel.flatten())
    scaled = flat.view_as(kernel)
    if not scaled.any():
        return 0.0
    band = _cheaper_band(scaled, size, stride, padding)
    proposed = _proposed(scaled, size, stride, padding)
    products = band.products()
    for excess in EXCESSES:
        bound = _proved(band, products, proposed * (1 + excess))
        if bound is not None:
            return float(times_power(torch.tensor(bound, dtype=torch.float64), exponent))
    return math.inf


@dataclass(frozen=True, eq=False)
class _Band:
    """TᵀT or TTᵀ as blocks, one per row of pixels; the tap that joins an input row with an output row says which factor."""

    kernel: Tensor
    size: Pair
    stride: Pair
    padding: Pair
    outputs: Pair
    transposed: bool  # TTᵀ, whose blocks are rows of the output

    @property
    def count(self) -> int:
        """Blocks along the diagonal."""
        return self.outputs[0] if self.transposed else self.size[0]

    @property
    def side(self) -> int:
        """Of a block."""
        return self.kernel.shape[0] * self.outputs[1] if self.transposed else self.kernel.shape[1] * self.size[1]

    @property
    def width(self) -> int:
        """How many blocks apart the farthest coupled rows are."""
        apart = self.kernel.shape[2] - 1
        return min(self.count - 1, apart // self.stride[0] if self.transposed else apart)

    @property
    def work(self) -> float:
        """Floating-point operations of one proof and of the products."""
        factorised = self.count * self.side**3 * (1 / 3 + self.width + self.width * (self.width + 1))
        inner = self.kernel.shape[1] * self.size[1] if self.transposed else self.kernel.shape[0] * self.outputs[1]
        return factorised + 2 * self.kernel.shape[2] ** 2 * self.side**2 * inner

    def tap(self, block: int, other: int) -> int | None:
        """The row of the kernel that joins a block with a row of the other side; None where none does."""
        output, row = (block, other) if self.transposed else (other, block)
        tap = row - output * self.stride[0] + self.padding[0]
        return tap if 0 <= tap < self.kernel.shape[2] else None

    def factors(self) -> list[Tensor]:
        """For each row of the kernel the matrix of its convolution along rows; the Gram matrix is made of their products."""
        one_row = (1, self.size[1])
        rows = [
            conv_matrix(self.kernel[:, :, tap : tap + 1], one_row, (1, self.stride[1]), (0, self.padding[1]))
            for tap in range(self.kernel.shape[2])
        ]
        return [row.mT if self.transposed else row for row in rows]

    def products(self) -> _Products:
        """What the blocks are sums of."""
        factors = self.factors()
        pairs = {(a, b): factors[a].mT @ factors[b] for a in range(len(factors)) for b in range(a + 1)}
        others = range(self.size[0] if self.transposed else self.outputs[0])
        squares = 0.0
        for block in range(self.count):
            for other in others:
                tap = self.tap(block, other)
                squares += 0.0 if tap is None else float(frobenius_upper(factors[tap])) ** 2
        return _Products(pairs, squares * (1 + gamma(self.count * len(others) + 4)), len(factors) * len(factors[0]))

    def block(self, products: _Products, row: int, column: int) -> Tensor:
        """The block of the Gram matrix."""
        total = products.pairs[0, 0].new_zeros(self.side, self.side)
        for other in range(self.size[0] if self.transposed else self.outputs[0]):
            first, second = self.tap(row, other), self.tap(column, other)
            if first is not None and second is not None:
                ordered = first >= second
                total += products.pairs[first, second] if ordered else products.pairs[second, first].mT
        return total


@dataclass(frozen=True, eq=False)
class _Products:
    pairs: dict[tuple[int, int], Tensor]  # F_aᵀF_b for a ≥ b
    squares: float  # ‖T‖²_F, rounded up
    terms: int  # at most, of an inner product in the Gram matrix


def _cheaper_band(kernel: Tensor, size: Pair, stride: int | Pair, padding: int | Pair) -> _Band:
    outputs = output_size(kernel, size, stride, padding)
    both = [_Band(kernel, size, as_pair(stride), as_pair(padding), outputs, transposed) for transposed in (False, True)]
    return min(both, key=lambda band: band.work)


def _proved(band: _Band, products: _Products, proposed: float) -> float | None:
    """The bound that follows if s²I − TᵀT has a Cholesky factorisation; None if it has none.

    Each block column is updated by those before it within the band, and then forgotten.
    """
    identity = torch.eye(band.side, dtype=torch.float64)
    rest: dict[tuple[int, int], Tensor] = {}
    trace = 0.0
    for column in range(band.count):
        below = range(column + 1, min(band.count, column + band.width + 1))
        for row in (column, *below):
            gram = band.block(products, row, column)
            gram = proposed**2 * identity - gram if row == column else -gram
            trace += float(gram.diagonal().sum()) if row == column else 0.0
            rest[row, column] = gram - rest[row, column] if (row, column) in rest else gram
        factor, info = torch.linalg.cholesky_ex(rest.pop((column, column)))
        if int(info):
            return None
        columns = {
            row: torch.linalg.solve_triangular(factor.mT, rest.pop((row, column)), upper=True, left=False) for row in below
        }
        for row in below:
            for other in range(column + 1, row + 1):
                update = columns[row] @ columns[other].mT
                rest[row, other] = rest[row, other] + update if (row, other) in rest else update
    of_factor = gamma((band.width + 1) * band.side)
    squared = proposed**2 * SLIGHTLY_MORE + of_factor / (1 - of_factor) * trace * (1 + 1e-9)
    return math.sqrt(squared + gamma(products.terms) * products.squares) * SLIGHTLY_MORE


def _proposed(kernel: Tensor, size: Pair, stride: int | Pair, padding: int | Pair) -> float:
    """About the norm, from below: Lanczos steps on TᵀT, each direction made orthogonal to all before."""
    shape = (1, kernel.shape[1], *size)
    direction = torch.randn(math.prod(shape), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    basis = (direction / direction.norm())[None]
    diagonal: list[float] = []
    beside: list[float] = []
    largest = 0.0
    for step in range(1, min(LANCZOS_STEPS, math.prod(shape)) + 1):
        outputs = conv2d(basis[-1].view(shape), kernel, stride=stride, padding=padding)
        moved = conv_transpose(outputs, kernel, size, stride, padding).flatten()
        diagonal.append(float(moved @ basis[-1]))
        for _ in range(2):  # once leaves rounding errors that grow
            moved = moved - basis.mT @ (basis @ moved)
        length = float(moved.norm())
        complete = length <= 1e-13 * max(diagonal)
        if complete or step % LANCZOS_CHECK == 0:
            matrix = torch.tensor(diagonal, dtype=torch.float64).diag()
            matrix[range(step - 1), range(1, step)] = torch.tensor(beside, dtype=torch.float64)
            before, largest = largest, float(torch.linalg.eigvalsh(matrix, UPLO="U")[-1])
            if complete or largest - before <= 1e-10 * largest:
                break
        beside.append(length)
        basis = torch.cat([basis, moved[None] / length])
    return math.sqrt(largest)
