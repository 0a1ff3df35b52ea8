"""Checkpoints that are bombs, or hold tensors of unusual kinds: one sentence each, before they are unpacked or used."""

from __future__ import annotations

import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from locality.errors import ModelError
from locality.zoo import tensor_limits
from locality.zoo.convert import convert
from locality.zoo.state_dict import read_tensors

Write = Callable[..., Path]
UNUSUAL: dict[str, Callable[[], torch.Tensor]] = {
    "float8_e4m3fn": lambda: torch.ones(4).to(torch.float8_e4m3fn),
    "sparse": lambda: torch.eye(4).to_sparse(),
    "meta": lambda: torch.ones(4, device="meta"),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
    "bool": lambda: torch.ones(4, dtype=torch.bool),
    "complex64": lambda: torch.ones(4, dtype=torch.complex64),
    "expanded": lambda: torch.ones(1).expand(10**12),
}


@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor.*", "ignore:.*Sparse.*", "ignore:.*deprecated.*")
@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_tensors_are_named(kind: str, write: Write) -> None:
    path = write({"state_dict": {"fine": torch.ones(2), "odd": UNUSUAL[kind]()}})
    for read in (read_tensors, convert):
        with pytest.raises(ModelError, match=f"{kind}.* 'odd', which is not loaded") as caught:
            read(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "bool"])
def test_unusual_tensors_of_safetensors_are_named(kind: str, tmp_path: Path) -> None:
    save_file({"odd": UNUSUAL[kind]()}, tmp_path / "a.safetensors")
    with pytest.raises(ModelError, match=f"{kind} 'odd'"):
        read_tensors(tmp_path / "a.safetensors")


def test_a_compressed_zip_is_refused_before_it_is_unpacked(write: Write, tmp_path: Path) -> None:
    plain = write({"state_dict": {"weight": torch.zeros(8_000_000)}})
    bomb = tmp_path / "bomb.pth"
    with zipfile.ZipFile(plain) as archive, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as smaller:
        for entry in archive.infolist():
            smaller.writestr(entry.filename, archive.read(entry))
    assert bomb.stat().st_size < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match="compressed zip"):
            read_tensors(bomb)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_more_bytes_than_the_limit(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.ones(1000)
    path = write({"state_dict": {str(index): weight for index in range(100)}})  # one storage under many names
    assert len(read_tensors(path)) == 100
    monkeypatch.setattr(tensor_limits, "MAX_BYTES", 300_000)
    with pytest.raises(ModelError, match="tensors of 400,000 bytes, at most 300,000"):
        read_tensors(path)
    monkeypatch.setattr(tensor_limits, "MAX_BYTES", 1_000)
    with pytest.raises(ModelError, match="at most 1,000 are read"):
        read_tensors(path)
