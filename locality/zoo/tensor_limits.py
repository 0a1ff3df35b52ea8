"""What a checkpoint may contain: plain tensors of numbers, stored as they are, up to a stated size."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from locality.errors import ModelError

MAX_BYTES = 16 * 2**30  # of a file, and of its tensors together
PLAIN = frozenset(
    (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),  # counters and indices
    )
)


def check_size(path: Path) -> None:
    """Raise if the file is larger than any checkpoint that locality loads."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ModelError(f"`{path}` has {size:,} bytes, at most {MAX_BYTES:,} are read: save the weights alone")


def check_zip(archive: zipfile.ZipFile, path: Path) -> None:
    """Raise if the entries of a torch file are compressed or overlap: torch stores them plainly, and a bomb does not."""
    entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ModelError(f"`{path}` is a compressed zip, which torch does not write: unpack it, or save it with torch.save")
    if sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise ModelError(f"`{path}` is a zip whose entries overlap, which torch does not write: save it with torch.save")


def check_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise at the first tensor that is no plain array of numbers, or if all together are larger than the limit."""
    total = 0
    for name, value in tensors.items():
        kind = _unusual(value)
        if kind is not None:
            raise ModelError(f"`{path}` has {kind} {name!r}, which is not loaded: save it as a dense tensor of float32")
        total += value.numel() * value.element_size()
    if total > MAX_BYTES:
        raise ModelError(
            f"`{path}` has tensors of {total:,} bytes, at most {MAX_BYTES:,} are loaded: save the weights alone"
        )


def _unusual(value: Tensor) -> str | None:
    """What a tensor is, unless it is a plain one."""
    if value.is_meta:
        return "the meta tensor (without data)"
    if value.is_quantized:
        return "the quantised tensor"
    if value.is_nested or value.layout is not torch.strided:
        return "the sparse or nested tensor"
    if value.dtype not in PLAIN:
        return f"the tensor of type {str(value.dtype).removeprefix('torch.')}"
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return "the expanded tensor (larger than its data)"
    return None
