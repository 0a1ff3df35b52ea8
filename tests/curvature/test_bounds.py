"""PAC-Bayes numbers of small networks: every total is the sum of its terms, and draws agree with the Taylor expansion."""

import dataclasses
import json
import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.nn.functional import cross_entropy

from locality import load_dataset, load_model
from locality.curvature import diagonal
from locality.curvature.bounds import PacBayes, pac_bayes
from locality.curvature.diagonal import gauss_newton_diagonal
from locality.curvature.index import weight_curvature
from locality.curvature.open_network import open_network
from locality.curvature.traces import layer_traces
from locality.curvature.training_run import TrainingImages, initial_weights, trained_on
from locality.errors import ArgumentError
from locality.progress import no_progress
from locality.zoo.catalog import find_card
from locality.zoo.model_card import ModelCard


def network(scale: float = 1.0) -> nn.Module:
    generator = torch.Generator().manual_seed(2)
    net = nn.Sequential(nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)).double()
    for weight in net.parameters():
        weight.data = scale * torch.randn(weight.shape, generator=generator, dtype=torch.float64) / 2
    return net


def batch(count: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.rand(count, 1, 3, 3, generator=generator, dtype=torch.float64), torch.arange(count) % 4


def opened_diagonal(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    with open_network(model, images, labels, 0, None, no_progress) as one:
        return gauss_newton_diagonal(one)


def hessian_diagonals(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    found = {}
    for name in ("0.weight", "3.weight"):

        def loss(own: Tensor, name: str = name) -> Tensor:
            return cross_entropy(functional_call(model, weights | {name: own}, (images,)), labels)

        block = jacrev(jacrev(loss))(weights[name])
        size = weights[name].numel()
        found[name] = block.reshape(size, size).diagonal().view(weights[name].shape)
    return found


def test_the_diagonal_is_that_of_the_hessian() -> None:
    model, (images, labels) = network(), batch()
    own = opened_diagonal(model, images, labels)
    for name, expected in hessian_diagonals(model, images, labels).items():
        assert torch.allclose(own[name], expected, atol=1e-12)


def test_with_many_classes_it_is_an_unbiased_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (images, labels) = network(), batch()
    exact = opened_diagonal(model, images, labels)
    monkeypatch.setattr(diagonal, "EXACT_CLASSES", 3)
    monkeypatch.setattr(diagonal, "PROBES", 400)
    estimated = opened_diagonal(model, images, labels)
    for name, expected in exact.items():
        assert not torch.equal(estimated[name], expected)
        assert float(estimated[name].sum()) == pytest.approx(float(expected.sum()), rel=0.1)


def bound(**options: object) -> PacBayes:
    images, labels = batch()
    return pac_bayes(network(), images, labels, 50, **options)  # type: ignore[arg-type]


def test_every_total_is_the_sum_of_its_terms() -> None:
    result = bound(prior_variance=0.3, beta=20.0)
    images, labels = batch()
    traces = layer_traces(network(), images, labels, "exact")
    assert result.trace == pytest.approx(float(traces.traces.sum()))
    assert result.weight_curvature == pytest.approx(weight_curvature(traces).index)
    assert result.squared_norm == pytest.approx(float(traces.norms.square().sum()))
    assert result.weights == 12 + 48
    assert result.classes == 4
    assert result.loss == pytest.approx(float(cross_entropy(network()(images), labels).detach()))
    assert result.error == pytest.approx(float((network()(images).argmax(1) != labels).double().mean()))
    assert result.norm_term == pytest.approx(result.squared_norm / (2 * 20 * 0.3))
    assert result.trace_term == pytest.approx(0.15 * result.trace)
    assert result.constant == pytest.approx(20 * math.log(1e4) ** 2 / 400 + math.log(20) / 20)
    rest = result.loss + result.norm_term + result.constant
    assert result.linear == pytest.approx(rest + result.trace_term)
    assert result.spherical == pytest.approx(rest + result.spherical_term)
    assert result.diagonal == pytest.approx(rest + result.diagonal_term)
    assert result.linear > result.spherical > result.diagonal
    assert result.best_term == pytest.approx(math.sqrt(result.squared_norm * result.trace / 20))
    assert result.best == pytest.approx(result.loss + result.best_term + result.constant + math.log(64) / 20)
    assert result.layerwise_term == pytest.approx(result.weight_curvature / math.sqrt(20))
    assert result.layerwise == pytest.approx(result.loss + result.layerwise_term + result.constant + 2 * math.log(64) / 20)
    assert result.best_beta in [50 / 2**power for power in range(10)]
    assert result.sampled.prior_variance == 0.3
    assert result.sampled_best is not None
    assert result.sampled_best.prior_variance == pytest.approx(math.sqrt(result.squared_norm / (20 * result.trace)))


def test_defaults_are_one_over_the_input_features_and_all_training_images() -> None:
    result = bound()
    assert (result.prior_variance, result.beta) == (1 / 9, 50.0)
    same = bound(prior_variance=1 / 9, beta=50.0)
    assert result.diagonal == same.diagonal
    # β is chosen among ten at a cost, so it is at most that much worse than the first of them.
    assert result.best_over_betas <= result.best + math.log(10) / 50 + 1e-12


def test_draws_agree_with_the_expansion_where_the_posterior_is_narrow() -> None:
    result = bound(prior_variance=1e-3, draws=400)
    sampled = result.sampled
    assert sampled.expected_loss > result.loss
    assert abs(sampled.loss - sampled.expected_loss) < 4 * sampled.loss_error
    assert sampled.bound == pytest.approx(sampled.loss + sampled.divergence / 50 + result.constant)
    # To second order the draws' bound is the diagonal form.
    assert sampled.bound - sampled.loss + sampled.expected_loss == pytest.approx(result.diagonal)
    assert sampled.square_root > 4 * math.sqrt(sampled.divergence / 50)


def test_draws_have_the_variance_of_the_posterior() -> None:
    """W = 0 and one image with both labels: a stationary point, where only the second order adds to the loss."""
    head = nn.Linear(9, 2, bias=False).double()
    nn.init.zeros_(head.weight)
    images, labels = batch(1)[0].expand(2, 1, 3, 3), torch.tensor([0, 1])
    result = pac_bayes(nn.Sequential(nn.Flatten(), head), images, labels, 10, prior_variance=0.02, draws=2000)
    sampled = result.sampled
    assert result.loss == pytest.approx(math.log(2))
    assert sampled.expected_loss - result.loss > 20 * sampled.loss_error
    assert abs(sampled.loss - sampled.expected_loss) < 4 * sampled.loss_error + 0.05 * (sampled.expected_loss - result.loss)


def test_losses_are_clipped() -> None:
    images, labels = batch()
    result = pac_bayes(network(scale=30.0), images, labels, 50)
    assert result.loss < result.largest_loss == pytest.approx(math.log(1e4))
    assert float(cross_entropy(network(scale=30.0)(images), labels).detach()) > result.largest_loss


def test_initial_weights() -> None:
    weights = {name: weight.detach() for name, weight in network().named_parameters()}
    assert bound(initial=weights).norm_term_from_start == 0.0
    moved = weights | {"0.weight": weights["0.weight"] + 2.0}
    result = bound(initial=moved)
    assert result.squared_distance == pytest.approx(4.0 * 12)
    assert result.linear_from_start == pytest.approx(result.linear - result.norm_term + result.norm_term_from_start)
    assert math.isnan(bound().norm_term_from_start)
    with pytest.raises(ArgumentError, match=r"`initial` must be weights of every layer, by name, got 'none .* 3\.weight"):
        bound(initial={"0.weight": weights["0.weight"]})


def test_the_word_vacuous() -> None:
    result = bound()
    assert result.vacuous
    assert result.sentence().startswith("vacuous: the smallest bound is ")
    assert result.trivial_loss == pytest.approx(math.log(4))
    useful = dataclasses.replace(result, best=0.5)
    assert not useful.vacuous
    assert useful.sentence().startswith("not vacuous: the smallest bound is 0.5 nats")
    described = result.to_json()
    assert described["vacuous"] is True
    assert described["norm_term_from_start"] is None
    assert json.loads(json.dumps(described, allow_nan=False))["sampled"]["draws"] == 20


def test_a_network_without_curvature_has_no_best_variance() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 4, bias=False)).double()
    images, labels = torch.zeros(4, 1, 3, 3, dtype=torch.float64), torch.arange(4)
    result = pac_bayes(model, images, labels, 10)
    assert result.trace == 0
    assert result.sampled_best is None
    assert result.to_json()["best_variance"] is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"draws": 5}, "`draws` must be a whole number of at least 20, got 5"),
        ({"prior_variance": 0.0}, "`prior_variance` must be a positive number"),
        ({"beta": -1.0}, "`beta` must be a positive number"),
        ({"failure_probability": 1.0}, "`failure_probability` must be between 0 and 1"),
    ],
)
def test_bad_settings(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        bound(**options)
    images, labels = batch()
    with pytest.raises(
        ArgumentError, match="`training_images` must be the number of all training images, at least 6, got 5"
    ):
        pac_bayes(network(), images, labels, 5)


def test_the_weights_a_run_began_with_are_drawn_again() -> None:
    """`tiny_resnet_random` is a run of 0 epochs: its file holds the initial weights in half precision."""
    model, drawn = load_model("tiny_resnet_random"), initial_weights(find_card("tiny_resnet_random"))
    assert drawn is not None
    for name, weight in model.named_parameters():
        assert torch.allclose(weight, drawn[name], rtol=1e-3, atol=1e-4), name


def test_what_cards_say_about_training() -> None:
    assert trained_on(find_card("shapes_cnn")) == TrainingImages("shapes", 6000)
    assert trained_on(find_card("efficientnet_lite0")) == TrainingImages("imagenet")
    assert trained_on(None) is None
    card = find_card("tiny_resnet_robust")
    assert card.run is not None

    def with_recipe(**changes: object) -> ModelCard:
        assert card.run is not None
        return dataclasses.replace(card, run=dataclasses.replace(card.run, recipe=card.run.recipe | changes))

    elsewhere = with_recipe(data={"name": "tiny-imagenet:/elsewhere", "limit": 100})
    assert trained_on(elsewhere) == TrainingImages("tiny-imagenet", 100)
    assert initial_weights(with_recipe(start="tiny_resnet")) is None
    assert initial_weights(find_card("efficientnet_lite0")) is None
    assert initial_weights(card) is not None


def test_training_images_are_those_of_the_run() -> None:
    spec = find_card("shapes_cnn").spec
    few, trained = TrainingImages("shapes", 100).of(spec, 40), load_dataset("shapes", split="train", limit=100)
    assert set(few.batch(range(40)).ids) < set(trained.batch(range(100)).ids)
    assert TrainingImages("shapes", 100).count(few) == 100
    whole = TrainingImages("shapes")
    assert whole.count(whole.of(spec, 40)) == len(whole.of(spec))
    assert min(few.counts().values()) == max(few.counts().values()) == 4
