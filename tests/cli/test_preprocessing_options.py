"""Every command that loads a model takes its preprocessing, prints it, stores it, and warns of a low accuracy."""

import json
from pathlib import Path

import pytest
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from locality.cli import app
from locality.results.folder import read_results
from locality.zoo.architectures import build
from locality.zoo.load import load_model

OPTIONS = ["input-size", "resize", "interpolation", "mean", "std", "classes"]
FEW = ["--limit", "8"]
QUICK = {
    "eval": ["--methods", "SM", "--search", "fast"],
    "robust": ["--attack", "pgd20"],
    "certify": ["--by", "smoothing", "--samples", "20", "--selection-samples", "5"],
}


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.data.sources.shapes.DEFAULT_COUNT", {"eval": 40, "train": 40})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    model = load_model("shapes_cnn")
    save_file(model.net.state_dict(), tmp_path / "mine.safetensors")
    (tmp_path / "classes.txt").write_text("\n".join(model.spec.classes), encoding="utf-8")
    return tmp_path / "mine.safetensors"


def run(*words: object) -> tuple[str, str]:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.mark.parametrize("command", ["eval", "compare", "explain", "robust", "certify"])
def test_every_command_has_the_options(command: str) -> None:
    text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).stdout
    assert all(f"--{option} " in text for option in OPTIONS)
    assert ("--expect-accuracy" in text) == (command != "explain")


@pytest.mark.parametrize("command", QUICK)
def test_what_is_given_is_printed_and_stored(command: str, checkpoint: Path) -> None:
    given = ["--arch", "net:shapes_cnn", "--input-size", "64", "--mean", "0.45", "--std", "0.25,0.25,0.25"]
    given += ["--interpolation", "bicubic", "--classes", str(checkpoint.with_name("classes.txt"))]
    words = [command, "--model", checkpoint, *given, *FEW, *QUICK[command]]
    line = "resize 64 bicubic, crop 64×64, mean 0.45, std 0.25 (as given)"
    assert f"preprocessing: {line}\n" in run(*words)[0]
    assert json.loads(run(*words, "--json")[0])["provenance"]["preprocessing"] == line


def test_compare_prints_both(checkpoint: Path) -> None:
    classes = checkpoint.with_name("classes.txt")
    words = ["compare", "shapes_cnn", checkpoint, "--arch", "net:shapes_cnn", "--classes", classes, "--methods", "SM", *FEW]
    text = run(*words)[0]
    assert "preprocessing of shapes_cnn: resize 64 bilinear, crop 64×64, mean 0.45, std 0.25 (from the model's card)" in text
    assert "preprocessing of mine: resize 64 bilinear, crop 64×64, mean 0.45, std 0.25 (guessed from net:shapes_cnn)" in text


def test_a_guess_says_how_to_correct_it(checkpoint: Path) -> None:
    photo = checkpoint.with_name("photo.png")
    Image.new("RGB", (64, 64), "red").save(photo)
    words = ["explain", photo, "--methods", "SM", "--model", checkpoint, "--arch", "net:shapes_cnn"]
    words += ["--out", checkpoint.with_name("x.png")]
    hint = "If the network was trained otherwise: --input-size, --resize, --interpolation, --mean and --std."
    assert hint in run(*words)[0]
    assert hint not in run(*words, "--input-size", "64", "--interpolation", "bilinear", "--mean", "0.45", "--std", "0.25")[0]


def test_an_accuracy_far_below_the_card_or_the_expected_one_is_a_warning() -> None:
    good = ["eval", "--model", "shapes_cnn", "--limit", "20", "--methods", "SM"]
    assert "warning" not in run(*good)[1]  # a slow machine also prints progress there
    wrong = run(*good, "--input-size", "160")[1]
    assert "locality: warning: shapes_cnn has an accuracy of " in wrong
    assert "far below the 100.0% of its card: check the preprocessing" in wrong
    assert "warning" not in run(*good, "--data", "shapes:swapped")[1]  # the card is not about these
    asked = run(*good, "--data", "shapes:swapped", "--expect-accuracy", "95%")[1]
    assert "far below the 95.0% of --expect-accuracy" in asked


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--input-size", "big"], "`--input-size` must be a number of pixels, such as 224 or 224x192, got 'big'"),
        (["--mean", "0.5,0.5"], "`--mean` must be one number or three"),
        (["--std", "0"], "`--std` must be one positive number"),
        (["--resize", "8"], "`--resize` must be at least the longer side"),
        (["--classes", "nothing.txt"], "`--classes` must be a file with one class per line"),
        (["--expect-accuracy", "76"], "`--expect-accuracy` must be a share such as 0.76 or 76%"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, ["eval", "--model", "shapes_cnn", *words])
    assert isinstance(result.exception, ValueError)
    assert sentence in str(result.exception)


@pytest.mark.parametrize("command", QUICK)
def test_labels_that_the_model_cannot_have_leave_accuracy_undefined(command: str, tmp_path: Path) -> None:
    save_file(build("net:shapes_cnn", 5).state_dict(), tmp_path / "five.safetensors")
    words = [command, "--model", tmp_path / "five.safetensors", "--arch", "net:shapes_cnn", "--data", "shapes"]
    text, warning = run(*words, *FEW, *QUICK[command])
    assert "undefined" in text
    assert "five has 5 classes, but shapes has labels up to" in warning


def test_a_suite_gives_its_models_a_preprocessing_and_keeps_it(checkpoint: Path, tmp_path: Path) -> None:
    suite = tmp_path / "small.toml"
    suite.write_text(
        'methods = ["SM"]\nsearch = "none"\ndata = { name = "shapes", limit = 2, options = { count = 20 } }\n'
        f'models = ["shapes_cnn", {{ name = "mine", load = "{checkpoint}", arch = "net:shapes_cnn", input_size = [32, 48], '
        f'mean = [0.5, 0.5, 0.5], classes = "{checkpoint.with_name("classes.txt")}" }}]\n',
        encoding="utf-8",
    )
    text = run("bench", suite, "--out", tmp_path / "out", "--processes", "0")[0]
    line = "resize 48 bilinear, crop 32×48, mean 0.5, std 0.25 (input size, resize, mean: as given; "
    line += "interpolation, std: guessed from net:shapes_cnn)"
    assert f"preprocessing of mine: {line}\n" in text
    results = read_results(tmp_path / "out")
    assert results.provenance["data"]["mine"]["preprocessing"] == line
    assert len(results.rows) == 4
