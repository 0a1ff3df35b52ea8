from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from locality.data.dataset import load_dataset
from locality.training.export import accuracies, write_model, write_weights
from locality.training.inner_attack import InnerAttack
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.alp import Alp
from locality.training.new_model import new_model
from locality.training.recipe import Recipe, recipe_from
from locality.training.recipe_parts import Net, TrainingData
from locality.training.trained import Trained
from locality.types import Threat
from locality.zoo.load import load_model
from locality.zoo.model_card import read_card

RECIPE = Recipe("small", Net("shapes_cnn"), TrainingData("shapes", limit=32), epochs=1, batch_size=16)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.data.sources.shapes.DEFAULT_COUNT", {"eval": 60, "train": 60})


def test_half_precision_keeps_vectors_whole(tmp_path: Path) -> None:
    model = new_model(RECIPE, load_dataset("shapes", split="train", limit=2, count=10))
    write_weights(model, tmp_path / "a.safetensors")
    written = load_file(tmp_path / "a.safetensors")
    assert set(written) == set(model.net.state_dict())
    for name, value in model.net.state_dict().items():
        assert written[name].dtype == (torch.float16 if value.dim() > 1 else value.dtype)
        assert torch.allclose(written[name].float(), value.float(), rtol=1e-3, atol=1e-6)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.safetensors"]


@pytest.mark.usefixtures("few")
def test_accuracies_are_shares_of_the_eval_split() -> None:
    class Oracle(torch.nn.Module):
        """Knows the images of `shapes` by heart; the nearest one decides."""

        def __init__(self) -> None:
            super().__init__()
            data = load_dataset("shapes", max_box_share=None)
            batch = data.batch(range(len(data)))
            self.known, self.labels = batch.images, batch.labels

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            distance = (images[:, None] - self.known[None]).square().sum((2, 3, 4))
            logits = images.new_full((len(images), 10), -1e9)
            return logits.scatter_reduce(1, self.labels.expand(len(images), -1), -distance, "amax")

    known = accuracies(Oracle(), replace(RECIPE, evaluate_epsilon=1 / 255))  # type: ignore[arg-type]
    assert set(known) == {"clean", "linf 1/255 pgd10", "none", "swapped"}
    assert known["clean"] == 1.0
    constant = accuracies(torch.nn.Sequential(torch.nn.Flatten(), _Constant()), RECIPE)  # type: ignore[arg-type]
    assert constant == {"clean": 0.1, "linf 4/255 pgd10": 0.1, "none": 0.1, "swapped": 0.1}


@pytest.mark.usefixtures("few")
def test_the_attack_breaks_what_can_be_broken() -> None:
    """The standard model reads a pattern of ±4/255: an attack of that size erases it, a far smaller one does not."""
    model = load_model("shapes_cnn")
    large = accuracies(model, replace(RECIPE, evaluate_epsilon=4 / 255))
    assert large["clean"] > 0.9
    assert large["linf 4/255 pgd10"] < 0.1
    assert large["swapped"] < 0.1
    tiny = accuracies(model, replace(RECIPE, evaluate_epsilon=0.01 / 255))
    assert tiny["linf 0.01/255 pgd10"] == tiny["clean"] == large["clean"]


@pytest.mark.usefixtures("few")
def test_the_card_measures_the_threat_that_was_trained_for_and_linf() -> None:
    """The standard model falls to both; a tiny ℓ2 ball, which its own recipe would name, leaves it alone."""
    model = load_model("shapes_cnn")
    for threat, share in ((InnerAttack(2.0, "l2"), 0.0), (InnerAttack(1e-4, "l2"), 1.0)):
        shares = accuracies(model, replace(RECIPE, loss=Adversarial(threat)))
        assert list(shares) == ["clean", f"l2 {threat.epsilon:g} pgd10", "linf 4/255 pgd10", "none", "swapped"]
        assert shares[f"l2 {threat.epsilon:g} pgd10"] == pytest.approx(share * shares["clean"], abs=0.1)
        assert shares["linf 4/255 pgd10"] < 0.1
    # Trained at another ℓ∞ radius than the cards compare: both. Trained at the same: once.
    other = accuracies(model, replace(RECIPE, loss=Adversarial(InnerAttack(8 / 255))))
    assert list(other) == ["clean", "linf 8/255 pgd10", "linf 4/255 pgd10", "none", "swapped"]
    same = accuracies(model, replace(RECIPE, loss=Adversarial(InnerAttack(4 / 255))))
    assert list(same) == ["clean", "linf 4/255 pgd10", "none", "swapped"]


@pytest.mark.usefixtures("few")
def test_alp_is_not_judged_by_few_steps_alone() -> None:
    """Its card has an attack of 100 steps, which is the accuracy that tables show, besides the ten of all cards."""
    recipe = replace(RECIPE, loss=Alp(InnerAttack(8 / 255)))
    shares = accuracies(load_model("shapes_cnn"), recipe)
    ten, many = ["linf 8/255 pgd10", "linf 4/255 pgd10"], ["linf 8/255 pgd100", "linf 4/255 pgd100"]
    assert list(shares) == ["clean", *many, *ten, "none", "swapped"]
    assert all(shares[long] <= shares[short] for long, short in zip(many, ten, strict=True))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("change", "training", "threat"),
    [
        ({}, "standard", None),
        ({"epochs": 0}, "random", None),
        ({"epochs": 0, "start": "shapes_cnn"}, "standard", None),
        ({"loss": Adversarial(InnerAttack(0.5, "l2"))}, "at", Threat("l2", 0.5)),
    ],
)
def test_the_card_states_the_training(tmp_path: Path, change: dict[str, Any], training: str, threat: Threat | None) -> None:
    recipe = replace(RECIPE, **change)
    data = load_dataset("shapes", split="train", limit=2, count=10)
    card = write_model(Trained(new_model(recipe, data).eval(), data, 1.0, True), recipe, tmp_path)
    assert (card.training, card.threat) == (training, threat)
    assert card.run is not None
    assert recipe_from(card.run.recipe, "card") == recipe
    assert read_card(tmp_path / "small.json") == card


@pytest.mark.usefixtures("few")
def test_the_card_is_about_the_weights_that_are_written(tmp_path: Path) -> None:
    """The classes differ by so little that half precision rounds it away."""
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
