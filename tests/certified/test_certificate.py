"""What a certificate states, what it refuses, and certificates of several blocks."""

from typing import Any

import pytest
import torch

from locality.certified.certificate import Certificate, check_radii, rounded_down
from locality.types import ABSTAINED


def certificate(**changes: Any) -> Certificate:
    fields: dict[str, Any] = {
        "prediction": torch.tensor([0, 1, ABSTAINED]),
        "radius": torch.tensor([0.5, 0.2, 0.0], dtype=torch.float64),
        "failure_probability": torch.full((3,), 0.001, dtype=torch.float64),
        "details": {"probability": torch.tensor([0.9, 0.7, 0.4])},
    }
    return Certificate(**fields | changes)


def test_a_decision_is_certified_below_its_radius_only() -> None:
    assert certificate().certifies(0.0).tolist() == [True, True, False]
    assert certificate().certifies(0.3).tolist() == [True, False, False]
    assert certificate().certifies(0.5).tolist() == [False, False, False]  # the ball is open


def test_only_right_decisions_hold_and_an_abstention_never_does() -> None:
    labels = torch.tensor([0, 0, ABSTAINED])  # the last one is of a class that the model does not know
    assert certificate().holds(labels, 0.1).tolist() == [True, False, False]
    assert certificate().abstained.tolist() == [False, False, True]


def test_blocks_are_joined() -> None:
    whole = Certificate.cat([certificate(norm="linf", facts={"K": 2.0}), certificate(norm="linf", facts={"K": 2.0})])
    assert whole.facts == {"K": 2.0}
    assert whole.prediction.tolist() == [0, 1, -1, 0, 1, -1]
    assert whole.radius.tolist() == [0.5, 0.2, 0.0] * 2
    assert whole.norm == "linf"
    assert whole.details["probability"].tolist() == pytest.approx([0.9, 0.7, 0.4] * 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"radius": torch.tensor([0.5, 0.2, 0.1])}, "`radius` must be 0 where the model abstains"),
        ({"radius": torch.tensor([0.5, -0.2, 0.0])}, "`radius` must be 0 or more"),
        ({"radius": torch.tensor([0.5, float("nan"), 0.0])}, "`radius` must be 0 or more"),
        ({"radius": torch.tensor([0.5])}, "`radius` must be one number for each of the 3 predictions"),
        ({"details": {"margin": torch.zeros(2)}}, "`margin` must be one number for each of the 3 predictions"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        certificate(**changes)


def test_radii_in_float32_are_never_larger() -> None:
    radii = torch.rand(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    stored = rounded_down(radii)
    assert stored.dtype == torch.float32
    assert (stored.double() <= radii).all()
    assert (stored.nextafter(torch.tensor(2.0)).double() > radii).all()  # the next larger number would be too large
    assert (radii.float().double() > radii).any()  # what plain rounding does
    assert rounded_down(torch.tensor([0.0, 0.5]).double()).tolist() == [0, 0.5]


def test_radii_are_distances() -> None:
    check_radii([0, 0.5])
    for radii in ([], [-0.1], [float("nan")], [float("inf")]):
        with pytest.raises(ValueError, match="`radii` must be distances"):
            check_radii(radii)
    with pytest.raises(ValueError, match="`radii` must be different distances"):
        check_radii([0.5, 0.5])


@pytest.mark.parametrize("radius", [-0.1, float("nan"), float("inf"), "36/255"])
def test_a_radius_is_a_distance(radius: Any) -> None:
    with pytest.raises(ValueError, match="`radius` must be a distance in pixels"):
        certificate().certifies(radius)
    with pytest.raises(ValueError, match="`radii` must be distances in pixels"):
        check_radii([radius])


def test_there_is_a_label_for_every_prediction() -> None:
    with pytest.raises(ValueError, match=r"`labels` must be one for each of the 3 predictions, got \(1,\)"):
        certificate().holds(torch.tensor([0]), 0.1)
    with pytest.raises(ValueError, match="`radii` must be several distances"):
        check_radii(0.1)  # type: ignore[arg-type]
