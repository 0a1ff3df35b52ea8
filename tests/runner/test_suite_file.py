"""Suites: how they are read, and that all mistakes are listed at once."""

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from locality.files import packaged_file
from locality.runner.measurements.gallery import GallerySettings
from locality.runner.measurements.layer_randomisation import LayerRandomisationSettings
from locality.runner.measurements.similarity import SimilaritySettings
from locality.runner.plan import make_plan
from locality.runner.plan_problems import grouped_parts
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.suite_file import Draft, SuiteError, draft_suite, read_suite, with_images
from locality.runner.suite_models import model_rows
from locality.zoo.architectures import is_function
from locality.zoo.catalog import model_cards

GOOD = 'models = ["suite_models:steady"]\ndata = { name = "shapes", limit = 4, options = { count = 20 } }\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_short_forms_and_defaults(tmp_path: Path) -> None:
    suite = read_suite(
        written(
            tmp_path,
            GOOD + 'robust = { epsilon = "8/255", limit = 2 }',
        )
    )
    assert suite.name == "mine"
    assert suite.models == (ModelChoice("suite_models:steady"),)
    assert (suite.data.limit, suite.data.options, suite.data.max_box_share) == (4, (("count", 20),), 0.8)
    (attack,) = suite.requested("robust")
    assert (attack.epsilon, attack.attack) == (8 / 255, "paper")
    assert (suite.methods, suite.search, suite.seed) == (("SM", "IG", "BIG"), "fast", 0)
    assert list(suite.measurements) == ["robust"]
    both = read_suite(written(tmp_path, GOOD + '[[robust]]\nnorm = "l2"\nepsilon = 0.5\n[[robust]]\nattack = "pgd20"'))
    assert [(attack.norm, attack.attack) for attack in both.requested("robust")] == [("l2", "paper"), ("linf", "pgd20")]


def test_a_measurement_is_a_table_true_or_a_number_of_images(tmp_path: Path) -> None:
    text = GOOD + "gallery = 3\nsimilarity = true\nlayer_randomisation = {}\nsearches = false\n"
    suite = read_suite(written(tmp_path, text))
    assert suite.requested("gallery") == (GallerySettings(3),)
    assert suite.requested("similarity") == (SimilaritySettings(),)
    assert suite.requested("layer_randomisation") == (LayerRandomisationSettings(),)
    assert suite.requested("searches") == suite.requested("faithfulness") == ()


def test_all_mistakes_are_listed_at_once(tmp_path: Path) -> None:
    text = """
        models = ["shapes_cn", "vgg16", "vgg16", "nowhere/net.pth"]
        methods = ["SM", "BIIG"]
        search = "fsat"
        galery = 3
        target = "best"
        gallery = "many"
        data = { name = "imaginary", limit = 0, options = { boxes = ["a"] } }
        pairs = { vgg16 = "resnet50" }
        robust = { attack = "papr", epsilon = "4/0" }
        layer_randomisation = { limit = 0, models = ["resnet50"], methods = ["captum:Nothing"] }
        searches = { names = ["foolbox:Nothing"] }
    """
    with pytest.raises(SuiteError) as caught:
        read_suite(written(tmp_path, text))
    problems = list(map(str, caught.value.problems))
    for part in (
        "`mine.toml` has an unknown key 'galery': did you mean 'gallery'?",
        "`target` must be one of predicted, label, got 'best'",
        "`gallery` must be a table, true, false or a number of images, got 'many'",
        "`shapes_cn` is not a model: did you mean 'shapes_cnn'?",
        "`models` names 'vgg16' twice",
        "`vgg16` needs the file vgg16-397923af.pth",
        "`nowhere/net.pth` is not a file",
        "got 'BIIG': did you mean 'BIG'?",
        "got 'fsat': did you mean 'fast'?",
        "`data.name` must be one of shapes, photos",
        "`data.limit` must be at least 1, got 0",
        "`data.options.boxes` must be a text or a number",
        "`pairs` must name models of the suite, got 'resnet50'",
        "`layer_randomisation.models` must name models of the suite, got 'resnet50'",
        "`layer_randomisation.limit` must be at least 1",
        "of a Captum class that explains images, got 'captum:Nothing'",
        "must be one of paper, standard, rays, pgdN, cwN, raysN, got 'papr': did you mean 'paper'?",
        "`robust.epsilon` must be a number, got '4/0'",
        "Nothing",
    ):
        assert [problem for problem in problems if part in problem], part
    assert len(problems) == len(set(problems))
    assert f"cannot run, {len(problems)} problems: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = ", "is not a TOML file"),
        ("methods = ['SM']", "must have the key 'models'"),
        ("models = []", "`models` must name at least one"),
        (
            'models = [{ name = "", load = "suite_models:steady" }]',
            "`models` must give every model a name, got an empty one",
        ),
        (GOOD + "methods = []", "`methods` must name at least one"),
        (GOOD + 'name = "a/b"', "`name` must be usable as the name of a folder"),
        (GOOD + "gallery = -1", "`gallery.limit` must be at least 1, got -1"),
        (GOOD + "locality = false", "`locality` must not be false where nothing else is measured"),
        (GOOD + "[[searches]]\n[[searches]]", "`searches` must be given once"),
        (GOOD + 'similarity = true\nsearch = "none"\nmethods = ["SM"]', "`search` must not be 'none' where similarity"),
        (GOOD + 'search = "none"', "`search` must not be 'none' where BIG is requested"),
        (GOOD + "faithfulness = { samples = 0 }", "`faithfulness.samples` must be at least 1"),
        (GOOD + "faithfulness = { sigma = 0 }", "`faithfulness.sigma` must be above 0"),
        (GOOD + "faithfulness = { sigma = inf }", "`faithfulness.sigma` must be above 0"),
        (GOOD + "rho = -1", "`rho` must be 0 or larger"),
        (GOOD + "searches = { names = [] }", "`searches.names` must name at least one search"),
        (GOOD + "similarity = 1", "`similarity` must be a table, true or false, got 1"),
        (GOOD + "xyz = 1", "it may have name, models"),
        (GOOD.replace("limit = 4", "max_box_share = 1.5"), "`data.max_box_share` must be a share"),
        (GOOD + "pairs = { a = 3 }", "must be a text, got 3"),
        (GOOD + 'faithfulness = ["SM"]', "`faithfulness` must be a table, true, false or a number of images, got 'SM'"),
        (GOOD + 'methods = "SM"', "must be a list, got 'SM'"),
    ],
)
def test_bad_suites(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SuiteError, match="(?s).*" + re.escape(message)):
        read_suite(written(tmp_path, text))


def test_what_would_spoil_a_run_is_listed_before_it(tmp_path: Path) -> None:
    text = """
        models = ["suite_models:steady", "shapes_cn"]
        rho = nan
        data = { name = "shapes", limit = 2, options = { boxes = ["a"], seed = 1, split = "train" } }
        faithfulness = { sigma = -1.0 }
        searches = { names = ["fast", "fast"] }
        robust = [{ attack = "pgd20" }, { attack = "cw20" }, { attack = "pgd20", limit = 3 }]
    """
    draft = draft_suite(written(tmp_path, text))
    with pytest.raises(SuiteError) as caught:
        make_plan(draft.suite, draft.problems)
    assert list(map(str, caught.value.problems)) == [
        "`shapes_cn` is not a model: did you mean 'shapes_cnn'? (`locality models` lists all)",
        "`data.options.boxes` must be a text or a number, got ['a']",
        "`data.options.seed` must not be given: set `data.seed`",
        "`data.options.split` must not be given: a suite measures the evaluation split",
        "`rho` must be 0 or larger, got nan",
        "`robust[2]` must not repeat the attack of `robust[0]`: change or remove it",
        "`faithfulness.sigma` must be above 0, such as 0.03, got -1.0",
        "`searches.names` names 'fast' twice: once is enough",
    ]


def test_one_attack_may_be_asked_for_twice_of_different_models(tmp_path: Path) -> None:
    models = 'models = ["suite_models:steady", "suite_models:other"]\n'
    parts = '[[robust]]\nmodels = ["suite_models:steady"]\n[[robust]]\nlimit = 2\nmodels = ["suite_models:other"]\n'
    assert len(read_suite(written(tmp_path, models + parts)).requested("robust")) == 2
    with pytest.raises(SuiteError, match=r"`robust\[1\]` must not repeat"):
        read_suite(written(tmp_path, models + parts.replace('["suite_models:other"]', "[]")))


def test_other_images_on_the_command_line(tmp_path: Path) -> None:
    draft = draft_suite(written(tmp_path, GOOD.replace("count = 20", 'boxes = "a"').replace("shapes", "imaginary")))
    assert "data.name" in [problem.where for problem in draft.problems]
    assert with_images(draft) is draft
    other = with_images(draft, "imagenet:/a", tmp_path, 3)
    assert other.suite.data == DataChoice("imagenet:/a", limit=3, options=(("boxes", str(tmp_path)),))
    assert other.problems == ()
    assert "data.limit" in [problem.where for problem in with_images(draft, limit=0).problems]


def test_unknown_suite_lists_the_known_ones() -> None:
    names = "certified, cifar, curvature, demo, imagenet, paper, pets, pets_outlines, regions, similarity, tiny, zoo"
    with pytest.raises(ValueError, match=f"one of {names}, got 'dmo'"):
        read_suite("dmo")


@pytest.mark.parametrize("name", ["certified", "demo", "tiny", "similarity", "zoo", "imagenet", "paper"])
def test_suites_that_ship(name: str) -> None:
    """What may be missing here is weights; names and settings must be right."""
    draft = draft_suite(name)
    assert draft.suite.name == name == packaged_file(f"suites/{name}.toml").stem
    assert wrong_names(draft) == []
    for problem in draft.problems:
        missing = [choice.source for choice in draft.suite.models if problem.where == choice.name]
        assert missing, problem
        assert "needs the file" in problem.text or missing[0] not in model_cards(), problem


def wrong_names(draft: Draft) -> list[str]:
    """Models that neither the catalog has nor a recipe makes: the checkpoints of some recipes do not ship yet."""
    made = {Path(path.name).stem for path in files("locality.training").joinpath("recipes").iterdir()}
    sources = [choice.source for choice in draft.suite.models if not is_function(choice.source)]
    return [source for source in sources if source not in {*model_cards(), *made}]


def test_a_misspelt_model_of_a_suite_is_noticed(tmp_path: Path) -> None:
    text = packaged_file("suites/tiny.toml").read_text(encoding="utf-8").replace('"tiny_vit"', '"tinny_vitt"', 1)
    assert wrong_names(draft_suite(written(tmp_path, text))) == ["tinny_vitt"]


@pytest.mark.parametrize(
    ("models", "message"),
    [("", "`mine.toml` must have the key 'models'"), ('models = "vgg16"', "`models` must be a list, got 'vgg16'")],
)
def test_the_rest_is_checked_where_models_are_missing_or_wrong(tmp_path: Path, models: str, message: str) -> None:
    rest = 'name = 3\nmethods = ["IGG"]\nrobust = { attack = "nope" }\npairs = { a = "b" }\n'
    problems = list(map(str, draft_suite(written(tmp_path, rest + models)).problems))
    assert len(problems) == 4
    for part in (message, "`name` must be a text, got 3", "got 'nope'", "got 'IGG': did you mean 'IG'?"):
        assert [problem for problem in problems if part in problem], part


def test_a_pair_that_would_be_passed_over_is_refused(tmp_path: Path) -> None:
    def paired(training: str) -> tuple[str, ...]:
        ours = f'{{ name = "ours", load = "suite_models:steady"{training} }}'
        text = f'models = ["shapes_cnn", {ours}]\npairs = {{ ours = "shapes_cnn" }}'
        return tuple(map(str, draft_suite(written(tmp_path, text)).problems))

    assert paired(', training = "at"') == ()
    for training, word in (("", "unknown"), (', training = "standard"', "standard"), (', training = "random"', "random")):
        (problem,) = paired(training)
        assert problem.startswith(f"`pairs` must pair robust models with standard ones, got 'ours' of {word} training: give")


def test_the_plan_lists_what_only_opening_shows(tmp_path: Path) -> None:
    models = '["vgg16", "suite_models:nobody", "suite_models:broken", "suite_models:steady"]'
    text = f'models = {models}\ndata = "imagenet:/nowhere"'
    draft = draft_suite(written(tmp_path, text))
    with pytest.raises(SuiteError) as caught:
        make_plan(draft.suite, draft.problems)
    weights, data, missing, broken = caught.value.problems  # one for each: the data is not listed again for every model
    assert (weights.where, data.where) == ("vgg16", "data")
    assert "vgg16-397923af.pth" in weights.text
    assert "nobody" in missing.text
    assert "no such layer" in broken.text


def planned(suite: Suite) -> list[dict[str, object]]:
    return model_rows(make_plan(suite).models)


def test_counterparts(tmp_path: Path) -> None:
    text = """
        data = { name = "shapes", limit = 2, options = { count = 20 } }
        models = [
            { name = "net", load = "suite_models:steady", training = "standard" },
            { name = "net_robust", load = "suite_models:other", training = "at", norm = "linf", epsilon = "4/255" },
            { name = "net_random", load = "suite_models:other", training = "random" },
            { name = "lone", load = "suite_models:other", training = "trades" },
            { name = "adopted", load = "suite_models:other", training = "at", family = "net" },
        ]
    """
    suite = read_suite(written(tmp_path, text))
    rows = planned(suite)
    assert [row["counterpart"] for row in rows] == [None, "net", None, None, "net"]
    assert [row["family"] for row in rows] == ["net", "net", "net", "lone", "net"]
    assert rows[1]["epsilon"] == 4 / 255
    assert rows[1]["norm"] == "linf"
    assert rows[0]["weights_sha256"] != rows[1]["weights_sha256"] == rows[2]["weights_sha256"]
    paired = replace(suite, pairs=(("lone", "net"),))
    assert planned(paired)[3]["counterpart"] == "net"


def test_catalogued_models_describe_themselves() -> None:
    suite = Suite("one", (ModelChoice("shapes_cnn"),))
    (row,) = planned(suite)
    assert (row["family"], row["training"], row["norm"], row["counterpart"], row["data"]) == (
        "shapes_cnn",
        "standard",
        None,
        None,
        "shapes",
    )


def test_parts_of_a_suite(tmp_path: Path) -> None:
    more = 'robust = [{ limit = 2 }, { norm = "l2", epsilon = 1 }]\nsearches = { names = ["fast", "paper"] }\n'
    text = GOOD + more + "layer_randomisation = {}\ngallery = 3"
    parts = [group[0] for group in grouped_parts(read_suite(written(tmp_path, text)))]
    names = ["locality", "robust 1", "robust 2", "layer_randomisation", "searches fast", "searches paper", "gallery"]
    assert [part.name for part in parts] == names
    assert [part.limit for part in parts] == [None, 2, None, 16, 64, 64, 3]


def test_a_model_of_ones_own_takes_what_load_model_takes(tmp_path: Path) -> None:
    (tmp_path / "net.pth").touch()
    model = f'load = "{tmp_path}/net.pth"\narch = "torchvision:resnet18"\n'
    text = f'[[models]]\nname = "mine"\n{model}input_size = {{}}\nclasses = ["cat", "dog"]\nmulti_label = 1\n'
    (choice,) = read_suite(written(tmp_path, text.format(64))).models
    assert (choice.input_size, choice.classes, choice.multi_label) == (64, ("cat", "dog"), 1)
    (choice,) = read_suite(written(tmp_path, text.format([64, 48]))).models
    assert choice.input_size == (64, 48)
    with pytest.raises(SuiteError, match=r"`models\[0\].input_size` must be a whole number or a list of 2, got 'large'"):
        read_suite(written(tmp_path, text.format("'large'")))
    with pytest.raises(SuiteError, match=r"`mine` is not a model: .*, and `load` takes the path of a checkpoint"):
        read_suite(written(tmp_path, 'models = ["mine"]'))
