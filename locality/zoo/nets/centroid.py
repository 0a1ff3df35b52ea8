"""Centroid Nets (thesis, chapter 6): the class of the nearest centroid, or no decision where two classes are about as near.

The class score is cnt_j(z) = −(distance of the features z to the nearest centroid of class j). With d₁ the distance of the
nearest centroid and d₂ that of the nearest one of another class, the network decides where d₁ ≤ ρ·d₂, ρ = (1 − η)/(1 + η).
The features that are accepted then lie in balls around the centroids; the images that have them need not be near any image.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from locality.errors import ArgumentError
from locality.zoo.nets.lipschitz import LipschitzLinear, LipschitzNet
from locality.zoo.nets.liresnet import liresnet

LARGEST_PER_CLASS = 64
FIRST_LENGTH = 1.0  # of a new centroid


class CentroidHead(nn.Module):
    """Scores cnt_j(z) = −min over the centroids c of class j of ‖z − c‖, and when to abstain."""

    def __init__(self, inputs: int, classes: int, per_class: int = 1, eta: float = 0.2) -> None:
        super().__init__()
        if not 0 <= eta <= 1:
            raise ArgumentError("eta", "a number from 0 (never abstain) to 1 (always, except at a centroid)", eta)
        if not 1 <= per_class <= LARGEST_PER_CLASS:
            raise ArgumentError("per_class", f"a number of centroids from 1 to {LARGEST_PER_CLASS:,}", per_class)
        self.in_features, self.out_features, self.eta = inputs, classes, eta
        drawn = torch.randn(classes * per_class, inputs)
        if len(drawn) <= inputs and not drawn.is_meta:  # all equally far from each other
            drawn = torch.linalg.qr(drawn.T).Q.T
        directions = drawn / drawn.norm(dim=1, keepdim=True)
        self.centroids = nn.Parameter(FIRST_LENGTH * directions.view(classes, per_class, inputs).contiguous())

    @property
    def ratio(self) -> float:
        """ρ = (1 − η)/(1 + η)."""
        return (1 - self.eta) / (1 + self.eta)

    def distances(self, features: Tensor) -> Tensor:
        """N×K×k distances to all centroids. The gradient of a distance of 0 is 0."""
        # Differences are taken before squares: ‖z‖² − 2z·c + ‖c‖² loses the digits of short distances.
        squares = (features[:, None, None] - self.centroids).square().sum(3)
        positive = squares > 0
        return torch.where(positive, torch.where(positive, squares, 1).sqrt(), 0)

    def forward(self, features: Tensor) -> Tensor:
        return -self.distances(features).amin(2)

    def abstains(self, logits: Tensor) -> Tensor:
        """N bool: d₁ > ρ·d₂, which is the same as d₂ − d₁ < η·(d₁ + d₂).

        >>> head = CentroidHead(1, 2, eta=0.5)
        >>> _ = head.centroids.data.copy_(torch.tensor([[[0.0]], [[1.0]]]))
        >>> head.abstains(head(torch.tensor([[0.25], [0.5], [0.875], [-0.5], [-0.6]]))).tolist()
        [False, True, False, False, True]
        """
        return logits.amax(1) < reject_logit(logits, self.ratio)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, per_class={self.centroids.shape[1]}, eta={self.eta!r}"


class CentroidNet(LipschitzNet):
    """Layers with a `norm` or of Lipschitz constant 1, then a `CentroidHead`."""

    @property
    def centroid_head(self) -> CentroidHead:
        """The head, with its type."""
        if not isinstance(self.head, CentroidHead):
            raise ArgumentError("head", "a CentroidHead", type(self.head).__name__)
        return self.head

    def abstains(self, logits: Tensor) -> Tensor:
        """N bool; see `CentroidHead.abstains`."""
        return self.centroid_head.abstains(logits)

    def margin_norms(self, steps: int) -> Tensor:
        """K×K training estimates for the differences of two scores: twice the norm of the features, 0 for i = j."""
        centroids = self.centroid_head.centroids
        apart = 1 - torch.eye(len(centroids), dtype=centroids.dtype, device=centroids.device)
        return 2 * self.features_norm(steps) * apart


def reject_logit(logits: Tensor, ratio: float) -> Tensor:
    """N: the logit of abstaining, ρ times that of the second best class (Definition 22); logits are negative distances."""
    return ratio * logits.topk(2, dim=1).values[:, 1]


def centroid_net(
    classes: int,
    *,
    depth: int = 6,
    width: int = 64,
    dimension: int = 512,
    stride: int = 4,
    features: int = 16,
    per_class: int = 1,
    eta: float = 0.2,
) -> CentroidNet:
    """The layers of `liresnet`, a projection to few features, and `per_class` centroids per class: 1.4 million parameters.

    In many dimensions all distances are about equal, and d₁ is hardly smaller than d₂.
    """
    if not 1 <= features <= dimension:
        raise ArgumentError("features", f"a whole number from 1 to the dimension {dimension:,}", features)
    encoder = list(liresnet(classes, depth=depth, width=width, dimension=dimension, stride=stride))[:-1]
    return CentroidNet(*encoder, LipschitzLinear(dimension, features), CentroidHead(features, classes, per_class, eta))
