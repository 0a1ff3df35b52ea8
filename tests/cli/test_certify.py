"""`locality certify` as a person types it, by smoothing and by a certificate that only the test knows."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner, Result

from locality import load_dataset, load_model
from locality.certified import CERTIFICATES, layer_bounds
from locality.certified.certificate import Certificate
from locality.certified.lipschitz import Lipschitz
from locality.certified.smoothing import Smoothing
from locality.certified.verified_accuracy import verified_accuracy
from locality.cli import app
from locality.conv_norms import conv_norm_upper
from locality.progress import Progress, no_progress
from locality.statistics import wilson_interval
from locality.toml_settings import setting
from locality.types import ABSTAINED

FEW = ("certify", "--model", "shapes_cnn", "--limit", "6")
SHORT = ("--by", "smoothing", "--samples", "40", "--selection-samples", "10", "--alpha", "0.05", "--sigma", "1/8")


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.data.sources.shapes.DEFAULT_COUNT", {"eval": 40, "train": 40})


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def run(*words: str) -> str:
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_smoothing_gives_what_python_gives(tmp_path: Path) -> None:
    text = run(*FEW, *SHORT, "--eps", "0,0.1,36/255", "--out", str(tmp_path / "new"))
    model = load_model("shapes_cnn")
    data = load_dataset("shapes", limit=6, spec=model.spec)
    smoothing = Smoothing(sigma=0.125, samples=40, selection_samples=10, alpha=0.05)
    expected = verified_accuracy(model, data, smoothing)
    rows = pd.read_parquet(tmp_path / "new/certified.parquet")
    assert rows.equals(expected.rows)
    assert len(pd.read_csv(tmp_path / "new/certified.csv")) == 6
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "certified.csv",
        "certified.json",
        "certified.parquet",
    ]
    assert torch.tensor(rows["radius"]).max() > 0.1  # else the lines below say little
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for radius, shown in ((0.0, "0"), (0.1, "0.1"), (36 / 255, "36/255")):
        low, high = wilson_interval(expected.verified(radius), 6)
        share = f"{expected.accuracy(radius):.1%} {low:.1%} – {high:.1%} {expected.verified(radius)} of 6"
        rejected = f"{expected.rejected(radius) / 6:.1%}"
        assert f"verified, ℓ2 {shown} {share} {rejected} {expected.wrong_but_certified(radius)}" in lines
    assert any(line.startswith("clean 83.3%") for line in lines)
    assert expected.abstained == 1
    assert f"median radius of the 5 decisions: ℓ2 {expected.median_radius:.3g}" in lines
    assert "probability that the certificate of an image is false: at most 0.05" in lines
    assert "wrong: 0.0% of 6 images; abstained: 16.7%" in lines
    assert lines[0].startswith("shapes_cnn on shapes: 6 images")


def test_a_lipschitz_bound_gives_what_python_gives(tmp_path: Path) -> None:
    text = run(*FEW, "--eps", "0,36/255", "--out", str(tmp_path))
    summary = json.loads((tmp_path / "certified.json").read_text(encoding="utf-8"))
    model = load_model("shapes_cnn")
    expected = verified_accuracy(model, load_dataset("shapes", limit=6, spec=model.spec), Lipschitz())
    assert summary["median_radius"] == expected.median_radius
    assert summary["verified"]["0"]["mean"] == expected.accuracy(0)
    assert summary["verified"]["36/255"]["mean"] == expected.accuracy(36 / 255)
    assert {"clean", "rejected", "wrong_but_certified", "provenance"} <= set(summary)
    assert {name: summary[name] for name in ("lipschitz", "layers")} == expected.certificate.facts
    assert summary["layers"]["normalisation"] == pytest.approx(1 / min(model.spec.std))
    assert "certified by lipschitz: slack 0.0, tight False" in text
    assert "the certificates are deterministic proofs" in text
    assert "layers: normalisation 4, 0.0 Conv2d" in text
    result = invoke("certify", "--model", "shapes_vit", "--limit", "2")
    sentence = str(result.exception)
    assert "`model` must be made of layers with a Lipschitz bound, got 'VisionTransformer (model)'" in sentence
    assert "`--by smoothing`" in sentence


def test_tight_is_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def counted(*layer: Any, tight: bool) -> float:
        asked.append(tight)
        return conv_norm_upper(*layer)

    monkeypatch.setattr(layer_bounds, "conv_norm_upper", counted)
    summary = json.loads(run("certify", "--model", "shapes_liresnet", "--limit", "1", "--tight", "--json"))
    assert summary["settings"] == {"slack": 0.0, "tight": True}
    assert len(asked) == 5  # stem, three blocks and neck
    assert all(asked)


def test_json_is_one_object() -> None:
    summary = json.loads(run(*FEW, *SHORT, "--json"))
    assert (summary["model"], summary["data"], summary["by"], summary["n"]) == ("shapes_cnn", "shapes", "smoothing", 6)
    assert summary["settings"] == {"sigma": 0.125, "samples": 40, "selection_samples": 10, "alpha": 0.05, "seed": 0}
    assert list(summary["verified"]) == ["36/255", "72/255", "108/255"]
    assert [entry["radius"] for entry in summary["verified"].values()] == [36 / 255, 72 / 255, 108 / 255]
    assert summary["failure_probability"] == 0.05
    assert len(summary["provenance"]["weights_sha256"]) == 64
    assert json.loads(run(*FEW, *SHORT, "--json", "--seed", "1"))["settings"]["seed"] == 1


@dataclass(frozen=True)
class Margin:
    """A toy: the radius is the margin of the logits over `slope`; a margin below `least` is an abstention."""

    slope: float = setting(10.0, "How fast logits change.")
    least: float = setting(0.0, "Smallest margin that is decided.")
    kind: Literal["plain", "half"] = setting("plain", "Which radius.")
    strict: bool = setting(False, "Whether to halve again.")

    def __call__(self, model: Any, images: Tensor, progress: Progress = no_progress) -> Certificate:
        with torch.no_grad():
            first, second = model(images).double().topk(2).values.unbind(1)
            prediction = model(images).argmax(1)
        progress(len(images), len(images))
        undecided = first - second < self.least
        radius = (first - second) / self.slope / (2 if self.kind == "half" else 1) / (2 if self.strict else 1)
        return Certificate(
            torch.where(undecided, ABSTAINED, prediction),
            radius.masked_fill(undecided, 0),
            torch.zeros_like(radius),
            norm="linf",
            details={"margin": first - second},
            facts={"slope of the logits": self.slope},
        )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CERTIFICATES, "margin", Margin)


@pytest.mark.usefixtures("toy")
def test_a_line_in_the_table_is_all_that_a_certificate_needs(tmp_path: Path) -> None:
    text = run(*FEW, "--by", "margin", "--slope", "200", "--out", str(tmp_path))
    rows = pd.read_parquet(tmp_path / "certified.parquet")
    assert rows["radius"].tolist() == pytest.approx((rows["margin"] / 200).tolist())
    assert "certified by margin: slope 200.0, least 0.0, kind plain, strict False" in text
    assert "verified, ℓ∞ 36/255" in text
    assert "the certificates are deterministic proofs" in text
    assert "slope of the logits: 200" in text
    halved = json.loads(run(*FEW, "--by", "margin", "--slope", "200", "--kind", "half", "--strict", "--json"))
    assert halved["slope of the logits"] == 200
    assert halved["median_radius"] == pytest.approx(rows["radius"].median() / 4)


@pytest.mark.usefixtures("toy")
def test_abstentions_are_counted_apart(tmp_path: Path) -> None:
    run(*FEW, "--by", "margin", "--out", str(tmp_path))
    margins = pd.read_parquet(tmp_path / "certified.parquet")["margin"].sort_values().tolist()
    text = run(*FEW, "--by", "margin", "--least", str((margins[1] + margins[2]) / 2))
    assert "wrong: 0.0% of 6 images; abstained: 33.3%" in text
    assert "median radius of the 4 decisions" in text
    nothing = run(*FEW, "--by", "margin", "--least", str(margins[-1] + 1))
    assert "abstained: 100.0%" in nothing
    assert "median" not in nothing


@pytest.mark.usefixtures("toy")
def test_help_has_the_options_of_every_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # a narrow terminal breaks the list of certificates
    text = re.sub(r"\s+", " ", run("certify", "--help"))
    for part in (
        "<lipschitz|centroid|smoothing|margin>",
        "--guarantee",
        "--slack",
        "--tight",
        "--sigma",
        "--samples",
        "--selection-samples",
        "--alpha",
    ):
        assert part in text
    for part in ("Options of --by margin", "--slope", "How fast logits change.", "Default: 10.0.", "<plain|half>"):
        assert part in text


@pytest.mark.usefixtures("toy")
def test_mistakes_are_one_sentence_before_a_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.cli.options.loaded_model", lambda *_: pytest.fail("the model is loaded"))
    (tmp_path / "file").touch()
    for words, sentence in [
        (("--by", "smoothing", "--sigma", "0"), "`--sigma` must be positive to certify a radius, got 0.0"),
        (
            ("--by", "smoothing", "--selection-samples", "0"),
            "`--selection-samples` must be a whole number of noisy images, got 0",
        ),
        (("--by", "smoothing", "--alpha", "2"), "`--alpha` must be a probability of failure"),
        (
            ("--by", "smoothing", "--slope", "3"),
            "`--slope` is not an option of --by smoothing, which has: --alpha, --samples, --selection-samples",
        ),
        (("--by", "margin", "--sigma", "1"), "`--sigma` is not an option of --by margin"),
        (("--eps", "0.1,x"), "`--eps` must be distances such as 36/255,72/255 or 0.25, got 'x'"),
        (("--eps", "-1"), "`--eps` must be distances in pixels of [0, 1], 0 or more, got [-1.0]"),
        (("--out", str(tmp_path / "file")), "`--out` must be a folder"),
    ]:
        result = invoke(*FEW, *words)
        assert isinstance(result.exception, ValueError), result.output
        assert sentence in str(result.exception)
        assert "\n" not in str(result.exception)


def test_progress_counts_forward_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.progress.SECONDS_BETWEEN_LINES", 0.0)
    lines = invoke(*FEW, *SHORT, "--json").stderr.splitlines()
    assert lines[0] == "smoothing on shapes_cnn: 0 of 300 forward passes"
    assert lines[-1].startswith("smoothing on shapes_cnn: 300 of 300 forward passes")


def test_classes_that_the_model_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    text = invoke("certify", "--model", "tiny_resnet", "--data", "shapes", "--limit", "2", *SHORT).stdout
    assert "accuracy undefined: the model knows none of the classes" in text
    assert re.search(r"ℓ2 36/255 +\d+\.\d% .* of 2", text)  # what is certified does not depend on labels
    assert "probability that the certificate of an image is false: at most 0.05" in text
