"""Where a run starts from: any network and any model that can be loaded without running code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from own_images import SIDE, pictures, write_checkpoint
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from locality.errors import ModelError
from locality.training.export import write_model
from locality.training.loop import train
from locality.training.recipe import Recipe, RecipeError, recipe_from
from locality.training.recipe_parts import FineTuning, Net
from locality.training.validation import Validation
from locality.types import ModelSpec
from locality.zoo.architectures import build
from locality.zoo.load import load_model
from locality.zoo.model_card import ModelCard, WeightFile, card_path, write_card


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Red discs and blue squares of two sizes, in class folders; three of four are for training."""
    root = tmp_path_factory.mktemp("mine")
    for number, one in enumerate(pictures(24)):
        path = root / ("val" if number // 2 % 4 == 3 else "train") / ("disc", "square")[one.label] / f"{one.name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(one.pixels).save(path)
    return root


def recipe_of(folder: Path, **table: Any) -> Recipe:
    given = {"name": "mine", "data": {"name": f"folder:{folder}"}, "epochs": 1, "batch_size": 6} | table
    return recipe_from(given, "mine.toml", here=True)


def problems_of(folder: Path, **table: Any) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        recipe_of(folder, **table)
    return [str(problem) for problem in caught.value.problems]


@pytest.fixture
def told() -> list[str]:
    return []


def test_a_network_of_timm_and_its_card(folder: Path, tmp_path: Path, told: list[str]) -> None:
    recipe = recipe_of(folder, net="timm:test_vit2", data={"name": f"folder:{folder}", "size": 64})
    assert recipe.as_table()["net"] == {"name": "timm:test_vit2"}
    assert recipe_from(json.loads(json.dumps(recipe.as_table())), "card") == recipe


def test_a_checkpoint_gets_a_new_head(folder: Path, tmp_path: Path, told: list[str]) -> None:
    """A stranger's ResNet-18 of two other classes, without a card: the body is kept, the head is new."""
    checkpoint = write_checkpoint(tmp_path, pictures(8), steps=1)
    stored = torch.load(checkpoint, weights_only=True)
    table: dict[str, Any] = {"net": "torchvision:resnet18", "start": str(checkpoint), "mean": [0.5] * 3, "std": [0.25] * 3}
    with pytest.raises(ValueError, match=r"mine.pt has mean \(0.485, .* give the recipe the same"):
        train(recipe_of(folder, **table), tmp_path / "wrong", device="cpu")
    recipe = recipe_of(
        folder, **{key: table[key] for key in ("net", "start")}, data={"name": f"folder:{folder}", "size": 32}
    )
    assert (recipe.mean, recipe.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    untouched = train(replace(recipe, epochs=0), tmp_path / "none", device="cpu", say=told.append)
    assert told[0].endswith("head included: it does not name its classes, which are as many")
    assert all(torch.equal(stored[name], value) for name, value in untouched.model.net.state_dict().items())
    assert untouched.model.spec.input_size == (32, 32)
    trained = train(replace(recipe, fine_tuning=FineTuning(body_rate=0.0)), tmp_path / "head", device="cpu")
    moved = {name for name, value in trained.model.net.state_dict().items() if not torch.equal(stored[name], value)}
    assert moved == {"fc.weight", "fc.bias"}


def test_a_card_beside_the_checkpoint_says_everything(folder: Path, tmp_path: Path, told: list[str]) -> None:
    net = build("timm:test_resnet", 3)
    path = tmp_path / "theirs.safetensors"
    save_file(net.state_dict(), path)
    spec = ModelSpec("theirs", (SIDE, SIDE), SIDE + 2, "bicubic", (0.5,) * 3, (0.2,) * 3, ("a", "b", "c"))
    file = WeightFile(str(path), "sha256:")
    write_card(ModelCard(spec=spec, architecture="timm:test_resnet", weights=file, parameters=0, data=""), card_path(path))
    recipe = recipe_of(folder, start=str(path))
    assert (recipe.net, recipe.mean, recipe.std) == (Net("timm:test_resnet"), (0.5,) * 3, (0.2,) * 3)
    trained = train(recipe, tmp_path / "run", device="cpu", say=told.append)
    assert "at 16×16 pixels" in told[0]
    assert told[0].endswith(f"weights of {path}, with a new head for 2 classes")
    ours = trained.model.spec
    assert ours == replace(spec, name="mine", classes=("disc", "square"))
    # What is written can be loaded by its path alone, and measured.
    card = write_model(trained, recipe, tmp_path / "run")
    assert (card.architecture, card.licence, card.note) == ("timm:test_resnet", "", "fine-tuned from theirs.safetensors")
    loaded = load_model(tmp_path / "run/mine.safetensors")
    assert loaded.spec == ours
    images = torch.rand(2, 3, SIDE, SIDE)
    torch.testing.assert_close(loaded(images), trained.model(images), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("net", "large"), [("timm:test_efficientnet", True), ("timm:test_resnet", False)])
def test_a_new_head_begins_small(folder: Path, tmp_path: Path, told: list[str], net: str, large: bool) -> None:
    """timm draws weights of some heads by the number of outputs, ±0.7 for two; those of torch's size stay as they are."""
    path = tmp_path / "theirs.safetensors"
    save_file(build(net, 3).state_dict(), path)
    recipe = recipe_of(folder, start=str(path), net=net, epochs=0)
    head = train(recipe, tmp_path / "run", device="cpu", say=told.append).model.head
    assert isinstance(head, nn.Linear)
    drawn = build(net, 2, recipe.seed).get_classifier().weight.detach()  # type: ignore[operator]
    usual, deviation = (3 * head.in_features) ** -0.5, float(drawn.std())
    assert (deviation > 2 * usual) == large
    assert torch.equal(head.weight, drawn * (usual / deviation) if large else drawn)
    assert float(head.weight.detach().std()) == pytest.approx(usual, rel=0.2)


def test_a_model_of_the_catalog_keeps_the_head_of_its_own_classes(tmp_path: Path, told: list[str]) -> None:
    recipe = recipe_from({"name": "a", "start": "shapes_cnn", "data": {"name": "shapes", "limit": 20}, "epochs": 0}, "a")
    recipe = replace(recipe, batch_size=10)
    assert recipe.net == Net("shapes_cnn")
    train(recipe, tmp_path / "same", device="cpu", say=told.append)
    assert told[0].endswith("weights of shapes_cnn, head included")


def test_as_many_other_classes_are_no_reason_to_keep_the_head(tmp_path: Path, told: list[str]) -> None:
    """Ten shapes are not ten classes of Tiny-ImageNet."""
    recipe = recipe_from({"name": "a", "start": "tiny_resnet", "data": {"name": "shapes", "limit": 20}, "epochs": 0}, "a")
    model = train(replace(recipe, batch_size=10), tmp_path, device="cpu", say=told.append).model
    assert told[0].endswith("weights of tiny_resnet, with a new head for 10 classes")
    start = load_model("tiny_resnet").net.state_dict()
    assert {name for name, value in model.net.state_dict().items() if not torch.equal(value, start[name])} == {
        "8.weight",
        "8.bias",
    }


def test_resuming_is_said(tmp_path: Path, folder: Path, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(folder, net="shapes_cnn", epochs=2)

    def stop(done: int, total: int | None) -> None:
        if done == 4:
            raise InterruptedError

    monkeypatch.setattr("locality.training.loop.SECONDS_BETWEEN_STATES", -1.0)
    with pytest.raises(InterruptedError):
        train(recipe, tmp_path, stop, device="cpu")
    train(recipe, tmp_path, device="cpu", say=told.append)
    assert told == ["resuming after step 3 of 6"]


def test_data_of_one_split(folder: Path, tmp_path: Path, told: list[str]) -> None:
    """Accuracy is measured on images that were not trained on, or not at all."""
    one = folder / "train"
    recipe = recipe_of(one, net="shapes_cnn")
    trained = train(recipe, tmp_path / "all", device="cpu", say=told.append)
    assert told[1].startswith("accuracy will not be measured: folder:train has no images besides those that are trained on")
    assert write_model(trained, recipe, tmp_path / "all").accuracy == {}
    held = replace(recipe, validation=Validation(share=0.34))
    told.clear()
    trained = train(held, tmp_path / "held", device="cpu", say=told.append)
    assert told[0].startswith("training on 12 images of 2 classes at 64×64 pixels, 6 more held out; ")
    card = write_model(trained, held, tmp_path / "held")
    assert card.note == "accuracy is that of the 6 images held out, which also chose the epoch"
    assert trained.best is not None
    assert card.accuracy["clean"] == pytest.approx(trained.best.rank[0], abs=1e-4)
    # Data of two splits are measured on the other one.
    both = replace(recipe_of(folder, net="shapes_cnn"), validation=Validation(share=0.34))
    assert write_model(train(both, tmp_path / "both", device="cpu"), both, tmp_path / "both").note == ""


def test_labels_of_the_eval_split_are_those_of_the_model(tmp_path: Path) -> None:
    """The split `val` lacks the first class, so that its own numbering is another one."""
    for split, colours in (("train", (50, 120, 200)), ("val", (120, 200))):
        for colour in colours:
            for number in range(4):
                path = tmp_path / split / f"grey{colour:03d}" / f"{split}{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (64, 64), (colour + number,) * 3).save(path)
    recipe = recipe_of(tmp_path, net="shapes_cnn", epochs=30, optimizer={"learning_rate": 0.01})
    trained = train(recipe, tmp_path / "run", device="cpu")
    assert write_model(trained, recipe, tmp_path / "run").accuracy["clean"] == 1.0


@pytest.mark.parametrize(
    ("table", "problems"),
    [
        ({}, ["must have the key 'net'"]),
        (
            {"net": "timm:test_resnt"},
            ["`net.name` is unknown: timm has no model `test_resnt`: did you mean 'timm:test_resnet"],
        ),
        ({"net": {"name": "timm:test_resnet", "depth": 3}}, ["`net` must have no options for timm:test_resnet, got depth"]),
        ({"net": "torchvision:resnt18"}, ["`net.name` is unknown: torchvision has no classifier `resnt18`"]),
        ({"start": "my_models:net"}, ["`start` must be a model or a checkpoint, not code to run, got 'my_models:net'"]),
        ({"start": "shapes_cn"}, ["`start` is unknown: `shapes_cn` is not a model"]),
        ({"start": "gone.pth", "net": "timm:test_resnet"}, ["`start` must be a file that exists, got 'gone.pth'"]),
        ({"start": "torchvision:resnet18"}, ["`start` must be a model with weights, got the architecture"]),
        ({"start": "hf:google/vit"}, ["`start` must be a model of timm, torchvision or locality, got 'hf:google/vit'"]),
        ({"start": "."}, ["`start` must be a checkpoint, got the folder '.'"]),
        ({"net": "shapes_cnn", "fine_tuning": {"body_rate": 0.1}}, ["`fine_tuning` needs `start`"]),
        ({"net": "shapes_cnn", "data": {"name": "folder:gone"}}, ["`data.name` must name data that exist"]),
        (
            {"start": "gone.pth", "data": {"name": "folder:gone"}, "epochs": -1},
            ["`epochs` must be at least 0", "`start` must be a file", "`data.name` must name data"],
        ),
    ],
)
def test_mistakes_are_listed_at_once(folder: Path, table: dict[str, Any], problems: list[str]) -> None:
    listed = problems_of(folder, **table)
    assert len(listed) == len(problems)
    assert all(text.startswith(expected) for text, expected in zip(listed, problems, strict=True)), listed


def test_a_checkpoint_without_a_card_needs_a_net(folder: Path, tmp_path: Path) -> None:
    torch.save({}, tmp_path / "bare.pth")
    (problem,) = problems_of(folder, start=str(tmp_path / "bare.pth"))
    assert problem.startswith("`net` must name the network of a checkpoint without a card, such as net = ")


def test_what_the_images_show_is_listed_at_once(folder: Path, tmp_path: Path) -> None:
    wrong = recipe_of(folder, net="shapes_cnn", batch_size=99, augmentation={"shift": 64, "cutout": 70})
    with pytest.raises(RecipeError) as caught:
        train(wrong, tmp_path, device="cpu")
    assert [problem.where for problem in caught.value.problems] == [
        "augmentation.shift",
        "augmentation.cutout",
        "batch_size",
    ]


def test_a_card_of_another_machine_can_be_read(folder: Path) -> None:
    """Its data and its start need not be here."""
    table = {"name": "a", "net": "shapes_cnn", "start": "gone.pth", "data": {"name": "folder:gone"}, "epochs": 1}
    assert recipe_from(table, "card").start == "gone.pth"


def test_weights_that_are_not_here(folder: Path, tmp_path: Path) -> None:
    recipe = recipe_of(folder, start="timm:resnet10t", data={"name": f"folder:{folder}", "size": 32})
    assert recipe.net == Net("timm:resnet10t")
    with pytest.raises(ModelError, match=r"needs the file .* which is not on this machine"):
        train(recipe, tmp_path, device="cpu")


def test_efficientnet_of_the_extra_weights(folder: Path) -> None:
    recipe = recipe_of(folder, start="efficientnet_lite0")
    assert (recipe.net, recipe.mean) == (Net("timm:tf_efficientnet_lite0"), (0.5, 0.5, 0.5))


def test_a_regulariser_of_the_head_knows_foreign_networks(folder: Path) -> None:
    trh = {"regularisers": {"trh": {"weight": 0.1}}, "loss": {"name": "standard"}}
    assert recipe_of(folder, net="torchvision:resnet18", **trh).net.name == "torchvision:resnet18"
    (problem,) = problems_of(folder, net="torchvision:squeezenet1_1", **trh)
    assert "needs a network whose head is a linear layer, but that of torchvision:squeezenet1_1 is Conv2d" in problem


def test_torchvision_takes_part_in_every_loss(folder: Path, tmp_path: Path) -> None:
    """Features are the inputs of the head that was found."""
    size = {"name": f"folder:{folder}", "size": 32}
    attack = {"name": "trades", "attack": {"epsilon": "4/255", "steps": 1}}
    recipe = recipe_of(folder, net="torchvision:resnet18", data=size, loss=attack, regularisers={"trh": {"weight": 0.1}})
    line = [json.loads(text) for text in _log(recipe, tmp_path)][-1]
    assert line["trh"] > 0


def _log(recipe: Recipe, out: Path) -> list[str]:
    train(recipe, out, device="cpu")
    return (out / "log.jsonl").read_text(encoding="utf-8").splitlines()
