"""Results of finished batches as small JSON files, each named by a hash of everything its content depends on.

An interrupted run resumes by looking up names; a run with another setting, model or image looks up other names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from locality.errors import ArgumentError
from locality.files import SEAL, is_intact, sealed, source_hash, write_atomically
from locality.robustness.fingerprint import tensor_bytes
from locality.toml_settings import read_json


def batch_name(settings: dict[str, Any], images: Tensor, accepted: Sequence[tuple[int, ...]]) -> str:
    """The name of a batch's result: a hash of settings, pixels in order, labels accepted for each image, and our sources."""
    digest = hashlib.sha256(json.dumps([settings, accepted, source_hash()], sort_keys=True).encode())
    digest.update(str(tuple(images.shape)).encode())
    digest.update(tensor_bytes(images))
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
            result = read_json(self.folder / f"{name}.json")
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
