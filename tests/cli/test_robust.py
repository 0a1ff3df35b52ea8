"""`locality robust` as a person types it."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import typer
from torch import nn
from typer.testing import CliRunner

from locality.cli.robust import robust
from locality.data.dataset import load_dataset
from locality.data.sources.shapes import CLASSES
from locality.types import ModelSpec

FACTORY = """
import torch
from torch import nn
from locality import ModelSpec, load_dataset
from locality.data.sources.shapes import CLASSES

def linear(num_classes=10):
    # The nearest of ten class means, of 64 averages per channel: right about most of the images they are made of.
    batch = load_dataset("shapes", limit=40, count=100).batch(range(40))
    model = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(192, 10))
    with torch.no_grad():
        features = model[:2](batch.images)
        means = torch.stack([features[batch.labels == label].mean(0) for label in range(10)])
        model[2].weight.copy_(2 * means)
        model[2].bias.copy_(-(means**2).sum(1))
    model.spec = ModelSpec("linear", (64, 64), 64, classes=tuple(CLASSES))
    return model

def soft():
    model = linear()
    wrapped = nn.Sequential(model, nn.Softmax(dim=1))
    wrapped.spec = model.spec
    return wrapped
"""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """The command in this process, with a model that needs no loading."""
    namespace: dict[str, object] = {}
    exec(FACTORY, namespace)

    def loaded(name: str, *_: object, **__: object) -> nn.Module:
        model: nn.Module = namespace[name]()  # type: ignore[operator]
        return model

    monkeypatch.setattr("locality.cli.options.loaded_model", loaded)
    monkeypatch.setattr("locality.data.dataset.load_dataset", partial(load_dataset, count=100))
    return CliRunner()


app = typer.Typer(pretty_exceptions_enable=False)
app.command()(robust)


def test_a_table_and_files_and_resuming(quick: CliRunner, tmp_path: Path) -> None:
    words = ["--model", "linear", "--data", "shapes", "--limit", "40", "--attack", "pgd20", "--eps", "1/255"]
    words += ["--out", str(tmp_path / "out"), "--batch-size", "16"]
    done = quick.invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "shapes: 40 images of 10 classes" in done.stdout
    assert "robust, ℓ∞ 1/255" in done.stdout
    assert "pgd20: pgd-ce broke " in done.stdout
    assert "batches of 16, seed 0" in done.stdout
    rows = pd.read_parquet(tmp_path / "out/robust.parquet")
    read = pd.read_csv(tmp_path / "out/robust.csv", keep_default_na=False)
    assert len(rows) == 40
    assert rows.astype(str).equals(read.astype(str))
    assert rows.columns[0] == "image_id"
    batches = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/batches").glob("*.json")}
    assert len([path for path in batches if "examination" not in path.name]) == 3
    again = quick.invoke(app, [*words, "--json"])
    summary = json.loads(again.stdout)
    assert summary == json.loads((tmp_path / "out/robust.json").read_text())
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out/batches").glob("*.json")} == batches
    assert (summary["n"], summary["epsilon"], summary["attack"]) == (40, 1 / 255, "pgd20")
    assert summary["robust"]["mean"] == pytest.approx(rows["robust"].mean())
    assert summary["clean"]["mean"] == pytest.approx(rows["correct"].mean())
    assert 0 < summary["robust"]["mean"] < summary["clean"]["mean"] < 1
    assert summary["provenance"].keys() >= {"torch", "pyautoattack", "model", "weights_sha256", "data_sha256", "device"}
    assert not list((tmp_path / "out").glob(".*"))


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    """With the real loader, and warnings as errors: nothing that we call complains."""
    (tmp_path / "own_models.py").write_text(FACTORY)
    words = ["--model", "own_models:linear", "--limit", "10", "--attack", "pgd20", "--json"]
    command = [sys.executable, "-W", "error", "-m", "locality", "robust", *words]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n"] == 10
    assert done.stderr == ""


def test_an_attack_on_a_surrogate(quick: CliRunner, tmp_path: Path) -> None:
    words = ["--model", "linear", "--data", "shapes", "--limit", "20", "--attack", "pgd5", "--eps", "2/255"]
    own = json.loads(quick.invoke(app, [*words, "--json"]).stdout)
    done = quick.invoke(app, [*words, "--surrogate", "linear", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "attacked on linear, ℓ∞ 2/255" in done.stdout
    assert "pgd5 on linear, seed 0" in done.stdout
    summary = json.loads((tmp_path / "transfer.json").read_text())
    assert summary["clean"] == own["clean"]
    kept = summary["robust_among_clean"]["mean"] * summary["clean"]["mean"]
    assert kept == pytest.approx(own["robust"]["mean"])  # its own surrogate
    bad = quick.invoke(app, ["--model", "missing", "--surrogate", "linear"])
    assert "`attack` must be pgdN or cwN with a surrogate, got 'paper'" in str(bad.exception)


def test_an_unknown_model_says_so() -> None:
    done = CliRunner().invoke(app, ["--model", "shapes_cnn_robusst"])
    assert isinstance(done.exception, ValueError)
    assert "`shapes_cnn_robusst`" in str(done.exception)


def test_mistakes_are_one_sentence_before_a_model_is_loaded(quick: CliRunner) -> None:
    for words, sentence in [
        (["--eps", "four"], "`--eps` must be a distance such as 4/255 or 0.5, got 'four'"),
        (["--eps", "4/0"], "`--eps` must be a distance"),
        (["--eps", "1/2/3"], "`--eps` must be a distance"),
        (["--eps", "4"], "`--eps` must be at most 1 for linf, since pixels lie in [0, 1], got 4.0: did you mean 4/255?"),
        (["--eps", "-1/255"], "`--eps` must be a positive distance"),
        (["--eps", "nan"], "`--eps` must be a distance"),
        (["--batch-size", "0"], "`batch_size` must be a whole number"),
    ]:
        done = quick.invoke(app, ["--model", "missing", *words])
        assert isinstance(done.exception, ValueError), done.output
        assert sentence in str(done.exception)


def test_a_file_in_place_of_the_folder_is_an_error_before_the_work(quick: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = quick.invoke(app, ["--model", "missing", "--out", str(tmp_path / "file")])
    assert isinstance(done.exception, ValueError), done.output
    assert "`--out` must be a folder" in str(done.exception)


def test_warnings_are_lines(quick: CliRunner) -> None:
    done = quick.invoke(app, ["--model", "soft", "--data", "shapes", "--limit", "10", "--attack", "cw20", "--json"])
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("locality: warning: `model` returns probabilities")
    assert done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["warnings"] == [
        "the model returns probabilities, not logits: gradients vanish behind a softmax, remove it"
    ]


def test_data_is_that_of_the_model_s_classes_and_l2_works(quick: CliRunner) -> None:
    done = quick.invoke(app, ["--model", "linear", "--limit", "10", "--norm", "l2", "--eps", "0.5", "--attack", "cw20"])
    assert done.exit_code == 0, done.output
    assert "linear on shapes: 10 images" in done.stdout
    assert "robust, ℓ2 0.5" in done.stdout


def test_classes_that_the_model_does_not_know(quick: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelSpec("other", (64, 64), 64, classes=(*CLASSES[:5], "n1", "n2", "n3", "n4", "n5"))

    def loaded(*_: object, **__: object) -> nn.Module:
        namespace: dict[str, object] = {}
        exec(FACTORY, namespace)
        model: nn.Module = namespace["linear"]()  # type: ignore[operator]
        model.spec = spec  # type: ignore[assignment]
        return model

    monkeypatch.setattr("locality.cli.options.loaded_model", loaded)
    done = quick.invoke(app, ["--model", "x", "--data", "shapes", "--limit", "20", "--attack", "pgd20"])
    assert done.exit_code == 0, done.output
    assert "left out: 10 images of classes that the model does not know" in done.stdout
    assert "of 10 " in done.stdout
    assert "10 of 20 images of shapes are of classes that other does not know" in done.stderr
