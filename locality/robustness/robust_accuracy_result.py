"""What a robust accuracy is made of: the fate of every image, the shares, and how far to trust them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from locality.robustness.attack_batches import HELD
from locality.robustness.pgd import Norm
from locality.statistics import wilson_interval

if TYPE_CHECKING:
    import pandas as pd

Attack = Literal["paper", "standard", "pgd20", "cw20"]


@dataclass(frozen=True, eq=False)
class RobustAccuracy:
    """What became of each image under attack; undefined, and not attacked, where the model has no such class (label −1)."""

    ids: tuple[str, ...]
    labels: Tensor  # N int64, −1 where the model has no such class
    predictions: Tensor  # N int64, without attack
    clean: Tensor  # N bool, classified correctly without attack
    robust: Tensor  # N bool, and under every attack too
    broken_by: Tensor  # N int64, a place in `attacks`, −1 where none broke it
    attacks: tuple[str, ...]  # what `attack` ran, in this order
    norm: Norm
    epsilon: float
    attack: Attack
    batch_size: int
    seed: int
    warnings: tuple[str, ...]  # reasons not to trust the number
    provenance: dict[str, str]  # model's hash, device, versions

    @property
    def known(self) -> Tensor:
        """N bool: the model has the image's class."""
        return self.labels >= 0

    @property
    def undefined(self) -> int:
        return int((~self.known).sum())

    @property
    def clean_accuracy(self) -> float:
        """Accuracy without attack over the images of known classes; `nan` where there are none."""
        return _share(int(self.clean.sum()), int(self.known.sum()))

    @property
    def accuracy(self) -> float:
        """ERA: accuracy under attack over the images of known classes; `nan` where there are none."""
        return _share(int(self.robust.sum()), int(self.known.sum()))

    @property
    def clean_interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the accuracy without attack."""
        return wilson_interval(int(self.clean.sum()), int(self.known.sum()))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of ERA."""
        return wilson_interval(int(self.robust.sum()), int(self.known.sum()))

    @property
    def broken(self) -> dict[str, int]:
        """How many images each attack broke that those before it had left."""
        return {name: int((self.broken_by == number).sum()) for number, name in enumerate(self.attacks)}

    def table(self) -> pd.DataFrame:
        """One row an image: id, label, prediction, correct, robust (both missing where undefined), broken_by."""
        import pandas as pd

        columns = {"id": self.ids, "label": self.labels.tolist(), "prediction": self.predictions.tolist()}
        found = pd.DataFrame(columns)
        known = self.known.tolist()
        for name, values in (("correct", self.clean), ("robust", self.robust)):
            defined = [value if there else None for value, there in zip(values.tolist(), known, strict=True)]
            found[name] = pd.array(defined, dtype="boolean")
        found["broken_by"] = ["" if number == HELD else self.attacks[number] for number in self.broken_by.tolist()]
        return found

    def summary(self) -> dict[str, Any]:
        """The numbers and what they depend on, for JSON: an undefined share is None."""
        shares = {}
        for name, share, (low, high) in (
            ("clean", self.clean_accuracy, self.clean_interval),
            ("robust", self.accuracy, self.interval),
        ):
            numbers = {"mean": share, "low": low, "high": high}
            shares[name] = {key: None if math.isnan(value) else value for key, value in numbers.items()}
        return {
            "n": len(self.ids),
            "undefined": self.undefined,
            **shares,
            "norm": self.norm,
            "epsilon": self.epsilon,
            "attack": self.attack,
            "broken": self.broken,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "warnings": list(self.warnings),
            "provenance": self.provenance,
        }


def _share(successes: int, trials: int) -> float:
    return successes / trials if trials else math.nan
