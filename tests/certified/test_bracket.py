"""Boundary points with their certified radius: the distance from both sides, and an error if they contradict each other."""

from dataclasses import replace

import pytest
import torch
from known_models import linear_model
from suite_models import lipschitz, steady
from torch import nn

from locality import certify, certify_boundary, evaluate, find_boundary, lipschitz_bound, load_dataset
from locality.certified import bracket, known_bounds
from locality.certified.bracket import FalseCertificateError, has_small_bound
from locality.certified.lipschitz_bound import LipschitzBound
from locality.zoo.pixel_model import PixelModel


def test_the_bracket_of_a_linear_model_is_closed() -> None:
    model, images, _, _ = linear_model([0.1, 0.2, 0.4])
    edge = certify_boundary(model, images, find_boundary(model, images))
    assert edge.radius is not None
    assert edge.radius.dtype == torch.float32
    assert (edge.radius <= edge.distance).all()
    assert edge.radius.tolist() == pytest.approx(edge.distance.tolist(), rel=1e-4)


def test_radii_are_those_of_the_certificate() -> None:
    model = lipschitz()
    images = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    plain = find_boundary(model, images)
    edge = certify_boundary(model, images, plain)
    assert plain.radius is None
    assert edge.radius is not None
    assert edge.radius.tolist() == pytest.approx(certify(model, images).radius.tolist(), rel=1e-6)
    assert (edge.radius.double() <= certify(model, images).radius).all()
    assert ((edge.radius > 0.1 * edge.distance) & (edge.radius < edge.distance)).all()
    across = find_boundary(model, images, labels=(plain.labels + 1) % 10)  # distance 0: nothing is certified
    assert certify_boundary(model, images, across).radius.tolist() == [0, 0, 0]  # type: ignore[union-attr]


def test_points_that_were_not_found_have_a_radius_too() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    for weight in model.parameters():
        nn.init.zeros_(weight)
    model[1].bias.data[0] = 3.0  # type: ignore[operator]
    images = torch.rand(2, 3, 2, 2)
    with pytest.warns(UserWarning, match="gradients of exactly 0"):
        edge = find_boundary(model, images)
    assert certify_boundary(model, images, edge).radius.tolist() == pytest.approx([12**0.5] * 2)  # type: ignore[union-attr]


def test_a_point_inside_the_radius_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the constant doubles the radii of a linear model, beyond its boundary."""
    model, images, _, _ = linear_model([0.1, 0.2, 0.4])
    edge = find_boundary(model, images)
    monkeypatch.setattr(LipschitzBound, "margins", property(lambda bound: bound.differences * bound.features / 2))
    with pytest.raises(FalseCertificateError, match=r"the boundary point of image 0 lies 0\.1 inside its certified radius"):
        certify_boundary(model, images, edge)


def test_a_point_that_crosses_in_float64_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, _, _ = linear_model([0.2, 0.3])
    edge = find_boundary(model, images)
    overshot = images + 1.1 * (edge.points - images)
    edge = replace(edge, points=overshot, distance=(overshot - images).flatten(1).norm(dim=1))
    bound = lipschitz_bound(model, (8, 8))
    halved = replace(bound, differences=bound.differences / 4)
    monkeypatch.setattr(known_bounds, "known_bound", lambda *_: halved)
    with pytest.raises(FalseCertificateError):
        certify_boundary(model, images, edge)


def test_rounding_of_float32_is_no_error() -> None:
    """The point is 1e-6 nearer than the float64 boundary: the float64 margin there is positive and small."""
    model, images, _, _ = linear_model([0.2, 0.3])
    edge = find_boundary(model, images)
    radius = certify(model, images).radius
    direction = (edge.points - images) / edge.distance.view(-1, 1, 1, 1)
    nearer = images + (radius.float() * (1 - 1e-6)).view(-1, 1, 1, 1) * direction
    moved = replace(edge, points=nearer, distance=(nearer - images).flatten(1).norm(dim=1))
    again = certify_boundary(model, images, moved)
    assert again.radius is not None
    assert (again.radius <= moved.distance).all()
    assert again.radius.tolist() == pytest.approx(radius.tolist(), rel=1e-5)


def test_distances_of_another_norm_are_refused() -> None:
    model, images, _, _ = linear_model([0.2, 0.3])
    with pytest.raises(ValueError, match="`boundary` must be of these images, with distances in ℓ2"):
        certify_boundary(model, images, find_boundary(model, images, norm="linf"))


def test_evaluate_brackets_networks_made_for_it_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_dataset("shapes", limit=3, count=10)
    evaluation = evaluate(lipschitz(), data, methods=["SM"], progress=False)
    brackets, summary = evaluation.brackets, evaluation.summary
    assert brackets["image_id"].tolist() == evaluation.rows["image_id"].tolist()
    assert summary.tightness == pytest.approx((brackets["radius"] / brackets["distance"]).median())
    assert 0.05 < summary.tightness < 1
    stated = evaluation.to_json()["boundary"]["radius_over_distance"]
    assert stated == {"median": summary.tightness, "used": 3}
    monkeypatch.setattr(bracket, "Lipschitz", lambda: pytest.fail("a certificate was computed"))
    other = evaluate(steady(), data, methods=["SM"], progress=False)
    assert len(other.brackets) == 0
    assert other.to_json()["boundary"]["radius_over_distance"] == {"median": None, "used": 0}
    assert isinstance(steady(), PixelModel)
    assert not has_small_bound(steady())


def test_the_boundary_is_that_of_these_images() -> None:
    model, images, _, _ = linear_model([0.1, 0.2, 0.4])
    with pytest.raises(ValueError, match="`images` must be those of the boundary, of shape"):
        certify_boundary(model, images[:2], find_boundary(model, images))
