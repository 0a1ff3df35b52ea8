"""`locality explain`: one picture of one image."""

from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from locality import load_dataset
from locality.cli.explain import explain
from locality.types import ModelSpec

app = typer.Typer()
app.command()(explain)


def small_model() -> nn.Module:
    """What `package.module:function` names: a network on shapes."""
    net: Any
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 15 * 15, 10))
    net.spec = ModelSpec("small/model", (64, 64), 64, classes=load_dataset("shapes", count=10).classes)
    model: nn.Module = net
    return model


@pytest.fixture
def photograph(tmp_path: Path) -> Path:
    image = load_dataset("shapes", count=10)[3].image
    path = tmp_path / "a star.png"
    Image.fromarray((image.permute(1, 2, 0) * 255).round().byte().numpy()).save(path)
    return path


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_picture_and_the_same_in_words(photograph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("locality.cli.options.loaded_model", lambda *_: small_model())
    text = run(photograph, "--model", "small", "--methods", "SM,BIG")
    assert "small/model predicts " in text
    assert "The nearest other class is " in text
    assert "%" in text
    # Neither the space nor the slash of the names is in the file's.
    assert text.splitlines()[-1] == "a_star_small_model.png"
    with Image.open(tmp_path / "a_star_small_model.png") as picture:
        assert picture.width > picture.height
    assert "The nearest image predicted as star is at an ℓ2 distance of " in run(
        photograph, "--model", "small", "--methods", "SM", "--to", "star"
    )
    run(photograph, "--model", "small", "--methods", "SM", "--out", tmp_path / "new" / "x.svg")
    assert (tmp_path / "new" / "x.svg").is_file()


def test_mistakes_are_named_before_a_model_is_loaded(photograph: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    cases: list[tuple[list[object], str]] = [
        ([tmp_path / "nothing.png"], "that is missing"),
        ([tmp_path], "that is a folder"),
        ([photograph, "--out", tmp_path / "x.gif"], r"`--out` must be a file that ends in \.png"),
        ([photograph, "--out", "/proc/nowhere/x.png"], r"`--out` must be a folder that can be written, got '/proc/nowhere'"),
        ([photograph, "--out", tmp_path / "folder.png"], r"`--out` must be a file to write, got .*: that is a folder"),
    ]
    for words, problem in cases:
        with pytest.raises(ValueError, match=problem):
            run(*words, "--model", "no model of this name")
