"""Losses, by the names that recipes use. A new one is a new file and a new line here."""

from __future__ import annotations

from locality.training.losses.adversarial import Adversarial, FastAdversarial
from locality.training.losses.alp import Alp
from locality.training.losses.centroid import CentroidCe, CentroidEmma, CentroidReject
from locality.training.losses.emma import GloroEmma, GloroFixed, GloroLa
from locality.training.losses.gloro import GloroCe, GloroTrades
from locality.training.losses.mart import Mart
from locality.training.losses.rat import Rat
from locality.training.losses.rat_labels import RatLabels
from locality.training.losses.rat_terms import RatTerms
from locality.training.losses.standard import Standard
from locality.training.losses.trades import Trades
from locality.training.step import Loss

LOSSES: dict[str, type[Loss]] = {
    "standard": Standard,
    "at": Adversarial,
    "fast_at": FastAdversarial,
    "trades": Trades,
    "alp": Alp,
    "mart": Mart,
    "rat": Rat,
    "rat_terms": RatTerms,
    "rat_labels": RatLabels,
    "gloro_ce": GloroCe,
    "gloro_trades": GloroTrades,
    "gloro_fixed": GloroFixed,
    "gloro_emma": GloroEmma,
    "gloro_la": GloroLa,
    "centroid": CentroidCe,
    "centroid_reject": CentroidReject,
    "centroid_emma": CentroidEmma,
}
