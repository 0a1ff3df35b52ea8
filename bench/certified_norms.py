"""Whether the bounds of convolutions ever fall below dense SVD, over random layers; and how tight they are.

    python bench/certified_norms.py [--layers 1100] [--seed 0] [--out bench/results/certified_norms.json]

Kernels of 1 to 7 taps, even ones included, strides 1 to 4, any padding up to the kernel, images of 1 to 14 pixels (also
smaller than the kernel, also no multiple of the stride), 1 to 4 channels. Every fourth layer is a linear residual block.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from locality.conv_norms import conv_norm_upper
from locality.operator_norms import conv_matrix, output_size, torus_norm_upper

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=1100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("bench/results/certified_norms.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ratios: dict[str, list[float]] = {"torus": [], "torus of residual blocks": [], "chosen": []}
    for kernel, size, stride, padding, residual in random_layers(arguments.layers, arguments.seed):
        exact = float(torch.linalg.svdvals(conv_matrix(kernel, size, stride, padding))[0])
        if exact == 0:  # the padding is so wide that no output sees a pixel
            continue
        ratios["torus of residual blocks" if residual else "torus"].append(
            torus_norm_upper(kernel, size, stride, padding) / exact
        )
        ratios["chosen"].append(conv_norm_upper(kernel, size, stride, padding) / exact)
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
    text = json.dumps({"seed": arguments.seed, "bound over dense SVD": summary}, indent=2)
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
