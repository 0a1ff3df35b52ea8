"""Prototypes of Centroid Nets: the nearest image, one that is optimised, and how far they must be."""

import pytest
import torch
from known_models import linear_layer
from torch import Tensor, nn

from locality import lipschitz_bound
from locality.certified.prototypes import features_of, nearest_centroids, nearest_images, optimised, owned_images
from locality.types import ModelSpec
from locality.zoo.nets.centroid import CentroidHead, CentroidNet
from locality.zoo.nets.lipschitz import LipschitzLinear, MinMax
from locality.zoo.pixel_model import PixelModel


def images_of(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, 2, 2, generator=torch.Generator().manual_seed(seed))


def drawn_model(eta: float = 0.2) -> PixelModel:
    torch.manual_seed(0)
    net = CentroidNet(nn.Flatten(), LipschitzLinear(12, 8), MinMax(), LipschitzLinear(8, 4), CentroidHead(4, 3, 2, eta))
    net.centroid_head.centroids.data *= 0.5
    return PixelModel(net, ModelSpec("drawn", (2, 2), 2, mean=(0.5,) * 3, std=(0.5,) * 3)).eval()


def test_the_nearest_images_are_those_of_a_search_by_hand() -> None:
    model, images = drawn_model(), images_of(40)
    found = nearest_images(model, images)
    assert isinstance(model.net, CentroidNet)
    centroids = model.net.centroid_head.centroids.detach().flatten(0, 1)
    apart = torch.cdist(model.forward_pass(images).features.detach(), centroids)
    assert torch.equal(found.images, images[apart.argmin(0)])
    assert found.distances.tolist() == pytest.approx(apart.amin(0).tolist(), rel=1e-5)
    assert found.centroids.tolist() == list(range(6))
    assert torch.equal(nearest_centroids(model, images), apart.argmin(1))
    counts = owned_images(model, images)
    assert counts.tolist() == [(apart.argmin(1) == index).sum().item() for index in range(6)]


def test_a_centroid_far_from_all_images_is_dead() -> None:
    model, images = drawn_model(), images_of(40)
    assert isinstance(model.net, CentroidNet)
    model.net.centroid_head.centroids.data[1, 1] = 100.0
    counts = owned_images(model, images)
    assert counts[3] == 0
    assert counts.sum() == 40


def test_optimised_prototypes_are_nearer_within_the_pixels_and_no_nearer_than_the_bound_allows() -> None:
    """‖x − x_p‖ ≥ ‖z − z_p‖/K for every image and prototype."""
    model, images = drawn_model(), images_of(6)
    first = nearest_images(model, images)
    better = optimised(model, first.images, first.centroids, steps=60)
    assert (better.distances <= first.distances + 1e-6).all()
    assert (better.distances < 0.9 * first.distances).any()
    own = optimised(model, images, steps=60)
    assert torch.equal(own.centroids, nearest_centroids(model, images))
    constant = lipschitz_bound(model, (2, 2)).features
    for prototypes in (better, own):
        assert prototypes.images.min() >= 0
        assert prototypes.images.max() <= 1
        apart = torch.cdist(images.flatten(1), prototypes.images.flatten(1))
        between = torch.cdist(features_of(model, images), features_of(model, prototypes.images))
        assert (apart >= between / constant * (1 - 1e-5)).all()


def test_a_linear_encoder_reaches_its_centroid() -> None:
    """Features are pixels: the prototype is the centroid, and accepted; one outside [0, 1] is cut to the cube."""
    net = CentroidNet(nn.Flatten(), LipschitzLinear(2, 2), CentroidHead(2, 2, 1, 0.2))
    linear_layer(net, 1).weight.data, linear_layer(net, 1).bias.data = torch.eye(2), torch.zeros(2)
    net.centroid_head.centroids.data = torch.tensor([[[0.25, 0.5]], [[2.0, 0.5]]])
    found = optimised(net, torch.tensor([[[[0.5, 0.9]]], [[[0.9, 0.1]]]]), torch.tensor([0, 1]), steps=300)
    assert found.images.flatten(1).tolist() == [pytest.approx([0.25, 0.5], abs=0.01), pytest.approx([1.0, 0.5], abs=0.01)]
    assert found.distances.tolist() == pytest.approx([0, 1], abs=0.02)
    assert found.decisions.tolist() == [0, -1]


def test_the_models_weights_get_no_gradients() -> None:
    model = drawn_model()
    optimised(model, images_of(2), steps=2)
    assert all(weight.grad is None for weight in model.parameters())


def test_wrong_arguments_are_one_sentence() -> None:
    with pytest.raises(ValueError, match="`model` must be a Centroid Net, got 'Flatten'"):
        nearest_images(nn.Flatten(), images_of(2))
    with pytest.raises(ValueError, match="`centroids` must be one for each of the 2 images"):
        optimised(drawn_model(), images_of(2), torch.tensor([0]))
