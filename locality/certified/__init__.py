"""Certificates: decisions that provably do not change within a radius.

To add one, write `certified/NAME.py` with a frozen dataclass of settings that is callable on (model, images, progress) and
returns a `Certificate`, and add a line to `CERTIFICATES`. `locality certify --by NAME` then has the fields as options. Its
`--help` reads them without waiting for torch, so import torch inside `__call__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from locality.certified.centroid import Centroid
from locality.certified.lipschitz import Lipschitz
from locality.certified.smoothing import Smoothing
from locality.progress import Progress, no_progress

if TYPE_CHECKING:
    from dataclasses import Field

    from torch import Tensor

    from locality.certified.certificate import Certificate
    from locality.model_calls import Model


class Certifier(Protocol):
    """Settings of a certificate, which give it for some images.

    It is called once per block of images with the same model. `progress` counts forward passes.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __call__(self, model: Model, images: Tensor, progress: Progress = no_progress) -> Certificate: ...


CERTIFICATES: dict[str, type[Certifier]] = {
    "lipschitz": Lipschitz,
    "centroid": Centroid,
    "smoothing": Smoothing,
}
