"""Losses and errors under attack on models whose worst image is known, and their differences with intervals."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from locality import load_dataset, robust_gap
from locality.curvature.attacked_losses import Losses, attacked_split
from locality.curvature.gap import RobustGap
from locality.errors import ArgumentError
from locality.robustness.pgd import pgd
from locality.types import Threat


class Difference(nn.Module):
    """Logits x₁ and x₂ of two pixels, times a scale."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, images: Tensor) -> Tensor:
        return self.scale * images.flatten(1)


def pairs(*margins: float) -> tuple[Tensor, Tensor]:
    """Images of class 0 with these margins x₁ − x₂, far from the edges of [0, 1]."""
    images = torch.tensor([[0.5 + margin / 2, 0.5 - margin / 2] for margin in margins]).view(-1, 1, 1, 2)
    return images, torch.zeros(len(margins), dtype=torch.int64)


def test_robust_loss_is_that_of_the_worst_image() -> None:
    gap = robust_gap(Difference(5.0), pairs(0.3, -0.1), pairs(0.1, 0.2, 0.4), epsilon=0.1)
    worst = [
        softplus(torch.tensor([-5.0 * (margin - 0.2) for margin in margins])) for margins in ((0.3, -0.1), (0.1, 0.2, 0.4))
    ]
    assert torch.allclose(gap.train.robust_loss, worst[0].double(), atol=1e-5)
    assert torch.allclose(gap.test.robust_loss, worst[1].double(), atol=1e-5)
    assert gap.loss.mean == pytest.approx(float(worst[1].mean() - worst[0].mean()), abs=1e-5)
    assert gap.clean_loss.mean == pytest.approx(
        float(softplus(torch.tensor([-0.5, -1.0, -2.0])).mean() - softplus(torch.tensor([-1.5, 0.5])).mean()), abs=1e-5
    )
    assert gap.train.robust_error.tolist() == [0, 1]
    assert gap.train.clean_error.tolist() == [0, 1]


def test_an_image_does_not_stop_at_its_first_misclassified_iterate() -> None:
    """The points of `robustness.pgd` are right about errors and far too low about losses."""
    model, (images, labels) = Difference(30.0), pairs(0.01, 0.02, 0.03)
    gap = robust_gap(model, (images, labels), (images, labels), epsilon=0.1)
    stopped = cross_entropy(model(pgd(model, images, labels, 0.1, steps=10)), labels, reduction="none").detach().double()
    assert gap.train.robust_error.sum() == 3
    assert (gap.train.robust_loss > 2 * stopped).all()


def test_l2_attacks_go_to_the_surface() -> None:
    gap = robust_gap(Difference(), pairs(0.3), pairs(0.3), epsilon=0.1, norm="l2", steps=100)
    assert float(gap.train.robust_loss) == pytest.approx(math.log1p(math.exp(-2 * (0.3 - 0.1 * math.sqrt(2)))), abs=1e-4)


def test_an_image_that_is_wrong_without_attack_is_wrong_under_attack() -> None:
    class Flipping(nn.Module):  # every gradient step away from the label makes it right
        def forward(self, images: Tensor) -> Tensor:
            pixels = images.flatten(1)
            return torch.stack([(pixels - 0.5).abs().sum(1), torch.full((len(images),), 0.01)], dim=1)

    images = torch.full((1, 1, 1, 2), 0.5)
    gap = robust_gap(Flipping(), (images, torch.tensor([0])), (images, torch.tensor([0])), epsilon=0.2, steps=1)
    assert gap.test.clean_error.tolist() == gap.test.robust_error.tolist() == [1.0]


def test_standard_minus_robust_is_of_the_test_images() -> None:
    gap = robust_gap(Difference(), pairs(0.5, 0.5), pairs(0.1, 0.1, 0.5, -0.1), epsilon=0.1)
    assert gap.standard_minus_robust.mean == pytest.approx(1 / 4 - 3 / 4)
    assert gap.error.mean == pytest.approx(3 / 4)
    assert gap.clean_error.mean == pytest.approx(1 / 4)


def losses(values: Tensor, wrong: Tensor) -> Losses:
    return Losses(tuple(map(str, range(len(values)))), values, values, wrong, wrong)


def test_intervals_are_those_of_two_independent_means() -> None:
    generator = torch.Generator().manual_seed(0)
    train, test = torch.randn(400, generator=generator).double(), 0.5 + 2 * torch.randn(300, generator=generator).double()
    wrong = torch.zeros(400).double(), (torch.arange(300) < 60).double()
    gap = RobustGap(losses(train.abs(), wrong[0]), losses(test.abs(), wrong[1]), Threat("linf", 0.1), 1, 0, 0, 0)
    error = math.sqrt(float(train.abs().var() / 400 + test.abs().var() / 300))
    assert gap.loss.mean == pytest.approx(float(test.abs().mean() - train.abs().mean()))
    assert gap.loss.low == pytest.approx(gap.loss.mean - 1.96 * error, abs=0.1 * error)
    assert gap.loss.high == pytest.approx(gap.loss.mean + 1.96 * error, abs=0.1 * error)
    assert 0.1 < gap.error.low < gap.error.mean == 0.2 < gap.error.high < 0.3


def test_unknown_classes_are_nan_and_counted() -> None:
    images, labels = pairs(0.3, 0.1, 0.2)
    labels[1] = -1
    gap = robust_gap(Difference(), (images, labels), (images, labels), epsilon=0.12)
    assert gap.train.robust_loss.isnan().tolist() == [False, True, False]
    described = gap.to_json()
    assert described["train"]["undefined"] == 1
    assert described["train"]["robust_error"]["mean"] == 0.5
    only = robust_gap(Difference(), (images[1:2], labels[1:2]), (images, labels), epsilon=0.1).to_json()
    assert only["train"]["robust_loss"]["mean"] is None
    assert only["loss"]["mean"] is None


def test_batch_size_does_not_matter_and_evaluations_are_counted() -> None:
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))
    images, labels = torch.rand(70, 3, 2, 2, generator=generator), torch.randint(0, 3, (70,), generator=generator)
    together = robust_gap(model, (images, labels), (images[:5], labels[:5]), steps=3)
    alone = robust_gap(model, (images[66:], labels[66:]), (images[:5], labels[:5]), steps=3, chunk=1)
    assert torch.allclose(together.train.robust_loss[66:], alone.train.robust_loss, atol=1e-6)
    assert (together.gradients, together.forwards) == (75 * 3, 75 * 2)


def test_nothing_of_the_caller_s_changes() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.BatchNorm1d(3)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images, labels = torch.rand(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    kept, state = images.clone(), torch.get_rng_state()
    robust_gap(model, (images, labels), (images, labels), steps=2)
    assert model.training
    assert model[2].training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(images, kept)
    assert torch.equal(torch.get_rng_state(), state)


def test_data_sets_and_progress() -> None:
    model = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(48, 10))
    train, test = load_dataset("shapes", split="train", limit=70, count=100), load_dataset("shapes", limit=10, count=50)
    counted: list[tuple[int, int | None]] = []
    gap = robust_gap(model, train, test, steps=1, progress=lambda done, total: counted.append((done, total)))
    assert counted == [(0, 80), (64, 80), (70, 80), (80, 80)]
    assert len(gap.train) == 70
    assert gap.test.ids == test.batch(range(10)).ids
    split = attacked_split(model, test, Threat("linf", 0.1), 1)
    assert split.images.shape == (10, 3, 64, 64)
    own = split.images - test.batch(range(10)).images
    assert 0.05 < float(own.abs().amax()) <= 0.1 + 1e-6


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"steps": 0}, "`steps` must be"), ({"epsilon": 8}, "did you mean 8/255"), ({"norm": "l1"}, "l1")],
)
def test_bad_settings(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        robust_gap(Difference(), pairs(0.1), pairs(0.1), **options)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="at least one image"):
        robust_gap(Difference(), (torch.empty(0, 1, 1, 2), torch.empty(0, dtype=torch.int64)), pairs(0.1))
