"""What certificates state about each model, and whether attacks and searches agree with it, image by image."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.certified.certificate import RADII
from locality.report.aggregates import NotMeasuredError
from locality.report.estimates import Estimate, boundary_distances, floats, share_estimate
from locality.results.results import Results
from locality.toml_settings import number_from

Numbers = NDArray[np.float64]
ROUNDING = 1e-6  # of a float32 distance, relative; found points are verified in float32, certificates in float64


@dataclass(frozen=True, eq=False)
class CertifiedImages:
    """The certificates of one model by one method."""

    model: str
    by: str  # with the settings that are not the default
    norm: str
    radii: tuple[float, ...]  # at which the verified accuracy is stated
    rows: pd.DataFrame
    of_network: bool  # a statement about the network itself, so attacks on the network test it

    @property
    def correct(self) -> Numbers:
        """1, 0, or `nan` where the model does not know the label."""
        return floats(self.rows["correct"])

    @property
    def lipschitz(self) -> float:
        return float(self.rows["lipschitz"].iloc[0])

    def certified(self, radius: float) -> Numbers:
        """1 where the decision, right or wrong, cannot change within `radius`."""
        certain: Numbers = ((self.rows["radius"] > radius) & ~self.rows["abstained"]).to_numpy(dtype=np.float64)
        return certain

    def verified(self, radius: float) -> Estimate:
        """Verified accuracy."""
        return share_estimate(self.correct * self.certified(radius))

    def rejected(self, radius: float) -> Estimate:
        """Share of images of known classes without a certificate at `radius`."""
        return share_estimate(np.where(np.isnan(self.correct), math.nan, 1 - self.certified(radius)))

    def wrong(self, radius: float) -> int:
        """Number of images that are decided wrongly, provably so within `radius`."""
        return int(((self.correct == 0) & (self.certified(radius) == 1)).sum())

    def attacked(self, results: Results, radius: float) -> Estimate | None:
        """Accuracy of the same images under the strongest attack in this ball: an image counts if no attack broke it."""
        attacks = self._attacks(results)
        inside = attacks[np.isclose(attacks["epsilon"], radius, rtol=1e-9)]
        if not len(inside):
            return None
        survived = inside.assign(robust=floats(inside["robust"])).groupby("image_id")["robust"].min()
        return share_estimate(self.rows["image_id"].map(survived).to_numpy(dtype=np.float64))

    def violations(self, results: Results) -> int | None:
        """Images with verified > under attack or under attack > clean, or with a boundary point inside the radius.

        0, unless the certificate or the attack is false. None if nothing was measured that could show a violation.
        """
        attacks = self._attacks(results).merge(self.rows[["image_id", "radius", "correct"]], on="image_id")
        found = self._boundaries(results)
        if not len(attacks) and not len(found):
            return None
        robust, clean = floats(attacks["robust"]), floats(attacks["clean"])
        verified = (floats(attacks["correct"]) == 1) & (attacks["radius"] > attacks["epsilon"])
        broken = attacks["image_id"][(verified & (robust == 0)) | ((robust == 1) & (clean == 0))]
        inside = found["image_id"][found["distance"] < found["radius"] * (1 - ROUNDING) - 1e-7]
        return len(set(broken) | set(inside))

    def tightness(self, results: Results) -> float:
        """Median over images of radius / distance of the nearest boundary point that was found; `nan` if there is none."""
        found = self._boundaries(results)
        found = found[found["distance"] > 0]
        return float((found["radius"] / found["distance"]).median()) if len(found) else math.nan

    def _attacks(self, results: Results) -> pd.DataFrame:
        """Rows of attacks on the network in the norm of the certificate."""
        if "robust" not in results:
            return pd.DataFrame({name: [] for name in ("model", "image_id", "norm", "epsilon", "clean", "robust")})
        rows = results["robust"]
        return rows[(rows["model"] == self.model) & (rows["norm"] == self.norm) & self.of_network]

    def _boundaries(self, results: Results) -> pd.DataFrame:
        """Image, radius and distance, where a boundary was found in ℓ2."""
        rows = results.rows
        own = rows[(rows["model"] == self.model) & self.of_network & (self.norm == "l2")].drop_duplicates("image_id")
        distances = pd.DataFrame({"image_id": own["image_id"], "distance": boundary_distances(own)}).dropna()
        return distances.merge(self.rows[["image_id", "radius"]], on="image_id")


def certificates(results: Results) -> list[CertifiedImages]:
    """The certificates of every model, in the order of the results."""
    if "certified" not in results:
        raise NotMeasuredError("certified radii were not measured")
    found = []
    for (model, by, settings), rows in results["certified"].groupby(["model", "by", "settings"], sort=False):
        radii = tuple(number for text in str(rows["radii"].iloc[0]).split() if (number := number_from(text)) is not None)
        # A certificate that may fail is about votes of noisy copies: an attack on the network says nothing about it.
        certain = float(rows["failure_probability"].max()) == 0
        norm = str(rows["norm"].iloc[0])
        found.append(CertifiedImages(str(model), _title(str(by), str(settings)), norm, radii or RADII, rows, certain))
    return found


def _title(by: str, settings: str) -> str:
    """The name of the certificate, with the size of its noise or the tier of its bounds.

    >>> _title("smoothing", '{"sigma": 0.25, "samples": 1000}'), _title("lipschitz", '{"slack": 0.0, "tight": true}')
    ('smoothing, σ 0.25, n 1,000', 'lipschitz, tight')
    """
    values = json.loads(settings)
    words = [f"σ {values['sigma']:g}"] if "sigma" in values else []
    words += [f"n {values['samples']:,}"] if "samples" in values else []
    words += ["tight"] if values.get("tight") else []
    return ", ".join([by, *words])
