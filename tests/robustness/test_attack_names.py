"""The names of attacks: how they are parsed, and that their number is the number of steps."""

from typing import Any

import pytest
from known_models import linear_model

from locality.errors import ArgumentError
from locality.robustness import ATTACK_NAMES, attack_title, parse_attack
from locality.robustness.robust_accuracy import robust_accuracy
from locality.runner.measurement import Part
from locality.runner.measurements.robust import RobustSettings, work
from locality.runner.suite import ModelChoice, Suite


def test_a_name_says_what_runs_how_often() -> None:
    assert parse_attack("paper").attacks == ("apgd-ce", "apgd-dlr")
    assert [(parse_attack(name).attacks, parse_attack(name).count) for name in ("pgd1", "pgd10000", "cw7")] == [
        (("pgd-ce",), 1),
        (("pgd-ce",), 10_000),
        (("pgd-margin",), 7),
    ]
    assert [attack_title(name) for name in ("standard", "pgd50", "cw2000", "fab7")] == [
        "AutoAttack",
        "PGD-50",
        "CW-2,000",
        "fab7",
    ]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("pgd", "got 'pgd': give a number, such as pgd20"),
        ("pgd0", "got 'pgd0'"),
        ("pgd020", "got 'pgd020'"),
        ("pgd10001", "`attack` must be pgdN with N from 1 to 10,000, got 'pgd10001'"),
        ("cw99999999999", "got 'cw99999999999'"),
        ("pgd２", "got 'pgd２'"),  # a digit, but not ours
        ("pgd20 ", "got 'pgd20 '"),
        ("standrad", "did you mean 'standard'?"),
        (20, "got 20"),
    ],
)
def test_another_name_is_one_sentence(name: Any, sentence: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_attack(name)
    assert sentence in str(caught.value)
    assert caught.value.argument == "attack"
    if "must be pgdN" not in sentence:
        assert ", ".join(ATTACK_NAMES) in str(caught.value)


@pytest.mark.parametrize("kind", ["pgd", "cw"])
def test_the_number_is_the_number_of_steps(kind: str) -> None:
    """In ℓ2 a step is 15/128 ε: from a random start, one of 0.035 does not reach a boundary 0.2 away, twenty do."""
    model, images, labels, _ = linear_model([0.2, 0.4])
    broken = {}
    for count in (1, 20, 50):
        result = robust_accuracy(model, images, labels, "l2", 0.3, f"{kind}{count}")
        assert result.attack == f"{kind}{count}"
        broken[count] = (~result.robust).tolist()
    assert broken == {1: [False, False], 20: [True, False], 50: [True, False]}


def test_the_dry_run_counts_the_steps() -> None:
    suite = Suite("s", (ModelChoice("shapes_cnn"),))
    for attack, gradients in (("pgd20", 22), ("cw20", 22), ("pgd500", 502), ("paper", 203)):
        settings = RobustSettings(attack=attack)
        assert work(suite, Part("robust 1", "robust", settings, "{}")).gradients == gradients
