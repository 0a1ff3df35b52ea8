"""Pickles made into safetensors, for those who trust them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from scripted_server import Answer, Server
from torch import nn

from locality.errors import ArgumentError, DamagedFileError, ModelError, NeedsCodeError
from locality.zoo.convert import convert
from locality.zoo.load import load_model
from locality.zoo.model_card import ModelCard
from locality.zoo.state_dict import read_tensors, weights_hash

Write = Callable[..., Path]


class Record:
    """Something that only code can load."""

    def __init__(self, text: str) -> None:
        self.text = text


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest imports this file under a name that pickle does not find."""
    monkeypatch.setattr(Record, "__module__", "zoo_records")
    monkeypatch.setitem(sys.modules, "zoo_records", sys.modules[__name__])


def test_a_pickle_is_converted_once_it_is_trusted(write: Write, tmp_path: Path) -> None:
    net = nn.Linear(2, 3)
    path = write({"log": Record("x"), "model": net.state_dict()}, "old.pt")
    with pytest.raises(NeedsCodeError, match=r"can run any program .* only if you trust") as refused:
        convert(path)
    assert "zoo_records.Record" in refused.value.code
    assert [file.name for file in tmp_path.iterdir()] == ["old.pt"]
    made = convert(path, trust_pickle=True)
    assert made == tmp_path / "old.pt.safetensors"
    assert torch.equal(read_tensors(made)["weight"], net.weight)
    with safe_open(made, "pt") as file:
        assert file.metadata() == {"source": "old.pt", "source_sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    assert {file.name for file in tmp_path.iterdir()} == {"old.pt", made.name, f"{made.name}.sha256"}


def test_a_plain_checkpoint_needs_no_trust_and_tied_weights_are_kept(write: Write, tmp_path: Path) -> None:
    weight = torch.ones(2, 2)
    made = convert(write({"a": weight, "b": weight}), tmp_path / "new/a.safetensors")
    assert set(read_tensors(made)) == {"a", "b"}


def test_whole_networks_are_converted(write: Write) -> None:
    net = nn.Linear(2, 3)
    assert torch.equal(read_tensors(convert(write(net), trust_pickle=True))["bias"], net.bias)


def test_another_pickle_protocol_is_converted_once_it_is_trusted(write: Write) -> None:
    path = write({"state_dict": {"weight": torch.arange(3.0)}}, pickle_protocol=4)
    with pytest.raises(ModelError, match=r"can run any program .* only if you trust"):
        convert(path)
    assert torch.equal(read_tensors(convert(path, trust_pickle=True))["weight"], torch.arange(3.0))


def test_damage_is_not_a_matter_of_trust(write: Write, tmp_path: Path) -> None:
    """A path that happens to have the words of the other error in it."""
    path = write({"weight": torch.ones(9)}, "needs code to load.pth")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DamagedFileError, match="truncated or damaged"):
        convert(path, trust_pickle=True)


def test_a_package_that_is_missing_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write({"log": Record("x"), "model": {}})
    monkeypatch.delitem(sys.modules, "zoo_records")
    with pytest.raises(ModelError, match="`pip install zoo_records`"):
        convert(path, trust_pickle=True)


def test_what_cannot_be_converted(write: Write, tmp_path: Path) -> None:
    path = write({"weight": torch.ones(1)})
    with pytest.raises(ArgumentError, match=r"ends in .safetensors"):
        convert(path, tmp_path / "x.pth")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelError, match="truncated or damaged"):
        convert(path, trust_pickle=True)
    made = convert(write({"weight": torch.ones(1)}))
    with pytest.raises(ArgumentError, match="another file"):
        convert(made, made)
    assert not list(tmp_path.glob("*.part"))


def test_a_fetched_pickle_loads_once_it_is_converted(
    toy: ModelCard, server: Server, cache: Path, small_net: nn.Module, write: Write
) -> None:
    server.answers = [Answer(body=write({"log": Record("x"), "model": small_net.state_dict()}).read_bytes())]
    path = cache / "models/toy.pth"
    with pytest.raises(ModelError, match=f"`locality models convert {path} --trust-pickle`"):
        load_model("toy", download=True, trust_first_download=True)
    made = convert(path, trust_pickle=True)
    assert weights_hash(load_model("toy")) == weights_hash(small_net)
    made.write_bytes(made.read_bytes()[:-1])
    with pytest.raises(ModelError, match="that of its first use"):
        load_model("toy")
    assert len(server.asked) == 1
