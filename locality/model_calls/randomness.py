"""Randomness that depends on the seed and the image alone."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def image_seeds(images: Tensor, seed: int) -> list[int]:
    """A seed for each image, drawn from its pixels: neither its place in the batch nor its company changes it."""
    found = []
    for image in images.detach().float().cpu():
        digest = hashlib.blake2b(image.contiguous().numpy().tobytes(), digest_size=8, key=str(seed).encode()).digest()
        found.append(int.from_bytes(digest, "big") >> 1)
    return found


@contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers of torch, numpy and Python drawn from `seed` inside the block; as before when it ends."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        try:
            # Not torch.manual_seed: it would seed devices that are not restored.
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
