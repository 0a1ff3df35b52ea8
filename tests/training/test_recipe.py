from pathlib import Path

import pytest

from locality.training.recipe import RECIPES, read_recipe

GOOD = 'name = "a"\nnet = "tiny_resnet"\nepochs = 1\ndata = { name = "shapes" }\n'


def recipe_file(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_good(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.name == path.stem
    assert read_recipe(path.stem) == recipe


def test_fractions_and_defaults(tmp_path: Path) -> None:
    recipe = read_recipe(recipe_file(tmp_path, GOOD + '[loss]\nname = "at"\nepsilon = "4/255"\n'))
    assert recipe.loss.epsilon == pytest.approx(4 / 255)
    assert (recipe.loss.norm, recipe.loss.attack_mode, recipe.batch_size) == ("linf", "eval", 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 1", "must have the key 'name'"),
        (GOOD + "epocs = 2", "unknown key 'epocs': did you mean 'epochs'"),
        (GOOD.replace("tiny_resnet", "tiny_resnt"), "did you mean 'tiny_resnet'"),
        (GOOD + '[loss]\nname = "at"', "`loss.epsilon` must be above 0"),
        (GOOD + '[loss]\nnorm = "l1"', "must be one of linf, l2, got 'l1'"),
        (GOOD + '[loss]\nepsilon = "four"', "must be float, got 'four'"),
        (GOOD + '[loss]\nepsilon = "1/0"', "must be float, got '1/0'"),
        (GOOD + "loss = 3", "must be a table"),
        (GOOD + '[loss]\nname = "mart"', "`loss.name` must be one of standard"),
        (GOOD + "[regularisers]\nnothing = 1.0", "`regularisers` must be one of logit_squeezing"),
        (GOOD + "[optimizer]\nlearning_rate = 0", "`optimizer.learning_rate` must be above 0"),
        (GOOD.replace("epochs = 1", "epochs = true"), "epochs` must be int, got True"),
        (GOOD.replace("epochs = 1", "epochs = -1"), "`epochs` must be at least 0"),
        (GOOD.replace('"a"', '"../a"'), "good for a file's name"),
        (GOOD + "ema = 1.0", "`ema` must be"),
        (GOOD + "mean = [0.5, 0.5]", "mean` must be"),
        ("name = ", "is not a TOML file"),
    ],
)
def test_bad_recipes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match="(?s).*" + __import__("re").escape(message)):
        read_recipe(recipe_file(tmp_path, text))


def test_unknown_recipe() -> None:
    with pytest.raises(ValueError, match=r"one of shapes_cnn, .*got 'nothing'"):
        read_recipe("nothing")
