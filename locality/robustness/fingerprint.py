"""What a model is known by: its weights, the settings and the source of its layers, its hooks, and what it computes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from locality.model_calls import model_device, open_model

# The version of these packages is recorded, so that their source is not read.
VERSIONED = ("torch", "builtins", "numpy")
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
DEPTH = 6  # of lists and objects inside an attribute
DIGITS = 3  # of probe logits: other processors round differently
ROUNDING = 0.01  # that probe logits may differ by on another machine
LOGITS = 8  # per probe image


def model_fingerprint(model: nn.Module) -> str:
    """The sha256 of a model: parameters, buffers, layers as printed, their plain attributes, hooks, and source.

    The source is that of the layers' methods and of the files they are in, because two classes with the same name and
    weights may compute different things. That of torch's own classes is not included: its version is recorded.

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
    for text in _settings(model):
        digest.update(text.encode())
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def probe_logits(model: nn.Module, size: tuple[int, int]) -> tuple[float, ...]:
    """The largest logit for fixed images of that size and some others as shares of it, rounded.

    The tuple is empty where the model fails or answers twice differently.

    They show a change in code that no source of a layer shows, such as that of a function in another file.
    """
    images = probe_images(size).to(model_device(model) or "cpu")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums over another number of threads round differently
    try:
        with warnings.catch_warnings(), open_model(model, images) as calls:
            warnings.simplefilter("ignore")  # measuring gives them
            first, second = calls.logits(images).cpu(), calls.logits(images).cpu()
    except Exception:  # of a user's model; measuring it will say why
        return ()
    finally:
        torch.set_num_threads(threads)
    if not torch.equal(first, second):
        return ()
    scale = first.abs().amax().item() or 1.0
    shares = [round(value / scale, DIGITS) + 0.0 for value in first[:, :LOGITS].flatten().tolist()]  # + 0: no −0
    return (float(f"{scale:.{DIGITS}g}"), *shares)


def same_logits(planned: tuple[float, ...], here: tuple[float, ...]) -> bool:
    """Whether two probes agree up to rounding on another machine; one that is empty says nothing."""
    if not planned or not here:
        return True
    return len(planned) == len(here) and np.allclose(planned, here, rtol=ROUNDING, atol=ROUNDING)


def probe_images(size: tuple[int, int]) -> Tensor:
    """A smooth and a noisy image, the same for every model."""
    height, width = size
    rows, columns = torch.linspace(0, 1, height)[:, None], torch.linspace(0, 1, width)[None]
    smooth = torch.stack([rows.expand(height, width), columns.expand(height, width), (rows + columns) / 2])
    noise = np.random.default_rng(0).random((3, height, width), dtype=np.float32)
    return torch.stack([smooth, torch.from_numpy(noise)])


def tensor_bytes(tensor: Tensor) -> bytes:
    """The numbers of a tensor as bytes."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()  # numpy has no bfloat16


def module_source(name: str) -> str:
    """The sha256 of the file of an imported module; empty for versioned packages and for what has no file."""
    if name.partition(".")[0] in VERSIONED:
        return ""
    path = getattr(sys.modules.get(name), "__file__", None)
    try:
        status = Path(path or "").stat()
        return _file_source(str(path), status.st_size, status.st_mtime_ns)
    except OSError:
        return ""


@functools.lru_cache(maxsize=1_000)
def _file_source(path: str, size: int, changed: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _source(kind: type) -> str:
    """The source of a class's own methods, each looked up by its line (a name may be another class's), and of its file."""
    if kind.__module__.partition(".")[0] in VERSIONED:
        return ""
    try:
        methods = "".join(inspect.getsource(method) for method in vars(kind).values() if inspect.isfunction(method))
    except (OSError, TypeError):
        methods = ""  # typed at a prompt
    return methods + module_source(kind.__module__)


def _settings(model: nn.Module) -> Iterator[str]:
    """The plain attributes and the hooks of every layer."""
    own = vars(nn.Module()).keys()
    for name, part in model.named_modules():
        for key, value in sorted(vars(part).items()):
            if key not in own:
                yield f"{name}.{key}={_text(value)};"
        for kind in HOOKS:
            for hook in getattr(part, kind, {}).values():
                yield f"{name}.{kind}={_text(hook)};"


def _text(value: Any, depth: int = DEPTH) -> str:
    """A value as a text that is the same in every process."""
    if isinstance(value, str | bytes | int | float | complex | None | torch.dtype | torch.device):
        return repr(value)
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(tensor_bytes(value)).hexdigest()}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, nn.Module) or depth == 0:  # a module is visited by itself
        return type(value).__qualname__
    if isinstance(value, functools.partial):
        return _joined((value.func, value.args, value.keywords), depth)
    if isinstance(value, types.MethodType):
        return _joined((value.__func__, value.__self__), depth)
    if isinstance(value, types.FunctionType):
        closure = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        return f"{value.__module__}.{value.__qualname__}{_function_source(value)}{_joined(closure, depth)}"
    if isinstance(value, dict):
        return _joined((part for pair in value.items() for part in pair), depth)
    if isinstance(value, set | frozenset):
        return _joined(sorted(_text(one, depth - 1) for one in value), depth)
    if isinstance(value, list | tuple):
        return _joined(value, depth)
    if isinstance(value, type | types.BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    kind = type(value)
    if dataclasses.is_dataclass(value):
        fields = (getattr(value, field.name) for field in dataclasses.fields(value))
        return kind.__qualname__ + _joined(fields, depth)
    return f"{kind.__module__}.{kind.__qualname__}{_joined(getattr(value, '__dict__', {}).items(), depth)}"


def _joined(values: Iterable[Any], depth: int) -> str:
    return "(" + ",".join(_text(value, depth - 1) for value in values) + ")"


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _function_source(function: types.FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return hashlib.sha256(function.__code__.co_code).hexdigest()
