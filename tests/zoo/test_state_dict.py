"""Checkpoint files of every kind: what is read, what is taken off, what is refused."""

from __future__ import annotations

import argparse
import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from locality.errors import DamagedFileError, ModelError, NeedsCodeError
from locality.types import ModelSpec
from locality.zoo.architectures import build
from locality.zoo.pixel_model import PixelModel
from locality.zoo.state_dict import class_counts, fill, fill_in_order, normaliser_in, read_tensors, unwrapped, weights_hash

Write = Callable[..., Path]
IMAGENET = ModelSpec("m")
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def net_of(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 5))


def filled(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def is_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return set(first) == set(second) and all(torch.equal(first[name], second[name]) for name in first)


def prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in tensors.items()}


# What published files look like: a name, and what they make of a state dict.
LAYOUTS: dict[str, Callable[[dict[str, Tensor]], object]] = {
    "plain": lambda tensors: tensors,
    "section": lambda tensors: {"epoch": 9, "state_dict": tensors},
    "section beside a tensor": lambda tensors: {"epoch": 3, "state_dict": tensors, "best_acc1": torch.tensor(71.2)},
    "timm training": lambda tensors: {"args": argparse.Namespace(lr=0.1), "state_dict": tensors, "state_dict_ema": None},
    "averaged only": lambda tensors: {"state_dict_ema": tensors},
    "plain before averaged": lambda tensors: {
        "state_dict": tensors,
        "state_dict_ema": {k: v * 0 for k, v in tensors.items()},
    },
    "DataParallel": lambda tensors: {"model": prefixed("module.", tensors)},
    "compiled": lambda tensors: prefixed("_orig_mod.", tensors),
    "normaliser": lambda tensors: {"state_dict": {"0.mean": MEAN, "0.std": STD} | prefixed("1.", tensors)},
    "parallel normaliser": lambda tensors: {"module.0.mean": MEAN, "module.0.std": STD} | prefixed("module.1.", tensors),
    "normaliser beside": lambda tensors: {"normalizer.mean": MEAN, "normalizer.std": STD} | tensors,
    "robustness": lambda tensors: {
        "epoch": 3,
        "model": {
            "module.normalizer.new_mean": MEAN.view(3, 1, 1),
            "module.normalizer.new_std": STD.view(3, 1, 1),
            **prefixed("module.model.", tensors),
            "module.attacker.normalize.new_mean": MEAN.view(3, 1, 1),
            "module.attacker.normalize.new_std": STD.view(3, 1, 1),
            **prefixed("module.attacker.model.", tensors),
        },
    },
    "no counters": lambda tensors: {k: v for k, v in tensors.items() if "num_batches_tracked" not in k},
}


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_published_layouts(layout: str, modern: bool, write: Write) -> None:
    source, net = net_of(1), net_of(2)
    path = write(LAYOUTS[layout](filled(source)), _use_new_zipfile_serialization=modern)
    fill(net, read_tensors(path), path, IMAGENET)
    assert is_same(filled(net), filled(source))


def test_safetensors_and_half_precision(tmp_path: Path) -> None:
    source, net = net_of(1).half(), net_of(2)
    save_file(filled(source), tmp_path / "a.weights")  # by what it is, not by its name
    fill(net, read_tensors(tmp_path / "a.weights"), "a")
    assert is_same(filled(net), filled(source.float()))


def test_a_wrapper_of_the_network_itself_stays(write: Write) -> None:
    """A network that has a part named `model`, and nothing else, is not unwrapped."""
    source, net = nn.Sequential(), nn.Sequential()
    source.add_module("model", nn.Linear(2, 2))
    net.add_module("model", nn.Linear(2, 2))
    fill(net, read_tensors(write(source.state_dict())), "file")
    assert is_same(filled(net), filled(source))


class Normalising(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.normalize = nn.Module()
        self.normalize.register_buffer("mean", torch.zeros(3))
        self.head = nn.Linear(3, 2)


def test_a_normaliser_of_the_network_itself_is_loaded() -> None:
    source, net = Normalising(), Normalising()
    source.normalize.get_buffer("mean").add_(0.3)
    fill(net, filled(source), "file", IMAGENET)
    assert is_same(filled(net), filled(source))


def test_a_normaliser_that_the_network_does_not_save_must_be_the_files() -> None:
    net = Normalising()
    net.normalize.register_buffer("mean", torch.full((3,), 0.5), persistent=False)
    head = filled(net.head)
    fill(net, prefixed("head.", head) | {"normalize.mean": torch.full((3,), 0.5)}, "file", IMAGENET)
    with pytest.raises(ModelError, match=r"1 unexpected: normalize.mean"):
        fill(net, prefixed("head.", head) | {"normalize.mean": torch.full((3,), 0.4)}, "file", IMAGENET)


def test_tensors_that_do_not_fit_are_listed() -> None:
    tensors, net = filled(net_of(1)), net_of(2)
    before = filled(net)
    tensors["4.extra"] = tensors.pop("3.bias")
    tensors["0.weight"] = tensors["0.weight"][:, :2]
    with pytest.raises(ModelError) as caught:
        fill(net, tensors, "file.pth")
    for part in ("`file.pth`", "1 missing: 3.bias", "1 unexpected: 4.extra", "0.weight (4×2×3×3, the network has 4×3×3×3)"):
        assert part in str(caught.value)
    assert is_same(filled(net), before)


def test_another_architecture_altogether() -> None:
    with pytest.raises(ModelError, match=r"no tensor in common; the file has weight, bias, the network 0.weight"):
        fill(net_of(), filled(nn.Linear(2, 2)), "file")


def test_many_names_are_cut() -> None:
    tensors = filled(net_of()) | {f"x{number}": torch.ones(1) for number in range(30)}
    with pytest.raises(ModelError, match=r"30 unexpected: x0, .*x9, and 20 more"):
        fill(net_of(), tensors, "file")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_is_refused(bad: float) -> None:
    tensors, net = filled(net_of(1)), net_of(2)
    before = filled(net)
    tensors["1.running_var"][2] = bad
    with pytest.raises(ModelError, match=r"nan or inf in 1 of 9 tensors \(1.running_var\)"):
        fill(net, tensors, "file")
    assert is_same(filled(net), before)
    with pytest.raises(ModelError, match="nan or inf"):
        fill_in_order(net, tensors, "file")


def test_another_normaliser_is_refused() -> None:
    tensors = prefixed("1.", filled(net_of())) | {"0.mean": torch.tensor([0.5, 0.5, 0.5]), "0.std": STD}
    with pytest.raises(ModelError, match=r"normalises by the mean \[0.5, 0.5, 0.5\], this model by \[0.485"):
        fill(net_of(), tensors, "file", IMAGENET)
    assert normaliser_in(tensors) == {"mean": (0.5, 0.5, 0.5), "std": tuple(STD.tolist())}
    with pytest.raises(ModelError, match="normalises by the std"):
        fill(net_of(), tensors | {"0.mean": MEAN, "0.std": MEAN}, "file", IMAGENET)


def test_a_second_network_that_differs_is_refused() -> None:
    tensors = prefixed("model.", filled(net_of(1))) | prefixed("attacker.model.", filled(net_of(2)))
    with pytest.raises(ModelError, match="has two different networks"):
        fill(net_of(), tensors, "file")


class WithIndex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)
        self.register_buffer("index", torch.arange(4), persistent=False)


def test_buffers_that_the_network_computes_must_be_the_same() -> None:
    source = WithIndex()
    fill(WithIndex(), filled(source) | {"index": torch.arange(4)}, "file")
    with pytest.raises(ModelError, match="1 unexpected: index"):
        fill(WithIndex(), filled(source) | {"index": torch.arange(4).flip(0)}, "file")


def test_in_order_needs_the_same_kinds_and_shapes() -> None:
    source, net = net_of(1), net_of(2)
    tensors = {f"layer.{number}.{name}": value for number, (name, value) in enumerate(filled(source).items())}
    fill_in_order(net, tensors, "file")
    assert is_same(filled(net), filled(source))
    names = list(tensors)
    swapped = {names[1]: tensors[names[1]], names[0]: tensors[names[0]]} | tensors
    with pytest.raises(ModelError, match=r"the first is 'layer.1.0.bias', which should be '0.weight'"):
        fill_in_order(net, swapped, "file")
    same_shapes = {name.replace("running_mean", "running_var"): value for name, value in tensors.items()}
    with pytest.raises(ModelError, match=r"1 of another kind or shape, the first is 'layer.4.1.running_var'"):
        fill_in_order(net, same_shapes, "file")
    with pytest.raises(ModelError, match="8 tensors instead of 9"):
        fill_in_order(net, {name: tensors[name] for name in names[:-1]}, "file")
    with pytest.raises(ModelError, match=r"1 of another kind or shape, the first is 'layer.0.0.weight'"):
        fill_in_order(net, tensors | {names[0]: torch.ones(1)}, "file")


def test_class_counts() -> None:
    net, other = build("net:shapes_cnn", 10), build("net:shapes_cnn", 7)
    assert class_counts(net, filled(other)) == (10, 7)
    assert class_counts(net, filled(net)) is None
    assert class_counts(net, filled(other) | {"0.0.weight": torch.ones(1)}) is None
    assert class_counts(net, filled(net) | {"6.weight": torch.ones(10, 3)}) is None  # other features, not other classes


def test_unwrapping_ends() -> None:
    assert unwrapped({}, ["weight"], "file") == {}
    assert set(unwrapped({"module.a": torch.ones(1), "b": torch.ones(1)}, ["weight"], "file")) == {"module.a", "b"}


@pytest.mark.parametrize("modern", [True, False])
def test_truncated_files(modern: bool, write: Write) -> None:
    path = write(filled(net_of()), _use_new_zipfile_serialization=modern)
    whole = path.read_bytes()
    for size in (0, 1, 10, 300, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        # Without a zip's checksums, a name that was cut in half looks like code that nobody knows.
        with pytest.raises(DamagedFileError if modern else (DamagedFileError, NeedsCodeError)):
            read_tensors(path)


@pytest.mark.parametrize("protocol", [1, 4, 5])
def test_a_whole_file_of_another_pickle_protocol_is_not_called_damaged(protocol: int, write: Write) -> None:
    path = write(filled(net_of()), pickle_protocol=protocol)
    with pytest.raises(NeedsCodeError, match=r"needs code to load \(a pickle that .* --trust-pickle`"):
        read_tensors(path)


def test_damaged_numbers_are_noticed(write: Write) -> None:
    """torch itself reads them without a word."""
    net = net_of()
    path = write(net.state_dict())
    whole, number = path.read_bytes(), net.state_dict()["0.weight"].numpy().tobytes()
    place = whole.index(number)
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert not torch.equal(torch.load(path, weights_only=True)["0.weight"], net.state_dict()["0.weight"])
    with pytest.raises(ModelError, match=r"truncated or damaged \(the checksum of .*/data/0 is wrong"):
        read_tensors(path)


def test_truncated_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file(filled(net_of()), path)
    whole = path.read_bytes()
    for size in (4, 20, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match="truncated or damaged"):
            read_tensors(path)


class Program:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("modern", [True, False])
def test_a_pickle_that_needs_code_is_refused_and_not_run(modern: bool, write: Write, tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    path = write({"x": Program(mark), "state_dict": filled(net_of())}, _use_new_zipfile_serialization=modern)
    with pytest.raises(NeedsCodeError) as caught:
        read_tensors(path)
    assert not mark.exists()
    for part in ("needs code to load (posix.mkdir)", "not executed", f"`locality models convert {path} --trust-pickle`"):
        assert part in str(caught.value)


def test_whole_networks_are_refused(write: Write) -> None:
    with pytest.raises(ModelError, match=r"needs code to load \(torch.nn.modules.container.Sequential\)"):
        read_tensors(write(net_of()))


@pytest.mark.parametrize(("content", "words"), [({"epoch": 1}, "got the keys epoch"), ([1, 2], "got list")])
def test_files_without_tensors(content: object, words: str, write: Write) -> None:
    with pytest.raises(ModelError, match=words):
        read_tensors(write(content))


def test_other_files(tmp_path: Path) -> None:
    page, text = tmp_path / "page.pth", tmp_path / "text.pth"
    page.write_text("\n<!doctype html>\n<title>Not found</title>")
    text.write_text("these are no weights")
    with pytest.raises(ModelError, match="is an HTML page"):
        read_tensors(page)
    with pytest.raises(ModelError, match="truncated or damaged"):
        read_tensors(text)
    with pytest.raises(ModelError, match="is not a file"):
        read_tensors(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
def test_torchscript_is_named(tmp_path: Path) -> None:
    torch.jit.script(nn.Sequential(nn.Linear(2, 2))).save(tmp_path / "script.pt")
    with pytest.raises(ModelError, match="TorchScript"):
        read_tensors(tmp_path / "script.pt")


def test_weights_hash() -> None:
    net = net_of(1)
    first = weights_hash(net)
    assert first == weights_hash(net_of(1)) == weights_hash(PixelModel(net, IMAGENET))
    turned = net_of(1)
    weight = turned.get_parameter("0.weight")
    weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    assert weights_hash(turned) == first
    backwards = nn.Sequential(OrderedDict(reversed(list(net.named_children()))))
    assert list(backwards.state_dict()) != list(net.state_dict())
    assert weights_hash(backwards) == first
    with torch.no_grad():
        net[1].running_mean[0] += 1e-6  # type: ignore[index]
    assert weights_hash(net) != first
    assert weights_hash(net_of(1).half()) != first
    assert weights_hash(net_of(1).bfloat16()) != first


def test_weights_hash_knows_names_and_shapes() -> None:
    one, other = nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False)
    other.weight = nn.Parameter(one.weight.detach().reshape(2, 3))
    assert weights_hash(one) != weights_hash(other)
    assert weights_hash(one) != weights_hash(nn.Sequential(one))
