"""What every search keeps to, whatever the caller passes: bounds, modes, labels, options, and how near `fast` must come."""

from typing import Any

import pytest
import torch
from known_models import linear_layer, linear_model, small_network
from torch import Tensor, nn

from locality.boundary import SEARCHES, SearchContext, find_boundary, thorough
from locality.data.dataset import load_dataset
from locality.model_calls.randomness import image_seeds
from locality.zoo.load import load_model


def some_images(count: int = 6) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(5)) * 0.4 + 0.3


@pytest.mark.parametrize("search", ["fast", "thorough"])
def test_bounds_are_those_of_the_caller(search: str) -> None:
    """The closed form knows no limits: it is met without bounds, and within others once they are far enough."""
    model, images, _, distances = linear_model([0.1, 0.4, 0.7])
    noisy = images + 0.5 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    assert noisy.min() < 0
    with torch.no_grad():
        logits = model(noisy)
    label = logits.argmax(1)
    gap = logits.gather(1, label[:, None]) - logits
    weights = linear_layer(model).weight.detach()
    length = (weights[label][:, None] - weights[None]).norm(dim=2)
    expected = (gap / length).scatter(1, label[:, None], torch.inf).min(1).values
    assert torch.allclose(find_boundary(model, noisy, search=search, bounds=None).distance, expected, rtol=1e-3)
    scaled = nn.Sequential(_Divided(255.0), model)
    edge = find_boundary(scaled, images * 255, search=search, bounds=(0.0, 255.0))
    assert torch.allclose(edge.distance, 255 * distances, rtol=1e-3)
    assert edge.points.max() > 2  # not cut at 1


class _Divided(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, images: Tensor) -> Tensor:
        return images / self.by


@pytest.mark.parametrize("search", [*(name for name in SEARCHES if name != "rays"), "foolbox:DDNAttack"])
def test_a_model_may_begin_in_place(search: str) -> None:
    model, images, _, distances = linear_model([0.1, 0.2])
    options: dict[str, Any] = {"foolbox:DDNAttack": {"steps": 50}}.get(search, {})
    edge = find_boundary(lambda pixels: model(pixels.mul_(1.0)), images, search=search, **options)
    assert edge.found.all()
    assert torch.allclose(edge.distance, distances, rtol=0.1)


def test_inference_mode_changes_nothing() -> None:
    model, images = small_network().eval(), some_images()
    expected = find_boundary(model, images).distance
    with torch.inference_mode():
        assert torch.equal(find_boundary(model, images).distance, expected)
        assert torch.equal(find_boundary(model, images.clone()).distance, expected)  # a tensor of that mode
        assert torch.is_inference_mode_enabled()


def test_thorough_draws_for_each_image_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = small_network().eval(), some_images()
    drawn: list[list[int]] = []
    real = thorough._directions

    def spied(images: Tensor, seeds: list[int], number: int) -> Tensor:
        drawn.append(seeds)
        directions = real(images, seeds, number)
        assert torch.equal(directions.flip(0), real(images.flip(0), seeds[::-1], number))
        assert not torch.equal(directions[:1], directions[1:2])
        return directions

    monkeypatch.setattr(thorough, "_directions", spied)
    find_boundary(model, images, search="thorough", steps=8, restarts=2, seed=7)
    assert drawn == [image_seeds(images, 7)] * 2


@pytest.mark.parametrize("angle", [0.0, 0.5, 1.2])
def test_optimality_is_the_cosine_to_the_normal(angle: float) -> None:
    """Two pixels, a boundary at a = 0.3, and a search that reaches it obliquely."""

    def model(images: Tensor) -> Tensor:
        first = images.flatten(1)[:, 0] - 0.3
        return torch.stack([first, -first], dim=1)

    def oblique(context: SearchContext) -> Tensor:
        step = torch.tensor([-0.25, 0.25 * float(torch.tan(torch.tensor(angle)))])
        return context.images + step.view(1, 1, 1, 2)

    edge = find_boundary(model, torch.tensor([0.5, 0.1]).view(1, 1, 1, 2), search=oblique)
    assert edge.optimality.item() == pytest.approx(float(torch.cos(torch.tensor(angle))), abs=1e-3)
    missed = find_boundary(model, torch.tensor([0.5, 0.1]).view(1, 1, 1, 2), search=lambda context: context.images)
    assert not missed.found.any()
    assert missed.optimality.isnan().all()


@pytest.mark.parametrize("search", ["fast", "thorough"])
def test_progress_is_reported_on_the_way(search: str) -> None:
    model, images = small_network().eval(), some_images()
    seen: list[tuple[int, int | None]] = []
    find_boundary(model, images, search=search, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 1
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (6, 6)


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (torch.rand(2, 3, 8, 8) * 3, ValueError, "must be in"),
        (torch.rand(3, 8, 8), ValueError, "N×C×H×W"),
        (torch.ones(2, 3, 8, 8, dtype=torch.uint8), TypeError, "divide 8-bit pixels"),
        (torch.full((2, 3, 8, 8), torch.nan), ValueError, "finite"),
        (torch.rand(0, 3, 8, 8), ValueError, "at least one"),
        ([[1.0]], TypeError, "must be a tensor"),
    ],
)
def test_wrong_images_are_named(bad: Tensor, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        find_boundary(small_network().eval(), bad)


@pytest.mark.parametrize(
    ("output", "error", "words"),
    [
        (lambda x: {"features": x.flatten(1)[:, :3]}, TypeError, "got dict"),
        (lambda x: x.flatten(1)[:, :0], ValueError, "must return N×K logits"),
        (lambda x: x.flatten(1)[:, :3] * torch.nan, ValueError, "finite logits"),
        (lambda x: x.flatten(1)[:1, :3], ValueError, "for 12 images"),
    ],
)
def test_wrong_models_are_named(output: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        find_boundary(output, some_images(12))  # type: ignore[arg-type]


def test_probabilities_give_a_warning() -> None:
    with pytest.warns(UserWarning, match="returns probabilities"):
        find_boundary(nn.Sequential(small_network().eval(), nn.Softmax(1)), some_images())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0]), "`labels` must be a tensor of 6 whole class numbers"),
        ([0] * 6, "`labels` must be a tensor of 6 whole class numbers"),
        (torch.full((6,), 1.7), "`labels` must be a tensor of 6 whole class numbers"),
        (torch.full((6,), 9), "`labels` must be a class from 0 to 4, got 9"),
    ],
)
def test_wrong_labels(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_boundary(small_network().eval(), some_images(), labels=labels)


@pytest.mark.parametrize(
    ("search", "options"),
    [("fast", {"steps": 0}), ("fast", {"steps": 1}), ("fast", {"max_gradients": 5}), ("thorough", {"steps": 3})],
)
def test_wrong_options(search: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`steps` must"):
        find_boundary(small_network().eval(), some_images(), search=search, **options)


@pytest.mark.parametrize("most", [12, 30, 100])
def test_no_image_takes_more_gradients_than_its_budget(most: int) -> None:
    """The first class always wins, by ever less: there is no boundary, and a search would never end."""

    def model(images: Tensor) -> Tensor:
        score = images.flatten(1).mean(1)
        return torch.stack([score.exp() + 1, -score, -2 * score, -3 * score], dim=1)

    edge = find_boundary(model, some_images(3), max_gradients=most)
    assert not edge.found.any()
    assert 12 <= (edge.gradients - 3) / 3 <= most  # one more is of the normal at the last point


@pytest.mark.parametrize("most", [100, 120, 200])
def test_rivals_are_within_the_budget(most: int) -> None:
    """Fifty classes, none of which is ever reached, and forty rivals to try."""

    def model(images: Tensor) -> Tensor:
        score = images.flatten(1).mean(1)
        return torch.stack([score.exp() + 1, *(-0.001 * place * score for place in range(1, 50))], dim=1)

    edge = find_boundary(model, some_images(1), max_rivals=40, max_gradients=most)
    assert not edge.found.any()
    assert edge.gradients - 1 <= most


@pytest.mark.parametrize("steps", [8, 120])
def test_thorough_takes_any_number_of_steps(steps: int) -> None:
    model, images, _, distances = linear_model([0.2])
    edge = find_boundary(model, images, search="thorough", steps=steps)
    assert torch.allclose(edge.distance, distances, rtol=1e-3)


@pytest.mark.parametrize("name", ["shapes_cnn", "shapes_cnn_robust", "shapes_vit"])
def test_fast_is_near_and_cheap_on_models_that_ship(name: str) -> None:
    """Against Foolbox's DDN with 100 steps on the same images; 25 gradients per image are allowed on `shapes`."""
    model = load_model(name)
    data = load_dataset("shapes", limit=10, count=40, spec=model.spec)
    images = data.batch(range(10)).images
    edge = find_boundary(model, images)
    reference = find_boundary(model, images, search="foolbox:DDNAttack", steps=100)
    assert edge.found.all()
    assert float(edge.distance.mean() / reference.distance.mean()) < 1.02
    assert edge.gradients / len(images) <= 25


@pytest.mark.parametrize(("norm", "most"), [("l2", 1e-4), ("linf", 0.05)])
def test_the_batch_rarely_matters_on_a_robust_model(norm: Any, most: float) -> None:
    """In ℓ∞ a sign flipped by rounding may send an image another way, so a few may differ; the others must not."""
    model = load_model("shapes_cnn_robust")
    images = load_dataset("shapes", limit=10, count=40, spec=model.spec).batch(range(10)).images
    together = find_boundary(model, images, norm=norm).distance
    alone = torch.cat([find_boundary(model, images[row : row + 1], norm=norm, chunk=1).distance for row in range(10)])
    apart = (together / alone - 1).abs()
    assert apart.max() < most
    assert (apart < 1e-4).sum() >= 8
