"""Similarity of maps by hand, against numpy, and on a linear model whose maps are known."""

import math

import numpy as np
import pytest
import torch
from known_models import linear_model
from torch import Tensor

from locality.attribution import attribute_all
from locality.boundary import find_boundary
from locality.scores.similarity import boundary_similarity, similarity
from locality.types import PathMaps


def test_by_hand() -> None:
    first = torch.tensor([[[[1.0, 2.0], [2.0, 0.0]]], [[[1.0, 0.0], [0.0, 0.0]]]])
    second = torch.tensor([[[[2.0, 4.0], [4.0, 0.0]]], [[[-1.0, 0.0], [0.0, 0.0]]]])
    found = similarity(first, second)
    assert found.distance.tolist() == [3, 2]
    assert found.cosine.tolist() == pytest.approx([1, -1])
    assert found.unit_distance.tolist() == pytest.approx([0, 2], abs=1e-6)


def test_against_numpy() -> None:
    first, second = torch.randn(2, 6, 3, 10, 10, generator=torch.Generator().manual_seed(0))
    found = similarity(first, second)
    one, other = (maps.double().numpy().reshape(6, -1) for maps in (first, second))
    lengths = np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1)
    assert found.distance.numpy() == pytest.approx(np.linalg.norm(one - other, axis=1), rel=1e-6)
    assert found.cosine.numpy() == pytest.approx((one * other).sum(1) / lengths[0] / lengths[1], abs=1e-6)
    assert found.unit_distance.numpy() == pytest.approx((2 - 2 * found.cosine.numpy()) ** 0.5, rel=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e18, 1e30])
def test_the_size_of_gradients_does_not_matter(scale: float) -> None:
    first, second = torch.randn(2, 4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    plain, scaled = similarity(first, second), similarity(first * scale, second * scale)
    assert torch.allclose(scaled.cosine, plain.cosine, atol=1e-6)
    assert torch.allclose(scaled.unit_distance, plain.unit_distance, atol=1e-6)
    assert torch.allclose(scaled.distance / scale, plain.distance, rtol=1e-5)


def test_undefined_maps() -> None:
    first = torch.ones(4, 1, 2, 2)
    second = torch.ones(4, 1, 2, 2)
    first[1, 0, 0, 0] = math.nan
    second[2] = 0
    first[3] = second[3] = 0
    found = similarity(first, second)
    assert found.distance[[0, 2, 3]].tolist() == [0, 2, 0]
    for values in (found.cosine, found.unit_distance):
        assert values.isnan().tolist() == [False, True, True, True]
    assert found.distance.isnan().tolist() == [False, True, False, False]


def test_a_linear_model_has_one_gradient() -> None:
    model, images, _, _ = linear_model([0.1, 0.2, 0.3])
    edge = find_boundary(model, images)
    maps = attribute_all(model, images, ["SM", "BSM", "IG", "BIG"], boundary=edge)
    found = boundary_similarity(maps)
    assert found.saliency.distance.abs().max() < 1e-5
    assert found.integral.distance.max() < 1e-4
    assert found.integral.cosine.tolist() == pytest.approx([1, 1, 1], abs=1e-5)
    # IG − BIG = x ⊙ w − (x − x′) ⊙ w = x′ ⊙ w
    sm = maps["SM"]
    assert isinstance(sm, Tensor)
    assert torch.allclose(found.integrated.distance, (edge.points * sm).flatten(1).norm(dim=1), rtol=1e-4)


def test_pairs_without_a_boundary_are_undefined() -> None:
    maps = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    missing = maps.clone()
    missing[2] = math.nan
    zeros = torch.zeros(5)
    pairs = boundary_similarity(
        {
            "SM": maps,
            "BSM": missing * 2,
            "IG": PathMaps(maps, maps, zeros),
            "BIG": PathMaps(missing + 1, -missing, zeros),
        }
    ).pairs()
    assert list(pairs) == ["SM-BSM", "IG-BIG", "IG-BIG integral"]
    for compared in pairs.values():
        for values in vars(compared).values():
            assert values.isnan().tolist() == [False, False, True, False, False]
    kept = [0, 1, 3, 4]
    assert torch.allclose(pairs["SM-BSM"].distance[kept], maps[kept].flatten(1).norm(dim=1))
    assert pairs["SM-BSM"].cosine[kept].tolist() == pytest.approx([1] * 4)
    assert pairs["IG-BIG"].distance[kept].tolist() == pytest.approx([48**0.5] * 4)
    assert pairs["IG-BIG integral"].cosine[kept].tolist() == pytest.approx([-1] * 4)
    assert pairs["IG-BIG integral"].unit_distance[kept].tolist() == pytest.approx([2] * 4)


def test_wrong_maps_are_named() -> None:
    maps = torch.ones(2, 3, 4, 4)
    with pytest.raises(
        ValueError, match=r"`first` and `second` must be maps of the same images, got \(2, 3, 4, 4\) and \(1,"
    ):
        similarity(maps, maps[:1])
    with pytest.raises(ValueError, match=r"`maps` must be those of SM, BSM, IG and BIG, got .*: BSM, BIG missing"):
        boundary_similarity({"SM": maps, "IG": maps})
    with pytest.raises(TypeError, match="`maps` must hold PathMaps for IG and BIG"):
        boundary_similarity(dict.fromkeys(("SM", "BSM", "IG", "BIG"), maps))
    path = PathMaps(maps, maps, torch.zeros(2))
    with pytest.raises(TypeError, match="`maps` must hold tensors for SM and BSM"):
        boundary_similarity(dict.fromkeys(("SM", "BSM", "IG", "BIG"), path))
