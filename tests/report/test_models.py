"""The models of results: kinds, trainings and pairs."""

import pytest
from report.made_up_results import CERTIFIED, MODELS, made_up_results, nothing_measured, small_results

from locality.report.models import COMPARED, Kind, Model, models_of, pairs_of
from locality.types import Threat


def test_kinds_come_from_the_results() -> None:
    results = made_up_results(4, 0, (*MODELS, *CERTIFIED))
    kinds = {model.name: model.kind for model in models_of(results)}
    assert kinds["tiny_vgg"] == "standard"
    assert kinds["tiny_vgg_robust"] == "robust"
    assert kinds["tiny_vgg_certified"] == "certified"
    assert kinds["tiny_resnet_random"] == "random"
    stored = results.models.assign(kind="certified", training="a training of mine")
    assert {model.kind for model in models_of(results.with_tables(models=stored))} == {"certified"}
    # Results of earlier versions: the kind follows from the training.
    older = results.with_tables(models=results.models.drop(columns="kind"))
    assert {model.name: model.kind for model in models_of(older)} == kinds
    strange = results.with_tables(models=results.models.assign(kind=None, training="a training of mine"))
    assert {model.kind for model in models_of(strange)} == {"unknown"}


@pytest.mark.parametrize(
    ("training", "threat", "words"),
    [
        ("standard", None, "standard"),
        ("random", None, "random"),
        ("fast_at", Threat("linf", 8 / 255), "fast AT ℓ∞ 8/255"),
        ("at", Threat("l2", 3.0), "AT ℓ2 3"),
        ("unknown", None, "unknown"),
    ],
)
def test_the_training_is_printed_with_its_threat(training: str, threat: Threat | None, words: str) -> None:
    assert Model("a", "a", training, threat=threat).training_text == words


def test_models_that_are_not_described_have_only_a_name() -> None:
    results = small_results()
    models = models_of(results.with_tables(models=nothing_measured().models))
    assert {model.name for model in models} == set(results.models["model"])
    assert {model.kind for model in models} == {"unknown"}
    assert models[0].family == models[0].name
    # A model of the suite of which nothing has been measured yet is not a model of the results.
    assert models_of(nothing_measured().with_tables(models=results.models)) == ()


def test_only_robust_and_certified_models_are_compared_with_standard_ones() -> None:
    results = made_up_results(4, 0, (*MODELS[1:3], *MODELS[4:6], MODELS[-1], *CERTIFIED[:1]))
    models = models_of(results.with_tables(models=results.models.assign(counterpart="tiny_vgg")))

    def names(*kinds: Kind) -> list[str]:
        return [model.name for _, model in pairs_of(models, kinds)]

    assert names(*COMPARED) == ["tiny_vgg_robust", "tiny_resnet_robust", "tiny_vgg_certified"]
    assert names("robust") == ["tiny_vgg_robust", "tiny_resnet_robust"]
    assert names("certified") == ["tiny_vgg_certified"]
