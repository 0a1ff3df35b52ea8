"""The table of scores: all at once as one by one, one file and one line for a new one, and the documentation."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from locality import load_dataset, load_model
from locality.attribution import saliency_map
from locality.cli import app
from locality.scores import SCORES, map_features, score_maps
from locality.scores.locality import F1, locality_curve, map_scores
from locality.scores.map_features import Features, Score
from locality.scores.peer_scores import IouAtQuantile, PointingGame, TopKIntersection
from locality.scores.ranking import Ranking, ranking

DOCUMENT = Path(__file__).parents[2] / "docs" / "scores.md"


def random_case() -> tuple[Tensor, Tensor]:
    maps = torch.randn(5, 3, 40, 48, generator=torch.Generator().manual_seed(13))
    masks = torch.zeros(5, 1, 40, 48, dtype=torch.bool)
    masks[:, :, 4:20, 6:30] = True
    maps[2] = maps[2].round()
    return maps, masks


def test_all_at_once_are_the_same_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, masks = random_case()
    together = score_maps(maps, masks)
    assert list(together) == list(SCORES)
    for name, values in together.items():
        assert values.dtype == torch.float32, name
        assert values.shape == (5,), name
        assert torch.equal(values, SCORES[name]()(maps, masks)), name
    assert list(score_maps(maps, masks, ["roc_auc", "f1"])) == ["roc_auc", "f1"]
    monkeypatch.setitem(map_features.CHUNK_FEATURES, "cpu", 2 * maps[0].numel())
    for name, values in score_maps(maps, masks).items():
        assert torch.equal(values, together[name]), name


def test_settings_of_a_score_and_channels() -> None:
    maps, masks = random_case()
    scores: dict[str, Score] = {"near": PointingGame(2), "top 50": TopKIntersection(50), "tenth": IouAtQuantile(0.9)}
    for name, values in score_maps(maps, masks, scores, channels="sum").items():
        assert torch.equal(values, scores[name](maps.sum(1, keepdim=True), masks)), name
    assert not torch.equal(score_maps(maps, masks, scores)["top 50"], score_maps(maps, masks)["top_k_intersection"])


@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_locality_is_in_the_table(rho: float) -> None:
    maps, masks = random_case()
    expected = map_scores(maps, masks, rho)
    scores: dict[str, Score] = {name: SCORES[name](rho=rho) for name in ("precision", "recall", "f1", "lift")}  # type: ignore[call-arg]
    for name, values in score_maps(maps, masks, scores).items():
        assert torch.equal(values, getattr(expected, name)), name
    assert torch.equal(score_maps(maps, masks, ["curve_area"])["curve_area"], locality_curve(maps, masks).area)


def test_thresholds_are_not_mixed_up() -> None:
    maps, masks = random_case()
    both = score_maps(maps, masks, {"low": F1(), "high": F1(0.3)})
    assert torch.equal(both["low"], map_scores(maps, masks).f1)
    assert torch.equal(both["high"], map_scores(maps, masks, 0.3).f1)
    assert not torch.equal(both["low"], both["high"])


def test_the_sort_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts: list[int] = []

    def counted(values: Tensor, inside: Tensor) -> Ranking:
        sorts.append(len(values))
        return ranking(values, inside)

    monkeypatch.setattr(map_features, "ranking", counted)
    score_maps(*random_case())
    assert sorts == [5]


@dataclass(frozen=True)
class Brightest(Score):
    """A toy: the share of maps' largest `count` values in the region."""

    count: int = 10

    def of(self, features: Features) -> Tensor:
        return features.ranking.hits[:, self.count] / self.count


def test_a_line_in_the_table_is_all_that_a_score_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORES, "brightest", Brightest)
    maps, masks = random_case()
    expected = TopKIntersection(10)(maps, masks)
    assert torch.allclose(score_maps(maps, masks, ["brightest"])["brightest"][[0, 1, 3, 4]], expected[[0, 1, 3, 4]])


def evaluated(*words: str) -> dict[str, Any]:
    words = ("eval", "--model", "shapes_cnn", "--limit", "4", "--methods", "SM", "--json", *words)
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


def test_eval_measures_further_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORES, "brightest", Brightest)
    plain = evaluated()
    summary = evaluated("--scores", "roc_auc,brightest,f1")
    names = ["precision", "recall", "f1", "lift", "roc_auc", "brightest"]
    assert list(summary["methods"]["SM"]) == list(summary["model_free"]["uniform"]) == names
    assert {name: summary["methods"]["SM"][name] for name in plain["methods"]["SM"]} == plain["methods"]["SM"]
    model = load_model("shapes_cnn")
    batch = load_dataset("shapes", limit=4, spec=model.spec).batch(range(4))
    maps = saliency_map(model, batch.images)
    for name, values in score_maps(maps, batch.masks, ["roc_auc", "brightest"]).items():
        assert summary["methods"]["SM"][name]["mean"] == pytest.approx(float(values.mean()), rel=1e-3)
    assert summary["model_free"]["uniform"]["roc_auc"]["mean"] == 0.5


def test_eval_names_the_scores_and_prints_them() -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["eval", "--help"], env={"COLUMNS": "200"}).stdout
    text = re.sub(r"[\s│]+", "", shown)
    for name in list(SCORES)[4:]:
        assert name in text
    words = ["eval", "--model", "shapes_cnn", "--limit", "2", "--methods", "SM", "--scores", "pointing_game"]
    assert "pointing_game" in runner.invoke(app, words).stdout
    wrong = runner.invoke(app, [*words[:-1], "pointing"])
    assert "did you mean 'pointing_game'?" in str(wrong.exception)


def test_an_unknown_score_is_named() -> None:
    with pytest.raises(ValueError, match=r"`scores` must be one of precision, .*, got 'roc_acu': did you mean 'roc_auc'\?"):
        score_maps(*random_case(), ["f1", "roc_acu"])


def test_the_document_has_a_row_per_score() -> None:
    table = DOCUMENT.read_text(encoding="utf-8").partition("## Each score")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \**`(\w+)`", table, flags=re.MULTILINE)
    assert rows == list(SCORES)
