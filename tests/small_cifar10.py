"""A few images in the layout of CIFAR-10's binary version, made for tests."""

from pathlib import Path

import numpy as np

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TEST_LABELS = [3, 8, *range(10), *range(2, 10)]


def records(labels: list[int], seed: int = 0) -> bytes:
    """Records with these labels and random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    return np.concatenate([np.array(labels, dtype=np.uint8)[:, None], pixels], axis=1).tobytes()


def write_batches(folder: Path) -> Path:
    """Write 40 training images in two batches, and 20 test images."""
    folder.mkdir()
    (folder / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n\n")
    (folder / "data_batch_1.bin").write_bytes(records(list(range(10)) * 3, seed=1))
    (folder / "data_batch_2.bin").write_bytes(records(list(range(10)), seed=2))
    (folder / "test_batch.bin").write_bytes(records(TEST_LABELS, seed=3))
    return folder
