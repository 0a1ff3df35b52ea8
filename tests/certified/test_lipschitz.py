"""Certificates from a Lipschitz bound: the distance where it is known, and never crossed by a search or an attack."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from known_models import linear_layer, linear_model, small_network
from torch import Tensor, nn

from locality import certify, conv_norms, find_boundary, lipschitz_bound
from locality.certified import CERTIFICATES
from locality.certified import lipschitz as module
from locality.certified.lipschitz import Lipschitz
from locality.certified.smoothing import Smoothing
from locality.certified.verified_accuracy import verified_accuracy
from locality.data.dataset import load_dataset
from locality.operator_norms import conv_matrix
from locality.types import ModelSpec
from locality.zoo.nets import NETS
from locality.zoo.nets.lipschitz import (
    ConventionalResidual,
    LinearResidual,
    LipschitzLinear,
    LipschitzNet,
    MinMax,
    NormalisedHead,
)
from locality.zoo.pixel_model import PixelModel


def linear_distances(model: nn.Module, images: Tensor) -> Tensor:
    """N exact distances of images to the nearest boundary of Flatten and Linear, in float64."""
    linear = copy.deepcopy(linear_layer(model)).double()
    logits = linear(images.double().flatten(1))
    best = logits.argmax(1)
    lengths = torch.cdist(linear.weight, linear.weight)[best]
    distances = (logits.amax(1, keepdim=True) - logits) / lengths
    nearest: Tensor = distances.scatter(1, best[:, None], torch.inf).amin(1).detach()
    return nearest


def drawn_nets() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    nets: dict[str, nn.Module] = {}
    for name, stride in (("liresnet", 4), ("liresnet", 2), ("lip_convnet", 4), ("lip_resnet", 4)):
        net = NETS[name](4, depth=2, width=4, dimension=6, stride=stride)
        for weight_name, weight in net.named_parameters():
            if "multiplier" in weight_name:  # the conventional blocks begin as the identity
                weight.data = torch.full_like(weight, 0.5)
        nets[name if stride == 4 else f"{name}, stride 2"] = PixelModel(
            net, ModelSpec(name, (64, 64), 64, mean=(0.5,) * 3, std=(1.0,) * 3)
        ).eval()
    network = small_network()
    normalised = network[1]  # type: ignore[index]
    normalised.running_mean, normalised.running_var = 0.1 * torch.randn(8), torch.rand(8) + 0.5
    nets["conv, BatchNorm, ReLU"] = network.eval()
    return nets


def drawn_images(model: nn.Module, count: int) -> Tensor:
    side = 64 if isinstance(model, PixelModel) else 8
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("classes", [2, 4])
def test_the_radius_of_a_linear_model_is_the_distance(classes: int) -> None:
    """Catches a halved constant and a lost difference of rows, from both sides."""
    model, images, labels, _ = linear_model([0.1, 0.2, 0.4, 0.0005], classes)
    certificate, distances = certify(model, images), linear_distances(model, images)
    assert torch.equal(certificate.prediction, labels)
    assert certificate.radius.tolist() == pytest.approx(distances.tolist(), abs=1e-9)
    assert (certificate.radius <= distances).all()
    assert certificate.details["rival"].tolist() == ((labels + 1) % classes).tolist()
    assert certificate.failure_probability.tolist() == [0] * 4
    assert certificate.radius.dtype == torch.float64
    assert certificate.norm == "l2"


def test_the_normalisation_of_pixels_counts() -> None:
    """Catches a forgotten 1/std: the same margins, four times as steep in pixels."""
    model, images, _, _ = linear_model([0.1, 0.2, 0.4])
    spec = ModelSpec("linear", (8, 8), 8, mean=(0.0,) * 3, std=(0.25, 0.25, 0.25))
    radius = certify(PixelModel(model, spec), images / 4).radius
    assert radius.tolist() == pytest.approx((linear_distances(model, images) / 4).tolist(), abs=1e-9)
    uneven = PixelModel(model, ModelSpec("linear", (8, 8), 8, mean=(0.0,) * 3, std=(0.25, 0.5, 1.0)))
    assert lipschitz_bound(uneven, (8, 8)).features == pytest.approx(4)


def test_rows_of_a_head_count_by_their_difference() -> None:
    """Two long rows that are nearly equal: their margin hardly changes, whatever their lengths."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 3))
    linear_layer(model).weight.data = torch.tensor([[100.0, 0, 0], [100, 1, 0], [100, 0, 2]])
    linear_layer(model).bias.data = torch.tensor([1.0, 0, 0])
    bound = lipschitz_bound(model, (1, 1))
    assert bound.margins.tolist() == [pytest.approx(row) for row in ([0, 1, 2], [1, 0, 5**0.5], [2, 5**0.5, 0])]
    assert bound.largest == pytest.approx(5**0.5)
    certificate = certify(model, torch.tensor([[[[0.5]], [[0.25]], [[0.0]]]]))
    assert certificate.radius.item() == pytest.approx(0.5)  # class 2: margin 1 over 2; class 1: 0.75 over 1


def test_the_ball_is_open() -> None:
    """Catches ≥ for >: at the distance itself there is a tie."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    linear_layer(model).weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    certificate = certify(model, torch.tensor([[[[0.25, 0.0]]]]))
    assert certificate.radius.item() == pytest.approx(0.25, abs=1e-12)
    assert certificate.radius.item() < 0.25
    assert not certificate.certifies(0.25).any()
    assert not certificate.certifies(certificate.radius.item()).any()
    assert certificate.certifies(0.25 - 1e-12).all()


def test_ties_and_constants() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 3))
    image = torch.full((1, 3, 1, 1), 0.5)
    linear_layer(model).weight.data = torch.eye(3)
    linear_layer(model).bias.data = torch.zeros(3)
    assert certify(model, image).radius.tolist() == [0]  # all logits are equal
    assert not certify(model, image).certifies(0).any()
    linear_layer(model).weight.data = torch.ones(3, 3)  # equal rows: K_ji = 0
    assert certify(model, image).radius.tolist() == [0]
    linear_layer(model).bias.data = torch.tensor([0.0, 1.0, 0.0])
    assert certify(model, image).prediction.tolist() == [1]
    assert certify(model, image).radius.item() == pytest.approx(3**0.5)  # no farther than the pixels' cube is wide
    linear_layer(model).bias.data = torch.tensor([0.0, 1.0, 1.0])
    assert certify(model, image).radius.tolist() == [0]


@pytest.mark.parametrize("name", drawn_nets())
def test_margins_are_never_steeper_than_the_bound(name: str) -> None:
    model = drawn_nets()[name]
    images = drawn_images(model, 3).double()
    bound, exact = lipschitz_bound(model, (images.shape[-2], images.shape[-1])), copy.deepcopy(model).double()
    for image in images:
        jacobian = torch.func.jacrev(lambda x: exact(x[None])[0])(image).flatten(1)
        slopes = torch.cdist(jacobian, jacobian).detach()
        assert (slopes <= bound.margins + 1e-12).all()
        assert slopes.max() > 0


@pytest.mark.parametrize("name", drawn_nets())
def test_no_search_ends_inside_a_certified_ball(name: str) -> None:
    model = drawn_nets()[name]
    images = drawn_images(model, 3)
    certificate = certify(model, images)
    assert (certificate.radius > 0).all()
    assert torch.equal(certificate.prediction, model(images).argmax(1))
    found = find_boundary(model, images, bounds=None)
    assert found.found.all()
    assert (found.distance.double() >= certificate.radius * (1 - 1e-6) - 1e-7).all()


@pytest.mark.parametrize("name", drawn_nets())
def test_no_float64_attack_crosses(name: str) -> None:
    """Projected gradient descent on every rival's margin, at the certified radius, also from the steepest directions."""
    model = drawn_nets()[name]
    exact, images = copy.deepcopy(model).double(), drawn_images(model, 3).double()
    certificate = certify(model, images)
    radius = certificate.radius.view(-1, 1, 1, 1) * (1 - 1e-9)
    jacobian = torch.func.jacrev(lambda x: exact(x[None])[0])(images[0])
    steepest = torch.linalg.svd(jacobian.flatten(1), full_matrices=False).Vh.detach()
    for start in (*steepest, *-steepest):
        points = images + radius * start.view_as(images[0])
        for _ in range(5):
            points.requires_grad_()
            logits = exact(points)
            own = logits.gather(1, certificate.prediction[:, None])[:, 0]
            rival = logits.scatter(1, certificate.prediction[:, None], -torch.inf).amax(1)
            assert (own > rival).all()
            (gradient,) = torch.autograd.grad((own - rival).sum(), points)
            offset = -gradient / gradient.flatten(1).norm(dim=1).clamp_min(1e-300).view(-1, 1, 1, 1)
            points = (images + radius * offset).detach()


def rotation(size: int, seed: int) -> Tensor:
    drawn = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    orthogonal: Tensor = torch.linalg.qr(drawn).Q
    return orthogonal


def test_the_radius_is_attained_behind_rotations_and_min_max() -> None:
    """Orthogonal layers and MinMax keep lengths, so the boundary is exactly one radius away where no pair changes places."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), MinMax(), nn.Linear(4, 2)).double()
    linear_layer(model, 1).weight.data, linear_layer(model, 1).bias.data = (
        rotation(4, 0),
        torch.tensor([9.0, 0, 0, 9]).double(),
    )
    linear_layer(model).weight.data = torch.tensor([[3.0, 0, 0, 0], [0, 0, 0, 4.0]]).double()
    linear_layer(model).bias.data = torch.tensor([-26.0, 0.0]).double()
    image = torch.full((1, 1, 2, 2), 0.5).double()
    certificate = certify(model, image)
    (gradient,) = torch.func.jacrev(lambda x: (model(x)[:, 0] - model(x)[:, 1])[0])(image).flatten(1)
    sign = 1 - 2 * certificate.prediction.item()
    for factor, same in ((1 - 1e-6, True), (1 + 1e-6, False)):
        moved = image - sign * factor * certificate.radius.item() * (gradient / gradient.norm()).view_as(image)
        assert (model(moved).argmax(1) == certificate.prediction).item() is same


def test_power_iteration_in_place_of_the_bound_would_be_crossed() -> None:
    """The top direction is orthogonal to an all-ones start: the estimate is 100 times too small, and so is its promise."""
    hadamard = torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
    dense = LipschitzLinear(4, 4)
    dense.weight.data = hadamard @ torch.diag(torch.tensor([1.0, 100, 1, 1])) @ hadamard.T
    dense.bias.data.zero_()
    dense.direction = torch.ones(1, 4)
    net = LipschitzNet(nn.Flatten(), dense, NormalisedHead(4, 2))
    head = net.head
    assert isinstance(head, NormalisedHead)
    head.weight.data, head.bias.data = torch.stack([hadamard[1], -hadamard[1]]), torch.tensor([0.5, 0.0])
    image = torch.full((1, 1, 1, 4), 0.5)
    claimed = 0.5 / net.margin_norms(1)[0, 1].item()
    certificate = certify(net, image)
    towards = -hadamard[1].view_as(image)
    assert certificate.prediction.tolist() == [0]
    assert net(image + 0.99 * claimed * towards).argmax(1).tolist() == [1]
    assert net(image + 0.99 * certificate.radius.item() * towards).argmax(1).tolist() == [0]
    assert claimed > 50 * certificate.radius.item()


def test_images_do_not_depend_on_their_batch_or_the_order_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = drawn_nets()["liresnet"]
    images = drawn_images(model, 4)
    whole = certify(model, images)
    monkeypatch.setattr(module, "CHUNK", 3)
    single = torch.cat([certify(model, image[None]).radius for image in images])
    assert single.tolist() == pytest.approx(whole.radius.tolist(), abs=1e-12)
    assert certify(model, images).radius.tolist() == pytest.approx(whole.radius.tolist(), abs=1e-12)
    linear, inputs, labels, _ = linear_model([0.1, 0.2, 0.4])
    swapped = copy.deepcopy(linear)
    order = torch.tensor([2, 0, 3, 1])
    linear_layer(swapped).weight.data = linear_layer(linear).weight.data[order]
    linear_layer(swapped).bias.data = linear_layer(linear).bias.data[order]
    assert torch.equal(order[certify(swapped, inputs).prediction], labels)
    assert certify(swapped, inputs).radius.tolist() == pytest.approx(certify(linear, inputs).radius.tolist(), abs=1e-12)


def test_a_stored_model_is_certified_with_its_stored_weights(tmp_path: Path) -> None:
    """Half precision moves the weights, and with them the bound: the certificate is of what the file holds."""
    model = drawn_nets()["liresnet"]
    images = drawn_images(model, 2)
    trained = certify(model, images).radius
    torch.save({name: value.half() for name, value in model.state_dict().items()}, tmp_path / "weights.pt")
    stored = torch.load(tmp_path / "weights.pt", weights_only=True)
    model.load_state_dict(stored)
    again = drawn_nets()["liresnet"]
    again.load_state_dict(stored)
    assert torch.equal(certify(model, images).radius, certify(again, images).radius)
    assert not torch.equal(certify(model, images).radius, trained)
    with pytest.raises(
        ValueError, match=r"`model` must be in float32 or float64, got 'torch.float16': certify model.float\(\)"
    ):
        certify(model.half(), images)


def test_bounds_are_kept_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    from locality.certified import lipschitz_bound as bounds

    calls: list[nn.Module] = []
    original = bounds.lipschitz_bound

    def counted(model: nn.Module, size: tuple[int, int], channels: int, *, tight: bool) -> bounds.LipschitzBound:
        calls.append(model)
        return original(model, size, channels, tight=tight)

    monkeypatch.setattr(bounds, "lipschitz_bound", counted)
    linear, images, _, _ = linear_model([0.2, 0.3])
    model = PixelModel(linear, ModelSpec("linear", (8, 8), 8, mean=(0.0,) * 3, std=(1.0,) * 3)).eval()
    first = certify(model, images).radius
    assert torch.equal(certify(model, images).radius, first)
    assert len(calls) == 1
    linear_layer(linear).weight.data *= 2  # changes no version counter
    linear_layer(linear).bias.data *= 2
    assert certify(model, images).radius.tolist() == pytest.approx(first.tolist(), abs=1e-9)
    assert len(calls) == 2
    model.std *= 2
    certify(model, images)
    assert len(calls) == 3
    certify(model, images, Lipschitz(tight=True))
    assert len(calls) == 4


def test_tight_proofs_enlarge_the_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_norms, "CHEAP", 0)  # so that without `tight` this small network has the bounds of a large one
    torch.manual_seed(0)
    backbone = [nn.Conv2d(3, 12, 3, padding=1), MinMax(), LinearResidual(12, 8, 1), ConventionalResidual(12, 8)]
    model = nn.Sequential(*backbone, nn.Flatten(), nn.Linear(768, 3)).eval()
    nn.init.normal_(model[2].weight, std=0.1)  # type: ignore[arg-type]
    nn.init.constant_(model[3].multiplier, 0.5)  # type: ignore[arg-type]
    images = torch.rand(4, 3, 8, 8)
    loose, tight = Lipschitz()(model, images), Lipschitz(tight=True)(model, images)
    assert (tight.radius > 1.005 * loose.radius).all()
    constants = [dict(lipschitz_bound(model, (8, 8), tight=some).layers) for some in (False, True)]
    for name in ("2 LinearResidual", "3 ConventionalResidual"):
        assert constants[1][name] < constants[0][name] * 0.999
    exact = torch.linalg.svdvals(conv_matrix(model[2].kernel(), (8, 8), padding=1))[0]  # type: ignore[operator]
    assert 1 <= constants[1]["2 LinearResidual"] / exact < 1 + 1e-5


def test_the_callers_model_stays_as_it_is() -> None:
    model = drawn_nets()["lip_resnet"].train()
    before = {name: tensor.clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    state = torch.get_rng_state()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        inside = certify(model, drawn_images(model, 1))
    assert torch.equal(inside.radius, certify(model, drawn_images(model, 1)).radius)
    assert torch.equal(torch.get_rng_state(), state)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        assert torch.equal(tensor, before[name])
    assert model.training
    assert all(weight.grad is None for weight in model.parameters())


def test_slack_is_subtracted_from_the_margin() -> None:
    model, images, _, _ = linear_model([0.2])
    constant = lipschitz_bound(model, (8, 8)).largest
    plain, careful = certify(model, images).radius, Lipschitz(slack=0.1)(model, images).radius
    assert (plain - careful).item() == pytest.approx(0.2 / constant)
    with pytest.raises(ValueError, match="`slack` must be a difference of logits"):
        Lipschitz(slack=-1)


def test_facts_list_every_layer() -> None:
    model = drawn_nets()["liresnet"]
    certificate = certify(model, drawn_images(model, 1))
    bound = lipschitz_bound(model, (64, 64))
    layers = certificate.facts["layers"]
    assert layers == dict(bound.layers)
    assert list(dict(bound.layers))[:3] == ["normalisation", "0 LipschitzConv2d", "1 MinMax"]
    product = torch.tensor([norm for _, norm in bound.layers]).double().prod().item()
    assert certificate.facts["lipschitz"] == {"features": bound.features, "margin": bound.largest}
    assert bound.features == pytest.approx(product)


def test_a_data_set_and_smoothing_by_the_same_function() -> None:
    data = load_dataset("shapes", limit=3, count=10)
    model = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(48, 10))
    result = verified_accuracy(model, data, CERTIFICATES["lipschitz"]())
    assert torch.equal(result.certificate.radius, certify(model, data.batch(range(3)).images).radius)
    assert result.to_json()["layers"]["0 AvgPool2d"] == pytest.approx(1 / 16)
    images = data.batch(range(1)).images
    smoothed = certify(model, images, by=Smoothing(samples=20, selection_samples=5))
    assert smoothed.failure_probability.tolist() == [0.001]


class Attention(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs


class Bent(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


class Program(torch.jit.ScriptModule):
    """A program as `torch.jit.load` returns it: its layers are no objects of Python."""


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    model[0].register_forward_hook(lambda layer, inputs, output: 2 * output)
    return model


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            nn.Sequential(nn.Flatten(), Attention(), nn.Linear(12, 2)),
            r"made of layers with .* got 'Attention \(1\)': a sequence",
        ),
        (
            nn.Sequential(nn.Sequential(nn.Flatten(), Bent(12, 2))),
            r"got 'Bent \(0.1\)'.* smoothing .* certifies the votes of any model",
        ),
        (nn.Sequential(nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 2)), r"got 'LayerNorm \(1\)'"),
        (nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)), "in eval mode with running"),
        (nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(12, 2)), "in eval mode, in which dropout does nothing"),
        (nn.Sequential(nn.Flatten(), nn.ReLU()), "`model` must be a network that ends in a linear layer, got 'ReLU'"),
        (nn.Sequential(nn.Flatten(), nn.Linear(12, 1)), "one that returns N×K logits of two classes"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(27, 2)),
            r"`input_size` must be a size that the network takes, got \(2, 2\): "
            r"layer 1 \(Linear\) does not fit; resize the images",
        ),
        (hooked(), "without hooks and replaced methods.* remove them .*`--by smoothing`"),
        (nn.Sequential(Program()), "made of layers with a Lipschitz bound, got 'a TorchScript program'"),
        (
            nn.Sequential(nn.MaxPool2d(1, return_indices=True), nn.Flatten(), nn.Linear(12, 2)),
            r"`model` must be made of layers that return one tensor, got 'tuple of MaxPool2d \(0\)'",
        ),
        (lambda images: images.flatten(1), "`model` must be a torch module, whose layers can be bounded, got 'function'"),
    ],
)
def test_models_without_a_bound_are_one_sentence(model: nn.Module, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        certify(model, torch.rand(1, 3, 2, 2))
    assert "\n" not in str(caught.value)


def test_a_bound_holds_for_one_size() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    bound = lipschitz_bound(model, (8, 8))
    assert Lipschitz()(model, torch.rand(1, 3, 8, 8), bound=bound).radius.shape == (1,)
    with pytest.raises(
        ValueError, match=r"`images` must be of shape N×3×8×8, got \(1, 3, 6, 6\): a Lipschitz bound holds for"
    ):
        Lipschitz()(model, torch.rand(1, 3, 6, 6), bound=bound)


@pytest.mark.parametrize("by", ["lipschitz", Lipschitz, Smoothing])
def test_a_certificate_is_given_with_its_settings(by: Any) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    with pytest.raises(TypeError, match="`by` must be a certificate with its settings, such as Smoothing"):
        certify(model, torch.rand(1, 3, 2, 2), by)


@pytest.mark.parametrize("size", [2, (2,), (0, 2), "22"])
def test_a_size_is_height_and_width(size: Any) -> None:
    with pytest.raises(ValueError, match="`input_size` must be height and width in pixels"):
        lipschitz_bound(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), size)
