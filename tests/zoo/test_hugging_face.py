"""Image classifiers of Hugging Face from folders that the tests write, against transformers itself."""

import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from locality.boundary import find_boundary
from locality.data.preprocess import fit
from locality.errors import DamagedFileError, MissingWeightsError, ModelError
from locality.files import file_hash
from locality.imagenet_classes import class_word, imagenet_wnids
from locality.types import ModelSpec, Sample
from locality.zoo.hugging_face import _labels
from locality.zoo.hugging_face_processor import processor_input
from locality.zoo.load import load_model

transformers: Any = import_module("transformers")
Change = Callable[[dict[str, Any]], object]


def write_vit(folder: Path, **options: Any) -> Any:
    """A small network with random weights whose answers differ from image to image."""
    labels = {0: "cat", 1: "dog", 2: "eel"}
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.ViTConfig(
        **sizes, image_size=32, patch_size=8, initializer_range=0.5, id2label=options.pop("labels", labels), **options
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = transformers.ViTForImageClassification(config).eval()
    net.save_pretrained(folder)
    processor = transformers.ViTImageProcessor(
        size={"height": 32, "width": 32}, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4], resample=3
    )
    processor.save_pretrained(folder)
    return net


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hf") / "small_vit"
    write_vit(folder)
    return folder


@pytest.fixture
def copied(vit: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(vit, tmp_path / "copied"))


def changed(path: Path, change: Change) -> None:
    settings = json.loads(path.read_text())
    change(settings)
    path.write_text(json.dumps(settings))


def levels(height: int, width: int) -> Tensor:
    """A smooth 8-bit picture, 3×height×width."""
    rows, columns = torch.linspace(0, 3, height)[:, None], torch.linspace(0, 5, width)
    picture = torch.stack([torch.sin(rows + columns), torch.cos(rows * columns), torch.sin(rows - columns)])
    return ((picture + 1) * 127.5).round().to(torch.uint8)


def seen(picture: Tensor, spec: ModelSpec) -> Tensor:
    """The picture as the data give it to the model."""
    sample = Sample("a", picture.float() / 255, 0, (), torch.zeros(1, *picture.shape[1:], dtype=torch.bool))
    return fit(sample, spec).image[None]


@pytest.mark.parametrize("size", [(32, 32), (50, 71)])
def test_a_folder_gives_its_own_processors_logits(vit: Path, size: tuple[int, int]) -> None:
    model = load_model(vit)
    own = transformers.ViTForImageClassification.from_pretrained(vit, local_files_only=True).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(vit, local_files_only=True)
    picture = levels(*size)
    with torch.no_grad():
        expected = own(**processor(picture, return_tensors="pt")).logits
        logits = model(seen(picture, model.spec))
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    assert model.spec == ModelSpec(
        "small_vit", (32, 32), None, "bicubic", (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), ("cat", "dog", "eel")
    )
    assert model.preprocessing == (
        "stretch to 32×32 bicubic, mean (0.5, 0.4, 0.3), std (0.2, 0.3, 0.4) (from its image processor)"
    )
    edge = find_boundary(model, seen(picture, model.spec))
    assert edge.found.all()
    assert model(edge.points).argmax(1).tolist() == edge.crossed_to.tolist()


@pytest.mark.parametrize(
    ("kind", "settings", "size", "resize"),
    [
        ("BitImageProcessor", {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}, (32, 32), 40),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 32}, "crop_pct": 0.8}, (32, 32), 40),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}, (384, 384), None),
        ("EfficientNetImageProcessor", {"size": {"height": 48, "width": 40}, "rescale_offset": True}, (48, 40), None),
        ("LevitImageProcessor", {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}, (28, 28), 32),
        ("ViTImageProcessor", {"size": 24, "do_normalize": False, "rescale_factor": 1 / 127.5}, (24, 24), None),
    ],
)
def test_processors_are_understood(kind: str, settings: dict[str, Any], size: tuple[int, int], resize: int | None) -> None:
    settings = {"image_processor_type": kind, "resample": 2} | settings
    spec, _ = processor_input(transformers, transformers.ViTConfig(), settings, "a")
    assert (spec.input_size, spec.resize) == (size, resize)
    picture = levels(60, 52)
    processor = getattr(transformers, kind).from_dict(settings)
    expected = processor(picture, return_tensors="pt")["pixel_values"]
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (spec.mean, spec.std))
    difference = ((seen(picture, spec) - mean) / std - expected).abs() * std
    assert expected.shape[2:] == size
    # A level of 255 of rounding; some processors crop half a pixel differently.
    assert float(difference.mean()) < 2 / 255


def test_labels_are_wordnet_ids_if_they_are_imagenets() -> None:
    wnids = imagenet_wnids()
    words = {str(index): f"{class_word(wnid)}, and more" for index, wnid in enumerate(wnids)}
    assert _labels({"id2label": words}, 1000) == wnids
    assert _labels({"id2label": {str(i): f"thing {i}" for i in range(1000)}}, 1000)[7] == "thing 7"
    assert _labels({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, 2) == ()
    assert _labels({"id2label": {"0": "tumour"}}, 1) == ("not tumour", "tumour")


def test_a_multi_label_network_explains_the_label_that_is_named(tmp_path: Path) -> None:
    net = write_vit(tmp_path, problem_type="multi_label_classification")
    with pytest.raises(ModelError, match=r"is a multi-label network: pass multi_label=LABEL \(--multi-label\)"):
        load_model(tmp_path)
    model = load_model(tmp_path, multi_label="dog")
    assert model.spec.classes == ("not dog", "dog")
    images = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        logit = net(model.normalised(images)).logits[:, 1]
        torch.testing.assert_close(model(images), torch.stack([-logit / 2, logit / 2], 1))
    with pytest.raises(ValueError, match=r"`multi_label` must be a class of the model or its number, got 'dgo': did you"):
        load_model(tmp_path, multi_label="dgo")


def test_one_logit_is_two_classes(tmp_path: Path) -> None:
    write_vit(tmp_path, labels={0: "tumour"})
    model = load_model(tmp_path)
    assert model.spec.classes == ("not tumour", "tumour")
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda config: config.update(model_type="mine", auto_map={"AutoModel": "code.Mine"}),
            "own code, which is never run",
        ),
        (lambda config: config.update(model_type="bert"), "model_type of an image classifier of transformers, got 'bert'"),
        (lambda config: config.update(quantization_config={"bits": 4}), "sets quantization_config"),
        (lambda config: config.update(num_hidden_layers=10**9), "names 1,000,000,000 layers, but the weights have 40"),
        (lambda config: config.update(num_hidden_layers=1), "do not fit ViTForImageClassification: 16 unexpected"),
        (lambda config: config.update(num_hidden_layers=3), "do not fit ViTForImageClassification: 16 missing"),
        (lambda config: config.update(hidden_size=32), "does not fit ViTForImageClassification"),
        (lambda config: config.update(model_type="timm_wrapper"), "a network of timm: pass timm:NAME"),
    ],
)
def test_a_config_that_cannot_be_used_is_one_sentence(copied: Path, change: Change, words: str) -> None:
    changed(copied / "config.json", change)
    with pytest.raises(ModelError, match=words) as caught:
        load_model(copied)
    assert "\n" not in str(caught.value)


def test_a_named_attention_is_not_loaded(copied: Path) -> None:
    changed(
        copied / "config.json", lambda config: config.update(_attn_implementation="org/kernel", attn_implementation="x/y")
    )
    net: Any = load_model(copied).net
    assert net.config._attn_implementation == "eager"


def test_only_safetensors_are_opened(copied: Path) -> None:
    weights = copied / "model.safetensors"
    tensors = load_file(weights)
    weights.unlink()
    torch.save(tensors, copied / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"has pickled weights, which are not opened: `locality models convert"):
        load_model(copied)
    shutil.copy(copied / "pytorch_model.bin", weights)
    with pytest.raises(DamagedFileError, match="is not a file of safetensors"):
        load_model(copied)


def test_weights_in_several_files(vit: Path, copied: Path) -> None:
    tensors = load_file(copied / "model.safetensors")
    (copied / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in names if files[name] == file}, copied / file)
    index = copied / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(load_model(copied)(images), load_model(vit)(images))
    index.write_text(json.dumps({"weight_map": dict.fromkeys(files, "../x.safetensors")}))
    with pytest.raises(ModelError, match="must map tensors to files of its folder"):
        load_model(copied)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is a folder without config.json"):
        load_model(tmp_path)


def test_the_hub_is_not_asked_without_download(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was used"))
    with pytest.raises(MissingWeightsError, match=r"`hf:org/name` is not in the cache of Hugging Face on this machine"):
        load_model("hf:org/name")
    with pytest.raises(ModelError, match="`hf:a/b/c` is not hf:ORG/NAME"):
        load_model("hf:a/b/c")
    # The cache of the Hub: files are links to others that have the sha256 as their name.
    weights = copied / "model.safetensors"
    blob = copied / file_hash(weights)
    weights.rename(blob)
    weights.symlink_to(blob)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **options: str(copied))
    assert load_model("hf:org/name").spec.name == "hf:org/name"
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedFileError, match="must have sha256"):
        load_model("hf:org/name")
