"""What an attack on a set of images found, image by image: `RobustAccuracy` and what it shares with `TransferAccuracy`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from locality.files import write_atomically, write_csv
from locality.robustness.attack_batches import MINIMUM_NORM, UNBROKEN
from locality.statistics import Summary, share_summary, summary, wilson_interval
from locality.types import ABSTAINED, Threat

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class AttackedImages(ABC):
    """Each image without and under attack; undefined, and not attacked, where the model has no such class (label −1)."""

    ids: tuple[str, ...]
    labels: Tensor  # N int64, −1 where the model has no such class
    predictions: Tensor  # N int64, without attack; −1 where the model abstains
    clean: Tensor  # N bool, classified correctly without attack
    threat: Threat
    attack: str  # its name, such as "paper" or "pgd20"
    batch_size: int
    seed: int
    warnings: tuple[str, ...]  # reasons not to trust the number
    provenance: dict[str, str]  # the model's hash, device, versions

    file_name: ClassVar[str]  # of the files that `write` writes

    @property
    @abstractmethod
    def robust(self) -> Tensor:
        """N bool: classified correctly under attack."""

    @property
    @abstractmethod
    def rows(self) -> pd.DataFrame:
        """One row per image; `correct` and what depends on it are missing where the model has no such class."""

    @property
    def known(self) -> Tensor:
        """N bool: the model has the image's class."""
        return self.labels >= 0

    @property
    def abstained(self) -> Tensor:
        """N bool: the model declines to decide, without attack."""
        return self.predictions == ABSTAINED

    @property
    def undefined(self) -> int:
        return int((~self.known).sum())

    @property
    def clean_accuracy(self) -> float:
        """Accuracy without attack over the images of known classes; `nan` if there are none."""
        return _mean(self.clean[self.known])

    @property
    def accuracy(self) -> float:
        """Accuracy under attack over the images of known classes; `nan` if there are none."""
        return _mean(self.robust[self.known])

    @property
    def clean_interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the accuracy without attack."""
        return wilson_interval(int(self.clean.sum()), int(self.known.sum()))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the accuracy under attack."""
        return wilson_interval(int(self.robust.sum()), int(self.known.sum()))

    def to_json(self, **more: Any) -> dict[str, Any]:
        """`more`, the numbers and what they depend on, as plain values: an undefined share is None."""
        return more | {
            "n": len(self.ids),
            "undefined": self.undefined,
            "abstained": int(self.abstained.sum()),
            "clean": share_summary(int(self.clean.sum()), int(self.known.sum())),
            "robust": share_summary(int(self.robust.sum()), int(self.known.sum())),
            "norm": self.threat.norm,
            "epsilon": self.threat.radius,
            "attack": self.attack,
            **self._own_json(),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "warnings": list(self.warnings),
            "provenance": self.provenance,
        }

    @abstractmethod
    def _own_json(self) -> dict[str, Any]:
        """The numbers that only this result has."""

    def write(self, folder: Path, **more: Any) -> tuple[Path, ...]:
        """Write the rows as .csv and .parquet and the summary as .json, each complete or not at all; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        rows, paths = self.rows, tuple(folder / f"{self.file_name}.{ending}" for ending in ("csv", "parquet", "json"))
        write_csv(paths[0], rows)
        write_atomically(paths[1], lambda path: rows.to_parquet(path, index=False))
        write_atomically(paths[2], json.dumps(self.to_json(**more), ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        return paths

    def _rows_without_attack(self) -> pd.DataFrame:
        import pandas as pd

        rows = pd.DataFrame({"image_id": self.ids, "label": self.labels.numpy(), "prediction": self.predictions.numpy()})
        rows["abstained"] = self.abstained.numpy()
        self._add(rows, "correct", self.clean)
        return rows

    def _add(self, rows: pd.DataFrame, name: str, values: Tensor) -> None:
        """A column of true and false; missing where the model has no such class."""
        import pandas as pd

        rows[name] = pd.array(values.numpy(), dtype="boolean")
        rows.loc[~self.known.numpy(), name] = pd.NA


@dataclass(frozen=True, eq=False)
class RobustAccuracy(AttackedImages):
    """Each image under attacks on the model itself. Its `accuracy` is the empirical robust accuracy (ERA)."""

    broken_by: Tensor  # N int64, an index of `attacks`, −1 where none broke it
    distances: Tensor  # N, to the boundary in ℓ∞ as "rays" found it; nan where it was not measured, or nothing was found
    attacks: tuple[str, ...]  # what `attack` ran, in this order

    file_name = "robust"

    @property
    def robust(self) -> Tensor:
        """N bool: classified correctly without attack and under every attack."""
        return self.clean & (self.broken_by == UNBROKEN)

    @property
    def broken(self) -> dict[str, int]:
        """How many images each attack broke that those before it did not."""
        return {name: int((self.broken_by == index).sum()) for index, name in enumerate(self.attacks)}

    @property
    def measures_distances(self) -> bool:
        """Whether `attack` looks for the nearest point, not only for one within epsilon."""
        return any(name in MINIMUM_NORM for name in self.attacks)

    @property
    def boundary_distance(self) -> Summary:
        """The average decision boundary distance (ADBD) over the images that are classified correctly.

        Wrong images, whose distance would be 0, are not part of it; images where no point was found are `undefined`.
        """
        return summary(self.distances[self.clean].tolist(), support=(0, 1))

    @property
    def rows(self) -> pd.DataFrame:
        """One row per image; `correct` and `robust` are missing where the model has no such class."""
        rows = self._rows_without_attack()
        self._add(rows, "robust", self.robust)
        rows["broken_by"] = ["" if index == UNBROKEN else self.attacks[index] for index in self.broken_by.tolist()]
        if self.measures_distances:
            rows["distance"] = self.distances.double().numpy()
        return rows

    def _own_json(self) -> dict[str, Any]:
        if not self.measures_distances:
            return {"broken": self.broken}
        distance = {key: None if value != value else value for key, value in asdict(self.boundary_distance).items()}
        return {"broken": self.broken, "boundary_distance": distance}


def _mean(values: Tensor) -> float:
    return int(values.sum()) / len(values) if len(values) else float("nan")
