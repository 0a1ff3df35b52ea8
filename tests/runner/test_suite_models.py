"""What a plan knows about its models: their cards, completed by what the suite says."""

import shutil
from pathlib import Path

import pytest

from locality.runner.suite import ModelChoice, trained
from locality.runner.suite_models import described, model_rows
from locality.types import Threat
from locality.zoo.catalog import CHECKPOINTS
from locality.zoo.load import load_model


def test_a_checkpoint_is_described_by_the_card_beside_it(tmp_path: Path) -> None:
    for suffix in (".json", ".safetensors"):
        shutil.copy(CHECKPOINTS / f"shapes_cnn_robust{suffix}", tmp_path / f"mine{suffix}")
    choice = ModelChoice("ours", str(tmp_path / "mine.safetensors"))
    model = described(choice, load_model(choice.source), "shapes")
    assert trained(choice) == "at"
    assert (model.card.kind, model.card.threat) == ("robust", Threat("linf", 8 / 255))
    [row] = model_rows((model,))
    assert [row[column] for column in ("model", "training", "kind", "norm", "epsilon")] == [
        "ours",
        "at",
        "robust",
        "linf",
        8 / 255,
    ]


def test_the_suite_has_the_last_word() -> None:
    model = load_model("shapes_cnn")
    choice = ModelChoice("certified", "shapes_cnn", training="certified", norm="l2", epsilon=0.5)
    assert described(choice, model, "shapes").card.trained == "certified ℓ2 0.5"
    unknown = described(ModelChoice("ours", "suite_models:steady"), model, "shapes")
    assert (unknown.card.training, unknown.card.kind, unknown.card.threat) == ("unknown", "unknown", None)
    with pytest.raises(ValueError, match="`norm` and `epsilon` of half must be given together, got 'l2' and None"):
        described(ModelChoice("half", "suite_models:steady", norm="l2"), model, "shapes")
