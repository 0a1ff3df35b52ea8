"""Networks by name, and published tensors under today's names."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from locality.errors import ArgumentError, ModelError
from locality.types import ModelSpec
from locality.zoo.architectures import build, class_names, input_of, of_function, renamed
from locality.zoo.state_dict import fill, weights_hash


def test_the_seed_decides_and_the_callers_random_state_stays() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build("net:tiny_resnet", 10, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert weights_hash(build("net:tiny_resnet", 10, seed=3)) == weights_hash(first)
    assert weights_hash(build("net:tiny_resnet", 10, seed=4)) != weights_hash(first)


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("timm:resnet5", "did you mean 'timm:resnet50'"),
        ("torchvision:resnet5", "torchvision has no classifier `resnet5`: did you mean 'resnet50'"),
        ("net:shapes", "choose net:shapes_cnn"),
        ("resnet18", "write torchvision:resnet18 or timm:resnet18, whichever the checkpoint is of"),
        ("efficientnet_lite0", "write timm:efficientnet_lite0, whichever"),
        ("tiny_vgg", "did you mean 'net:tiny_vgg'?"),
        ("timm:", "`arch` must be timm:NAME"),
        ("timm:", "a model of the catalog, got 'timm:'"),
    ],
)
def test_unknown_architectures(architecture: str, words: str) -> None:
    with pytest.raises((ModelError, ArgumentError), match=re.escape(words)):
        build(architecture, 10)


def test_inputs_are_the_publishers() -> None:
    net = torch.nn.Identity()
    assert input_of("torchvision:inception_v3", net, "x") == ModelSpec("x", (299, 299), 342, "bilinear")
    with torch.device("meta"):
        vit = build("timm:vit_base_patch16_224", 1000)
    half = (0.5, 0.5, 0.5)
    assert input_of("timm:vit_base_patch16_224", vit, "x") == ModelSpec("x", (224, 224), 248, "bicubic", half, half)
    assert input_of("net:tiny_vit", net, "x").input_size == (64, 64)


def test_class_names() -> None:
    assert class_names(1000)[999] == "n15075141"
    assert class_names(999) == ()


def reference_cifar_resnet50(tensors: dict[str, Tensor], images: Tensor) -> Tensor:
    """ResNet-50 for CIFAR-10 written down from the names in MadryLab's files."""

    def norm(name: str, features: Tensor) -> Tensor:
        mean, variance = tensors[f"{name}.running_mean"], tensors[f"{name}.running_var"]
        return F.batch_norm(features, mean, variance, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    out = F.relu(norm("bn1", F.conv2d(images, tensors["conv1.weight"], padding=1)))
    for layer, blocks in enumerate([3, 4, 6, 3], 1):
        for block in range(blocks):
            at, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            inner = F.relu(norm(f"{at}.bn1", F.conv2d(out, tensors[f"{at}.conv1.weight"])))
            inner = F.relu(norm(f"{at}.bn2", F.conv2d(inner, tensors[f"{at}.conv2.weight"], stride=stride, padding=1)))
            inner = norm(f"{at}.bn3", F.conv2d(inner, tensors[f"{at}.conv3.weight"]))
            if block == 0:
                out = norm(f"{at}.shortcut.1", F.conv2d(out, tensors[f"{at}.shortcut.0.weight"], stride=stride))
            out = F.relu(inner + out)
    return F.linear(F.avg_pool2d(out, 4).flatten(1), tensors["linear.weight"], tensors["linear.bias"])


def test_cifar_resnet50_is_the_published_network() -> None:
    net = build("net:cifar_resnet50", 10).eval()
    generator = torch.Generator().manual_seed(0)
    # Under the published names, and with statistics that are not the trivial ones.
    tensors = {}
    for name, value in net.state_dict().items():
        if value.dim() == 1:
            value = value + torch.rand(value.shape, generator=generator) / 2
        tensors[name.replace("downsample", "shortcut").replace("fc.", "linear.")] = value
    fill(net, tensors, "file", None, lambda found: renamed("net:cifar_resnet50", found))
    images = torch.rand(2, 3, 32, 32, generator=generator)
    with torch.no_grad():
        expected = reference_cifar_resnet50(tensors, images)
        torch.testing.assert_close(net(images), expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 1e-3


def test_torchvisions_vgg_fits_timms() -> None:
    with torch.device("meta"):
        theirs, ours = build("torchvision:vgg16", 1000).state_dict(), build("timm:vgg16", 1000).state_dict()
    found = renamed("timm:vgg16", dict(theirs))
    assert {name: value.shape for name, value in found.items()} == {name: value.shape for name, value in ours.items()}
    assert renamed("timm:vgg16", dict(ours)).keys() == ours.keys()


def test_torchvisions_vgg_keeps_its_numbers() -> None:
    weight = torch.arange(2 * 512 * 49, dtype=torch.float32).view(2, -1)
    features = torch.rand(1, 512, 7, 7)
    kernel = renamed("timm:vgg16", {"classifier.0.weight": weight})["pre_logits.fc1.weight"]
    torch.testing.assert_close(F.conv2d(features, kernel).flatten(1), F.linear(features.flatten(1), weight))


def test_old_swin_checkpoints_fit() -> None:
    """Before 0.9, timm saved computed buffers, and put the reductions at the end of their stages."""
    architecture = "timm:swin_tiny_patch4_window7_224"
    with torch.device("meta"):
        net = build(architecture, 10)
    ours = net.state_dict()
    old = {}
    for name, value in ours.items():
        stage = re.match(r"layers\.(\d)\.downsample", name)
        if stage:
            name = name.replace(stage[0], f"layers.{int(stage[1]) - 1}.downsample")
        old[name.replace("head.fc.", "head.")] = value
    assert "layers.0.downsample.norm.weight" in old
    assert all(renamed(architecture, old)[name] is value for name, value in ours.items())
    computed = {"layers.0.blocks.1.attn_mask", "layers.0.blocks.0.attn.relative_position_index"}
    assert computed <= dict(net.named_buffers()).keys()  # so that `fill` compares them
    assert renamed(architecture, dict(ours)) == ours


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "zoo_test_module.py").write_text(
        "from torch import nn\nnumber = 3\n"
        "def net(num_classes=4):\n    return nn.Sequential(nn.Flatten(), nn.Linear(12, num_classes))\n"
        "def broken():\n    raise KeyError('weights')\n"
        "def leaves():\n    raise SystemExit(3)\n"
        "def text():\n    return 'a network'\n"
    )
    (tmp_path / "zoo_test_broken.py").write_text("import a_module_that_nobody_has\n")
    (tmp_path / "zoo_test_syntax.py").write_text("def f(:\n")
    (tmp_path / "zoo_test_import.py").write_text("from torch import nothing_there\n")
    (tmp_path / "zoo_test_raises.py").write_text("raise RuntimeError('one\\ntwo')\n")
    (tmp_path / "zoo_test_leaves.py").write_text("import sys\nsys.exit('bye')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_functions_of_the_current_folder(own_module: Path) -> None:
    before = list(sys.path)
    assert of_function("zoo_test_module:net", None)[1].out_features == 4  # type: ignore[index]
    assert of_function("zoo_test_module:net", 7)[1].out_features == 7  # type: ignore[index]
    assert sys.path == before


def test_a_folder_that_is_on_the_path_already_keeps_its_place(own_module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(own_module), *sys.path])
    before = list(sys.path)
    of_function("zoo_test_module:net", None)
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("zoo_test_module:nte", "has no function 'nte': did you mean 'net'?"),
        ("zoo_test_module:number", "has no function 'number'"),
        ("zoo_test_module:broken", "`zoo_test_module:broken` failed: KeyError: 'weights'"),
        ("zoo_test_module:leaves", "`zoo_test_module:leaves` failed: SystemExit: 3"),
        ("zoo_test_syntax:f", "importing zoo_test_syntax failed: SyntaxError: invalid syntax (zoo_test_syntax.py, line 1)"),
        ("zoo_test_import:f", "importing zoo_test_import failed: ImportError: cannot import name 'nothing_there'"),
        ("zoo_test_raises:f", "importing zoo_test_raises failed: RuntimeError: one: correct the file"),
        ("zoo_test_leaves:f", "importing zoo_test_leaves failed: SystemExit: bye"),
        ("zoo_test_module:text", "must return an nn.Module, got str"),
        ("zoo_test_nothing.at_all:f", "there is no module 'zoo_test_nothing': install it"),
        ("zoo_test_broken:f", "importing zoo_test_broken failed: No module named 'a_module_that_nobody_has'"),
    ],
)
def test_functions_that_give_no_network(own_module: Path, name: str, words: str) -> None:
    before = list(sys.path)
    with pytest.raises(ModelError, match=re.escape(words)) as caught:
        of_function(name, None)
    assert "\n" not in str(caught.value)
    assert sys.path == before
