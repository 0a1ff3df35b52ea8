"""Randomness that depends only on the seed and the image."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def image_seeds(images: Tensor, seed: int) -> list[int]:
    """One seed per image, a hash of its pixels and `seed`: it does not depend on the batch."""
    seeds = []
    for image in images.detach().float().cpu():
        digest = hashlib.blake2b(image.contiguous().numpy(), digest_size=8, key=str(seed).encode()).digest()
        seeds.append(int.from_bytes(digest, "big") >> 1)
    return seeds


@contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the generators of torch, numpy and Python inside the block; their states are restored when it ends."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        try:
            # Not torch.manual_seed, which also seeds devices that are not restored.
            torch.default_generator.manual_seed(seed)
            for one in cuda:
                with torch.cuda.device(one):
                    torch.cuda.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
