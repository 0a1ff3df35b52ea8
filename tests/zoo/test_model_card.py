"""Cards: what is written is read back, and nothing else is read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from locality.errors import ArgumentError, ModelError
from locality.types import ModelSpec, Threat
from locality.zoo.model_card import (
    AttackedAccuracy,
    ModelCard,
    Seed,
    TrainingRun,
    WeightFile,
    accuracy_name,
    read_card,
    write_card,
)

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def card(tmp_path: Path) -> ModelCard:
    return ModelCard(
        spec=ModelSpec("toy_robust", (64, 64), 64, mean=(0.45,) * 3, std=(0.25,) * 3, classes=tuple("abcdefghij")),
        architecture="net:shapes_cnn",
        options={"width": 32},
        weights=WeightFile(str(tmp_path / "toy_robust.safetensors"), "sha256:" + "a" * 64),
        parameters=153_482,
        data="shapes",
        training="trades",
        threat=Threat("linf", 8 / 255),
        accuracy={"clean": 0.912, "linf 4/255 pgd10": 0.7, "linf 8/255 pgd10": 0.534, "none": 0.9},
        licence="Apache-2.0",
        run=TrainingRun("0" * 64, {"epochs": 3, "start": None}, 0, 1.5, {"torch": "2"}),
    )


def test_a_card_is_read_back_as_it_was_written(card: ModelCard, tmp_path: Path) -> None:
    path = tmp_path / "toy_robust.json"
    write_card(card, path)
    assert read_card(path) == card
    assert str(tmp_path) not in path.read_text(encoding="utf-8")
    little = replace(card, threat=None, run=None, accuracy={}, options={}, training="random", licence="")
    write_card(little, path)
    assert read_card(path) == little


def test_the_weights_are_those_beside_the_card(card: ModelCard, tmp_path: Path) -> None:
    write_card(card, tmp_path / "renamed.json")
    assert read_card(tmp_path / "renamed.json").weights == WeightFile(
        str(tmp_path / "renamed.safetensors"), "sha256:" + "a" * 64
    )


def test_accuracies(card: ModelCard) -> None:
    assert card.clean == 0.912
    assert [str(one) for one in card.attacked] == ["ℓ∞ 4/255 pgd10", "ℓ∞ 8/255 pgd10"]
    assert card.robust == AttackedAccuracy(Threat("linf", 8 / 255), "pgd10", 0.534)  # at the threat it was trained for
    other = replace(card, threat=Threat("l2", 1))
    assert other.robust == card.attacked[0]
    assert replace(card, accuracy={"clean": 0.5, "swapped": 0.1}).robust is None
    assert accuracy_name(Threat("l2", 0.75), "pgd10") == "l2 0.75 pgd10"


def test_kinds(card: ModelCard) -> None:
    assert (card.kind, card.trained) == ("robust", "TRADES ℓ∞ 8/255")
    assert replace(card, training="certified").kind == "certified"
    assert replace(card, training="unknown", threat=None).trained == "unknown"
    assert replace(card, training="of_my_own").kind == "unknown"


def test_a_card_can_be_hashed_and_sent_to_another_process(card: ModelCard) -> None:
    assert hash(pickle.loads(pickle.dumps(card))) == hash(card)


def test_only_files_of_weights_have_a_card_file(card: ModelCard, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="`card` must be the card of a file of weights"):
        write_card(replace(card, weights=Seed(0)), tmp_path / "a.json")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda table: table.pop("spec"), "must have the key 'spec'"),
        (lambda table: table.update(colour=1), "unknown key 'colour'"),
        (lambda table: table.update(parameters="many"), "`parameters` must be a whole number, got 'many'"),
        (lambda table: table.update(parameters=True), "`parameters` must be a whole number, got True"),
        (lambda table: table.update(training=None), "`training` must be a text, got None"),
        (lambda table: table["threat"].update(norm="l1"), "`threat.norm` must be one of"),
        (lambda table: table["threat"].update(radius=-1), "`epsilon` must be a positive distance"),
        (lambda table: table["spec"].update(classes="abc"), "`spec.classes` must be a list, got 'abc'"),
        (lambda table: table["spec"].update(mean=[0.5, 0.5]), "`spec.mean` must be a list of 3"),
        (lambda table: table["spec"].update(std=[0.5, 0.5, 0]), "positive standard deviations"),
        (lambda table: table["spec"].update(resize=8), "`resize` must be at least"),
        (lambda table: table["accuracy"].update(clean=91.2), "`accuracy.clean` must be a share between 0 and 1, got 91.2"),
        (lambda table: table["accuracy"].update(clean="high"), "`accuracy.clean` must be a number, got 'high'"),
        (lambda table: table["run"].update(versions=[]), "`run.versions` must be a table"),
        (lambda table: table.update(weights="a.safetensors"), "`weights` must be a table with the `sha256`"),
        (lambda table: table["weights"].update(sha256="../../etc"), "`weights` must be a table with the `sha256`"),
        (lambda table: table["weights"].update(path="/etc/passwd"), "`weights` must be a table with the `sha256`"),
        # A function would be imported and called when the model is loaded.
        (
            lambda table: table.update(architecture="os:getcwd"),
            "`architecture` must be net:NAME or timm:NAME",
        ),
    ],
)
def test_anything_else_is_refused_in_one_sentence(card: ModelCard, tmp_path: Path, change: Change, reason: str) -> None:
    path = tmp_path / "toy_robust.json"
    write_card(card, path)
    table = json.loads(path.read_text(encoding="utf-8"))
    change(table)
    path.write_text(json.dumps(table), encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        read_card(path)
    sentence = str(caught.value)
    assert sentence.startswith(f"`{path}` is not a model card of this version (")
    assert reason in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000, '{"parameters": NaN}', "\x00", "{}"])
def test_files_that_hold_something_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match="is not a model card of this version"):
        read_card(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match="is not a model card of this version"):
        read_card(path)
