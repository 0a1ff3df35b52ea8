"""Options of a recipe's data: planted stickers and the source's own, in training, in the card and in the run's identity."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from own_images import pictures
from PIL import Image
from torch import nn

from locality.curvature.training_run import TrainingImages, trained_on
from locality.data.cues import Sticker, with_sticker
from locality.data.dataset import load_dataset
from locality.data.sources import SOURCES
from locality.training.data_options import data_table
from locality.training.export import accuracies, write_model
from locality.training.loop import train
from locality.training.new_model import beginning
from locality.training.recipe import Recipe, RecipeError, read_recipe, recipe_from
from locality.training.recipe_parts import TrainingData
from locality.zoo.load import load_model

STICKER = {"name": "shapes:none", "limit": 40, "count": 60, "cue": "sticker", "cue_size": 0.3}


def recipe_of(data: dict[str, Any], **table: Any) -> Recipe:
    return recipe_from({"name": "a", "net": "shapes_cnn", "data": data, "epochs": 1, "batch_size": 20} | table, "a.toml")


def problems_of(**data: Any) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        recipe_of(data)
    return [str(problem) for problem in caught.value.problems]


def test_the_images_have_stickers_and_the_recipe_says_so(tmp_path: Path) -> None:
    recipe = recipe_of(STICKER)
    assert recipe.data == TrainingData("shapes:none", 40, options={"count": 60, "cue": "sticker", "cue_size": 0.3})
    assert recipe.as_table()["data"] == STICKER
    assert recipe_from(json.loads(json.dumps(recipe.as_table())), "card") == recipe
    trained = beginning(recipe).data
    plain = load_dataset("shapes:none", split="train", limit=40, count=60)
    by_hand = plain.on(with_sticker(plain.source, Sticker(size=0.3)))
    for index in (0, 39):
        assert torch.equal(trained[index].image, by_hand[index].image)
        assert not torch.equal(trained[index].image, plain[index].image)
    told: list[str] = []
    train(recipe, tmp_path, device="cpu", say=told.append)
    assert "at 64×64 pixels, each with a sticker; " in told[0]


def test_recipes_without_options_are_stored_as_before() -> None:
    """A new key would change what states of interrupted runs and cards are compared with."""
    assert recipe_of({"name": "shapes", "limit": 3}).as_table()["data"] == {"name": "shapes", "limit": 3}
    assert read_recipe("pets_lite0").as_table()["data"] == {"name": "pets", "size": 112}


def test_a_run_with_stickers_resumes_and_other_stickers_are_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, total: int | None) -> None:
        if done == 2:
            raise InterruptedError

    recipe = recipe_of(STICKER, epochs=2)
    whole = train(recipe, tmp_path / "whole", device="cpu").model
    monkeypatch.setattr("locality.training.loop.SECONDS_BETWEEN_STATES", -1.0)
    with pytest.raises(InterruptedError):
        train(recipe, tmp_path / "cut", stop, device="cpu")
    with pytest.raises(ValueError, match=r"belongs to another recipe \(data changed\)"):
        train(recipe_of(STICKER | {"cue_seed": 1}, epochs=2), tmp_path / "cut", device="cpu")
    resumed = train(recipe, tmp_path / "cut", device="cpu").model
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in whole.state_dict().items())


class Reader(nn.Module):
    """Names the class of the sticker in the middle of the image, and class 0 if there is none."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        colours = torch.stack([torch.tensor(colour) for colour in ([220, 40, 40], [40, 40, 220])]) / 255
        nearest = (images[:, None] - colours[None, :, :, None, None]).abs().sum(2).amin((2, 3))
        return torch.where(nearest.amin(1, keepdim=True) < 0.01, -nearest, torch.tensor([0.0, -1.0]))


def folders(root: Path) -> Path:
    """Discs and squares in two class folders, without splits."""
    for one in pictures(20):
        path = root / ("disc", "square")[one.label] / f"{one.name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(one.pixels).resize((32, 32)).save(path)
    return root


def test_the_card_has_the_accuracies_without_stickers_and_with_others(tmp_path: Path) -> None:
    """What reads the sticker is right with it, wrong with another's, and guesses without."""
    data = {"name": f"folder:{folders(tmp_path / 'images')}", "cue": "sticker"}
    recipe = recipe_of(data, batch_size=4, epochs=0, validation={"share": 0.5})
    shares = accuracies(Reader(), recipe)  # type: ignore[arg-type]
    assert (shares["clean"], shares["none"], shares["swapped"]) == (1.0, 0.5, 0.0)
    others = accuracies(Reader(), recipe_of(data | {"cue": "swapped"}, batch_size=4))  # type: ignore[arg-type]
    assert (others["clean"], others["none"], others["sticker"]) == (0.0, 0.5, 1.0)
    run = train(recipe, tmp_path / "run", device="cpu")
    card = write_model(run, recipe, tmp_path / "run")
    assert card.data == "folder+sticker"
    assert set(card.accuracy) == {"clean", "linf 4/255 pgd10", "none", "swapped"}
    assert card.note.startswith("accuracy is that of the 10 images held out")
    assert card.run is not None
    assert card.run.recipe["data"] == data
    assert trained_on(card) == TrainingImages(data["name"], None, (("cue", "sticker"),))
    images = TrainingImages(data["name"], None, (("cue", "sticker"),)).of(load_model(tmp_path / "run/a.safetensors").spec)
    assert images.source.cue == Sticker()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"name": "pets", "cue": "stiker"}, "`data.cue` must be one of none, sticker, swapped, got 'stiker': did you mean"),
        ({"name": "shapes", "cue": "bakground"}, "`data.cue` must be one of background, none, swapped, sticker, got"),
        ({"name": "pets", "cu": "sticker"}, "`data` has an unknown key 'cu': did you mean 'cue'?"),
        ({"name": "pets", "siez": 112}, "`data` has an unknown key 'siez': did you mean 'size'?"),
        ({"name": "pets", "count": 3}, "`data` has an unknown key 'count': it may have limit, size, boxes, classes, cue"),
        ({"name": "pets", "classes": "breds"}, "`data.classes` must be one of species, breeds, got 'breds': did you mean"),
        ({"name": "pets", "cue": "sticker", "cue_size": 2}, "`data.cue_size` must be a share of the image's short side"),
        ({"name": "pets", "cue": "sticker", "cue_size": "big"}, "`data.cue_size` must be a number, got 'big'"),
        ({"name": "pets", "cue": "sticker", "cue_seed": -1}, "`data.cue_seed` must be a whole number of at least 0, got -1"),
        ({"name": "pets", "cue_size": 0.3}, '`data.cue_size` must be given with cue="sticker", got 0.3'),
    ],
)
def test_mistakes_are_one_sentence(data: dict[str, Any], sentence: str) -> None:
    (problem,) = problems_of(**data)
    assert problem.startswith(sentence)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_takes_stickers_and_no_other_key(kind: str) -> None:
    problems: list[Any] = []
    assert data_table({"name": f"{kind}:x", "cue": "sticker"}, problems)["options"] == {"cue": "sticker"}
    assert problems == []
    data_table({"name": f"{kind}:x", "progress": 1}, problems)
    assert [problem.where for problem in problems] == ["data"]
