"""Regularisers, by the names that recipes use. A new one is a new file and a new line here."""

from __future__ import annotations

from locality.training.regularisers.logit_squeezing import LogitSqueezing
from locality.training.regularisers.trh_full import TrhFull
from locality.training.step import Regulariser

REGULARISERS: dict[str, type[Regulariser]] = {"logit_squeezing": LogitSqueezing, "trh_full": TrhFull}
