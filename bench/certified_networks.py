"""Networks with a Lipschitz bound for `certified_attacks.py`: small ones for 10×10 images, checkpoints for 64×64 ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, cross_entropy

from locality import load_dataset, load_model
from locality.types import ModelSpec
from locality.zoo.nets import NETS
from locality.zoo.nets.lipschitz import LipschitzLinear, LipschitzNet, MinMax, NormalisedHead
from locality.zoo.pixel_model import PixelModel

SIDE, CLASSES = 10, 10  # of the small images; AutoAttack's Square needs a multiple of five
SIZE = 3 * SIDE**2


@dataclass(frozen=True)
class Case:
    """A network in eval mode, and how to get its images."""

    name: str
    build: Callable[[], nn.Module]
    images: Callable[[int], Tensor]
    large: bool = False


def small_cases(seed: int) -> Iterator[Case]:
    yield Case("linear", partial(drawn, seed, linear_net), uniform)
    yield Case("orthogonal, MinMax", partial(drawn, seed, orthogonal_net), uniform)
    yield Case("dense, MinMax", partial(drawn, seed, dense_net), uniform)
    yield Case("trained dense, MinMax", partial(trained, dense_net, seed), shrunk_shapes)
    yield Case("trained conv, BatchNorm, ReLU", partial(trained, foreign_net, seed), shrunk_shapes)
    yield Case("conv, BatchNorm, ReLU after uneven normalisation", partial(drawn, seed, uneven_net), uniform)


def large_cases(checkpoints: list[Path]) -> Iterator[Case]:
    yield Case("drawn liresnet", partial(drawn, 0, drawn_liresnet), photographs("shapes"), large=True)
    for path in checkpoints:
        data = "tiny-imagenet" if "tiny" in path.name else "shapes"
        yield Case(path.stem, partial(load_model, str(path)), photographs(data), large=True)


def drawn(seed: int, build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build().eval()


def linear_net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIZE, CLASSES))


def orthogonal_net() -> nn.Module:
    """The product of norms is exact here, so radii are as large as a Lipschitz bound can make them."""
    layers = [
        nn.Flatten(),
        *(part for _ in range(3) for part in (nn.Linear(SIZE, SIZE), MinMax())),
        nn.Linear(SIZE, CLASSES),
    ]
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
    return nn.Sequential(*layers)


def dense_net() -> nn.Module:
    return LipschitzNet(
        nn.Flatten(), LipschitzLinear(SIZE, 48), MinMax(), LipschitzLinear(48, 32), MinMax(), NormalisedHead(32, CLASSES)
    )


def foreign_net() -> nn.Module:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * (SIDE // 4) ** 2, CLASSES),
    )
    normalised = net[1]
    assert isinstance(normalised, nn.BatchNorm2d)
    normalised.running_mean, normalised.running_var = 0.1 * torch.randn(8), torch.rand(8) + 0.05
    return net


def uneven_net() -> nn.Module:
    spec = ModelSpec("uneven", (SIDE, SIDE), SIDE, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.5))
    return PixelModel(foreign_net(), spec)


def drawn_liresnet() -> nn.Module:
    net = NETS["liresnet"](CLASSES, depth=2, width=8, dimension=16)
    return PixelModel(net, ModelSpec("drawn", (64, 64), 64, mean=(0.5,) * 3, std=(1.0,) * 3))


def trained(build: Callable[[], nn.Module], seed: int, steps: int = 150) -> nn.Module:
    """A few steps of Adam on shrunk shapes, with logits over the training estimate of their constant if there is one."""
    model = drawn(seed, build)
    data = load_dataset("shapes", split="train", limit=500, count=500)
    batch = data.batch(range(len(data)))
    images, labels = adaptive_avg_pool2d(batch.images, SIDE), batch.labels
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(steps):
        rows = torch.randint(len(images), (100,), generator=generator)
        scale = model.features_norm(5) if isinstance(model, LipschitzNet) else 1.0
        optimizer.zero_grad()
        cross_entropy(10 * model(images[rows]) / scale, labels[rows]).backward()
        optimizer.step()
    return model.eval().requires_grad_(False)


def uniform(count: int) -> Tensor:
    return torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))


def shrunk_shapes(count: int) -> Tensor:
    data = load_dataset("shapes", limit=count, count=max(count, 1000))
    return adaptive_avg_pool2d(data.batch(range(len(data))).images, SIDE)


def photographs(name: str) -> Callable[[int], Tensor]:
    def images(count: int) -> Tensor:
        data = load_dataset(name, limit=count, spec=ModelSpec(name, (64, 64), 64))
        return data.batch(range(len(data))).images

    return images
