"""Losses and regularisers of Centroid Nets against formulas written out by hand."""

import math

import pytest
import torch
from torch import Tensor, nn
from toy_training import batch_of, network_of, number

from locality.training.losses import LOSSES
from locality.training.losses.centroid import CentroidCe, CentroidEmma, CentroidReject
from locality.training.losses.emma import EMMA_LEAST
from locality.training.recipe import RecipeError, recipe_from
from locality.training.regularisers.centroids import Pull, Push
from locality.training.schedules import Constant
from locality.training.start import start_weights
from locality.training.step import Loss, TrainingBatch
from locality.zoo.nets.centroid import CentroidHead, CentroidNet
from locality.zoo.nets.lipschitz import LipschitzLinear, LipschitzNet, NormalisedHead

IMAGES = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
ETA, SCALE, EPSILON = 0.5, 3.0, 0.2
TABLE = {
    "name": "small",
    "net": {"name": "centroid_net", "depth": 1, "width": 4, "dimension": 4, "features": 4, "eta": ETA},
    "data": {"name": "shapes"},
    "epochs": 1,
}


def small_net() -> CentroidNet:
    torch.manual_seed(0)
    return CentroidNet(nn.Flatten(), LipschitzLinear(12, 4), CentroidHead(4, 3, 2, ETA)).double()


def batch_for(net: CentroidNet, loss: Loss) -> TrainingBatch:
    return batch_of(network_of(net), IMAGES, LABELS, loss)


def features_by_hand(net: CentroidNet, image: Tensor) -> Tensor:
    return net.get_parameter("1.weight") @ image.flatten() + net.get_parameter("1.bias")


def scores_by_hand(net: CentroidNet, image: Tensor) -> list[Tensor]:
    features = features_by_hand(net, image)
    return [-min((features - one).square().sum().sqrt() for one in row) for row in net.get_parameter("2.centroids")]


def fit(scores: list[Tensor], label: int) -> Tensor:
    return -(scores[label].exp() / sum(score.exp() for score in scores)).log()


def by_hand(net: CentroidNet, name: str) -> Tensor:
    constant = 2 * torch.linalg.svdvals(net.get_parameter("1.weight"))[0]
    losses = []
    for image, label in zip(IMAGES, LABELS.tolist(), strict=True):
        scores = scores_by_hand(net, image)
        if name == "centroid_reject":
            scores = [*scores, (1 - ETA) / (1 + ETA) * sorted(scores)[1]]
        if name == "centroid_emma":
            distances = [float(((scores[label] - score) / constant).detach()) for score in scores]
            clipped = [min(max(distance, EMMA_LEAST * EPSILON), EPSILON) for distance in distances]
            scores = [s + (d * constant if i != label else 0) for i, (s, d) in enumerate(zip(scores, clipped, strict=True))]
        losses.append(fit([SCALE * score for score in scores], label))
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    "loss",
    [CentroidCe(SCALE), CentroidReject(SCALE), CentroidEmma(EPSILON, Constant(), 400, SCALE)],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_and_their_gradients(loss: Loss) -> None:
    net = small_net()
    name = next(name for name, kind in LOSSES.items() if type(loss) is kind)
    value, expected = loss(batch_for(net, loss)), by_hand(net, name)
    assert value.total.item() == pytest.approx(expected.item(), rel=1e-9)
    weights = list(net.parameters())
    for one, other in zip(torch.autograd.grad(value.total, weights), torch.autograd.grad(expected, weights), strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-10)
    assert value.clean is not None
    assert value.fit is value.total


def test_the_log_has_the_share_of_abstentions() -> None:
    net = small_net()
    value = CentroidCe()(batch_for(net, CentroidCe()))
    expected = net.abstains(net(IMAGES)).double().mean().item()
    assert number(value.terms["abstained"]) == pytest.approx(expected)
    assert 0 < expected <= 1


def test_pull_is_the_mean_squared_distance_to_the_nearest_centroid_of_the_label() -> None:
    net, loss = small_net(), CentroidCe()
    batch = batch_for(net, loss)
    penalty = Pull(1.0)(batch, loss(batch))
    by_hand = torch.stack([scores_by_hand(net, image)[y].square() for image, y in zip(IMAGES, LABELS.tolist(), strict=True)])
    assert penalty.item() == pytest.approx(by_hand.mean().item())
    (gradient,) = torch.autograd.grad(penalty, net.get_parameter("2.centroids"))
    assert gradient.abs().max() > 0


def test_push_parts_centroids_until_accepted_images_are_two_epsilon_apart() -> None:
    net, loss = small_net(), CentroidCe()
    batch = batch_for(net, loss)
    constant = torch.linalg.svdvals(net.get_parameter("1.weight"))[0]
    wanted = 2 * EPSILON * constant / ETA
    centroids = net.get_parameter("2.centroids").flatten(0, 1)
    labels = [0, 0, 1, 1, 2, 2]
    pairs = [(i, j) for i in range(6) for j in range(i) if labels[i] != labels[j]]
    terms = [(wanted - (centroids[i] - centroids[j]).norm()).clamp_min(0).square() for i, j in pairs]
    push = Push(1.0, epsilon=EPSILON, power_steps=400)
    value = push(batch, loss(batch))
    assert value.item() == pytest.approx(torch.stack(terms).mean().item(), rel=1e-6, abs=1e-12)
    net.centroid_head.centroids.data *= 0.1
    value = push(batch, loss(batch))
    assert value.item() > 0
    gradients = torch.autograd.grad(value, [net.get_parameter("2.centroids"), net.get_parameter("1.weight")])
    assert all(gradient.abs().max() > 0 for gradient in gradients)
    net.centroid_head.centroids.data *= 1000
    assert push(batch, loss(batch)).item() == 0
    net.centroid_head.centroids.data.zero_()
    (gradient,) = torch.autograd.grad(push(batch, loss(batch)), net.get_parameter("2.centroids"))
    assert gradient.isfinite().all()


def test_a_recipe_has_them_by_name() -> None:
    recipe = recipe_from(
        TABLE
        | {
            "loss": {"name": "centroid_emma", "epsilon": "36/255"},
            "regularisers": {"pull": {"weight": 0.1}, "push": {"weight": 1.0}},
        },
        "table",
    )
    assert recipe.threat is not None
    assert recipe_from(recipe.as_table(), "again") == recipe


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"net": {"name": "liresnet"}, "loss": {"name": "centroid"}}, "needs a network with centroids, which liresnet"),
        ({"net": {"name": "liresnet"}, "loss": {"name": "centroid_emma", "epsilon": 0.1}}, "needs a network with centroids"),
        ({"net": {"name": "tiny_vgg"}, "loss": {"name": "centroid_emma", "epsilon": 0.1}}, "tiny_vgg does not have"),
        ({"net": {"name": "liresnet"}, "regularisers": {"pull": {"weight": 1.0}}}, "`regularisers.pull` needs a network"),
        ({"regularisers": {"push": {"weight": 1.0, "epsilon": 0}}}, "`regularisers.push.epsilon` must be above 0"),
        ({"net": TABLE["net"] | {"eta": 0}, "regularisers": {"push": {"weight": 1.0}}}, "needs an `eta` of the network"),  # type: ignore[operator]
        ({"loss": {"name": "centroid", "scale": math.nan}}, "`loss.scale` must be above 0"),
    ],
)
def test_wrong_combinations_are_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        recipe_from(TABLE | change, "table")


def test_a_run_may_start_from_a_network_with_another_head() -> None:
    """The encoder's weights are those of the start, the centroids stay random; other networks are refused as before."""
    torch.manual_seed(0)
    start = LipschitzNet(nn.Flatten(), LipschitzLinear(12, 4), NormalisedHead(4, 3)).double()
    net = small_net()
    centroids = net.centroid_head.centroids.detach().clone()
    net.load_state_dict(start_weights(net, start))
    assert torch.equal(net.get_parameter("1.weight"), start.get_parameter("1.weight"))
    assert torch.equal(net.centroid_head.centroids, centroids)
    same = LipschitzNet(nn.Flatten(), LipschitzLinear(12, 4), NormalisedHead(4, 3)).double()
    assert torch.equal(start_weights(same, start)["2.weight"], start.get_parameter("2.weight"))
    deeper = LipschitzNet(nn.Flatten(), LipschitzLinear(12, 6), LipschitzLinear(6, 4), NormalisedHead(4, 3)).double()
    with pytest.raises(RuntimeError, match="size mismatch"):
        net.load_state_dict(start_weights(net, deeper))
