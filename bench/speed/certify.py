"""Seconds of processor time for a certificate: by a Lipschitz bound, against randomised smoothing on the same network.

    python bench/speed/certify.py [--images 16] [--draws 200] [--out bench/results/certify_speed.json]

One thread, an untrained `liresnet` (the weights do not change the cost). The bound is computed once per network and not part
of the time per image. Smoothing is timed with --draws noisy copies of one image, side by side in the same run, and scaled to
n = 10,000 with n₀ = 100. The looseness of a block is its bound over 1,000 steps of power iteration, which is never above
the norm, so the bound is at most that much too large.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measuring import about

from locality.certified.lipschitz import Lipschitz
from locality.certified.lipschitz_bound import lipschitz_bound
from locality.certified.smoothing import Smoothing
from locality.conv_norms import conv_norm_upper
from locality.zoo.architectures import build
from locality.zoo.nets.lipschitz import LinearResidual

REPEATS = 3
PUBLISHED = 10_000 + 100  # noisy copies per image


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def looseness(block: LinearResidual) -> float:
    """At most how much too large the bound of a block is, as a factor."""
    return conv_norm_upper(block.kernel(), (block.size, block.size), padding=1) / float(block.norm(1000).detach())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("bench/results/certify_speed.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = build("net:liresnet", 10).eval()
    images = torch.rand(arguments.images, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    bound = lipschitz_bound(model, (64, 64))
    smoothing = Smoothing(samples=arguments.draws, selection_samples=1)
    times: dict[str, list[float]] = {"bound": [], "certify": [], "smoothing": [], "ratio": []}
    for _ in range(REPEATS):
        times["bound"].append(seconds(lambda: lipschitz_bound(model, (64, 64))))
        times["certify"].append(seconds(lambda: Lipschitz()(model, images, bound=bound)) / len(images))
        times["smoothing"].append(seconds(lambda: smoothing(model, images[:1])) / (arguments.draws + 1) * PUBLISHED)
        times["ratio"].append(times["smoothing"][-1] / times["certify"][-1])
    blocks = [layer for layer in model.modules() if isinstance(layer, LinearResidual)]
    summary = {
        "seconds of the bound of the whole network": statistics.median(times["bound"]),
        "seconds per image by the bound": statistics.median(times["certify"]),
        "seconds per image by smoothing, n = 10,000": statistics.median(times["smoothing"]),
        "smoothing over bound": statistics.median(times["ratio"]),
        "looseness of a block at most": max(looseness(block) for block in blocks),
    }
    text = json.dumps(about(sys.argv, ["torch"]) | summary, indent=2)
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
