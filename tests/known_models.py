"""Models with known boundaries, for several tests."""

import torch
from torch import Tensor, nn

SIZE = 3 * 8 * 8


def linear_model(distances: list[float], classes: int = 4) -> tuple[nn.Sequential, Tensor, Tensor, Tensor]:
    """A linear softmax model, images at the given ℓ2 distances from its boundary, their classes and the distances."""
    generator = torch.Generator().manual_seed(3)
    weights = torch.linalg.qr(torch.randn(SIZE, classes, generator=generator)).Q.T
    labels = torch.arange(len(distances)) % classes
    noise = 0.05 * torch.randn(len(distances), SIZE, generator=generator)
    scores = torch.full((len(distances), classes), -0.6)  # Only the next class is near, as the cross-entropy sees it too.
    rows = torch.arange(len(distances))
    scores[rows, (labels + 1) % classes] = 0
    scores[rows, labels] = 2**0.5 * torch.tensor(distances)
    images = 0.5 + noise - noise @ weights.T @ weights + scores @ weights
    linear = nn.Linear(SIZE, classes)
    with torch.no_grad():
        linear.weight.copy_(10 * weights)
        linear.bias.copy_(-5 * weights.sum(1))
    model = nn.Sequential(nn.Flatten(), linear)
    assert images.min() > 0
    assert images.max() < 1
    return model, images.view(-1, 3, 8, 8), labels, torch.tensor(distances)


def linear_layer(model: nn.Module, index: int = -1) -> nn.Linear:
    """A linear layer of a sequence, the last one by default, with its type."""
    assert isinstance(model, nn.Sequential)
    layer = model[index]
    assert isinstance(layer, nn.Linear)
    return layer


def small_network() -> nn.Module:
    """Convolution, BatchNorm and an in-place ReLU, with fixed random weights."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8 * 64, 5)
    )
