"""Hostile checkpoints, cards and lists of classes."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hostile_file import CANARY, Hostile, folder, holding, link_to, pipe
from torch import nn

from locality.zoo.nets.convolutional import shapes_cnn

EVAL = "eval --data shapes --limit 1 --methods SM --search fast"
MODEL = f"{EVAL} --model {{file}} --arch net:shapes_cnn --num-classes 10"
CARD = f"{EVAL} --model {{folder}}/net.safetensors"
CLASSES = f"{EVAL} --model shapes_cnn --classes {{file}}"
CONVERT = "models convert {file} --out {folder}/out.safetensors"


class Runs:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path.parent / CANARY}",)


def weights() -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in shapes_cnn(10).state_dict().items()}


def saved(change: Callable[[dict[str, Any]], object], modern: bool = True) -> Callable[[Path], object]:
    """A checkpoint whose content was changed first."""

    def make(path: Path) -> None:
        content: dict[str, Any] = weights()
        change(content)
        torch.save(content, path, _use_new_zipfile_serialization=modern)

    return make


def running(modern: bool = True, deep: bool = False) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        payload: Any = Runs(path)
        content = {"state_dict": weights() | {"x": [{"y": payload}] if deep else payload}}
        torch.save(content, path, _use_new_zipfile_serialization=modern)

    return make


def laughing(path: Path) -> None:
    """A pickle of ten lists, each of ten times the one before: 10^10 entries if written out."""
    value: list[Any] = ["ha"]
    for _ in range(10):
        value = [value] * 10
    path.write_bytes(pickle.dumps(value))


def rezipped(change: Callable[[zipfile.ZipFile, str, bytes], object], more: dict[str, bytes] | None = None) -> Any:
    """A checkpoint whose zip was written again."""

    def make(path: Path) -> None:
        buffer = io.BytesIO()
        torch.save(weights(), buffer)
        with zipfile.ZipFile(buffer) as before, zipfile.ZipFile(path, "w") as after:
            for entry in before.namelist():
                change(after, entry, before.read(entry))
            for name, data in (more or {}).items():
                after.writestr(name, data)

    return make


def plain(after: zipfile.ZipFile, entry: str, data: bytes) -> None:
    after.writestr(entry, data)


def bomb(after: zipfile.ZipFile, entry: str, data: bytes) -> None:
    content = bytes(5_000_000) if "/data/" in entry else data
    after.writestr(entry, content, compress_type=zipfile.ZIP_DEFLATED)


def safetensors(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def tensor(dtype: str = "F32", shape: tuple[int, ...] = (1,), offsets: tuple[int, int] = (0, 4)) -> dict[str, Any]:
    return {"0.0.weight": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def truncated(path: Path) -> None:
    saved(lambda content: None)(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def torchscript(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(nn.Sequential(nn.Linear(2, 2))).save(str(path))


def carded(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """A card, beside weights that are good."""

    def both(path: Path) -> None:
        from safetensors.torch import save_file

        save_file(weights(), path.with_suffix(".safetensors"))
        make(path)

    return both


def card(**spec: Any) -> str:
    good = {
        "input_size": [64, 64],
        "resize": 64,
        "mean": [0.5] * 3,
        "std": [0.25] * 3,
        "classes": [str(n) for n in range(10)],
    }
    return json.dumps({"spec": good | spec, "architecture": "net:shapes_cnn", "data": "shapes"})


def nan(content: dict[str, Any]) -> None:
    content["0.0.weight"][0, 0, 0, 0] = torch.nan


PTH, SAFE, JSON = "hostile.pth", "hostile.safetensors", "net.json"
HTML = "<!DOCTYPE html><title>Please log in</title>"

MODELS: dict[str, Hostile] = {
    "a checkpoint that runs a command": Hostile(MODEL, running(), PTH, "--trust-pickle"),
    "one deep inside": Hostile(MODEL, running(deep=True), PTH),
    "one of the old format": Hostile(MODEL, running(modern=False), PTH),
    "one to convert": Hostile(CONVERT, running(), PTH),
    "a bare pickle that runs a command": Hostile(MODEL, lambda path: path.write_bytes(pickle.dumps(Runs(path))), PTH),
    "a pickle of 10^10 entries": Hostile(MODEL, laughing, PTH),
    "a whole network": Hostile(MODEL, lambda path: torch.save(nn.Linear(2, 2), path), PTH),
    "torchscript": Hostile(MODEL, torchscript, PTH),
    "a zip bomb": Hostile(MODEL, rezipped(bomb), PTH),
    "a zip that climbs": Hostile(MODEL, rezipped(plain, {"../../evil": b"x"}), PTH),
    "a zip of 20,000 entries": Hostile(
        MODEL, rezipped(plain, {f"archive/more/{n}": b"" for n in range(20_000)}), PTH, code=0
    ),
    "half a checkpoint": Hostile(MODEL, truncated, PTH, "truncated or damaged"),
    "an empty checkpoint": Hostile(MODEL, holding(b""), PTH),
    "noise as a checkpoint": Hostile(MODEL, holding(b"\x80\x02" + bytes(range(256)) * 40), PTH),
    "a page as a checkpoint": Hostile(MODEL, holding(HTML), PTH),
    "a pipe as a checkpoint": Hostile(MODEL, pipe, PTH),
    "a folder as a checkpoint": Hostile(MODEL, folder, PTH),
    "an endless device as a checkpoint": Hostile(MODEL, link_to("/dev/zero"), PTH),
    "a link in a circle as a checkpoint": Hostile(MODEL, link_to(PTH), PTH),
    "weights of nan": Hostile(MODEL, saved(nan), PTH),
    "sparse weights": Hostile(MODEL, saved(lambda w: w.update({"6.weight": w["6.weight"].to_sparse()})), PTH),
    "complex weights": Hostile(MODEL, saved(lambda w: w.update({"6.weight": w["6.weight"] + 1j})), PTH),
    "weights of eight bits": Hostile(
        MODEL, saved(lambda w: w.update({"6.weight": w["6.weight"].to(torch.float8_e4m3fn)})), PTH
    ),
    "weights without bytes": Hostile(
        MODEL, saved(lambda w: w.update({"6.weight": torch.empty(10, 384, device="meta")})), PTH
    ),
    "a tensor that repeats one number 10^12 times": Hostile(
        MODEL, saved(lambda w: w.update({"6.weight": torch.zeros(1).expand(10**6, 10**6)})), PTH
    ),
    "names that move the cursor": Hostile(MODEL, saved(lambda w: w.update({"\x1b[2J\x07evil\n": torch.zeros(1)})), PTH),
    "noise as safetensors": Hostile(MODEL, holding(bytes(range(256)) * 40), SAFE),
    "an empty safetensors file": Hostile(MODEL, holding(b""), SAFE),
    "a header of 2^63 bytes": Hostile(MODEL, holding(safetensors({}, length=2**63)), SAFE),
    "a header beyond the end": Hostile(MODEL, holding(safetensors({}, length=10**6)), SAFE),
    "a header that is no JSON": Hostile(MODEL, holding(safetensors(b"{not json}")), SAFE),
    "a header nested 100,000 deep": Hostile(MODEL, holding(safetensors(b'{"a":' * 100_000)), SAFE),
    "a header that is a list": Hostile(MODEL, holding(safetensors([1, 2])), SAFE),
    "offsets beyond the end": Hostile(MODEL, holding(safetensors(tensor(offsets=(0, 400)), bytes(4))), SAFE),
    "offsets in the wrong order": Hostile(MODEL, holding(safetensors(tensor(offsets=(4, 0)), bytes(4))), SAFE),
    "overlapping tensors": Hostile(MODEL, holding(safetensors(tensor() | {"b": tensor()["0.0.weight"]}, bytes(4))), SAFE),
    "a shape that overflows": Hostile(MODEL, holding(safetensors(tensor(shape=(2**62, 2**62)), bytes(4))), SAFE),
    "a negative shape": Hostile(MODEL, holding(safetensors(tensor(shape=(-1,)), bytes(4))), SAFE),
    "an unknown type": Hostile(MODEL, holding(safetensors(tensor("F99"), bytes(4))), SAFE),
    "a pipe as safetensors": Hostile(MODEL, pipe, SAFE),
    "a card nested 100,000 deep": Hostile(CARD, carded(holding("[" * 100_000)), JSON),
    "a card of two million bytes": Hostile(CARD, carded(holding('{"spec": "' + "x" * 2_000_000 + '"}')), JSON),
    "a card that is a list": Hostile(CARD, carded(holding("[1, 2]")), JSON),
    "a card of noise": Hostile(CARD, carded(holding(bytes(range(256)))), JSON),
    "a pipe as a card": Hostile(CARD, carded(pipe), JSON),
    "a card with a size of 10^9": Hostile(CARD, carded(holding(card(input_size=[10**9, 10**9]))), JSON),
    "a card with a negative size": Hostile(CARD, carded(holding(card(input_size=[-64, 64]))), JSON),
    "a card with a mean of nan": Hostile(CARD, carded(holding(card(mean=[float("nan")] * 3))), JSON),
    "a card with a std of 0": Hostile(CARD, carded(holding(card(std=[0, 0, 0]))), JSON),
    "a card with texts for numbers": Hostile(CARD, carded(holding(card(resize="big"))), JSON),
    "a card with a function for a network": Hostile(
        CARD, carded(holding(card().replace("net:shapes_cnn", "os:system"))), JSON
    ),
    "a pipe as classes": Hostile(CLASSES, pipe),
    "noise as classes": Hostile(CLASSES, holding(bytes(range(256)) * 10)),
    "classes that move the cursor": Hostile(CLASSES, holding("\n".join(f"\x1b[2J{n}" for n in range(9)))),
    "an endless device as classes": Hostile(CLASSES, link_to("/dev/zero")),
}
