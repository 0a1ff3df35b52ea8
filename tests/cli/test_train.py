"""`locality train` as a person types it: a small recipe end to end, an interrupted run, and mistakes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from small_cifar10 import CLASSES
from typer.testing import CliRunner

from locality.cli import app
from locality.data.sources import shapes
from locality.files import file_hash
from locality.training import loop
from locality.training.run_state import RunState, write_state
from locality.types import Threat
from locality.zoo.load import load_model
from locality.zoo.model_card import WeightFile, read_card

RECIPE = """
name = "small"
net = { name = "shapes_vit", width = 24, depth = 1, heads = 2 }
epochs = 2
batch_size = 16
data = { name = "shapes", limit = 32 }
average = { name = "swa", start = 0.5 }
step_size = { name = "cosine" }

[loss]
name = "fast_at"
attack = { norm = "l2", epsilon = 0.5 }

[regularisers]
logit_squeezing = { weight = 0.01 }
"""


NET = 'name = "shapes_vit", width = 24, depth = 1, heads = 2'


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 60, "train": 60})
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return ["train", str(path), "--out", str(tmp_path / "runs"), "--device", "cpu"]


def test_a_recipe_end_to_end(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "runs/small"
    assert sorted(path.name for path in folder.iterdir()) == ["log.jsonl", "small.json", "small.safetensors", "state.pt"]
    card = read_card(folder / "small.json")
    assert (card.training, card.threat) == ("fast_at", Threat("l2", 0.5))
    assert (card.architecture, card.options) == ("net:shapes_vit", {"width": 24, "depth": 1, "heads": 2})
    weights = folder / "small.safetensors"
    assert card.weights == WeightFile(str(weights), f"sha256:{file_hash(weights)}")
    assert card.spec.classes[:2] == ("circle", "square")
    assert card.run is not None
    assert card.run.recipe["loss"]["attack"]["epsilon"] == 0.5
    assert card.run.recipe["average"] == {"name": "swa", "start": 0.5}
    assert len(card.run.data_hash) == 64
    assert card.run.versions["torch"].startswith("2.")
    assert str(tmp_path) not in (folder / "small.json").read_text(encoding="utf-8")
    # What it prints: every accuracy of the card, and where the files are.
    assert list(card.accuracy) == ["clean", "l2 0.5 pgd10", "linf 4/255 pgd10", "none", "swapped"]
    for name, share in card.accuracy.items():
        assert f"{name}: {share:.1%}" in result.output
    assert "small.safetensors" in "".join(result.output.split())
    assert "minutes" in result.output
    # The log has a line for the end of each epoch.
    lines = [json.loads(text) for text in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["step"], line["epoch"]) for line in lines] == [(2, 1), (4, 2)]
    line = lines[-1]
    assert {"loss", "cross_entropy", "logit_squeezing", "attacked_accuracy"} <= set(line)


def test_a_trained_model_can_be_loaded(command: list[str], tmp_path: Path) -> None:
    assert CliRunner().invoke(app, command).exit_code == 0
    model = load_model(tmp_path / "runs/small/small.safetensors")
    assert model.spec.name == "small"
    assert sum(value.numel() for value in model.parameters()) == read_card(tmp_path / "runs/small/small.json").parameters


def test_an_interrupted_run_resumes(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command again ends with the same weights as a run that was not interrupted."""
    assert CliRunner().invoke(app, command).exit_code == 0
    whole = (tmp_path / "runs/small/small.safetensors").read_bytes()
    command[3] = str(tmp_path / "interrupted")
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)

    def stop(state: RunState, path: Path) -> None:
        write_state(state, path)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "write_state", stop)
    assert CliRunner().invoke(app, command).exit_code != 0
    assert not (tmp_path / "interrupted/small/small.safetensors").exists()
    monkeypatch.setattr(loop, "write_state", write_state)
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (tmp_path / "interrupted/small/small.safetensors").read_bytes() == whole


def test_mistakes_are_one_sentence_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "wrong.toml").write_text(RECIPE.replace("fast_at", "fast_att").replace("= 16", "= 0"), encoding="utf-8")
    runs = ["--out", str(tmp_path / "runs")]
    for words, sentence in [
        (["nothing", *runs], "`recipe` must be one of shapes_cnn"),
        (["shapes_cnn", "--out", str(tmp_path / "file")], "`--out` must be a folder"),
        (["shapes_cnn", *runs, "--device", "cuda:1"], "`device` must be cpu, or omitted for torch's choice, got 'cuda:1'"),
        ([str(tmp_path / "wrong.toml"), *runs], "is not a valid recipe, 2 problems: `loss.name` must be one of"),
    ]:
        result = CliRunner().invoke(app, ["train", *words])
        assert isinstance(result.exception, ValueError), result.output
        assert sentence in str(result.exception)
        assert "\n" not in str(result.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "wrong.toml"]


@pytest.mark.parametrize(
    ("sizes", "net"),
    [
        ([(90, 60), (64, 64), (200, 100)], "shapes_cnn"),
        ([(100, 80), (100, 80), (100, 80)], "shapes_vit"),  # one size, which the network does not take
    ],
)
def test_images_of_other_sizes_are_fitted_to_the_network(
    tmp_path: Path,
    write_csv: Callable[..., Path],
    write_image: Callable[..., str],
    sizes: list[tuple[int, int]],
    net: str,
) -> None:
    rows = []
    for number, (width, height) in enumerate(sizes * 4):
        label, name = number % 2, f"{number}.png"
        write_image(tmp_path / name, width, height, seed=number)
        rows.append({"id": str(number), "path": name, "width": width, "height": height, "label": label, "wnid": f"n{label}"})
    manifest = write_csv(*rows, name="mixed.csv")
    recipe = tmp_path / "mixed.toml"
    recipe.write_text(
        f'name = "mixed"\nnet = {{ name = "{net}" }}\nepochs = 1\nbatch_size = 4\ndata = {{ name = "{manifest}" }}\n'
        "augmentation = { flip = true, shift = 4 }\n",
        encoding="utf-8",
    )
    result = CliRunner().invoke(app, ["train", str(recipe), "--out", str(tmp_path / "runs"), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "preprocessing: resize 64 bilinear, crop 64×64, mean 0.45, std 0.25\n" in result.output
    card = read_card(tmp_path / "runs/mixed/mixed.json")
    assert (card.spec.input_size, card.spec.resize) == ((64, 64), 64)


def test_a_stated_size_is_the_input_size_of_the_model(command: list[str], tmp_path: Path) -> None:
    text = RECIPE.replace("limit = 32", "limit = 32, size = 32")
    Path(command[1]).write_text(text.replace(NET, 'name = "shapes_cnn"'), encoding="utf-8")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    card = read_card(tmp_path / "runs/small/small.json")
    assert (card.spec.input_size, card.spec.resize) == ((32, 32), 32)
    assert card.run is not None
    assert card.run.recipe["data"] == {"name": "shapes", "limit": 32, "size": 32}
    weights = str(tmp_path / "runs/small/small.safetensors")
    words = ["eval", "--model", weights, "--data", "shapes", "--limit", "10", "--methods", "SM", "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    measured = json.loads(done.stdout)
    assert measured["n"] == 10
    assert measured["provenance"]["preprocessing"].startswith("resize 32 bilinear, crop 32×32")


def test_training_on_images_without_boxes(command: list[str], tmp_path: Path, small_cifar10: Path) -> None:
    text = RECIPE.replace('"shapes", limit = 32', f'"cifar10:{small_cifar10}"')
    Path(command[1]).write_text(text.replace(NET, 'name = "shapes_cnn"'), encoding="utf-8")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    card = read_card(tmp_path / "runs/small/small.json")
    assert (card.data, card.spec.input_size, card.spec.classes) == ("cifar10", (32, 32), CLASSES)
    assert 20 * card.accuracy["clean"] == round(20 * card.accuracy["clean"])  # of 20 test images
