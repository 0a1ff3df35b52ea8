"""Whether the bounds of convolutions ever fall below dense SVD, over random layers; and how tight they are.

    python bench/certified_norms.py [--layers 1100] [--seed 0] [--out bench/results/certified_norms.json]

Kernels of 1 to 7 taps, even ones included, strides 1 to 4, any padding up to the kernel, images of 1 to 14 pixels (also
smaller than the kernel, also no multiple of the stride), 1 to 4 channels. Every fourth layer is a linear residual block. 40
larger blocks, of up to 20 channels, follow. `chosen` is the bound that certificates use.

The blocks of trained networks are too large for dense SVD: their bounds are compared with 300 steps of power iteration,
which is never above the norm, so a bound is at most that much too large.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from locality import load_model
from locality.conv_norms import EXPLICIT_SIDE, conv_norm_upper
from locality.operator_norms import conv_matrix, output_size, torus_norm_upper
from locality.zoo.nets.lipschitz import LinearResidual

TRAINED = ("tiny_liresnet", "tiny_liresnet_standard", "tiny_liresnet_at", "tiny_centroid", "shapes_liresnet")
Layer = tuple[Tensor, tuple[int, int], int, int, bool]  # kernel, size, stride, padding, a linear residual block


def random_layers(count: int, seed: int) -> Iterator[Layer]:
    generator = torch.Generator().manual_seed(seed)

    def whole(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    made = 0
    while made < count:
        residual = made % 4 == 3
        outputs, inputs, taps = whole(1, 4), whole(1, 4), whole(1, 7)
        stride, padding, size = whole(1, 4), whole(0, taps), (whole(1, 14), whole(1, 14))
        kernel = torch.randn(outputs, inputs, taps, taps, dtype=torch.float64, generator=generator)
        if residual:
            kernel = 0.1 * torch.randn(inputs, inputs, 3, 3, dtype=torch.float64, generator=generator)
            kernel[range(inputs), range(inputs), 1, 1] += 1
            stride, padding, size = 1, 1, (whole(8, 14),) * 2
        if 0 in output_size(kernel, size, stride, padding):
            continue
        made += 1
        yield kernel, size, stride, padding, residual


def larger_blocks(count: int, seed: int) -> Iterator[Layer]:
    """Linear residual blocks that are no longer written as a matrix, but small enough for dense SVD."""
    generator = torch.Generator().manual_seed(seed)
    for index in range(count):
        side = 8 + index % 9
        channels = int(torch.randint(EXPLICIT_SIDE // side**2 + 1, 1300 // side**2 + 1, (), generator=generator))
        kernel = 0.1 * torch.randn(channels, channels, 3, 3, dtype=torch.float64, generator=generator)
        kernel[range(channels), range(channels), 1, 1] += 1
        yield kernel, (side, side), 1, 1, True


def trained_looseness(names: tuple[str, ...]) -> dict[str, float]:
    """Of each network's blocks, the largest factor by which a bound may be too large."""
    largest = {}
    for name in names:
        blocks = [part for part in load_model(name).modules() if isinstance(part, LinearResidual)]
        bounds = [conv_norm_upper(block.kernel(), (block.size, block.size), padding=1) for block in blocks]
        lower = [float(block.norm(300).detach()) for block in blocks]
        largest[name] = max(bound / norm for bound, norm in zip(bounds, lower, strict=True))
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=1100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("bench/results/certified_norms.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ratios: dict[str, list[float]] = {
        "torus": [],
        "torus of residual blocks": [],
        "chosen": [],
        "chosen of residual blocks": [],
    }
    layers = chain(random_layers(arguments.layers, arguments.seed), larger_blocks(40, arguments.seed))
    for kernel, size, stride, padding, residual in layers:
        exact = float(torch.linalg.svdvals(conv_matrix(kernel, size, stride, padding))[0])
        if exact == 0:  # the padding is so wide that no output sees a pixel
            continue
        ratios["torus of residual blocks" if residual else "torus"].append(
            torus_norm_upper(kernel, size, stride, padding) / exact
        )
        chosen = conv_norm_upper(kernel, size, stride, padding) / exact
        ratios["chosen of residual blocks" if residual else "chosen"].append(chosen)
    summary = {
        name: {
            "layers": len(values),
            "below": sum(value < 1 for value in values),
            "smallest minus 1": min(values) - 1,
            "median": statistics.median(values),
            "largest": max(values),
        }
        for name, values in ratios.items()
    }
    trained = trained_looseness(TRAINED)
    result = {"seed": arguments.seed, "bound over dense SVD": summary, "blocks of trained networks at most": trained}
    text = json.dumps(result, indent=2)
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
