"""Prototypes of a Centroid Net (Definition 23): the image whose features are nearest to a centroid.

The definition depends on an image only through its nearest centroid, so a network has one prototype per centroid. Here it is
one of some given images, or an image that is optimised within [0, 1] from there, or from the image that is explained, which
gives a look-alike. Images x with features z are at least ‖z − z_p‖/K from a prototype, K being the encoder's constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from locality.errors import ArgumentError
from locality.model_calls.checks import working_copy
from locality.types import ABSTAINED
from locality.zoo.nets.centroid import CentroidHead, CentroidNet
from locality.zoo.pixel_model import PixelModel

CHUNK = 64  # images in one pass
STEP_SIZE = 0.01  # of Adam, in pixels


@dataclass(frozen=True, eq=False)
class Prototypes:
    """One image per centroid, or per explained image."""

    images: Tensor  # N×C×H×W in [0, 1]
    centroids: Tensor  # N int64, the centroid of each, counted over classes first: class = centroid // per_class
    distances: Tensor  # N, of its features to the centroid
    decisions: Tensor  # N int64, −1 where the network abstains on it


def features_of(model: nn.Module, images: Tensor) -> Tensor:
    """N×D features of a Centroid Net, without a gradient."""
    net, _ = _parts(model)
    with torch.no_grad():
        chunks = [net.penultimate(_inputs(model, chunk)) for chunk in working_copy(images).split(CHUNK)]
    return torch.cat(chunks)


def nearest_centroids(model: nn.Module, images: Tensor) -> Tensor:
    """N int64: the nearest centroid of each image."""
    _, head = _parts(model)
    return head.distances(features_of(model, images)).flatten(1).argmin(1).detach()


def owned_images(model: nn.Module, images: Tensor) -> Tensor:
    """K·k counts of the images that each centroid is the nearest one of; a centroid without any is dead."""
    _, head = _parts(model)
    return nearest_centroids(model, images).bincount(minlength=head.centroids.shape[0] * head.centroids.shape[1])


def nearest_images(model: nn.Module, images: Tensor) -> Prototypes:
    """For each centroid the image with the nearest features."""
    _, head = _parts(model)
    index = head.distances(features_of(model, images)).flatten(1).argmin(0).detach()
    return _described(model, images[index], torch.arange(len(index)))


def optimised(model: nn.Module, starts: Tensor, centroids: Tensor | None = None, steps: int = 500) -> Prototypes:
    """Images within [0, 1] whose features are near a centroid, by Adam from `starts`; by default the nearest one of each.

    The nearest of all steps is kept, so that no prototype is farther than its start.
    """
    net, head = _parts(model)
    images = working_copy(starts)
    chosen = nearest_centroids(model, images) if centroids is None else centroids
    if chosen.shape != (len(images),):
        raise ArgumentError("centroids", f"one for each of the {len(images)} images", tuple(chosen.shape))
    parts = []
    for begin, wanted in zip(images.split(CHUNK), head.centroids.detach().flatten(0, 1)[chosen].split(CHUNK), strict=True):
        points = begin.clone().requires_grad_()
        optimizer = torch.optim.Adam([points], STEP_SIZE)
        best, shortest = begin.clone(), torch.full((len(begin),), torch.inf)
        for step in range(steps + 1):
            distances = (net.penultimate(_inputs(model, points)) - wanted).norm(dim=1)
            nearer = distances.detach() < shortest
            shortest = torch.where(nearer, distances.detach(), shortest)
            best = torch.where(nearer.view(-1, 1, 1, 1), points.detach(), best)
            if step < steps:
                optimizer.zero_grad()
                torch.autograd.backward(distances.sum(), inputs=[points])
                optimizer.step()
                points.data.clamp_(0, 1)
        parts.append(best)
    return _described(model, torch.cat(parts), chosen)


def _described(model: nn.Module, images: Tensor, centroids: Tensor) -> Prototypes:
    _, head = _parts(model)
    features = features_of(model, images)
    logits = head(features).detach()
    decisions = torch.where(head.abstains(logits), ABSTAINED, logits.argmax(1))
    distances = head.distances(features).detach().flatten(1)[torch.arange(len(images)), centroids]
    return Prototypes(images, centroids, distances, decisions)


def _parts(model: nn.Module) -> tuple[CentroidNet, CentroidHead]:
    net = model.net if isinstance(model, PixelModel) else model
    if not isinstance(net, CentroidNet):
        raise ArgumentError("model", "a Centroid Net", type(net).__name__)
    return net, net.centroid_head


def _inputs(model: nn.Module, images: Tensor) -> Tensor:
    return model.normalised(images) if isinstance(model, PixelModel) else images
