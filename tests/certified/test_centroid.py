"""Theorems about Centroid Nets as they are true, the counter-example to those that are not, and certificates that hold."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_models import linear_layer
from torch import Tensor, nn

from locality import certify, find_boundary, lipschitz_bound
from locality.certified import CERTIFICATES
from locality.certified.bracket import certify_boundary
from locality.certified.centroid import GUARANTEES, Centroid
from locality.certified.centroid_geometry import accepting_ball, latent_radii, region_distances, smallest_distance
from locality.certified.lipschitz import Lipschitz
from locality.model_calls.decisions import decisions
from locality.types import ABSTAINED, ModelSpec
from locality.zoo.nets import NETS
from locality.zoo.nets.centroid import CentroidHead, CentroidNet, reject_logit
from locality.zoo.nets.lipschitz import LipschitzLinear, MinMax
from locality.zoo.pixel_model import PixelModel

ETAS = (0.1, 0.3, 0.5, 0.8)
eta_values = st.floats(0.0, 0.95)
seeds = st.integers(0, 2**31)


def drawn_head(seed: int, eta: float, dimension: int = 3, classes: int = 3, per_class: int = 2) -> CentroidHead:
    head = CentroidHead(dimension, classes, per_class, eta).double()
    generator = torch.Generator().manual_seed(seed)
    head.centroids.data = torch.randn(classes, per_class, dimension, dtype=torch.float64, generator=generator)
    return head


def points(seed: int, count: int, dimension: int = 3, spread: float = 2.0) -> Tensor:
    return spread * torch.randn(count, dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def decided(head: CentroidHead, features: Tensor) -> Tensor:
    return decisions(head, head(features).detach())


def two_distances(head: CentroidHead, features: Tensor) -> tuple[Tensor, Tensor]:
    """d₁ and d₂ from the definition: the nearest centroid, and the nearest one of another class."""
    apart = torch.cdist(features, head.centroids.detach().flatten(0, 1), compute_mode="donot_use_mm_for_euclid_dist")
    nearest, index = apart.min(1)
    labels = torch.arange(head.out_features).repeat_interleave(head.centroids.shape[1])
    others = labels[None] != labels[index][:, None]
    return nearest, torch.where(others, apart, math.inf).amin(1)


@settings(max_examples=60, deadline=None)
@given(seeds, eta_values)
def test_theorem_7_is_an_equivalence(seed: int, eta: float) -> None:
    """F^η(x) ≠ ⊥ ⇔ d₂ − d₁ ≥ η(d₁ + d₂)."""
    head, z = drawn_head(seed, eta), points(seed + 1, 64)
    nearest, second = two_distances(head, z)
    clear = (second - nearest - eta * (second + nearest)).abs() > 1e-9 * second  # where rounding cannot decide
    accepted = decided(head, z) != ABSTAINED
    assert torch.equal(accepted[clear], (second - nearest >= eta * (second + nearest))[clear])
    assert torch.equal(accepted, ~head.abstains(head(z)))


def test_theorem_7_accepts_at_equality() -> None:
    head = CentroidHead(1, 2, eta=0.5).double()
    head.centroids.data = torch.tensor([[[0.0]], [[1.0]]]).double()
    at_edges = torch.tensor([[-0.5], [0.25], [0.75], [1.5]]).double()  # d₁ = d₂/3 exactly
    assert decided(head, at_edges).tolist() == [0, 0, 1, 1]
    assert decided(head, torch.tensor([[0.2500001], [-0.5000001], [0.5], [1.5000001]]).double()).tolist() == [-1] * 4


def test_theorem_8_is_false_as_printed() -> None:
    """The counter-example: 1/4 and 3/4 are accepted as different classes, ½ apart, not (1 + η)·d_min/K = 1.5."""
    head = CentroidHead(1, 2, eta=0.5).double()
    head.centroids.data = torch.tensor([[[0.0]], [[1.0]]]).double()
    z = torch.tensor([[0.25], [0.75]]).double()
    assert decided(head, z).tolist() == [0, 1]
    printed, corrected = (1 + head.eta) * smallest_distance(head.centroids), head.eta * smallest_distance(head.centroids)
    assert (z[1] - z[0]).item() < printed
    assert (z[1] - z[0]).item() == corrected
    # Theorem 9 as printed: the class would not change within (1 + η)·d_min/2 = 0.75 of 1/4.
    assert head(z[:1] + 0.74).argmax(1).item() == 1


@pytest.mark.parametrize("eta", ETAS)
@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_theorem_8_corrected(eta: float, dimension: int) -> None:
    """Accepted features of different classes are at least η·d_min apart, and that is attained between two centroids."""
    head = drawn_head(dimension, eta, dimension, classes=3, per_class=1)
    near = head.centroids.detach() + 0.1 * points(2, 1500, dimension).view(500, 3, 1, dimension)
    z = torch.cat([points(1, 4000, dimension), near.view(-1, dimension)])
    labels = decided(head, z)
    gap = eta * smallest_distance(head.centroids)
    groups = [z[labels == label] for label in range(3)]
    assert all(len(group) for group in groups)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert torch.cdist(groups[one], groups[other]).min() >= gap * (1 - 1e-9)
    pair = drawn_head(dimension, eta, dimension, classes=2, per_class=1)
    first, second = pair.centroids.detach()[:, 0]
    line = first + torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None] * (second - first)
    on_line = decided(pair, line)
    measured = (line[on_line == 1][0] - line[on_line == 0][-1]).norm().item()
    assert measured == pytest.approx(eta * smallest_distance(pair.centroids), rel=1e-3)


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(0.05, 0.9))
def test_theorem_9_corrected(seed: int, eta: float) -> None:
    """F^η(x) ≠ ⊥ ⇒ the nearest class is the same within η·d_min/2, and the pointwise radius is at least that."""
    head, z = drawn_head(seed, eta), points(seed + 1, 128, spread=0.7)
    labels = decided(head, z)
    z, labels = z[labels >= 0], labels[labels >= 0]
    if len(z) == 0:
        return
    same, other, keep = latent_radii(z, head.centroids.detach(), labels, head.ratio)
    nearest, second = two_distances(head, z)
    least = eta * smallest_distance(head.centroids)
    assert (same >= least / 2 * (1 - 1e-9)).all()
    assert (same >= (second - nearest) / 2 * (1 - 1e-9)).all()
    assert (other >= least * (1 - 1e-9)).all()
    assert (keep <= same + 1e-12).all()
    assert (same <= other + 1e-12).all()
    directions = points(seed + 2, 64)
    directions = directions / directions.norm(dim=1, keepdim=True)
    for radius, allowed in ((keep, "kept"), (other, "not another"), (same, "nearest")):
        moved = z[:, None] + (radius * (1 - 1e-9))[:, None, None] * directions
        after = decided(head, moved.flatten(0, 1)).view(len(z), -1)
        if allowed == "nearest":
            after = head(moved.flatten(0, 1)).argmax(1).view(len(z), -1)
        fine = (after == labels[:, None]) | ((after == ABSTAINED) if allowed == "not another" else torch.tensor(False))
        assert fine.all(), allowed


@pytest.mark.parametrize("eta", [0.0, *ETAS])
def test_the_three_radii_are_attained_with_one_centroid_per_class(eta: float) -> None:
    """Two classes: each radius is the distance of z to a region, and just beyond it the decision is another one."""
    head = drawn_head(7, eta, dimension=2, classes=2, per_class=1)
    z = head.centroids.detach()[0] + 0.02 * points(3, 20, 2)
    labels = decided(head, z)
    assert (labels == 0).all()
    angles = torch.linspace(0, 2 * math.pi, 7201, dtype=torch.float64)
    circle = torch.stack([angles.cos(), angles.sin()], 1)
    same, other, keep = latent_radii(z, head.centroids.detach(), labels, head.ratio)
    for factor, wanted in ((1 - 1e-5, False), (1 + 1e-5, True)):
        for radius, name in ((same, "class"), (other, "other"), (keep, "kept")):
            moved = (z[:, None] + factor * radius[:, None, None] * circle).flatten(0, 1)
            nearest, after = head(moved).argmax(1), decided(head, moved)
            changed = {"class": nearest == 1, "other": after == 1, "kept": after != 0}[name]
            assert (changed.view(len(z), -1).any(1) == wanted).all(), name


def test_regions_are_the_balls_of_apollonius() -> None:
    head, z = drawn_head(5, 0.4, dimension=4, classes=2, per_class=1), points(6, 50, 4)
    first, second = head.centroids.detach()[:, 0]
    centre, radius = accepting_ball(second, first, head.ratio)
    labels = torch.zeros(50, dtype=torch.long)
    distances = region_distances(z, head.centroids.detach(), labels, head.ratio)
    assert distances[:, 1, 0].tolist() == pytest.approx(((z - centre).norm(dim=1) - radius).tolist(), rel=1e-9, abs=1e-12)
    assert (distances[:, 0, 0] == math.inf).all()
    bisector = region_distances(z, head.centroids.detach(), labels, 1.0)[:, 1, 0]
    normal = (second - first) / (second - first).norm()
    assert bisector.tolist() == pytest.approx((((first + second) / 2 - z) @ normal).tolist(), rel=1e-9, abs=1e-12)
    outside, inside = accepting_ball(first, second, head.ratio)
    depth = region_distances(z, head.centroids.detach(), labels, 1 / head.ratio)[:, 1, 0]
    assert depth.tolist() == pytest.approx((inside - (z - outside).norm(dim=1)).tolist(), rel=1e-9, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_accepted_features_are_bounded(seed: int) -> None:
    """Every accepted z lies in a ball of Apollonius; far out on any ray the network abstains, unless η = 0."""
    head = drawn_head(seed, 0.2)
    flat = head.centroids.detach().flatten(0, 1)
    centres, radii = accepting_ball(flat[:, None], flat[None], head.ratio)
    reach = float((centres.norm(dim=2) + radii).max())
    z = points(seed + 1, 200)
    inside = z[decided(head, z) != ABSTAINED]
    assert (inside.norm(dim=1) <= reach).all()
    far = 1.01 * reach * z / z.norm(dim=1, keepdim=True)
    assert (decided(head, far) == ABSTAINED).all()
    head.eta = 0.0
    assert (decided(head, far) != ABSTAINED).all()


@settings(max_examples=30, deadline=None)
@given(seeds, eta_values, eta_values)
def test_a_larger_eta_abstains_on_more(seed: int, one: float, other: float) -> None:
    head, z = drawn_head(seed, min(one, other)), points(seed + 1, 200, spread=0.7)
    few = decided(head, z) == ABSTAINED
    head.eta = max(one, other)
    many = decided(head, z) == ABSTAINED
    assert (many | ~few).all()
    head.eta = 1.0
    assert (decided(head, z) == ABSTAINED).all()
    assert (decided(head, head.centroids.detach().flatten(0, 1)) != ABSTAINED).all()


def centroid_model(eta: float, per_class: int = 2) -> nn.Module:
    """A small LiResNet encoder with centroids where its features are."""
    torch.manual_seed(1)
    net = NETS["centroid_net"](3, depth=2, width=4, dimension=8, features=6, per_class=per_class, eta=eta)
    assert isinstance(net, CentroidNet)
    model = PixelModel(net, ModelSpec("centroids", (64, 64), 64, mean=(0.5,) * 3, std=(1.0,) * 3)).eval()
    with torch.no_grad():
        features = net.penultimate(model.normalised(drawn_images(3 * per_class)))
    net.centroid_head.centroids.data = features.view(3, per_class, -1).clone()
    return model


def drawn_images(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return (torch.rand(count, 3, 1, 1, generator=generator) + 0.2 * torch.rand(count, 3, 64, 64, generator=generator)) / 1.2


@pytest.mark.parametrize("eta", [0.0, 0.2])
def test_no_search_ends_inside_a_certified_ball(eta: float) -> None:
    model = centroid_model(eta)
    images = (0.9 * drawn_images(6) + 0.05).clamp(0, 1)
    certificate = Centroid("class")(model, images)
    sure = certificate.prediction >= 0
    assert sure.any()
    assert (certificate.radius[sure] > 0).all()
    found = find_boundary(model, images[sure], bounds=None)
    distance = found.distance.double()
    assert (distance >= certificate.radius[sure] * (1 - 1e-6) - 1e-7).all()
    assert torch.equal(certify(model, images).radius, certificate.details["r_keep"])  # what certify chooses for the model
    bracket = certify_boundary(model, images[sure], found).radius
    assert bracket is not None
    assert bracket.tolist() == pytest.approx(certificate.radius[sure].tolist(), rel=1e-6)


def test_no_float64_attack_changes_what_is_certified() -> None:
    """Along the gradient of d₁ − ρ·d₂ and away from it, and along random directions, at each certified radius."""
    model = centroid_model(0.2)
    exact, images = copy.deepcopy(model).double(), (0.9 * drawn_images(6) + 0.05).double()
    certificate = Centroid()(model, images)
    rows = certificate.prediction >= 0
    images, labels = images[rows], certificate.prediction[rows]
    leaf = images.clone().requires_grad_()
    logits = exact(leaf)
    (gradient,) = torch.autograd.grad((logits.amax(1) - reject_logit(logits, 1.0)).sum(), leaf)
    for direction in (-gradient, gradient, torch.randn(images.shape, dtype=torch.float64)):
        unit = direction / direction.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        for name, allowed in (("r_keep", ()), ("r_other", (ABSTAINED,)), ("r_class", None)):
            moved = exact(images + (certificate.details[name][rows] * (1 - 1e-9)).view(-1, 1, 1, 1) * unit).detach()
            after = moved.argmax(1) if allowed is None else decisions(exact, moved)
            assert ((after == labels) | torch.isin(after, torch.tensor(allowed or (), dtype=torch.long))).all(), name


def linear_centroids(eta: float) -> nn.Module:
    """The identity as encoder: features are pixels, K = 1."""
    net = CentroidNet(nn.Flatten(), LipschitzLinear(2, 2), CentroidHead(2, 2, 1, eta))
    linear_layer(net, 1).weight.data, linear_layer(net, 1).bias.data = torch.eye(2), torch.zeros(2)
    net.centroid_head.centroids.data = torch.tensor([[[0.25, 0.5]], [[0.75, 0.5]]])
    return net


def test_radii_of_a_linear_encoder_are_distances() -> None:
    """Catches a halved constant, from both sides: centroids ½ apart, η = ½, ρ = ⅓."""
    model = linear_centroids(0.5)
    images = torch.tensor([[[[0.25, 0.5]]], [[[0.3125, 0.5]]], [[[0.5, 0.5]]]])
    certificate = certify(model, images, by=Centroid())
    assert certificate.prediction.tolist() == [0, 0, ABSTAINED]
    # Accepted as 0 from x = 0 to 0.375, as 1 from 0.625 to 1; the bisector is at 0.5.
    assert certificate.details["r_keep"].tolist() == pytest.approx([0.125, 0.0625, 0], abs=1e-8)
    assert certificate.details["r_class"].tolist() == pytest.approx([0.25, 0.1875, 0], abs=1e-8)
    assert certificate.details["r_other"].tolist() == pytest.approx([0.375, 0.3125, 0], abs=1e-8)
    assert (certificate.details["r_keep"][:2] < torch.tensor([0.125, 0.0625])).all()
    assert torch.equal(certificate.radius, certificate.details["r_keep"])
    assert certificate.details["nearest"].tolist() == pytest.approx([0, 0.0625, 0.25])
    assert certificate.details["second"].tolist() == pytest.approx([0.5, 0.4375, 0.25])
    assert certificate.facts["smallest distance of accepted images of two classes"] == pytest.approx(0.25)
    assert certificate.failure_probability.tolist() == [0] * 3
    for guarantee, name in (("decision", "r_keep"), ("class", "r_class"), ("no_other", "r_other")):
        radius = CERTIFICATES["centroid"](guarantee=guarantee)(model, images)  # type: ignore[call-arg]
        assert torch.equal(radius.radius, certificate.details[name])
        assert radius.facts["guarantee"] == GUARANTEES[guarantee]


def test_the_normalisation_and_the_encoder_count() -> None:
    model = linear_centroids(0.5)
    images = torch.tensor([[[[0.3125, 0.5]]]])
    linear_layer(model, 1).weight.data *= 4
    assert isinstance(model, CentroidNet)
    model.centroid_head.centroids.data *= 4
    assert Centroid()(model, images).radius.item() == pytest.approx(0.0625, abs=1e-8)
    assert lipschitz_bound(model, (1, 2), channels=1).margins.tolist() == [pytest.approx([0, 8]), pytest.approx([8, 0])]


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_the_ends_of_eta(eta: float) -> None:
    model = linear_centroids(eta)
    certificate = Centroid()(model, torch.tensor([[[[0.25, 0.5]]], [[[0.3125, 0.5]]], [[[0.5, 0.5]]]]))
    expected = [0.25, 0.1875, 0] if eta == 0 else [0, 0, 0]
    assert certificate.radius.tolist() == pytest.approx(expected, abs=1e-8)
    assert certificate.prediction.tolist() == ([0, 0, 0] if eta == 0 else [0, ABSTAINED, ABSTAINED])


def test_several_centroids_of_a_class() -> None:
    """The nearest centroid of a class may change without a change of class."""
    head = CentroidHead(1, 2, 2, eta=0.0).double()
    head.centroids.data = torch.tensor([[[0.0], [1.0]], [[3.0], [9.0]]]).double()
    same, other, keep = latent_radii(torch.tensor([[0.4]]).double(), head.centroids.detach(), torch.tensor([0]), head.ratio)
    assert same.item() == pytest.approx(1.6)  # to 2, the middle of 1 and 3
    assert other.item() == pytest.approx(1.6)
    assert keep.item() == pytest.approx(1.6)


def test_images_do_not_depend_on_their_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from locality.certified import centroid

    model, images = centroid_model(0.1), drawn_images(4)
    whole = Centroid()(model, images)
    monkeypatch.setattr(centroid, "MOST_NUMBERS", 1)
    counts: list[int] = []
    single = Centroid()(model, images, lambda done, total: counts.append(done))
    for name, values in whole.details.items():
        assert single.details[name].tolist() == pytest.approx(values.tolist(), abs=1e-12)
    assert counts == [0, 1, 2, 3, 4]


def test_the_looser_radius_of_a_lipschitz_bound() -> None:
    """Differences of distances are 2K-Lipschitz: (d₂ − d₁)/(2K) is a radius of the class, too, and smaller."""
    model, images = centroid_model(0.0), drawn_images(6)
    certificate, bound = Centroid("class")(model, images), lipschitz_bound(model, (64, 64))
    loose = (certificate.details["second"] - certificate.details["nearest"]) / bound.largest
    assert bound.largest == pytest.approx(2 * bound.features)
    assert (loose <= certificate.radius * (1 + 1e-9) + 1e-9).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: Centroid("klass"),
            "`guarantee` must be one of decision, class, no_other, got 'klass': did you mean 'class'",
        ),
        (
            lambda: Centroid()(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), torch.rand(1, 3, 2, 2)),
            "`model` must be a Centroid",
        ),
        (lambda: Centroid()(linear_centroids(0.2).half(), torch.rand(1, 1, 1, 2)), "in float32 or float64"),
        (lambda: Centroid()(linear_centroids(0.2), 2 + torch.rand(1, 1, 1, 2)), r"`images` must be in \[0, 1\]"),
        (
            lambda: Lipschitz()(linear_centroids(0.2), torch.rand(1, 1, 1, 2)),
            "one that always decides.* Net with `--by centroid`",
        ),
        (lambda: CentroidNet(nn.Flatten(), MinMax()).centroid_head, "`head` must be a CentroidHead, got 'MinMax'"),
    ],
)
def test_wrong_arguments_are_one_sentence(call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=sentence):
        call()
