"""`robustbench:NAME` against a stand-in for the package, which pins another timm and so cannot be installed beside ours."""

import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from locality.errors import MissingWeightsError, ModelError
from locality.imagenet_classes import imagenet_wnids
from locality.zoo.catalog import CIFAR10
from locality.zoo.load import load_model


class Dataset(Enum):
    cifar_10 = "cifar10"
    imagenet = "imagenet"


class Threat(Enum):
    linf = "Linf"
    l2 = "L2"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """The documented API of robustbench 1.1: `model_zoo.model_dicts`, `utils.load_model`; returns the calls of that."""
    calls: list[dict[str, Any]] = []

    def load(model_name: str, model_dir: str, dataset: str, threat_model: str) -> nn.Module:
        calls.append({"name": model_name, "data": dataset, "threat": threat_model})
        folder = Path(model_dir) / dataset / threat_model
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{model_name}.pt").touch()
        classes = 10 if dataset == "cifar10" else 1000
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes))

    package, zoo, tools = (ModuleType(f"robustbench{part}") for part in ("", ".model_zoo", ".utils"))
    package.__spec__ = zoo.__spec__ = tools.__spec__ = sys.__spec__
    both = {"Carmon2019Unlabeled": {"gdrive_id": "x"}}
    bicubic = {"Singh2023Revisiting": {"preprocessing": "BicubicRes256Crop224"}, "Mo2022When": {"preprocessing": "Res224"}}
    listed = {
        Dataset.cifar_10: {Threat.linf: both | {"Wong2020Fast": {}}, Threat.l2: both},
        Dataset.imagenet: {Threat.linf: bicubic},
    }
    vars(zoo)["model_dicts"], vars(tools)["load_model"] = listed, load
    for module in (package, zoo, tools):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("locality.zoo.robustbench_models.models_folder", lambda: tmp_path)
    return calls


def test_a_model_is_loaded_once_its_file_is_there(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    for trust in ({}, {"download": True}):
        with pytest.raises(MissingWeightsError, match=r"fetch robustbench:Wong2020Fast --trust-first-download"):
            load_model("robustbench:Wong2020Fast", **trust)  # type: ignore[arg-type]
    assert not asked
    model = load_model("robustbench:Wong2020Fast", download=True, trust_first_download=True)
    assert asked == [{"name": "Wong2020Fast", "data": "cifar10", "threat": "Linf"}]
    spec = model.spec
    assert (spec.input_size, spec.resize, spec.classes, spec.mean, spec.std) == ((32, 32), 32, CIFAR10, (0, 0, 0), (1, 1, 1))
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(model(images), model.net(images))  # it takes pixels
    load_model("robustbench:Wong2020Fast")  # the file is there
    (tmp_path / "robustbench/cifar10/Linf/Wong2020Fast.pt").write_text("another")
    with pytest.raises(ModelError, match="must have sha256"):
        load_model("robustbench:Wong2020Fast")


def test_the_preprocessing_of_imagenet(asked: list[dict[str, Any]]) -> None:
    trust: Any = {"download": True, "trust_first_download": True}
    spec = load_model("robustbench:Singh2023Revisiting", **trust).spec
    assert (spec.input_size, spec.resize, spec.interpolation) == ((224, 224), 256, "bicubic")
    assert spec.classes == imagenet_wnids()
    spec = load_model("robustbench:imagenet/Linf/Mo2022When", **trust).spec
    assert (spec.input_size, spec.resize, spec.interpolation) == ((224, 224), None, "bilinear")


def test_names_that_mean_no_model_or_several(asked: list[dict[str, Any]]) -> None:
    with pytest.raises(ModelError, match=r"has 2 models `Carmon2019Unlabeled`: pass robustbench:cifar10/Linf/Carmon2019"):
        load_model("robustbench:Carmon2019Unlabeled")
    with pytest.raises(ModelError, match=r"has no model `Wong2020Fats`: did you mean 'Wong2020Fast'\?"):
        load_model("robustbench:Wong2020Fats")


def test_the_package_may_be_missing() -> None:
    with pytest.raises(ModelError, match=r"needs the Python package robustbench: pip install 'locality\[robustbench\]'"):
        load_model("robustbench:Wong2020Fast")
