"""Recipes: read, checked with all problems at once, and written back."""

import json
import pickle
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest
from toy_training import ToyLoss

from locality.toml_settings import read_toml
from locality.training.averaging import AVERAGES, Ema
from locality.training.inner_attack import InnerAttack
from locality.training.losses import LOSSES
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.trades import Trades
from locality.training.new_model import augmentation_problems
from locality.training.recipe import RECIPES, Recipe, RecipeError, check_recipe, read_recipe, recipe_from
from locality.training.recipe_parts import Augmentation, Net, TrainingData
from locality.training.regularisers import REGULARISERS
from locality.training.regularisers.logit_squeezing import LogitSqueezing
from locality.training.schedules import SCHEDULES, Constant, Linear
from locality.training.step_size import STEP_SIZES, Cosine, OneCycle
from locality.training.weight_shifts import WEIGHT_SHIFTS
from locality.types import Threat
from locality.zoo.nets import NETS

GOOD = 'name = "a"\nnet = { name = "tiny_resnet" }\nepochs = 1\ndata = { name = "shapes" }\n'
AT = '[loss]\nname = "at"\nattack = { epsilon = "4/255" }\n'


def recipe_file(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(folder: Path, text: str) -> list[tuple[str, str]]:
    with pytest.raises(RecipeError) as caught:
        read_recipe(recipe_file(folder, text))
    return [(problem.where, problem.text) for problem in caught.value.problems]


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_is_good(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = read_toml(path)
    recipe = recipe_from(table, path.stem)
    if str(table.get("start")).startswith("runs/"):  # of another recipe, which has to be run first
        first = Path(table["start"]).stem
        assert (RECIPES / f"{first}.toml").exists()
        with pytest.raises(RecipeError, match=rf"must be a file that exists, .*: run `locality train {first}` first"):
            read_recipe(path)
    else:
        assert read_recipe(path) == read_recipe(path.stem) == recipe
    assert recipe.name == path.stem
    # As a card holds it.
    assert recipe_from(json.loads(json.dumps(recipe.as_table())), "card") == recipe


def test_a_folder_of_the_same_name_hides_no_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shapes_cnn").mkdir()  # a run of it, for example
    monkeypatch.chdir(tmp_path)
    assert read_recipe("shapes_cnn").name == "shapes_cnn"


def test_fractions_and_defaults(tmp_path: Path) -> None:
    recipe = read_recipe(recipe_file(tmp_path, GOOD + AT))
    assert recipe.loss == Adversarial(InnerAttack(4 / 255))
    assert recipe.threat == Threat("linf", 4 / 255)
    assert (recipe.batch_size, recipe.step_size, recipe.regularisers) == (64, OneCycle(), {})
    assert read_recipe(recipe_file(tmp_path, GOOD)).threat is None


FULL = """
name = "full"
net = { name = "tiny_vit", depth = 2, width = 24 }
epochs = 3
data = { name = "shapes", limit = 100 }
average = { name = "ema", decay = 0.9 }
step_size = { name = "cosine", warm_up_steps = 5 }

[loss]
name = "trades"
beta = 2
attack = { norm = "l2", epsilon = 0.5, mode = "train" }

[regularisers]
logit_squeezing = { weight = 0.01, schedule = { name = "linear", until = 0.5 } }
"""


def test_every_part_is_read(tmp_path: Path) -> None:
    recipe = read_recipe(recipe_file(tmp_path, FULL))
    assert recipe == Recipe(
        "full",
        Net("tiny_vit", {"depth": 2, "width": 24}),
        TrainingData("shapes", 100),
        3,
        average=Ema(0.9),
        step_size=Cosine(5),
        loss=Trades(InnerAttack(0.5, "l2", mode="train"), beta=2.0),
        regularisers={"logit_squeezing": LogitSqueezing(0.01, Linear(until=0.5))},
    )
    assert recipe.loss_name == "trades"
    table = recipe.as_table()
    assert table["net"] == {"name": "tiny_vit", "depth": 2, "width": 24}
    assert table["weight_shift"] == {"name": "none"}
    assert "start" not in table  # TOML has no None
    assert recipe_from(json.loads(json.dumps(table)), "card") == recipe


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        (GOOD + "epocs = 2", "", "has an unknown key 'epocs': did you mean 'epochs'?"),
        (GOOD.replace("tiny_resnet", "tiny_resnt"), "net.name", "must be one of"),
        (GOOD.replace('{ name = "tiny_resnet" }', "3"), "net", "must be a table, got 3"),
        (GOOD.replace('"tiny_resnet"', "[]"), "net.name", "must be a text, got []"),
        (GOOD.replace('name = "tiny_resnet"', "depth = 3"), "net", "must have the key 'name'"),
        (GOOD.replace('"tiny_resnet"', '"tiny_vit", deph = 3'), "net", "has an unknown key 'deph': did you mean 'depth'?"),
        (GOOD.replace('"tiny_resnet"', '"tiny_vit", depth = 0.5'), "net.depth", "must be a whole number, got 0.5"),
        (GOOD + '[loss]\nname = "at"', "loss", "must have the key 'attack'"),
        (GOOD + '[loss]\nname = "at"\nattack = {}', "loss.attack", "must have the key 'epsilon'"),
        (
            GOOD + AT.replace("attack = {", 'attack = { norm = "l1",'),
            "loss.attack.norm",
            "must be one of l2, linf, got 'l1'",
        ),
        (GOOD + AT.replace("4/255", "four"), "loss.attack.epsilon", "must be a number, got 'four'"),
        (GOOD + AT.replace("4/255", "1/0"), "loss.attack.epsilon", "must be a number, got '1/0'"),
        (GOOD + AT.replace("4/255", "1e999"), "loss.attack.epsilon", "must be a number, got '1e999'"),
        (GOOD + AT.replace('"4/255"', "4.0"), "loss.attack.epsilon", "must be at most 1 for linf"),
        (GOOD + AT.replace('"4/255"', "nan"), "loss.attack.epsilon", "must be a positive distance"),
        (GOOD + AT.replace('"4/255"', '"4/255", steps = 0'), "loss.attack.steps", "must be above 0"),
        (
            GOOD + AT.replace('"4/255"', '"4/255", warm_up = 2'),
            "loss.attack.warm_up",
            "must be a share from 0 to 1, got 2.0",
        ),
        (
            GOOD + AT.replace('"at"', '"fast_at"').replace('"4/255"', "4"),
            "loss.attack.epsilon",
            "must be at most 1 for linf",
        ),
        (GOOD + AT.replace('"at"', '"fast_at"').replace("{", "{ steps = 3,"), "loss.attack", "has an unknown key 'steps'"),
        (GOOD + "loss = 3", "loss", 'must be a table such as { name = "standard" }, got 3'),
        (GOOD + '[loss]\nname = "tradse"', "loss.name", "must be one of standard, at, fast_at, trades, "),
        (GOOD + '[loss]\nname = "standard"\nlabel_smoothing = 1', "loss.label_smoothing", "must be at least 0 and below 1"),
        (GOOD + '[loss]\nname = "standard"\nbeta = 1', "loss", "has an unknown key 'beta'"),
        (GOOD + AT.replace('"at"', '"trades"') + "beta = -1", "loss.beta", "must be at least 0"),
        (
            GOOD + AT.replace('"at"', '"rat"') + "noise = { sigma = 0 }",
            "loss.noise.sigma",
            "must be above 0 and finite, got 0.0",
        ),
        (
            GOOD + AT.replace('"at"', '"rat"') + 'noise = { unit = "rms" }',
            "loss.noise.unit",
            "must be one of absolute, relative",
        ),
        (GOOD + AT.replace('"at"', '"rat_labels"') + "eta = 1.5", "loss.eta", "must be a share from 0 to 1, got 1.5"),
        (GOOD + AT.replace('"at"', '"rat_labels"') + "order = 3", "loss.order", "must be one of 1, 2, got 3"),
        (
            GOOD + 'precision = "bf16"\n' + AT.replace('"at"', '"rat_terms"'),
            "loss.order",
            'must be 1 with precision = "bf16", which rounds the second-order term away',
        ),
        (GOOD + "regularisers = 1", "regularisers", "must be a table, got 1"),
        (GOOD + "[regularisers]\nnothing = { weight = 1 }", "regularisers", "must be one of logit_squeezing, trh, "),
        (GOOD + "[regularisers]\nlogit_squeezing = 1", "regularisers.logit_squeezing", "must be a table such as { weight"),
        (GOOD + "[regularisers]\nlogit_squeezing = {}", "regularisers.logit_squeezing", "must have the key 'weight'"),
        (
            GOOD + "[regularisers]\nlogit_squeezing = { weight = nan }",
            "regularisers.logit_squeezing.weight",
            "must be finite",
        ),
        (GOOD + 'weight_shift = { name = "awpp" }', "weight_shift.name", "must be one of none, awp, awpt, sam"),
        (GOOD + 'average = { name = "ema", decay = 1 }', "average.decay", "must be at least 0 and below 1"),
        (GOOD + "ema = 0.99", "", "has an unknown key 'ema'"),
        (
            GOOD + 'step_size = { name = "cyclic" }',
            "step_size.name",
            "must be one of constant, one_cycle, cosine, piecewise",
        ),
        (GOOD + '[optimizer]\nschedule = "constant"', "optimizer", "has an unknown key 'schedule'"),
        (GOOD + "[optimizer]\nlearning_rate = 0", "optimizer.learning_rate", "must be above 0"),
        (GOOD + "[optimizer]\nlearning_rate = nan", "optimizer.learning_rate", "must be above 0 and finite, got nan"),
        (GOOD + "[optimizer]\nmomentum = 1", "optimizer.momentum", "must be at least 0 and below 1"),
        (GOOD + "[optimizer]\nweight_decay = -1", "optimizer.weight_decay", "must be at least 0"),
        (GOOD + "[optimizer]\nclip_norm = 0", "optimizer.clip_norm", "must be above 0"),
        (GOOD.replace("epochs = 1", "epochs = true"), "epochs", "must be a whole number, got True"),
        (GOOD.replace("epochs = 1", "epochs = -1"), "epochs", "must be at least 0"),
        (GOOD.replace('"a"', '"../a"'), "name", "must be usable as a file name"),
        (GOOD + "mean = [0.5, 0.5]", "mean", "must be a list of 3"),
        (GOOD + "std = [0.5, 0, 0.5]", "std", "must be above 0"),
        (GOOD + "std = [0.5, nan, 0.5]", "std", "must be above 0"),
        (GOOD + "evaluate_epsilon = 4", "evaluate_epsilon", "must be at most 1 for linf"),
        (GOOD + "evaluate_epsilon = 0", "evaluate_epsilon", "must be a positive distance"),
        (GOOD + "[augmentation]\nshift = -3", "augmentation.shift", "must be at least 0"),
        (GOOD + "[augmentation]\ncolour = -0.1", "augmentation.colour", "must be at least 0"),
        (GOOD + 'start = "my_models:net"', "start", "must be a model or a checkpoint, not code to run"),
        (GOOD + "seed = -1", "seed", "must be at least 0"),
        (GOOD + "seed = 4294967296", "seed", "must be below 2³²"),
        (GOOD + "batch_size = 0", "batch_size", "must be above 0"),
    ],
)
def test_a_mistake_says_where_it_is(tmp_path: Path, text: str, where: str, message: str) -> None:
    ((where_listed, sentence),) = problems_of(tmp_path, text)
    assert where_listed == where
    assert sentence.startswith(message)


@pytest.mark.parametrize("size", ["0", "-32", "1_000_000", "32.5", '"large"', "true", "[32, 32]"])
def test_a_size_is_a_number_of_pixels(tmp_path: Path, size: str) -> None:
    text = GOOD.replace('{ name = "shapes" }', f'{{ name = "shapes", size = {size} }}')
    assert text != GOOD
    ((where, _),) = problems_of(tmp_path, text)
    assert where == "data.size"


def test_a_recipe_without_a_size_is_written_as_before(tmp_path: Path) -> None:
    assert read_recipe(recipe_file(tmp_path, GOOD)).as_table()["data"] == {"name": "shapes"}  # states and cards stay valid
    sized = replace(read_recipe(recipe_file(tmp_path, GOOD)), data=TrainingData("shapes", size=32))
    assert recipe_from(sized.as_table(), "a card") == sized


def test_all_mistakes_are_listed_at_once(tmp_path: Path) -> None:
    text = """
net = { name = "tiny_vit", deph = 2 }
epochs = "many"
batch_size = 0
data = { name = "shaeps", limit = 0 }
average = { name = "ema", decay = 2.0 }
[loss]
name = "trades"
attack = { epsilon = 3, steps = -1 }
[regularisers]
squeezing = { weight = 1 }
"""
    with pytest.raises(RecipeError, match=r"recipe.toml` is not a valid recipe, 10 problems: .*; ") as caught:
        read_recipe(recipe_file(tmp_path, text))
    assert sorted(problem.where for problem in caught.value.problems) == [
        "",  # `name` is missing
        "average.decay",
        "batch_size",
        "data.limit",
        "data.name",
        "epochs",
        "loss.attack.epsilon",
        "loss.attack.steps",
        "net",
        "regularisers",
    ]
    assert "\n" not in str(caught.value)
    assert "got 'shaeps': did you mean 'shapes'?" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.problems, str(again)) == (caught.value.problems, str(caught.value))


def test_recipes_made_in_python_are_checked_too() -> None:
    recipe = Recipe("a", Net("shapes_cnn"), TrainingData("shapes"), epochs=1)
    check_recipe(recipe)
    wrong = replace(
        recipe,
        net=Net("tiny_vit", {"deph": 1}),
        loss=Adversarial(InnerAttack(4.0)),
        regularisers={"squeezing": LogitSqueezing(float("inf"), Constant())},
    )
    with pytest.raises(RecipeError) as caught:
        check_recipe(wrong)
    assert [problem.where for problem in caught.value.problems] == [
        "net",
        "loss.attack.epsilon",
        "regularisers.squeezing.weight",
        "regularisers",
    ]
    with pytest.raises(RecipeError, match=r"`net.name` must be one of shapes_cnn, .* did you mean 'shapes_cnn'"):
        check_recipe(replace(recipe, net=Net("shapes_cn")))
    with pytest.raises(ValueError, match=r"must be one of standard, .* got 'ToyLoss': add a line to the table"):
        replace(recipe, loss=ToyLoss()).as_table()


def test_what_is_at_the_edge_is_good(tmp_path: Path) -> None:
    """An ℓ2 ball may be wider than 1."""
    for text in (
        AT.replace('"4/255"', '3, norm = "l2"'),
        AT.replace('"4/255"', "1"),
        '[loss]\nname = "standard"\nlabel_smoothing = 0\n[augmentation]\nshift = 0\ncolour = 0',
    ):
        assert read_recipe(recipe_file(tmp_path, GOOD + text)).name


@pytest.mark.parametrize("name", ["shift", "cutout"])
def test_a_shift_or_a_cutout_beyond_the_image(name: str) -> None:
    augmentation = replace(Augmentation(), **{name: 64})  # type: ignore[arg-type]
    assert augmentation_problems(augmentation, 65, 80) == []
    (problem,) = augmentation_problems(augmentation, 65, 64)
    assert problem.where == f"augmentation.{name}"
    assert problem.text.startswith("must be less than the side of an image, which is 65×64, got 64")


def test_the_documentation_shows_a_recipe_and_every_name() -> None:
    text = (Path(__file__).parents[2] / "docs/training.md").read_text(encoding="utf-8")
    example = tomllib.loads(text.split("```toml\n")[1].split("```")[0])
    recipe = recipe_from(example, "docs/training.md")
    assert set(example) == {entry.name for entry in fields(recipe)}  # it sets everything that can be set
    for table in (NETS, LOSSES, REGULARISERS, WEIGHT_SHIFTS, SCHEDULES, AVERAGES, STEP_SIZES):
        for name in table:
            assert f"`{name}`" in text or f" {name} " in text, name


def test_unknown_recipe(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one of pets_lite0, .* or a TOML file, got 'nothing'"):
        read_recipe("nothing")
    with pytest.raises(ValueError, match="is not a TOML file"):
        read_recipe(recipe_file(tmp_path, "name = "))
