"""`locality landscape`: numbers, files and a figure, of one model or of two."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from locality.cli import app
from locality.robustness.landscape_grids import read_landscapes
from locality.zoo.catalog import CHECKPOINTS

FEW = ["--limit", "2", "--points", "3"]


def run(*words: str) -> tuple[str, BaseException | None]:
    done = CliRunner().invoke(app, ["landscape", "--model", "shapes_cnn", *words])
    return done.stdout, done.exception


def test_two_models_around_images(tmp_path: Path) -> None:
    text, error = run(*FEW, "--against", "shapes_cnn_robust", "--eps", "8/255", "--out", str(tmp_path))
    assert error is None, error
    assert "difference" in text
    assert "cross-entropy, 2 images" in text
    assert {path.name for path in tmp_path.iterdir()} == {
        "landscape.parquet",
        "landscape.json",
        "flatness.csv",
        "landscape.png",
    }
    stored = read_landscapes(tmp_path)
    assert list(stored.by_model) == ["shapes_cnn", "shapes_cnn_robust"]
    assert stored.by_model["shapes_cnn"].losses.shape == (2, 3, 3)
    summary = json.loads((tmp_path / "landscape.json").read_text())
    change = summary["differences"]["range"]["difference"]
    means = [summary["flatness"][name]["range"]["mean"] for name in stored.by_model]
    assert change == pytest.approx(means[1] - means[0])
    assert (
        summary["provenance"]["shapes_cnn"]["weights_sha256"] != summary["provenance"]["shapes_cnn_robust"]["weights_sha256"]
    )


def test_checkpoints_are_named_without_their_folder(tmp_path: Path) -> None:
    robust = str(CHECKPOINTS / "shapes_cnn_robust.safetensors")
    _, error = run(*FEW, "--against", robust, "--out", str(tmp_path / "two"))
    assert error is None, error
    assert list(read_landscapes(tmp_path / "two").by_model) == ["shapes_cnn", "shapes_cnn_robust"]
    same = str(CHECKPOINTS / "shapes_cnn.safetensors")  # would have the name of --model
    _, error = run(*FEW, "--against", same, "--out", str(tmp_path / "same"))
    assert error is None, error
    assert list(read_landscapes(tmp_path / "same").by_model) == ["shapes_cnn", same]


def test_around_weights_under_attack() -> None:
    words = ["--space", "weights", "--directions", "2", "--steps", "1", "--json"]
    clean, attacked = (json.loads(run(*FEW, *words, *more)[0]) for more in ([], ["--eps", "8/255"]))
    assert (clean["loss"], attacked["loss"]) == ("cross-entropy", "cross-entropy under attack, ℓ∞ 8/255")
    assert (clean["n"], clean["space"], clean["directions"]) == (2, "weights", 2)
    assert clean["flatness"]["shapes_cnn"] != attacked["flatness"]["shapes_cnn"]
    assert clean["differences"] == {}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--points", "4"], "`points` must be an odd number of at least 3, so that one is the centre, got 4"),
        (["--radius", "x"], "`--radius` must be a distance such as 16/255, got 'x'"),
        (["--eps", "8"], "`--eps` must be at most 1"),
        (["--against", "shapes_cnn"], "`--against` must be another model than --model"),
        (["--against", "tiny_resnet"], "`against` must be a model of the same classes as"),
        (["--against", "tiny_resnett"], "tiny_resnett"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], sentence: str) -> None:
    _, error = run("--limit", "2", *words)
    assert isinstance(error, ValueError)
    assert sentence in str(error)
