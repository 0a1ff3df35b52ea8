"""Models that mislead a search: extreme logits, gradients that are no numbers, answers that change from call to call."""

import warnings
from collections.abc import Callable

import pytest
import torch
from known_models import linear_model, small_network
from torch import Tensor, nn

from locality.boundary import find_boundary
from locality.types import Boundary, Norm


def images(count: int = 6) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(2)) * 0.4 + 0.3


def with_warnings(model: Callable[[Tensor], Tensor], pixels: Tensor, **options: object) -> tuple[Boundary, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        edge = find_boundary(model, pixels, **options)  # type: ignore[arg-type]
    return edge, [str(warning.message) for warning in caught]


def trained_scale(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The network with logits of the size that trained networks have."""
    model.eval()
    return lambda pixels: 16 * model(pixels)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("factor", [1e-30, 1e-10, 1e-7, 1e7, 1e30])
def test_distances_do_not_depend_on_the_scale_of_logits(factor: float, norm: Norm) -> None:
    model, pixels = trained_scale(small_network()), images()
    usual, none = with_warnings(model, pixels, norm=norm)
    edge, told = with_warnings(lambda batch: factor * model(batch), pixels, norm=norm)
    assert edge.found.all()
    assert torch.allclose(edge.distance, usual.distance, rtol=0.02)
    assert none == []
    assert len(told) == 1
    assert "unusual scale" in told[0]


@pytest.mark.parametrize("offset", [1e5, -1e5])
@pytest.mark.parametrize("search", ["fast", "thorough"])
def test_distances_do_not_depend_on_the_offset_of_logits(offset: float, search: str) -> None:
    model, pixels = trained_scale(small_network()), images()
    usual, _ = with_warnings(model, pixels, search=search)
    edge, told = with_warnings(lambda batch: model(batch) + offset, pixels, search=search)
    assert edge.found.all()
    # Logits around 1e5 are rounded to 0.008.
    assert torch.allclose(edge.distance, usual.distance, rtol=0.01, atol=0.002)
    assert len(told) == 1
    assert "unusual offset" in told[0]


@pytest.mark.parametrize("search", ["paper", "foolbox:DDNAttack"])
def test_other_searches_do_not_depend_on_the_scale_either(search: str) -> None:
    model, pixels, _, distances = linear_model([0.2, 0.4])
    edge, _ = with_warnings(lambda batch: 1e-10 * model(batch), pixels, search=search)
    assert torch.allclose(edge.distance, distances, rtol=0.05)


def test_each_image_is_rescaled_by_its_own_logits_whatever_the_batch() -> None:
    model, pixels = trained_scale(small_network()), images()

    def dimmed(batch: Tensor) -> Tensor:
        return model(batch) * torch.where(batch[:, :1, 0, 0] > 0.5, 1e-8, 1.0)

    pixels[::2, 0, 0, 0], pixels[1::2, 0, 0, 0] = 0.9, 0.1
    together, told = with_warnings(dimmed, pixels)
    alone = torch.cat([with_warnings(dimmed, pixels[row : row + 1])[0].distance for row in range(len(pixels))])
    assert torch.allclose(together.distance, alone, rtol=1e-3)
    assert len(told) == 1


def test_progress_counts_up_over_images_of_several_scales() -> None:
    model, pixels = trained_scale(small_network()), images()
    pixels[::2, 0, 0, 0], pixels[1::2, 0, 0, 0] = 0.9, 0.1
    done: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        find_boundary(
            lambda batch: model(batch) * torch.where(batch[:, :1, 0, 0] > 0.5, 1e-8, 1.0),
            pixels,
            progress=lambda images_done, total: done.append(images_done),
        )
    assert done == sorted(done)
    assert done[-1] == len(pixels)


class _UndefinedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return gradients[0] * torch.nan


@pytest.mark.parametrize("search", ["fast", "paper"])
def test_nan_gradients_are_one_warning_and_no_error(search: str) -> None:
    model, pixels, _, _ = linear_model([0.2, 0.4])
    edge, told = with_warnings(
        lambda batch: model(_UndefinedGradient.apply(batch)),  # type: ignore[no-untyped-call]
        pixels,
        search=search,
    )
    assert [text for text in told if "nan" in text] == told[:1]
    assert len(told) == 1
    assert edge.points.isfinite().all()


def test_nan_in_some_pixels_leaves_the_others_to_the_search() -> None:
    """sqrt has an infinite slope at 0, and 0 · inf is nan: a common fault of models that normalise."""
    model, pixels, _, distances = linear_model([0.2, 0.4])

    def with_black_border(batch: Tensor) -> Tensor:
        border = (batch[:, :, :1, :1] - 0.5).clamp_min(0).sqrt().sum((1, 2, 3))
        logits: Tensor = model(batch)
        return logits + 0 * border[:, None]

    pixels[:, :, 0, 0] = 0.5
    with torch.no_grad():
        before = with_warnings(model, pixels)[0].distance
    edge, told = with_warnings(with_black_border, pixels)
    assert edge.found.all()
    assert torch.allclose(edge.distance, before, rtol=0.1)
    assert len(told) == 1
    assert distances.shape == before.shape


class _Noise(nn.Module):
    """Logits with noise that differs from call to call, also in eval mode."""

    def __init__(self, model: nn.Module, size: float) -> None:
        super().__init__()
        self.model, self.size = model, size
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, batch: Tensor) -> Tensor:
        logits: Tensor = self.model(batch)
        return logits + self.size * torch.randn(logits.shape, generator=self.generator)


def test_answers_that_change_are_one_warning() -> None:
    model, pixels, _, _ = linear_model([0.2, 0.4])
    gradients = find_boundary(model, pixels)
    _, told = with_warnings(_Noise(model, 0.05), pixels)
    assert len([text for text in told if "answers differently" in text]) == 1
    assert gradients.found.all()


def test_an_image_itself_is_never_its_boundary_point_unless_its_label_says_so() -> None:
    """Noise larger than the margin: half of the repeated calls put the image itself across."""
    model, pixels, labels, _ = linear_model([0.01] * 8)
    for search in ("fast", "paper"):
        edge, _ = with_warnings(_Noise(model, 5.0), pixels, search=search)
        assert (edge.distance[edge.found] > 0).all()
    wrong, _ = with_warnings(model, pixels, labels=(labels + 1) % 4)
    assert wrong.found.all()
    assert (wrong.distance == 0).all()
