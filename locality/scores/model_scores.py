"""Scores of maps against the model that they explain, by name: one number per image and method.

Costs are shared: deletion and insertion are two curves of one function, and several methods share what depends on the image
only. A model-free map has no class and no perturbed image, so its `random_logit` and `max_sensitivity` are undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from locality.attribution.all_at_once import attribute_all
from locality.model_calls import Calls, Model, open_model
from locality.scores.map_features import plain_maps
from locality.scores.max_sensitivity import MaxSensitivity, sensitivity_of
from locality.scores.random_logit import RandomLogit, between_classes, other_classes
from locality.scores.removal import RemovalCurves, removal_curves
from locality.scores.road import Road, road
from locality.types import Boundary, PathMaps


@dataclass(frozen=True, eq=False)
class Explained:
    """Images, the classes that are explained, and the maps of some methods; what several scores need is computed once."""

    model: Model | Calls  # an open Calls only if all methods are our own
    images: Tensor
    classes: Tensor  # N
    maps: Mapping[str, Tensor]  # by method
    boundary: Boundary | None = None  # of the images
    search: str | None = "fast"  # for perturbed images
    model_free: Mapping[str, Tensor] | None = None  # maps that no method made
    seed: int = 0

    @cached_property
    def all_maps(self) -> dict[str, Tensor]:
        return {**self.maps, **(self.model_free or {})}

    @cached_property
    def curves(self) -> dict[str, RemovalCurves]:
        return removal_curves(self.model, self.images, self.all_maps, self.classes, seed=self.seed)

    @cached_property
    def road(self) -> dict[str, Road]:
        return road(self.model, self.images, self.all_maps, self.classes, seed=self.seed)

    @cached_property
    def random_logit(self) -> dict[str, RandomLogit]:
        with open_model(self.model, self.images) as calls:
            count = calls.logits(self.images[:1]).shape[1]
        other = other_classes(self.images, self.classes, count, self.seed)
        others = self.attribute(self.images, other, self.boundary)
        return {
            name: between_classes(self.maps[name], plain_maps(maps), other, self.images, self.seed)
            for name, maps in others.items()
        }

    @cached_property
    def sensitivity(self) -> dict[str, MaxSensitivity]:
        return self.sensitivity_at()

    def sensitivity_at(self, **settings: float) -> dict[str, MaxSensitivity]:
        """Max-sensitivity with a radius and a number of samples."""
        maps, classes = self.maps, self.classes
        return sensitivity_of(self.attribute, self.images, maps, classes, seed=self.seed, **settings)  # type: ignore[arg-type]

    def attribute(self, images: Tensor, classes: Tensor, boundary: Boundary | None = None) -> dict[str, PathMaps | Tensor]:
        """Maps of the same methods, of other images or classes."""
        methods, search = list(self.maps), self.search or "fast"
        return attribute_all(self.model, images, methods, classes, boundary, search=search, seed=self.seed)


ModelScore = Callable[[Explained], dict[str, Tensor]]  # N numbers by method

MODEL_SCORES: dict[str, ModelScore] = {
    "deletion": lambda explained: {name: found.deletion.area for name, found in explained.curves.items()},
    "insertion": lambda explained: {name: found.insertion.area for name, found in explained.curves.items()},
    "road": lambda explained: {name: found.gap for name, found in explained.road.items()},
    "random_logit": lambda explained: {name: found.ssim for name, found in explained.random_logit.items()},
    "max_sensitivity": lambda explained: {name: found.relative for name, found in explained.sensitivity.items()},
}


def model_scores(explained: Explained, names: Sequence[str]) -> dict[str, dict[str, Tensor]]:
    """Method ↦ score ↦ N numbers, `nan` where a score is not defined for a method's maps.

    >>> squares = lambda images: images.flatten(1) ** 2
    >>> image = torch.rand(1, 1, 4, 4)
    >>> explained = Explained(squares, image, torch.tensor([1]), {"SM": 2 * image})
    >>> {name: value.shape for name, value in model_scores(explained, ["deletion"])["SM"].items()}
    {'deletion': torch.Size([1])}
    """
    nothing = torch.full((len(explained.images),), torch.nan)
    values = {name: MODEL_SCORES[name](explained) for name in names}
    return {method: {name: values[name].get(method, nothing) for name in names} for method in explained.all_maps}
