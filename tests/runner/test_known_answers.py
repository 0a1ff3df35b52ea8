"""The planted cue: it is known who looks at the object, so every method and score must say so."""

import pytest

from locality.data.dataset import load_dataset
from locality.runner.compare import compare
from locality.runner.evaluate import evaluate
from locality.runner.evaluation import Evaluation
from locality.zoo.load import load_model

IMAGES = 60


@pytest.fixture(scope="module")
def evaluations() -> dict[str, Evaluation]:
    data = load_dataset("shapes", limit=IMAGES, count=200)
    models = ("shapes_cnn", "shapes_cnn_robust")
    return {name: evaluate(load_model(name), data, ["SM", "IG", "BIG"], progress=False) for name in models}


@pytest.mark.parametrize(
    ("name", "with_cue", "without", "swapped"), [("shapes_cnn", 1, 0.1, 0), ("shapes_cnn_robust", 1, 1, 1)]
)
def test_who_needs_the_cue(name: str, with_cue: float, without: float, swapped: float) -> None:
    model = load_model(name)
    for cue, expected in (("background", with_cue), ("none", without), ("swapped", swapped)):
        data = load_dataset("shapes", limit=100, count=200, cue=cue)
        batch = data.batch(range(len(data)))
        assert float((model(batch.images).argmax(1) == batch.labels).float().mean()) == pytest.approx(expected, abs=0.08)


def test_the_standard_model_looks_elsewhere(evaluations: dict[str, Evaluation]) -> None:
    found = evaluations["shapes_cnn"].summary
    assert found.accuracy.mean == 1
    for name, scores in found.methods.items():
        assert scores["lift"].high < 0.1, name  # no better than the same values shuffled over the image
        assert scores["f1"].mean < 0.35, name


def test_the_robust_model_looks_at_the_object(evaluations: dict[str, Evaluation]) -> None:
    found = evaluations["shapes_cnn_robust"].summary
    for name, lift in (("SM", 0.25), ("IG", 0.35), ("BIG", 0.65)):
        assert found.methods[name]["lift"].low > lift, name
    for name, scores in compare(*evaluations.values()).differences.items():
        assert scores["f1"].low > 0.15, name
        assert scores["lift"].low > 0.25, name


def test_the_verdict_is_the_known_answer(evaluations: dict[str, Evaluation]) -> None:
    assert evaluations["shapes_cnn"].verdict.looks is False
    assert evaluations["shapes_cnn_robust"].verdict.looks is True
    sentence = evaluations["shapes_cnn"].to_json()["verdict"]["sentence"]
    assert sentence.startswith(
        "shapes_cnn does not look at the object: no method is significantly above chance (lift SM −0.0"
    )


def test_the_boundary_of_the_robust_model_is_further_away(evaluations: dict[str, Evaluation]) -> None:
    near, far = (evaluations[name].summary for name in ("shapes_cnn", "shapes_cnn_robust"))
    assert near.found == far.found == IMAGES
    assert far.distance.low > near.distance.high
