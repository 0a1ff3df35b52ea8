"""Results of finished batches as small JSON files, each under a name made of everything its content depends on.

A killed run therefore resumes by looking names up, and a run with another setting, model or image looks up other names.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def model_fingerprint(model: nn.Module) -> str:
    """The sha256 of a model: every parameter and buffer, the layers' settings as printed, and the source of their methods.

    The source is there because two classes of one name and the same weights may still compute different things. That of
    torch's own classes goes without saying: its version is recorded.

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
    """The name of a batch's result: a hash of the settings, the pixels in their order, and the labels accepted for each."""
    digest = hashlib.sha256(json.dumps([settings, accepted], sort_keys=True).encode())
    digest.update(str(tuple(images.shape)).encode())
    digest.update(_bytes(images))
    return digest.hexdigest()[:32]


class BatchStore:
    """A folder of results by name; None as folder keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        if folder is not None:
            if folder.exists() and not folder.is_dir():
                raise ValueError(f"`store` must be a folder for results, got the file {folder}")
            folder.mkdir(parents=True, exist_ok=True)

    def load(self, name: str) -> dict[str, Any] | None:
        """The result of that name, or None where there is none or it cannot be read."""
        if self.folder is None:
            return None
        try:
            found = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def save(self, name: str, result: dict[str, Any]) -> None:
        """Write a result; its file appears whole or not at all."""
        if self.folder is None:
            return
        handle, unfinished = tempfile.mkstemp(dir=self.folder, prefix=f".{name}-", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(result, file)
            os.replace(unfinished, self.folder / f"{name}.json")
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise


def _source(kind: type) -> str:
    """The source of a class's own methods, each found by its line: a search by name may find another class."""
    if kind.__module__.split(".")[0] in ("torch", "builtins"):
        return ""
    try:
        return "".join(inspect.getsource(method) for method in vars(kind).values() if inspect.isfunction(method))
    except (OSError, TypeError):
        return ""  # written at a prompt


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()  # as bytes: numpy has no bfloat16
