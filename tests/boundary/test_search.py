"""Searches by name and by function: one shape, declared limits, options checked by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from known_models import linear_model
from torch import Tensor

from locality.boundary import SEARCHES, Search, SearchContext, find_boundary
from locality.boundary.search import check_limits, limited_to, resolve_search, search_options
from locality.errors import ArgumentError
from locality.model_calls.checks import Bounds
from locality.types import Norm


def two_images() -> tuple[Callable[[Tensor], Tensor], Tensor]:
    model, images, _, _ = linear_model([0.1, 0.2])
    return model, images


def test_the_table() -> None:
    assert set(SEARCHES) == {"fast", "thorough", "paper", "autopgd", "rays"}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"search": "fats"},
            ArgumentError,
            "one of fast, .* or foolbox:NAME, got 'fats': did you mean 'fast'",
        ),
        ({"search": None}, TypeError, "`search` must be one of fast, .* or a function, got None"),
        ({"search": ["fast"]}, TypeError, "`search` must be one of fast, .* or a function, got "),
        ({"norm": "l3"}, ArgumentError, "`norm` must be one of l2, linf, got 'l3'"),
        (
            {"search": "paper", "norm": "linf"},
            ArgumentError,
            "'l2' for search='paper', got 'linf': supported by fast, t",
        ),
        ({"step": 3}, TypeError, "`step` is no option of search='fast', which takes steps, .*: did you mean 'steps'"),
        ({"settled": 0.9}, TypeError, "`settled` is no option of search='fast', which takes steps, max_gradients"),
        ({"search": "autopgd", "steps": 3}, TypeError, "`steps` is no option of search='autopgd', which takes epsilons$"),
    ],
)
def test_wrong_names_norms_and_options_are_named(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    model, images = two_images()
    with pytest.raises(kind, match=message):
        find_boundary(model, images, **options)


@pytest.mark.parametrize("search", ["paper", "autopgd", "foolbox:DDNAttack"])
@pytest.mark.parametrize("bounds", [None, (0.0, 255.0)])
def test_unsupported_bounds_are_refused(search: str, bounds: Bounds) -> None:
    model, images = two_images()
    message = r"`bounds` must be \(0, 1\) for search=.*, got .*: other bounds are supported by fast, thorough"
    with pytest.raises(ArgumentError, match=message):
        find_boundary(model, images, search=search, bounds=bounds)


def test_bounds_may_be_a_list() -> None:
    model, images = two_images()
    edge = find_boundary(model, images[:1], search="foolbox:DDNAttack", bounds=[0, 1], steps=20)  # type: ignore[arg-type]
    assert edge.found.all()


def towards_white(context: SearchContext, *, share: float = 1.0) -> Tensor:
    assert context.images.shape[0] == len(context.labels) == len(context.seeds)
    context.progress(len(context.images), len(context.images))
    return context.images + share * (1 - context.images)


def brightness(images: Tensor) -> Tensor:
    return torch.stack([0.5 - images.mean((1, 2, 3)), images.mean((1, 2, 3)) - 0.5], dim=1)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_search_of_the_callers_own_has_the_same_shape(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """By name and as a function; four pixels at 0.25 cross when all are at 0.5."""
    monkeypatch.setitem(SEARCHES, "white", towards_white)
    images = torch.full((3, 1, 2, 2), 0.25)
    searches: list[str | Search] = ["white", towards_white]
    for search in searches:
        edge = find_boundary(brightness, images, search=search, share=share)
        assert torch.allclose(edge.distance, torch.tensor(0.5), rtol=1e-4)
        assert edge.gradients == 3  # of the normals
        with pytest.raises(TypeError, match=r"`shares` is no option of search='.*white', which takes share: did you mean"):
            find_boundary(brightness, images, search=search, shares=1.0)


@pytest.mark.parametrize(("norm", "bounds"), [("linf", (0.0, 1.0)), ("l2", None)])
def test_a_search_without_declared_limits_supports_any_norm_and_bounds(
    monkeypatch: pytest.MonkeyPatch, norm: Norm, bounds: Bounds
) -> None:
    monkeypatch.setitem(SEARCHES, "mine", SEARCHES["fast"])
    model, images = two_images()
    edge = find_boundary(model, images, search="mine", norm=norm, bounds=bounds)
    assert torch.equal(edge.points, find_boundary(model, images, norm=norm, bounds=bounds).points)


def test_a_search_of_the_callers_own_may_declare_its_limits() -> None:
    @limited_to(norms=("linf",), bounds=(0.0, 2.0))
    def limited(context: SearchContext) -> Tensor:
        return torch.ones_like(context.images)

    model, images = two_images()
    with pytest.raises(ArgumentError, match="`norm` must be 'linf' for search='limited', got 'l2'"):
        find_boundary(model, images, search=limited)
    with pytest.raises(ArgumentError, match=r"`bounds` must be \(0, 2\) for search='limited'"):
        find_boundary(model, images, search=limited, norm="linf")
    check_limits(limited, "limited", "linf", (0.0, 2.0), SEARCHES)


def test_a_search_that_accepts_any_option_gets_all_of_them() -> None:
    seen: dict[str, Any] = {}

    def curious(context: SearchContext, **options: Any) -> Tensor:
        seen.update(options)
        return context.images

    model, images = two_images()
    assert search_options(curious) is None
    find_boundary(model, images, search=curious, anything=3)
    assert seen == {"anything": 3}
    assert search_options(resolve_search("paper", SEARCHES)) == ["epsilons"]
    assert search_options(resolve_search("foolbox:DDNAttack", SEARCHES)) is None


def test_a_context_cannot_be_changed() -> None:
    def careless(context: SearchContext) -> Tensor:
        context.norm = "linf"  # type: ignore[misc]
        return context.images

    model, images = two_images()
    with pytest.raises(AttributeError, match="cannot assign to field 'norm'"):
        find_boundary(model, images, search=careless)
