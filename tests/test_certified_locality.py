"""The verdicts about certified networks, on invented results whose directions are known."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from report.made_up_results import CERTIFIED, MODELS, made_up_results

from locality.results.results import Results

BENCH = Path(__file__).resolve().parents[1] / "bench"
CHOSEN = tuple(model for model in MODELS if model.name in ("tiny_vgg", "tiny_vgg_robust", "tiny_resnet"))


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("certified_verdicts")


@pytest.fixture(scope="module")
def results() -> Results:
    return made_up_results(80, 0, (*CHOSEN, CERTIFIED[0]))


def found(study: ModuleType, results: Results, standard: str, certified: str) -> dict[str, str]:
    family = study.Family("shapes", standard, {0.5: certified}, "tiny_vgg_robust")
    judged = study.verdicts(results, results, {"VGG": [family]})
    return {one["id"]: one["verdict"] for one in judged["hypotheses"]}


def test_verdicts_follow_the_directions(study: ModuleType, results: Results) -> None:
    known = found(study, results, "tiny_vgg", "tiny_vgg_certified")
    assert known["H1"] == "holds"  # F1 is drawn higher
    assert known["H2"] == "not measured"  # two radii are no trend
    assert known["H3"] == "holds"  # cosine 0.7 against 0.2
    assert known["H6"] == "holds"
    swapped = found(study, results, "tiny_vgg_certified", "tiny_vgg")
    assert (swapped["H1"], swapped["H3"]) == ("contradicted", "contradicted")


def test_an_early_network_is_compared_with_the_certified_one_of_nearest_accuracy(
    study: ModuleType, results: Results
) -> None:
    certified = {0.1: "tiny_vgg_robust", 0.5: "tiny_vgg_certified"}
    family = study.Family("shapes", "tiny_vgg", certified, early="tiny_resnet")
    assert family.names == ("tiny_vgg", "tiny_resnet", *certified.values())
    evidence = study.verdicts(results, results, {"VGG": [family]})["equal accuracy"]
    apart = {
        name: abs(study._accuracy(results, name) - study._accuracy(results, "tiny_resnet")) for name in certified.values()
    }
    assert {one["comparison"] for one in evidence} == {f"{min(apart, key=lambda name: apart[name])} − tiny_resnet"}
    assert len(set(apart.values())) == 2


def test_comparisons_of_several_seeds_are_counted_together(study: ModuleType, results: Results) -> None:
    family = study.Family("shapes", "tiny_vgg", {0.5: "tiny_vgg_certified"})
    one, two = (study.verdicts(results, results, {"VGG": [family] * seeds}) for seeds in (1, 2))
    first, both = (judged["hypotheses"][0] for judged in (one, two))
    assert len(both["evidence"]) == 2 * len(first["evidence"]) == 12
    assert both["by family"].keys() == {"VGG"}
    assert study.counted(first["evidence"]) in one["answer"]
    assert study.counted(both["evidence"]) in two["answer"]


def test_a_contradicted_certificate_is_seen(study: ModuleType, results: Results) -> None:
    broken = results["certified"].copy()
    broken["radius"] = 100.0
    assert found(study, results.with_tables(certified=broken), "tiny_vgg", "tiny_vgg_certified")["H6"] == "contradicted"


def test_a_trend_over_radii(study: ModuleType, results: Results) -> None:
    doses = {0.0: "tiny_vgg", 0.1: "tiny_vgg_robust", 0.5: "tiny_vgg_certified"}
    rising = {one["number"]: one for one in study.trend(results, doses, "VGG")}
    assert rising["ρ of f1 BIG"]["value"] == pytest.approx(1)  # 0.50, 0.56, 0.60
    assert rising["ρ of f1 BIG"]["direction"] == "higher"
    falling = study.trend(results, {-radius: name for radius, name in doses.items()}, "VGG")
    assert {one["value"] for one in falling if one["number"] == "ρ of f1 BIG"} == {-1.0}


def test_verdicts_need_agreement(study: ModuleType) -> None:
    def of(*directions: str) -> str:
        verdict: str = study.verdict([{"direction": one} for one in directions])
        return verdict

    assert of("higher", "lower") == "mixed"
    assert of("inconclusive") == "inconclusive"
    assert of("lower", "inconclusive") == "contradicted"
    assert of("lower", "inconclusive", "inconclusive") == "inconclusive"  # one of many is chance


def test_families_name_runs_of_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    rows = importlib.import_module("certified_study")
    locality = importlib.import_module("certified_locality")
    made = {rows.recipe_table(row, seed)["name"] for row in rows.ORDER for seed in locality.SEEDS}
    assert {name for family in locality.families() for name in family.names} <= made
