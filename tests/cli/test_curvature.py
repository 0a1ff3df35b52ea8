"""`locality curvature` as a person types it."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
import typer
from torch import nn
from typer.testing import CliRunner

from locality import ModelSpec
from locality.cli import app as whole
from locality.cli.curvature import curvature
from locality.data.dataset import load_dataset
from locality.data.sources.shapes import CLASSES

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(curvature)
QUICK = ["--limit", "20", "--steps", "2"]


def small(head: bool = True) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 8, 8), nn.ReLU(), nn.AvgPool2d(4)]
    model = nn.Sequential(*layers, *([nn.Flatten(), nn.Linear(16, 10)] if head else [nn.Conv2d(4, 10, 2), nn.Flatten()]))
    model.spec = ModelSpec("small", (64, 64), 64, classes=tuple(CLASSES))  # type: ignore[assignment]
    return model


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """The command in this process, with a model that needs no loading."""
    monkeypatch.setattr("locality.cli.options.loaded_model", lambda name, *_, **__: small(name != "headless"))
    monkeypatch.setattr("locality.curvature.training_run.load_dataset", partial(load_dataset, count=100))
    return CliRunner()


def test_a_table_and_files(quick: CliRunner, tmp_path: Path) -> None:
    words = ["--model", "small", *QUICK, "--bound", "--out", str(tmp_path / "out")]
    done = quick.invoke(app, words)
    assert done.exit_code == 0, done.output
    for text in (
        "training images: shapes: 20 images of 10 classes, 2 each",
        "no card says that the model was trained on them: --train names others",
        "attack: PGD with 2 steps at ℓ∞ 8/255, which does not stop early, at these weights; seed 0",
        "traces: exact, 20 attacked training images, 200 gradients",
        "WCI = Σ‖W‖√trace: ",
        "TrH, the top layer's trace: ",
        "bound, linear (Eq. 4.6)",
        "vacuous: the smallest bound is ",
        "n = 100, β = 100",
    ):
        assert text in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if ".weight" in line] == ["0.weight", "4.weight"]
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith((" train", " test", " gap"))] == [
        "train",
        "test",
        "gap",
    ]
    again = quick.invoke(app, [*words, "--json"])
    summary = json.loads(again.stdout)
    assert list(summary) == [
        "model",
        "train",
        "test",
        "n",
        "wci",
        "upper",
        "top_trace",
        "layers",
        "gap",
        "bound",
        "provenance",
    ]
    assert summary == json.loads((tmp_path / "out/curvature.json").read_text())
    assert summary["provenance"].keys() >= {"model", "train", "test", "weights_sha256", "train_sha256", "torch", "method"}
    assert summary["bound"]["vacuous"] is True
    assert f"{summary['wci']:.4g}" in done.stdout
    layers = pd.read_csv(tmp_path / "out/curvature_layers.csv")
    assert layers["trace"].tolist() == pytest.approx([layer["trace"] for layer in summary["layers"]])
    assert not list((tmp_path / "out").glob(".*"))


def test_without_a_linear_head_there_is_a_note(quick: CliRunner) -> None:
    done = quick.invoke(app, ["--model", "headless", *QUICK])
    assert done.exit_code == 0, done.output
    assert "the trace of the top layer is undefined: no linear layer returns the logits" in done.stdout
    assert json.loads(quick.invoke(app, ["--model", "headless", *QUICK, "--json"]).stdout)["top_trace"] is None


def test_other_settings(quick: CliRunner) -> None:
    words = ["--model", "small", *QUICK, "--norm", "l2", "--eps", "0.5", "--method", "probed", "--probes", "2"]
    done = quick.invoke(app, [*words, "--train", "shapes:none", "--data", "shapes:swapped"])
    assert done.exit_code == 0, done.output
    assert "ℓ2 0.5" in done.stdout
    assert "traces: probed, 2 probes" in done.stdout
    assert " ± " in done.stdout
    assert "no card says" not in done.stdout


def test_mistakes_are_one_sentence_before_a_model_is_loaded(quick: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for words, sentence in [
        (["--eps", "four"], "`--eps` must be a distance such as 8/255 or 0.5, got 'four'"),
        (["--eps", "8"], "did you mean 8/255?"),
        (["--steps", "0"], "`--steps` must be a whole number of at least 1, got 0"),
        (["--limit", "0"], "`--limit` must be"),
        (["--probes", "0"], "`--probes` must be"),
        (["--out", str(tmp_path / "file")], "`--out` must be a folder"),
    ]:
        done = quick.invoke(app, ["--model", "missing", *words])
        assert isinstance(done.exception, ValueError), done.output
        assert sentence in str(done.exception)


def test_wrong_names_are_reported_first() -> None:
    for words, sentence in [
        (["--model", "shapes_cnn_robusst"], "shapes_cnn_robusst"),
        (["--model", "shapes_cnn", "--train", "shape"], "`train` must be one of"),
        (["--model", "shapes_cnn", "--data", "shape"], "`data` must be one of"),
    ]:
        done = CliRunner().invoke(whole, ["curvature", *words])
        assert isinstance(done.exception, ValueError), done.output
        assert sentence in str(done.exception)


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    """A shipped model and the images that its card names, with warnings as errors."""
    words = ["--model", "shapes_vit_uncued", "--limit", "2", "--steps", "1", "--probes", "1", "--json", "--threads", "1"]
    command = [sys.executable, "-W", "error", "-m", "locality", "curvature", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["provenance"]["method"] == "probed"
    assert summary["top_trace"] > 0
    assert summary["layers"][0]["error"] is None
