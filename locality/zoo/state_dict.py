"""Read checkpoints without executing code, and load them strictly: every tensor must match.

Files are safetensors, or torch files read with `weights_only=True`. The tensors may be in a section of the file, may have
the prefixes of wrappers, and may include a normaliser, which must be the one we apply. A missing or unexpected tensor is an
error that names it.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from locality.errors import DamagedFileError, ModelError, NeedsCodeError
from locality.types import ModelSpec
from locality.zoo.pixel_model import PixelModel
from locality.zoo.tensor_limits import check_size, check_tensors, check_zip

Tensors = dict[str, Tensor]

# Sections of a file that may hold the state dict. Plain weights come before averaged ones: published accuracies of files
# with both are those of the former.
SECTIONS = ("state_dict", "model", "state_dict_ema", "model_ema", "model_state_dict", "net")
# Prefixes of wrappers: DataParallel, torch.compile, robustness' AttackerModel, our PixelModel, Sequential(normaliser, net).
WRAPPERS = ("module.", "_orig_mod.", "model.", "net.", "1.")
NORMALISER = re.compile(r"(?:0|normalizer|normalize|attacker\.normalize|attacker\.normalizer)\.(?:new_)?(mean|std)")
SECOND_COPY = "attacker.model."  # AttackerModel saves its network twice: also as its attacker's
SAFE: list[Any] = [argparse.Namespace]  # a record of plain values that timm saves with the weights
SHOWN = 10  # names listed in an error


def read_tensors(path: str | Path) -> Tensors:
    """The state dict of a checkpoint file, under the file's own names; no code in the file is executed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"epoch": 3, "state_dict": {"module.weight": torch.ones(2)}}, f"{folder}/checkpoint.pth")
    ...     read_tensors(f"{folder}/checkpoint.pth")
    {'module.weight': tensor([1., 1.])}
    """
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"`{path}` is not a file: pass a checkpoint (.safetensors, .pth, .pt, .ckpt)")
    check_size(path)
    with path.open("rb") as file:
        start = file.read(512)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= path.stat().st_size:
        try:
            tensors = load_file(path)
        except SafetensorError as error:
            raise _damaged(path, error) from error
        check_tensors(tensors, path)
        return tensors
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise ModelError(f"`{path}` is an HTML page, not a checkpoint: download the file itself")
    return state_dict_in(_loaded(path), path)


def state_dict_in(loaded: object, path: Path) -> Tensors:
    """The tensors of a loaded file: those of the first section that has any, else its own."""
    if isinstance(loaded, Mapping):
        # Sections come first: a tensor beside them is an accuracy or a step, not a weight.
        for part in (*(loaded.get(section) for section in SECTIONS), loaded):
            if isinstance(part, Mapping):
                tensors = {str(name): value.detach() for name, value in part.items() if isinstance(value, Tensor)}
                if tensors:
                    check_tensors(tensors, path)
                    return tensors
    got = f"the keys {_listed(map(str, loaded))}" if isinstance(loaded, Mapping) else type(loaded).__name__
    raise ModelError(
        f"`{path}` has no state dict: expected tensors by name, or such a table under {', '.join(SECTIONS)}, got {got}"
    )


def fill(
    net: nn.Module,
    tensors: Tensors,
    source: str | Path,
    spec: ModelSpec | None = None,
    rename: Callable[[Tensors], Tensors] = lambda tensors: tensors,
) -> None:
    """Load all tensors into the network, or raise and leave it unchanged.

    Prefixes of wrappers are removed; a normaliser among the tensors must be that of `spec`. `rename` then maps the names of
    an older layout to current ones.
    """
    own = net.state_dict()
    buffers = dict(net.named_buffers())
    given = rename(unwrapped(tensors, own_names(net), source, spec))
    if not set(given) & set(own):
        raise ModelError(
            f"`{source}` does not fit the architecture: they have no tensor in common; the file has {_listed(given)}, "
            f"the network {_listed(own)}: pass another `arch`"
        )
    # Buffers that a network computes itself were saved by older versions; they are accepted if they are equal.
    extra = {n for n, value in given.items() if n not in own and n in buffers and torch.equal(value, buffers[n].to(value))}
    # A counter of training steps, which old files lack and evaluation does not use.
    counters = {name for name in own if name.endswith("num_batches_tracked") and name not in given}
    complaints = {
        "missing": [name for name in own if name not in given and name not in counters],
        "unexpected": [name for name in given if name not in own and name not in extra],
        "of another shape": [
            f"{name} ({_shape(given[name])}, the network has {_shape(own[name])})"
            for name in own
            if name in given and given[name].shape != own[name].shape
        ],
    }
    if any(complaints.values()):
        reasons = "; ".join(f"{len(names)} {what}: {_listed(names)}" for what, names in complaints.items() if names)
        raise ModelError(f"`{source}` does not fit the architecture: {reasons}: pass another `arch` or `num_classes`")
    check_finite(given, source)
    net.load_state_dict({name: given.get(name, value) for name, value in own.items()})


def fill_in_order(net: nn.Module, tensors: Tensors, source: str | Path) -> None:
    """Load tensors whose names differ from the network's, but whose order, kinds and shapes agree."""
    own = net.state_dict()
    pairs = list(zip(own.items(), tensors.items(), strict=False))
    kinds = [(name, other) for (name, _), (other, _) in pairs if name.rpartition(".")[2] != other.rpartition(".")[2]]
    shapes = [(name, other) for (name, value), (other, given) in pairs if value.shape != given.shape]
    if len(own) != len(tensors) or kinds or shapes:
        first = (kinds + shapes)[:1]
        start = f", the first is {first[0][1]!r}, which should be {first[0][0]!r}" if first else ""
        raise ModelError(
            f"`{source}` does not fit the architecture: {len(tensors)} tensors instead of {len(own)}, "
            f"{len(set(kinds + shapes))} of another kind or shape{start}"
        )
    check_finite(tensors, source)
    net.load_state_dict(dict(zip(own, tensors.values(), strict=True)))


def unwrapped(tensors: Tensors, names: Iterable[str], source: str | Path, spec: ModelSpec | None = None) -> Tensors:
    """The tensors without the additions of wrappers: prefixes, a second copy, a normaliser (which must be that of `spec`).

    >>> wrapped = {"module.1.weight": torch.ones(1), "module.0.mean": torch.tensor([0.5, 0.5, 0.5])}
    >>> unwrapped(wrapped, ["weight"], "file", ModelSpec("m", mean=(0.5, 0.5, 0.5)))
    {'weight': tensor([1.])}
    """
    wanted = set(names)
    while True:
        inner = {}
        for name, value in tensors.items():
            normaliser = NORMALISER.fullmatch(name)
            if name in wanted or not (normaliser or name.startswith(SECOND_COPY)):
                inner[name] = value
            elif normaliser:
                _check_normaliser(normaliser[1], value, source, spec)
            else:
                _check_second_copy(tensors, name, source)
        wrapper = next((start for start in WRAPPERS if all(name.startswith(start) for name in inner)), None)
        if wanted & set(inner) or not inner or wrapper is None:
            return inner
        tensors = {name.removeprefix(wrapper): value for name, value in inner.items()}


def own_names(net: nn.Module) -> set[str]:
    """The names of a network's tensors, including buffers that it does not save."""
    return set(net.state_dict()) | {name for name, _ in net.named_buffers()}


def normaliser_in(tensors: Tensors, names: Iterable[str] = ()) -> dict[str, tuple[float, ...]]:
    """The mean and standard deviation of a normaliser around the network, if the tensors include one.

    One inside the network, whose tensors are among `names`, is part of the network and not reported.

    >>> normaliser_in({"module.0.std": torch.full((3, 1, 1), 0.25)})
    {'std': (0.25, 0.25, 0.25)}
    >>> normaliser_in({"module.0.std": torch.full((3, 1, 1), 0.25)}, ["0.std"])
    {}
    """
    inside = set(names)
    normaliser = {}
    for name, value in tensors.items():
        bare = name.removeprefix("module.")
        match = NORMALISER.fullmatch(bare)
        if match and not {name, bare} & inside and value.numel() == 3:
            normaliser[match[1]] = tuple(value.float().flatten().tolist())
    return normaliser


def class_counts(net: nn.Module, tensors: Tensors) -> tuple[int, int] | None:
    """The numbers of classes of the network and of the tensors, if their shapes differ in that alone; else None."""
    own = net.state_dict()
    both = [(own[name].shape, value.shape) for name, value in tensors.items() if name in own]
    pairs = {(a[:1], b[:1], a[1:] == b[1:]) for a, b in both if a != b}
    if len(pairs) != 1:
        return None
    ((here, there, rest_is_same),) = pairs
    return (here[0], there[0]) if rest_is_same and here and there else None


def check_finite(tensors: Mapping[str, Tensor], source: str | Path) -> None:
    """Raise if a tensor has nan or inf."""
    bad = [name for name, value in tensors.items() if value.is_floating_point() and not torch.isfinite(value).all()]
    if bad:
        raise ModelError(
            f"`{source}` has nan or inf in {len(bad)} of {len(tensors)} tensors ({_listed(bad)}): its training diverged, "
            "use an earlier checkpoint"
        )


def weights_hash(model: nn.Module) -> str:
    """The sha256 of a network's state dict: names, types, shapes and bytes, independent of device and order.

    >>> weights_hash(nn.Identity())[:16]
    'e3b0c44298fc1c14'
    """
    net = model.net if isinstance(model, PixelModel) else model
    digest = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _loaded(path: Path) -> object:
    """The content of a torch file, read without executing its code."""
    is_intact = _is_intact_zip(path)
    try:
        with torch.serialization.safe_globals(SAFE), warnings.catch_warnings():
            # About a protocol that is not torch's default; if it matters, an error follows.
            warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        code = sorted(set(re.findall(r"GLOBAL ([\w.]+)", str(error))))
        if not code and not is_intact:
            raise _damaged(path, "not a torch file") from error
        # torch's safe reader supports protocols 2 and 3 only; any other `pickle_protocol` is refused without naming code.
        what = _listed(code) or "a pickle that torch's safe reader does not support"
        raise NeedsCodeError(
            f"`{path}` needs code to load ({what}), which could do anything and is not executed: if you trust the file, "
            f"`locality models convert {path} --trust-pickle` converts it to safetensors",
            tuple(code),
        ) from error
    except Exception as error:  # a damaged file may raise anything
        raise _damaged(path, error) from error


def _is_intact_zip(path: Path) -> bool:
    """Whether the file is an intact zip; False for torch's old format, which has no checksums; raises if it is damaged."""
    # torch does not verify the checksums inside, and would return damaged weights.
    try:
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                raise ModelError(f"`{path}` is a TorchScript program, not a checkpoint: save its state_dict() instead")
            check_zip(archive, path)
            damaged = archive.testzip()
    except ModelError:
        raise
    except Exception as error:  # as above
        raise _damaged(path, error) from error
    if damaged is not None:
        raise _damaged(path, f"the checksum of {damaged} is wrong")
    return True


def _damaged(path: Path, reason: object) -> DamagedFileError:
    text = (str(reason).strip() or type(reason).__name__).partition("\n")[0][:120]
    return DamagedFileError(f"`{path}` is truncated or damaged ({text}): download or save it again")


def _check_normaliser(kind: str, value: Tensor, source: str | Path, spec: ModelSpec | None) -> None:
    ours = None if spec is None else torch.tensor(spec.mean if kind == "mean" else spec.std)
    theirs = value.detach().float().flatten().cpu()
    if ours is not None and (theirs.shape != ours.shape or not torch.allclose(theirs, ours, atol=1e-4)):
        got, expected = ([round(number, 4) for number in values.tolist()] for values in (theirs, ours))
        raise ModelError(f"`{source}` normalises by the {kind} {got}, this model by {expected}: it is another model's file")


def _check_second_copy(tensors: Mapping[str, Tensor], name: str, source: str | Path) -> None:
    first = tensors.get("model." + name.removeprefix(SECOND_COPY))
    if first is None or not torch.equal(first, tensors[name]):
        raise ModelError(f"`{source}` has two different networks: {name!r} differs from the network's own tensor")


def _listed(names: Iterable[Any]) -> str:
    texts = [str(name) for name in names]
    return ", ".join(texts[:SHOWN]) + (f", and {len(texts) - SHOWN} more" if len(texts) > SHOWN else "")


def _shape(value: Tensor) -> str:
    return "×".join(map(str, value.shape)) or "a number"
