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
        (GOOD + '[loss]\nname = "at"\nepsilon = 4.0', "`loss.epsilon` must be at most 1 for linf"),
        (GOOD + '[loss]\nname = "at"\nepsilon = nan', "`loss.epsilon` must be a positive distance"),
        (GOOD + '[loss]\nname = "trades"\nnorm = "l2"\nepsilon = inf', "`loss.epsilon` must be a positive distance"),
        (GOOD + "evaluate_epsilon = 4", "`evaluate_epsilon` must be at most 1 for linf"),
        (GOOD + "evaluate_epsilon = 0", "`evaluate_epsilon` must be a positive distance"),
        (GOOD + "[augmentation]\nshift = -3", "`augmentation.shift` must be at least 0"),
        (GOOD + "[augmentation]\ncolour = -0.1", "`augmentation.colour` must be at least 0"),
        (GOOD + "[loss]\nlabel_smoothing = 1", "`loss.label_smoothing` must be at least 0 and below 1, got 1.0"),
        (GOOD + "[loss]\nlabel_smoothing = -0.1", "`loss.label_smoothing` must be at least 0"),
        (GOOD + "[loss]\nbeta = -1", "`loss.beta` must be at least 0"),
        (GOOD + "std = [0.5, 0, 0.5]", "`std` must be above 0"),
        (GOOD + "std = [0.5, nan, 0.5]", "`std` must be above 0"),
        (GOOD + "seed = -1", "`seed` must be at least 0"),
        (GOOD + "seed = 4294967296", "`seed` must be below 2³²"),
        (GOOD + "[optimizer]\nlearning_rate = nan", "`optimizer.learning_rate` must be above 0 and finite, got nan"),
        (GOOD + "[optimizer]\nmomentum = 1", "`optimizer.momentum` must be at least 0 and below 1"),
        (GOOD + "[optimizer]\nweight_decay = -1", "`optimizer.weight_decay` must be at least 0"),
        (GOOD + "[optimizer]\nclip_norm = 0", "`optimizer.clip_norm` must be above 0"),
        (GOOD + '[loss]\nepsilon = "1e999"', "must be float, got '1e999'"),
        ("name = ", "is not a TOML file"),
    ],
)
def test_bad_recipes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match="(?s).*" + __import__("re").escape(message)):
        read_recipe(recipe_file(tmp_path, text))


def test_what_is_at_the_edge_is_good(tmp_path: Path) -> None:
    """An l2 ball may be wider than 1, and standard training looks at no ε."""
    for text in (
        '[loss]\nname = "at"\nnorm = "l2"\nepsilon = 3',
        '[loss]\nname = "at"\nepsilon = 1',
        "[loss]\nepsilon = 4",
        "[loss]\nlabel_smoothing = 0\n[augmentation]\nshift = 0\ncolour = 0",
    ):
        read_recipe(recipe_file(tmp_path, GOOD + text))


def test_unknown_recipe() -> None:
    with pytest.raises(ValueError, match=r"one of shapes_cnn, .*got 'nothing'"):
        read_recipe("nothing")
