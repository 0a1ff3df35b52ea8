import sys

import pytest
import torch
from torch import nn

from locality.model_calls import malloc, open_model
from locality.model_calls.malloc import CHOSEN_BY, KEPT, MMAP_THRESHOLD, TRIM_THRESHOLD, USUAL_MMAP, USUAL_TRIM, memory_kept


class Library:
    """Writes down what limit of the heap is asked for."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    def mallopt(self, name: int, value: int) -> int:
        if name == TRIM_THRESHOLD:
            self.limits.append(value)
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(malloc, "_glibc", lambda: found)
    for name in CHOSEN_BY:
        monkeypatch.delenv(name, raising=False)
    return found


def test_the_limit_is_raised_once_and_comes_back(library: Library) -> None:
    with memory_kept(), memory_kept():
        assert library.limits == [KEPT]
    assert library.limits == [KEPT, USUAL_TRIM]
    with pytest.raises(ValueError, match="inside"), memory_kept():
        raise ValueError("inside")
    assert library.limits == [KEPT, USUAL_TRIM] * 2


@pytest.mark.parametrize("name", CHOSEN_BY)
def test_what_the_user_chose_stays(library: Library, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    with memory_kept():
        pass
    assert library.limits == []


def test_other_systems_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc, "_glibc", lambda: None)
    images = torch.rand(1, 3, 4, 4)
    with memory_kept(), open_model(nn.Flatten(), images) as calls:
        assert calls.logits(images).shape == (1, 48)
    assert malloc._users == 0  # nothing was changed, so nothing is to be changed back


def test_memory_is_kept_while_a_model_is_called(library: Library) -> None:
    images = torch.rand(1, 3, 4, 4)
    with open_model(nn.Flatten(), images) as calls:
        calls.logits(images)
        assert library.limits == [KEPT]
    assert library.limits == [KEPT, USUAL_TRIM]


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_the_c_library_takes_these_limits() -> None:
    library = malloc._glibc()
    if library is None:
        pytest.skip("another C library")
    assert library.mallopt(TRIM_THRESHOLD, KEPT) == 1
    assert library.mallopt(MMAP_THRESHOLD, USUAL_MMAP) == 1
    assert library.mallopt(TRIM_THRESHOLD, USUAL_TRIM) == 1
