"""The checkpoints that ship: small enough together, and each made by the recipe that ships beside it."""

from pathlib import Path

import pytest

from locality.training.recipe import RECIPES, read_recipe, recipe_from
from locality.zoo.catalog import CHECKPOINTS
from locality.zoo.model_card import read_card

CARDS = sorted(CHECKPOINTS.glob("*.json"))
MOST_BYTES = 32_000_000


def test_together_they_are_small() -> None:
    files = [path for path in CHECKPOINTS.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


def test_every_card_has_weights_and_all_weights_a_card() -> None:
    assert CARDS
    assert {path.stem for path in CARDS} == {path.stem for path in CHECKPOINTS.glob("*.safetensors")}


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_a_card_has_the_recipe_that_ships(path: Path) -> None:
    """A recipe that was changed means a checkpoint to be trained again. A setting that is new since then has its default."""
    card = read_card(path)
    recipe = read_recipe(RECIPES / f"{path.stem}.toml")
    assert card.run is not None
    assert recipe_from(card.run.recipe, path.name) == recipe
    assert (card.name, card.run.seed) == (recipe.name, recipe.seed)
    assert (card.architecture, card.options) == (f"net:{recipe.net.name}", recipe.net.options)
    assert (card.spec.mean, card.spec.std) == (recipe.mean, recipe.std)
    assert card.training == (recipe.loss_name if recipe.epochs else "random")
    assert card.threat == recipe.threat
