"""The head of Centroid Nets: distances, abstentions, and how both pass through the rest of the project."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from locality.model_calls.decisions import decisions
from locality.types import ABSTAINED, ModelSpec
from locality.zoo.nets import NETS
from locality.zoo.nets.centroid import CentroidHead, CentroidNet, centroid_net, reject_logit
from locality.zoo.nets.forward_pass import forward_pass
from locality.zoo.nets.lipschitz import LipschitzLinear
from locality.zoo.pixel_model import PixelModel


def line_head(eta: float) -> CentroidHead:
    """Class 0 at 0 and 10, class 1 at 4."""
    head = CentroidHead(1, 2, 2, eta)
    head.centroids.data = torch.tensor([[[0.0], [10.0]], [[4.0], [99.0]]])
    return head


def test_the_score_is_the_negative_distance_to_the_nearest_centroid_of_a_class() -> None:
    head = line_head(0.2)
    assert head(torch.tensor([[1.0], [9.0], [4.0]])).tolist() == [[-1, -3], [-1, -5], [-4, 0]]
    assert head.distances(torch.tensor([[1.0]])).tolist() == [[[1, 9], [3, 98]]]


def test_short_distances_keep_their_digits() -> None:
    """As ‖z‖² − 2z·c + ‖c‖² they would be lost in float32."""
    head = CentroidHead(2, 2)
    head.centroids.data = torch.tensor([[[1000.0, 1000.0]], [[0.0, 0.0]]])
    assert head(torch.tensor([[1000.0, 1000.0625]]))[0, 0].item() == -0.0625


def test_the_gradient_at_a_centroid_is_zero() -> None:
    head = line_head(0.2)
    features = torch.tensor([[4.0], [5.0]], requires_grad=True)
    head(features)[:, 1].sum().backward()
    assert features.grad is not None
    assert features.grad.flatten().tolist() == [0, -1]


@pytest.mark.parametrize("eta", [0.0, 0.2, 0.5, 1.0])
def test_abstentions(eta: float) -> None:
    head = line_head(eta)
    z = torch.linspace(-8, 20, 113)[:, None]
    logits = head(z)
    nearest, second = (-logits).sort(dim=1).values.unbind(1)
    expected = nearest > (1 - eta) / (1 + eta) * second
    assert torch.equal(head.abstains(logits), expected)
    assert torch.equal(decisions(head, logits), torch.where(expected, ABSTAINED, logits.argmax(1)))
    assert head.abstains(logits).any() == (eta > 0)
    assert reject_logit(logits, head.ratio).tolist() == pytest.approx((-head.ratio * second).tolist())


def test_a_model_abstains_where_its_net_does_also_as_a_copy() -> None:
    net = CentroidNet(nn.Flatten(), LipschitzLinear(12, 2), CentroidHead(2, 3, eta=0.9))
    model = PixelModel(net, ModelSpec("centroids", (2, 2), 2))
    images = torch.rand(16, 3, 2, 2)
    logits = model(images)
    assert torch.equal(decisions(model, logits), decisions(net, logits))
    assert (decisions(model, logits) == ABSTAINED).any()
    again = copy.deepcopy(model)
    assert isinstance(again.net, CentroidNet)
    again.net.centroid_head.eta = 0.0
    assert not (decisions(again, logits) == ABSTAINED).any()
    assert (decisions(model, logits) == ABSTAINED).any()


def test_new_centroids_are_equally_far_from_each_other() -> None:
    torch.manual_seed(0)
    centroids = CentroidHead(40, 5, 8).centroids.detach().flatten(0, 1)
    apart = torch.cdist(centroids, centroids)[torch.triu_indices(40, 40, 1).unbind()]
    assert apart.tolist() == pytest.approx([math.sqrt(2)] * len(apart), rel=1e-4)
    crowded = CentroidHead(2, 5, 8).centroids.detach().flatten(0, 1)
    assert crowded.norm(dim=1).tolist() == pytest.approx([1] * 40)


def test_the_net_has_features_options_and_margin_norms() -> None:
    torch.manual_seed(0)
    net = NETS["centroid_net"](3, depth=2, width=4, dimension=8, features=6, per_class=2, eta=0.3)
    assert isinstance(net, CentroidNet)
    features, logits = forward_pass(net, torch.rand(2, 3, 64, 64))
    assert features.shape == (2, 6)
    assert logits.shape == (2, 3)
    assert net.centroid_head.centroids.shape == (3, 2, 6)
    assert "eta=0.3" in str(net)  # part of what a kept bound depends on
    norms: Tensor = net.margin_norms(200)
    assert norms.diagonal().tolist() == [0, 0, 0]
    assert norms[0, 1].item() == pytest.approx(2 * net.features_norm(1).item(), rel=1e-3)
    norms.sum().backward()
    weight = net.get_parameter("0.weight")
    assert weight.grad is not None
    assert weight.grad.abs().max() > 0
    with torch.device("meta"):
        assert centroid_net(3).centroid_head.centroids.is_meta


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"eta": -0.1}, "`eta` must be a number from 0"),
        ({"eta": math.nan}, "`eta` must be a number from 0"),
        ({"per_class": 0}, "`per_class` must be a number of centroids from 1 to 64, got 0"),
        ({"dimension": 27}, "`dimension` must be even"),
        ({"features": 513}, "`features` must be a whole number from 1 to the dimension 512, got 513"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        centroid_net(3, **options)  # type: ignore[arg-type]
