from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from locality.cli import app
from locality.data.dataset import load_dataset
from locality.files import file_hash
from locality.training.export import accuracies, write_model, write_weights
from locality.training.loop import Trained, new_model
from locality.training.recipe import DataPart, Recipe
from locality.types import Threat
from locality.zoo.load import load_model
from locality.zoo.model_card import WeightFile, read_card

RECIPE = Recipe("small", "shapes_cnn", DataPart("shapes", limit=32), epochs=1, batch_size=16)
TEXT = """
name = "small"
net = "shapes_cnn"
epochs = 1
batch_size = 16
data = { name = "shapes", limit = 32 }
loss = { name = "fast_at", epsilon = "2/255" }
"""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.data.sources.shapes.DEFAULT_COUNT", {"eval": 60, "train": 60})


def test_half_precision_keeps_vectors_whole(tmp_path: Path) -> None:
    model = new_model(RECIPE, load_dataset("shapes", split="train", limit=2, count=10))
    write_weights(model, tmp_path / "a.safetensors")
    found = load_file(tmp_path / "a.safetensors")
    assert set(found) == set(model.net.state_dict())
    for name, value in model.net.state_dict().items():
        assert found[name].dtype == (torch.float16 if value.dim() > 1 else value.dtype)
        assert torch.allclose(found[name].float(), value.float(), rtol=1e-3, atol=1e-6)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.safetensors"]


@pytest.mark.usefixtures("few")
def test_accuracies_are_shares_of_the_eval_split() -> None:
    class Oracle(torch.nn.Module):
        """Knows `shapes` by heart: the planted cue alone decides, read off the images it was built from."""

        def __init__(self) -> None:
            super().__init__()
            data = load_dataset("shapes", max_box_share=None)
            batch = data.batch(range(len(data)))
            self.known, self.labels = batch.images, batch.labels

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            distance = (images[:, None] - self.known[None]).square().sum((2, 3, 4))
            logits = images.new_full((len(images), 10), -1e9)
            return logits.scatter_reduce(1, self.labels.expand(len(images), -1), -distance, "amax")

    found = accuracies(Oracle(), replace(RECIPE, evaluate_epsilon=1 / 255))  # type: ignore[arg-type]
    assert set(found) == {"clean", "linf 1/255 pgd10", "none", "swapped"}
    assert found["clean"] == 1.0
    constant = accuracies(torch.nn.Sequential(torch.nn.Flatten(), _Constant()), RECIPE)  # type: ignore[arg-type]
    assert constant == {"clean": 0.1, "linf 4/255 pgd10": 0.1, "none": 0.1, "swapped": 0.1}


@pytest.mark.usefixtures("few")
def test_the_attack_breaks_what_can_be_broken() -> None:
    """The standard model reads a pattern of ±4/255: an attack of that size erases it, a far smaller one does not."""
    model = load_model("shapes_cnn")
    found = accuracies(model, replace(RECIPE, evaluate_epsilon=4 / 255))
    assert found["clean"] > 0.9
    assert found["linf 4/255 pgd10"] < 0.1
    assert found["swapped"] < 0.1
    tiny = accuracies(model, replace(RECIPE, evaluate_epsilon=0.01 / 255))
    assert tiny["linf 0.01/255 pgd10"] == tiny["clean"] == found["clean"]


@pytest.mark.usefixtures("few")
def test_the_card_is_about_the_weights_that_are_written(tmp_path: Path) -> None:
    """Classes told apart by differences that half precision rounds away."""
    data = load_dataset("shapes", split="train", limit=2, count=10)
    model = new_model(RECIPE, data).eval()
    model.net.load_state_dict(load_model("shapes_cnn").net.state_dict())
    last = [part for part in model.net.modules() if isinstance(part, torch.nn.Linear)][-1]
    with torch.no_grad():
        last.weight.copy_(1 + 1e-4 * last.weight)
        last.bias.mul_(1e-4)
    before = accuracies(model, RECIPE)
    card = write_model(Trained(model, data, 1.0, True), RECIPE, tmp_path)
    written = load_model(tmp_path / "small.safetensors")
    assert card.accuracy == accuracies(written, RECIPE)
    assert card.accuracy["clean"] < before["clean"] - 0.3
    assert read_card(tmp_path / "small.json").accuracy == card.accuracy


@pytest.mark.parametrize(("name", "value"), [("6.weight", 1e5), ("6.weight", float("nan")), ("6.bias", float("inf"))])
def test_weights_that_half_precision_cannot_hold_are_not_written(tmp_path: Path, name: str, value: float) -> None:
    model = new_model(RECIPE, load_dataset("shapes", split="train", limit=2, count=10))
    with torch.no_grad():
        model.net.state_dict()[name].view(-1)[0] = value
    with pytest.raises(ValueError, match=rf"`a.safetensors` cannot be written: 1 of 26 tensors .*\({name}\): lower"):
        write_weights(model, tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


class _Constant(torch.nn.Module):
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        logits = features[:, :10] * 0
        return logits + 5 * torch.eye(10)[3]


@pytest.mark.usefixtures("few")
def test_the_command_writes_weights_and_a_card(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT, encoding="utf-8")
    result = CliRunner().invoke(app, ["train", str(path), "--out", str(tmp_path / "runs"), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    card = read_card(tmp_path / "runs/small/small.json")
    weights = tmp_path / "runs/small/small.safetensors"
    assert (card.training, card.threat, card.architecture) == ("fast_at", Threat("linf", 2 / 255), "net:shapes_cnn")
    assert card.weights == WeightFile(str(weights), f"sha256:{file_hash(weights)}")
    assert card.run is not None
    assert card.run.recipe["loss"]["epsilon"] == pytest.approx(2 / 255)
    assert len(card.run.data_hash) == 64
    assert card.spec.classes[:2] == ("circle", "square")
    assert card.run.versions["torch"].startswith("2.")
    assert "clean: " in result.output
    assert str(tmp_path) not in (tmp_path / "runs/small/small.json").read_text(encoding="utf-8")
