"""Verified accuracy (VRA): the share of images that are classified correctly, provably so within a radius."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from locality import __version__
from locality.certified import Certifier
from locality.certified.certificate import RADII, Certificate, check_radii, radius_text
from locality.certified.lipschitz import certificate_for, checked
from locality.files import write_atomically, write_csv
from locality.model_calls.decisions import correct
from locality.model_calls.devices import on_device
from locality.progress import Progress, no_progress
from locality.statistics import share_summary, wilson_interval
from locality.zoo.preprocessing import model_preprocessing
from locality.zoo.state_dict import weights_hash

if TYPE_CHECKING:
    import pandas as pd

    from locality.data.dataset import ImageDataset

BLOCK = 32  # images that are read at once


@dataclass(frozen=True, eq=False)
class VerifiedAccuracy:
    """A certificate of every image, and whether its prediction is right; undefined where the model has no such class."""

    ids: tuple[str, ...]
    labels: Tensor  # N int64, −1 where the model has no such class
    correct: Tensor  # N bool, the prediction is one of the accepted labels; never where it abstains
    certificate: Certificate
    radii: tuple[float, ...]  # at which `to_json` states the verified accuracy
    settings: dict[str, Any]
    provenance: dict[str, str]

    @property
    def known(self) -> Tensor:
        """N bool: the model has the image's class."""
        return self.labels >= 0

    @property
    def undefined(self) -> int:
        return int((~self.known).sum())

    @property
    def abstained(self) -> int:
        """How many images of known classes the model abstains on; they are neither right nor wrong."""
        return int((self.certificate.abstained & self.known).sum())

    @property
    def wrong(self) -> int:
        """How many images of known classes are decided wrongly."""
        return int((~self.correct & ~self.certificate.abstained & self.known).sum())

    def verified(self, radius: float) -> int:
        """How many images are classified correctly, provably so within `radius`."""
        return int((self.correct & self.certificate.certifies(radius)).sum())

    def wrong_but_certified(self, radius: float) -> int:
        """How many images of known classes are classified wrongly, provably so within `radius`."""
        return int((~self.correct & self.certificate.certifies(radius) & self.known).sum())

    def rejected(self, radius: float) -> int:
        """How many images of known classes have no certificate at `radius`: the radius is smaller, or the model abstains."""
        return int((~self.certificate.certifies(radius) & self.known).sum())

    def accuracy(self, radius: float) -> float:
        """Verified accuracy over all images of known classes; `nan` if there are none."""
        known = int(self.known.sum())
        return self.verified(radius) / known if known else float("nan")

    def interval(self, radius: float) -> tuple[float, float]:
        """The 95 % Wilson interval of the verified accuracy."""
        return wilson_interval(self.verified(radius), int(self.known.sum()))

    @property
    def median_radius(self) -> float:
        """Over the images that are decided, right or wrong; `nan` if there are none."""
        radii = self.certificate.radius[~self.certificate.abstained]
        return float(radii.quantile(0.5)) if len(radii) else float("nan")

    @property
    def failure_probability(self) -> float:
        """The largest probability that a single image's certificate is false."""
        return float(self.certificate.failure_probability.max())

    @property
    def rows(self) -> pd.DataFrame:
        """One row per image; `correct` is missing where the model has no such class."""
        import pandas as pd

        rows = pd.DataFrame({"image_id": self.ids, "label": self.labels.numpy()})
        rows["prediction"], rows["abstained"] = self.certificate.prediction.numpy(), self.certificate.abstained.numpy()
        rows["correct"] = pd.array(self.correct.numpy(), dtype="boolean")
        rows.loc[~self.known.numpy(), "correct"] = pd.NA
        rows["radius"], rows["norm"] = self.certificate.radius.numpy(), self.certificate.norm
        rows["failure_probability"] = self.certificate.failure_probability.numpy()
        for name, values in self.certificate.details.items():
            rows[name] = values.numpy()
        return rows

    def to_json(self, **more: Any) -> dict[str, Any]:
        """Facts, `more`, the numbers and what they depend on, as plain values: an undefined number is None."""
        known = int(self.known.sum())

        def shares(count: Callable[[float], int]) -> dict[str, dict[str, float | None]]:
            return {radius_text(radius): {"radius": radius, **share_summary(count(radius), known)} for radius in self.radii}

        return (
            dict(self.certificate.facts)
            | more
            | {
                "n": len(self.ids),
                "undefined": self.undefined,
                "clean": share_summary(int(self.correct.sum()), known),
                "verified": shares(self.verified),
                "rejected": shares(self.rejected),
                "wrong_but_certified": shares(self.wrong_but_certified),
                "wrong": share_summary(self.wrong, known),
                "abstained": share_summary(self.abstained, known),
                "median_radius": self.median_radius if math.isfinite(self.median_radius) else None,
                "norm": self.certificate.norm,
                "failure_probability": self.failure_probability,
                "settings": self.settings,
                "provenance": self.provenance,
            }
        )

    def write(self, folder: Path, **more: Any) -> tuple[Path, ...]:
        """Write certified.csv, certified.parquet and certified.json, each complete or not at all; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        rows, paths = self.rows, tuple(folder / f"certified.{ending}" for ending in ("csv", "parquet", "json"))
        write_csv(paths[0], rows)
        write_atomically(paths[1], lambda path: rows.to_parquet(path, index=False))
        write_atomically(paths[2], json.dumps(self.to_json(**more), ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        return paths


def verified_accuracy(
    model: nn.Module,
    data: ImageDataset,
    certifier: Certifier | None = None,
    radii: Sequence[float] = RADII,
    device: torch.device | str | None = None,
    progress: Progress = no_progress,
) -> VerifiedAccuracy:
    """Certify the model's decisions on a data set; `progress` counts forward passes.

    Without `certifier` it is that of `certify`: `Centroid` for models that may abstain, else `Lipschitz`.
    An abstention is neither right nor wrong: it is no part of the verified accuracy, whose denominator is all images.

    >>> from locality.certified import CERTIFICATES
    >>> from locality.data.dataset import load_dataset
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 10))
    >>> smoothing = CERTIFICATES["smoothing"](samples=20, selection_samples=5)
    >>> verified_accuracy(model, load_dataset("shapes", limit=2, count=10), smoothing).accuracy(radius=10.0)
    0.0
    """
    check_radii(radii)
    certifier = certificate_for(model) if certifier is None else checked(certifier)
    placed, where = on_device(model, device, torch.device("cpu"))
    ids: list[str] = []
    labels, right, parts = [], [], []
    passes = 0  # forward passes of the blocks before
    for start in range(0, len(data), BLOCK):
        batch = data.batch(range(start, min(start + BLOCK, len(data))))

        def report(done: int, total: int | None, before: int = passes, images: int = start + len(batch)) -> None:
            nonlocal passes
            passes = before + done
            # The cost per image so far tells how many passes the rest takes.
            progress(passes, None if total is None else round((before + total) / images * len(data)))

        parts.append(certifier(placed, batch.images.to(where), report))
        right.append(correct(parts[-1].prediction, batch.accepted))
        labels.append(batch.labels)
        ids += batch.ids
    return VerifiedAccuracy(
        ids=tuple(ids),
        labels=torch.cat(labels),
        correct=torch.cat(right),
        certificate=Certificate.cat(parts),
        radii=tuple(radii),
        settings=asdict(certifier),
        provenance={
            "weights_sha256": weights_hash(model),
            "preprocessing": model_preprocessing(model),
            "data_sha256": data.fingerprint(),
            "device": where.type,
            "locality": __version__,
            "torch": torch.__version__,
        },
    )
