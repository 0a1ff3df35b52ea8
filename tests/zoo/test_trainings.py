"""The list of trainings covers what can be trained, and each has one of four kinds."""

from typing import get_args

from locality.training.losses import LOSSES
from locality.zoo.catalog import model_cards
from locality.zoo.trainings import TRAININGS, Kind, kind_of


def test_every_loss_and_every_model_has_a_training() -> None:
    assert set(LOSSES) <= set(TRAININGS)
    assert {card.training for card in model_cards().values()} <= set(TRAININGS)


def test_kinds() -> None:
    assert {training.kind for training in TRAININGS.values()} == set(get_args(Kind))
    assert [name for name, training in TRAININGS.items() if training.id != name] == []
    assert kind_of("certified") == "certified"  # and not robust, which it was drawn as
