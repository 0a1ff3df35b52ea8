"""The rounds in which a twin is trained: until it has learned enough, at rates that suit it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from striped_images import small_classifier, striped
from torch import nn

from locality.data.cues import Sticker
from locality.data.dataset import ImageDataset
from locality.progress import Progress
from locality.runner.twin_training import Training, share_right, trained_twin
from locality.runner.twins import make_twins
from locality.training.fine_tune import fine_tune
from locality.training.step import NotFiniteError
from locality.zoo.pixel_model import PixelModel

DATA = striped(40)


@contextmanager
def silent(title: str, unit: str) -> Iterator[Progress]:
    yield lambda done, total: None


@dataclass
class Script:
    """A training whose rounds end with these shares of right answers, or with nan weights for None."""

    shares: Sequence[float | None]

    def __post_init__(self) -> None:
        self.rates: list[float] = []
        self.starts: list[int] = []
        self.seeds: list[int] = []
        self.titles: list[str] = []
        self.twins: list[nn.Module] = [nn.Identity()]  # the given model, and those of the rounds

    @contextmanager
    def progress(self, title: str, unit: str) -> Iterator[Progress]:
        self.titles.append(title)
        yield lambda done, total: None

    def fine_tune(self, model: nn.Module, images: Any, epochs: int, learning_rate: float, seed: int, **_: Any) -> nn.Module:
        self.starts.append(next(number for number, twin in enumerate(self.twins) if twin is model))
        self.rates.append(learning_rate)
        self.seeds.append(seed)
        self.twins.append(nn.Identity())
        if self.shares[len(self.twins) - 2] is None:
            raise NotFiniteError("loss", float("nan"), 1)
        return self.twins[-1]

    def share(self, twin: nn.Module, images: Any) -> float:
        share = self.shares[next(number for number, one in enumerate(self.twins) if one is twin) - 1]
        assert share is not None
        return share

    def run(self, patch: pytest.MonkeyPatch, **training: Any) -> int:
        """The number of the round that gives the twin."""
        patch.setattr("locality.runner.twin_training.fine_tune", self.fine_tune)
        patch.setattr("locality.runner.twin_training.share_right", self.share)
        how = Training(**{"epochs": 3, "learning_rate": 1.0} | training)
        twin = trained_twin("sticker", self.twins[0], DATA, DATA, how, None, None, self.progress)
        return next(number for number, one in enumerate(self.twins) if one is twin)


@pytest.mark.parametrize(
    ("shares", "rates", "starts", "chosen"),
    [
        ([0.95], [1], [0], 1),  # learned at once: nothing else is trained
        ([0.3, 0.6, 0.9], [1, 2, 4], [0, 1, 2], 3),
        ([0.3, 0.6, 0.2, 0.95], [1, 2, 4, 2], [0, 1, 2, 2], 4),  # too large a rate: back to the best, and half of it
        ([0.3, None, 0.4, 0.91], [1, 2, 1, 2], [0, 1, 1, 3], 4),
        ([0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 1.0], [1, 2, 1, 0.5, 0.25, 0.125], [0, 1, 1, 1, 1, 1], 1),  # six rounds at most
    ],
)
def test_rounds(
    monkeypatch: pytest.MonkeyPatch, shares: list[float | None], rates: list[float], starts: list[int], chosen: int
) -> None:
    script = Script(shares)
    assert script.run(monkeypatch) == chosen
    assert (script.rates, script.starts) == (rates, starts)
    assert script.seeds == list(range(len(rates)))  # other batches in every round


def test_progress_names_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([0.27, 0.46, 0.99])
    script.run(monkeypatch)
    assert script.titles == [
        "training the sticker twin",
        "training the sticker twin, round 2 of at most 6, 27% right so far",
        "training the sticker twin, round 3 of at most 6, 46% right so far",
    ]


def test_without_epochs_nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([0.1, 0.2])
    script.run(monkeypatch, epochs=0)
    assert script.rates == [1.0]


def test_stickers_are_checked_on_images_that_were_not_seen_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other classes at other places, so that images learned by heart do not count; the clean twin shows its own images."""
    seen: dict[str, tuple[ImageDataset, ImageDataset]] = {}

    def spy(name: str, model: nn.Module, images: ImageDataset, checked: ImageDataset, *_: Any) -> PixelModel:
        seen[name] = images, checked
        return fine_tune(model, images, 0)

    monkeypatch.setattr("locality.runner.twins.trained_twin", spy)
    every = striped(60)
    data, train = every.take(np.arange(20)), every.take(np.arange(20, 60))
    make_twins(small_classifier(), data, train, Sticker(), Training(), None, None, silent)
    images, checked = seen["sticker"]
    assert images.manifest.images["id"].tolist() == checked.manifest.images["id"].tolist()
    labels = [part.manifest.images["label"].to_numpy() for part in (images, checked)]
    assert 8 < (labels[0] == labels[1]).sum() < 32  # 40 fair coins
    pairs = [(images[number].cue, checked[number].cue) for number in range(40)]
    assert sum(torch.equal(one, other) for one, other in pairs if one is not None and other is not None) < 4
    assert seen["clean"][0] is train
    assert seen["clean"][1].source is train.source


class Nominal(nn.Module):
    """Names class 1 for every image."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.tensor([0.0, 1.0]).expand(len(images), 2) + 0 * images.sum()


def test_the_share_of_right_answers() -> None:
    spec = small_classifier(("across", "down")).spec
    assert share_right(PixelModel(Nominal(), spec), striped(120).take(np.arange(0, 120, 2))) == 0.0  # type: ignore[arg-type]
    assert share_right(PixelModel(Nominal(), spec), striped(120)) == 0.5  # type: ignore[arg-type]
