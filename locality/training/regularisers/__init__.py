"""Regularisers, by the names that recipes use. A new one is a new file and a new line here."""

from __future__ import annotations

from locality.training.regularisers.centroids import Pull, Push
from locality.training.regularisers.l2 import L2
from locality.training.regularisers.logit_squeezing import LogitSqueezing
from locality.training.regularisers.s2o import S2o
from locality.training.regularisers.trh import Trh
from locality.training.regularisers.trh_full import TrhFull
from locality.training.step import Regulariser

REGULARISERS: dict[str, type[Regulariser]] = {
    "logit_squeezing": LogitSqueezing,
    "trh": Trh,
    "trh_full": TrhFull,
    "l2": L2,
    "s2o": S2o,
    "pull": Pull,
    "push": Push,
}
