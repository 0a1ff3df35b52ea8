"""Shipped models and recipes give the numbers that they gave before the redesign (`golden_numbers.py`).

The tolerances allow for the rounding of another CPU. They are about three times the largest deviations seen without vector
instructions, without oneDNN, and with two threads.
"""

from __future__ import annotations

import json
from pathlib import Path

import golden_numbers
import pytest

from locality.types import Norm

GOLDEN = json.loads(Path(__file__).with_name("golden_numbers.json").read_text(encoding="utf-8"))
RELATIVE = 1e-3
GRADIENTS = 1  # per image
# In ℓ∞ rounding can flip the sign of a pixel's gradient (see `find_boundary`), and rarely an image takes another way.
RELATIVE_DISTANCE: dict[Norm, float] = {"l2": RELATIVE, "linf": 1e-2}
OTHER_WAYS: dict[Norm, int] = {"l2": 0, "linf": 1}
# The attack of TRADES starts where the gradient of the divergence is almost 0, so that rounding decides many of its signs.
RELATIVE_TERM = {"kl_divergence": 2e-2}
ACCURACY = 3.01 / 64  # three images of a batch


@pytest.mark.parametrize("norm", golden_numbers.NORMS)
@pytest.mark.parametrize("model", golden_numbers.MODELS)
def test_fast_finds_the_same_distances_with_as_many_gradients(model: str, norm: Norm) -> None:
    numbers, golden = golden_numbers.boundary(model, norm), GOLDEN["boundary"][f"{model} {norm}"]
    distances = zip(numbers["distance"], golden["distance"], strict=True)
    gradients = zip(numbers["gradients"], golden["gradients"], strict=True)
    same = [
        distance == pytest.approx(expected, rel=RELATIVE_DISTANCE[norm]) and abs(count - expected_count) <= GRADIENTS
        for (distance, expected), (count, expected_count) in zip(distances, gradients, strict=True)
    ]
    assert same.count(False) <= OTHER_WAYS[norm], (numbers, golden)


@pytest.mark.parametrize("model", golden_numbers.MODELS)
def test_evaluate_gives_the_same_f1(model: str) -> None:
    numbers, golden = golden_numbers.f1(model), GOLDEN["f1"][model]
    assert list(numbers) == list(golden)
    for method in golden:
        assert numbers[method] == pytest.approx(golden[method], rel=RELATIVE), method


@pytest.mark.parametrize("recipe", golden_numbers.RECIPES)
def test_the_first_steps_of_a_recipe_have_the_same_terms(recipe: str) -> None:
    lines, golden = golden_numbers.training(recipe), GOLDEN["training"][recipe]
    assert len(lines) == len(golden) == golden_numbers.STEPS
    for line, expected in zip(lines, golden, strict=True):
        assert line.keys() == expected.keys()
        for term, value in expected.items():
            absolute = ACCURACY if term.endswith("accuracy") else 0.0
            close = pytest.approx(value, rel=RELATIVE_TERM.get(term, RELATIVE), abs=absolute)
            assert line[term] == close, (term, line["step"])
