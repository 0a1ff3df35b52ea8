"""Threats print themselves as people write them and refuse what makes no sense; results print in one line."""

import pytest
import torch

from locality.types import Boundary, LocalityScores, PathMaps, Threat


@pytest.mark.parametrize(
    ("threat", "text"),
    [
        (Threat("linf", 8 / 255), "ℓ∞ 8/255"),
        (Threat("linf", 0.5 / 255), "ℓ∞ 0.5/255"),
        (Threat("linf", 0.3), "ℓ∞ 0.3"),
        (Threat("l2", 3), "ℓ2 3"),
        (Threat("l2", 128 / 255), "ℓ2 128/255"),
    ],
)
def test_a_threat_prints_itself(threat: Threat, text: str) -> None:
    assert str(threat) == text


@pytest.mark.parametrize("text", ["linf 4/255", "l2 0.75"])
def test_a_threat_is_read_from_text(text: str) -> None:
    assert f"{Threat.parse(text).norm} {Threat.parse(text).radius_text}" == text


@pytest.mark.parametrize(
    ("norm", "radius", "problem"),
    [
        ("linf", 4, "did you mean 4/255"),
        ("linf", 0, "positive"),
        ("l2", float("nan"), "positive"),
        ("l2", True, "positive"),
        ("l1", 1.0, "`norm` must be one of l2, linf"),
    ],
)
def test_a_threat_that_makes_no_sense_is_an_error(norm: str, radius: float, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Threat(norm, radius)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["linf", "linf x", "4/255", "linf 1/0"])
def test_what_is_not_a_threat_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        Threat.parse(text)


def test_results_with_large_tensors_print_in_one_line() -> None:
    numbers, one = torch.tensor([0.5, float("inf"), 0.25]), torch.zeros(3, dtype=torch.int64)
    boundary = Boundary(torch.rand(3, 3, 8, 8), numbers, numbers < 1, one, one, numbers)
    assert repr(boundary) == "<Boundary of 3 images, found for 2, median distance 0.375>"
    nothing = Boundary(torch.rand(3, 3, 8, 8), numbers, numbers < 0, one, one, numbers)
    assert repr(nothing) == "<Boundary of 3 images, found for 0>"
    assert repr(PathMaps(torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8), numbers)) == "<PathMaps 2×3×8×8>"
    f1 = torch.tensor([0.5, float("nan")])
    assert repr(LocalityScores(f1, f1, f1)) == "<LocalityScores of 2 images, mean F1 0.500>"
    assert repr(LocalityScores(f1[1:], f1[1:], f1[1:])) == "<LocalityScores of 1 images, F1 undefined>"
