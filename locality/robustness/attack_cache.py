"""Results of finished batches as small JSON files, each named by a hash of everything its content depends on.

An interrupted run resumes by looking up names; a run with another setting, model or image looks up other names.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from locality.errors import ArgumentError
from locality.files import SEAL, is_intact, sealed, source_hash, write_atomically


def model_fingerprint(model: nn.Module) -> str:
    """The sha256 of a model: every parameter and buffer, the layers' settings as printed, and the source of their methods.

    The source is included because two classes with the same name and weights may compute different things. That of torch's
    own classes is not: its version is recorded.

    >>> layer = nn.Linear(2, 2)
    >>> before = model_fingerprint(layer)
    >>> with torch.no_grad():
    ...     _ = layer.bias.add_(1)
    >>> model_fingerprint(layer) == before
    False
    """
    digest = hashlib.sha256(repr(model).encode())
    for kind in dict.fromkeys(type(part) for part in model.modules()):
        digest.update("".join(f"{one.__module__}.{one.__qualname__}{_source(one)}" for one in kind.__mro__).encode())
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def batch_name(settings: dict[str, Any], images: Tensor, accepted: Sequence[tuple[int, ...]]) -> str:
    """The name of a batch's result: a hash of settings, pixels in order, labels accepted for each image, and our sources."""
    digest = hashlib.sha256(json.dumps([settings, accepted, source_hash()], sort_keys=True).encode())
    digest.update(str(tuple(images.shape)).encode())
    digest.update(_bytes(images))
    return digest.hexdigest()[:32]


class AttackCache:
    """A folder of results by name; without a folder nothing is stored."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        if folder is not None:
            if folder.exists() and not folder.is_dir():
                raise ArgumentError("store", "a folder for results", str(folder), "that is a file")
            folder.mkdir(parents=True, exist_ok=True)

    def load(self, name: str) -> dict[str, Any] | None:
        """The result of that name; None if there is none or it is damaged."""
        if self.folder is None:
            return None
        try:
            result = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(result, dict) or SEAL not in result or not is_intact(result):
            return None
        del result[SEAL]
        return result

    def save(self, name: str, result: dict[str, Any]) -> None:
        """Write a result with a hash of itself; its file appears complete or not at all."""
        if self.folder is not None:
            write_atomically(self.folder / f"{name}.json", json.dumps(sealed(result)))


def _source(kind: type) -> str:
    """The source of a class's own methods, each looked up by its line: a search by name may return another class."""
    if kind.__module__.split(".")[0] in ("torch", "builtins"):
        return ""
    try:
        return "".join(inspect.getsource(method) for method in vars(kind).values() if inspect.isfunction(method))
    except (OSError, TypeError):
        return ""  # typed at a prompt


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()  # numpy has no bfloat16
