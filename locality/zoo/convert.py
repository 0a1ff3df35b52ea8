"""Convert checkpoints to safetensors, also those that need code to load, if the user trusts them."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path

import torch
from safetensors.torch import save_file

from locality.errors import ArgumentError, ModelError, NeedsCodeError
from locality.files import file_hash, write_atomically
from locality.zoo.state_dict import Tensors, read_tensors, state_dict_in
from locality.zoo.weight_files import converted, store_hash

PICKLE_RISK = "a pickle can run any program on this machine while it loads"


def convert(path: str | Path, out: str | Path | None = None, trust_pickle: bool = False) -> Path:
    """Write the file's tensors as safetensors, to `out` or beside the file; returns the new file.

    A file that needs code to load is converted only with `trust_pickle`, which runs that code. Only tensors are kept, under
    their names in the file; the new file records the sha256 of the old one.
    """
    path = Path(path)
    target = converted(path) if out is None else Path(out)
    if target.suffix != ".safetensors":
        raise ArgumentError("out", "a file that ends in .safetensors", str(target))
    if target.resolve() == path.resolve():
        raise ArgumentError("out", "another file than the checkpoint", str(target))
    try:
        tensors = read_tensors(path)
    except NeedsCodeError as error:
        if not trust_pickle:
            raise NeedsCodeError(
                f"`{path}` needs code to load, and {PICKLE_RISK}: pass --trust-pickle only if you trust the file's author",
                error.code,
            ) from error
        tensors = _tensors_of_pickle(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Copies: tensors that share memory, as tied weights do, are written once per name.
    copies = {name: value.clone().contiguous() for name, value in tensors.items()}
    metadata = {"source": path.name, "source_sha256": file_hash(path)}
    write_atomically(target, lambda unfinished: save_file(copies, unfinished, metadata=metadata))
    store_hash(target, file_hash(target))
    return target


def _tensors_of_pickle(path: Path) -> Tensors:
    """The state dict in a pickle, loaded by running its code."""
    try:
        reader = importlib.import_module("dill")  # reads all that pickle reads, and what MadryLab's `robustness` saved
    except ModuleNotFoundError:
        reader = pickle
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=False, pickle_module=reader)
    except ModuleNotFoundError as error:
        raise ModelError(f"`{path}` needs the Python package {error.name!r} to load: `pip install {error.name}`") from error
    except Exception as error:
        raise ModelError(f"`{path}` cannot be loaded: {type(error).__name__}: {error}") from error
    if isinstance(loaded, torch.nn.Module):
        loaded = loaded.state_dict()
    return state_dict_in(loaded, path)
