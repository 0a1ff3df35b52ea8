"""Cards in the Hub's format are read by the Hub's own library."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard as HubCard

from locality.cli import main
from locality.zoo.catalog import find_card, model_cards
from locality.zoo.hub_card import hub_card
from locality.zoo.model_card import ModelCard


@pytest.mark.parametrize("card", model_cards().values(), ids=lambda card: card.name)
def test_the_hub_reads_every_card(card: ModelCard) -> None:
    read: Any = HubCard(hub_card(card)).data
    assert read.license == card.licence.lower()
    assert read.pipeline_tag == "image-classification"
    assert read.tags == ["image-classification", "locality", card.kind]
    measured = {result.metric_name: result.metric_value for result in read.eval_results or []}
    assert measured == {f"accuracy, {name}": share for name, share in card.accuracy.items()}


def test_text_of_a_stranger_stays_text() -> None:
    card = replace(find_card("shapes_cnn"), licence='x"\n---\nlicense: mit', note="a | b\n# heading", accuracy={})
    text = hub_card(card)
    read: Any = HubCard(text).data
    assert read.to_dict()["license_name"] == card.licence
    assert "| note | a \\| b # heading |" in text.splitlines()
    assert "# heading" not in text.splitlines()


def test_the_command_prints_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    card = find_card("shapes_cnn_robust")
    for name in (card.name, str(Path(card.weights.path))):  # type: ignore[union-attr]
        monkeypatch.setattr(sys, "argv", ["locality", "models", "card", name])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 0
        assert capsys.readouterr().out == hub_card(card)
