"""Fine-tuning a given model in memory: what it learns, what it leaves alone, and how its layers are treated."""

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from known_models import small_network
from own_images import pictures
from PIL import Image
from torch import nn
from toy_training import weights_of

from locality.data.dataset import ImageDataset, load_dataset
from locality.data.sources import shapes
from locality.errors import ArgumentError, ModelError
from locality.training.fine_tune import fine_tune
from locality.training.inner_attack import InnerAttack
from locality.training.losses.adversarial import Adversarial
from locality.training.recipe import RecipeError
from locality.training.recipe_parts import FineTuning
from locality.types import ModelSpec
from locality.zoo.load import load_model
from locality.zoo.nets.lipschitz import NormalisedHead


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> ImageDataset:
    """Red discs and blue squares of two sizes, in class folders."""
    folder = tmp_path_factory.mktemp("images")
    for one in pictures(24):
        path = folder / ("disc", "square")[one.label] / f"{one.name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(one.pixels).save(path)
    return load_dataset(f"folder:{folder}", split="train")


@pytest.fixture
def few_shapes() -> Iterator[ImageDataset]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(shapes.DEFAULT_COUNT, "train", 100)
        yield load_dataset("shapes", split="train", limit=20)


def accuracy(model: nn.Module, data: ImageDataset) -> float:
    batch = data.for_model(ModelSpec("", (8, 8), 8, classes=data.classes)).batch(range(len(data)))
    with torch.no_grad():
        return float((model(batch.images).argmax(1) == batch.labels).float().mean())


def stranger() -> nn.Module:
    """Somebody's network of five classes on 8×8 pixels, frozen and in training mode."""
    net = small_network().requires_grad_(False).train()
    net.spec = ModelSpec("stranger", (8, 8), 8)  # type: ignore[assignment]
    return net


def test_a_given_network_learns_other_classes_and_stays_as_it_was(discs: ImageDataset) -> None:
    net = stranger()
    before = copy.deepcopy(net)
    torch.manual_seed(4)
    state = torch.get_rng_state()
    steps: list[int] = []
    tuned = fine_tune(net, discs, 20, batch_size=8, learning_rate=0.03, progress=lambda done, total: steps.append(done))
    assert steps == list(range(1, 61))
    assert accuracy(tuned, discs) == 1.0
    assert (tuned.spec.name, tuned.spec.classes, tuned.training) == ("stranger", ("disc", "square"), False)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(weights_of(net), weights_of(before))
    assert [part.training for part in net.modules()] == [True] * 6
    assert not any(value.requires_grad or value.grad is not None for value in net.parameters())
    again = fine_tune(net, discs, 20, batch_size=8, learning_rate=0.03)
    assert torch.equal(weights_of(again), weights_of(tuned))


def test_the_body_learns_slowly_later_or_not_at_all(discs: ImageDataset) -> None:
    net = stranger()

    def moved(tuning: FineTuning, layer: str, epochs: int = 2) -> float:
        tuned = fine_tune(net, discs, epochs, batch_size=8, tuning=tuning)
        return float((tuned.net.get_parameter(layer) - net.get_parameter(layer)).detach().abs().max())

    for still in (FineTuning(body_rate=0.0), FineTuning(head_epochs=2)):
        assert moved(still, "0.weight") == moved(still, "1.weight") == moved(still, "1.bias") == 0
    # AdamW moves every weight by about its learning rate, so a tenth of the rate moves it a tenth as far.
    fast, slow = moved(FineTuning(body_rate=1.0), "0.weight"), moved(FineTuning(body_rate=0.1), "0.weight")
    assert 0 < slow < 0.2 * fast
    assert 0 < moved(FineTuning(head_epochs=1), "0.weight") < slow


def test_batch_norm_keeps_the_statistics_unless_they_are_trained(discs: ImageDataset) -> None:
    net = stranger()
    statistics = net.get_buffer("1.running_mean")
    frozen = fine_tune(net, discs, 1, batch_size=8)
    trained = fine_tune(net, discs, 1, batch_size=8, tuning=FineTuning(batch_norm="train"))
    assert torch.equal(frozen.net.get_buffer("1.running_mean"), statistics)
    assert not torch.equal(trained.net.get_buffer("1.running_mean"), statistics)
    assert not torch.equal(frozen.net.get_parameter("1.weight"), net.get_parameter("1.weight"))  # it is trained all the same


def test_a_model_keeps_its_head_for_its_own_classes(few_shapes: ImageDataset) -> None:
    shipped = load_model("shapes_cnn")
    tuned = fine_tune("shapes_cnn", few_shapes, 1, batch_size=10, learning_rate=1e-6)
    torch.testing.assert_close(weights_of(tuned), weights_of(shipped), rtol=0, atol=1e-5)
    assert tuned.spec.classes == shipped.spec.classes


def test_a_certified_network_keeps_the_kind_of_its_head(discs: ImageDataset) -> None:
    tuned = fine_tune("tiny_liresnet", discs, 1, batch_size=8)
    assert isinstance(tuned.head, NormalisedHead)
    assert tuned.head.out_features == 2


def test_robust_fine_tuning(discs: ImageDataset) -> None:
    tuned = fine_tune(stranger(), discs, 1, batch_size=8, loss=Adversarial(InnerAttack(4 / 255)))
    assert tuned(torch.rand(1, 3, 8, 8)).shape == (1, 2)


def test_mistakes(discs: ImageDataset, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"2 problems: `optimizer.learning_rate` .* `fine_tuning.body_rate`"):
        fine_tune(stranger(), discs, learning_rate=-1, tuning=FineTuning(body_rate=2.0))
    headless = nn.Flatten()
    headless.spec = ModelSpec("stranger", (2, 2), 2)  # type: ignore[assignment]
    with pytest.raises(ModelError, match="the head of `stranger` cannot be found"):
        fine_tune(headless, discs)
    for number in range(2):
        Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "boxes.csv").write_text("filename,xmin,ymin,xmax,ymax,label\n0.png,1,1,4,4,cat\n1.png,1,1,4,4,cat\n")
    alone = load_dataset(f"csv:{tmp_path}", boxes=tmp_path / "boxes.csv", split="train")
    with pytest.raises(ArgumentError, match="`data` must be images of at least two classes, got '1 class'"):
        fine_tune(stranger(), alone)
