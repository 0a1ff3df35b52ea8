"""Lipschitz bounds that were computed already: one takes seconds, and a data set has many blocks of images."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from torch import nn

from locality.certified import lipschitz_bound
from locality.certified.lipschitz_bound import LipschitzBound
from locality.zoo.pixel_model import PixelModel
from locality.zoo.state_dict import weights_hash

# The last one of each model, with what it depends on.
KNOWN_BOUNDS: WeakKeyDictionary[nn.Module, tuple[str, LipschitzBound]] = WeakKeyDictionary()


def known_bound(model: nn.Module, shape: tuple[int, ...], tight: bool = False) -> LipschitzBound:
    """The model's bound for images of this shape, computed again only if one of what it depends on has changed."""
    scale = model.std.tolist() if isinstance(model, PixelModel) else []
    modes = [part.training for part in model.modules()]
    state = f"{weights_hash(model)} {model} {scale} {modes} {shape} {tight}"
    known = KNOWN_BOUNDS.get(model)
    if known is None or known[0] != state:
        known = (state, lipschitz_bound.lipschitz_bound(model, (shape[1], shape[2]), channels=shape[0], tight=tight))
        KNOWN_BOUNDS[model] = known
    return known[1]
