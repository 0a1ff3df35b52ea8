"""Outputs of other libraries, one-logit networks and multi-label networks, against closed forms of linear models."""

from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from locality.attribution import attribute_all, method, saliency_map
from locality.boundary import find_boundary
from locality.model_calls.outputs import OneLabel, logits_of

FORMS: dict[str, Callable[[Tensor], Any]] = {
    "attribute": lambda logits: SimpleNamespace(logits=logits, features=logits * 0),
    "logits": lambda logits: OrderedDict(loss=torch.zeros(()), logits=logits),
    "out": lambda logits: {"aux": logits * 0, "out": logits},
    "tuple": lambda logits: (logits, logits * 0),
    "list": lambda logits: [logits],
}


class Linear(nn.Module):
    """K linear logits in one of the forms."""

    def __init__(self, logits: int, form: Callable[[Tensor], Any] = lambda logits: logits) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(logits)
        self.weight = nn.Parameter(torch.randn(logits, 12, generator=generator))
        self.form = form

    def forward(self, images: Tensor) -> Any:
        return self.form((images - 0.5).flatten(1) @ self.weight.T)


@pytest.fixture
def images() -> Tensor:
    return 0.5 + 0.05 * torch.randn(8, 3, 2, 2, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_maps_and_distances_of_the_tensor(images: Tensor, form: str) -> None:
    plain, other = Linear(4), Linear(4, FORMS[form])
    assert torch.equal(find_boundary(other, images).points, find_boundary(plain, images).points)
    for name in ("SM", "captum:DeepLift"):
        maps, expected = (attribute_all(model, images, [name])[name] for model in (other, plain))
        assert torch.equal(maps, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(-1, 1), (-1,)])
def test_one_logit_is_two_classes_whose_boundary_is_where_it_is_zero(images: Tensor, shape: tuple[int, ...]) -> None:
    model = Linear(1, lambda logits: logits.reshape(shape))
    logit, weight = Linear(1)(images)[:, 0].detach(), model.weight[0].detach()
    edge = find_boundary(model, images)
    assert torch.equal(edge.labels, (logit > 0).long())
    assert 0 < int(edge.labels.sum()) < 8  # both classes are tested
    assert torch.equal(edge.crossed_to, 1 - edge.labels)
    assert torch.allclose(edge.distance, logit.abs() / weight.norm(), rtol=1e-4)
    sign = torch.where(logit > 0, 0.5, -0.5)
    assert torch.allclose(saliency_map(model, images).flatten(1), sign[:, None] * weight, atol=1e-6)
    two = logits_of(model(images), 8)
    assert torch.allclose(two.softmax(1)[:, 1], logit.sigmoid())  # the probability of the one logit
    assert torch.allclose(two[:, 1] - two[:, 0], logit)  # the margin
    assert method("captum:Saliency")(model).attribute(images, target=1).flatten(1)[0].allclose(weight / 2)


def test_one_label_of_several_is_decided_by_its_logit_alone(images: Tensor) -> None:
    several = Linear(5)
    for label in range(5):
        logit, weight = several(images)[:, label].detach(), several.weight[label].detach()
        edge = find_boundary(OneLabel(several, label), images)
        assert torch.equal(edge.labels, (logit > 0).long())
        assert torch.allclose(edge.distance, logit.abs() / weight.norm(), rtol=1e-4)
        maps = saliency_map(OneLabel(several, label), images, 1)
        assert torch.allclose(maps.flatten(1), (weight / 2).expand(8, 12), atol=1e-6)


def test_a_label_that_the_network_lacks_is_named(images: Tensor) -> None:
    with pytest.raises(ValueError, match="`label` must be a label from 0 to 4, got 5"):
        OneLabel(Linear(5), 5)(images)
    with pytest.raises(ValueError, match="`label` must be the number of one of the network's logits, got -1"):
        OneLabel(Linear(5), -1)
