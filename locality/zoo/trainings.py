"""The only list of trainings: what a training id means, how it is printed, and which kind of model it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["standard", "robust", "certified", "random"]
KindOrUnknown = Literal[Kind, "unknown"]
UNKNOWN = "unknown"  # training id and kind of a model without a card


@dataclass(frozen=True)
class Training:
    """One way to train a model."""

    id: str  # as cards, suites and results store it
    title: str  # as tables and figures print it
    kind: Kind


TRAININGS: dict[str, Training] = {
    training.id: training
    for training in (
        Training("standard", "standard", "standard"),
        Training("at", "AT", "robust"),
        Training("fast_at", "fast AT", "robust"),
        Training("trades", "TRADES", "robust"),
        Training("alp", "ALP", "robust"),
        Training("mart", "MART", "robust"),
        Training("rat", "RAT", "robust"),
        Training("rat_terms", "RAT, Taylor terms", "robust"),
        Training("rat_labels", "RAT, soft labels", "robust"),
        Training("certified", "certified", "certified"),
        Training("gloro_ce", "GloRo", "certified"),
        Training("gloro_trades", "GloRo-TRADES", "certified"),
        Training("gloro_fixed", "fixed margin", "certified"),
        Training("gloro_emma", "EMMA", "certified"),
        Training("gloro_la", "logit annealing", "certified"),
        Training("centroid", "centroids", "standard"),
        Training("centroid_reject", "centroids, rejection", "standard"),
        Training("centroid_emma", "centroids, EMMA", "certified"),
        Training("random", "random", "random"),
    )
}


def kind_of(training: str) -> KindOrUnknown:
    """The kind of model that a training gives; "unknown" for an id that is not in the list.

    >>> kind_of("trades"), kind_of("certified"), kind_of("mine")
    ('robust', 'certified', 'unknown')
    """
    return TRAININGS[training].kind if training in TRAININGS else "unknown"


def title_of(training: str) -> str:
    """The training as tables print it; an id that is not in the list is printed as it is.

    >>> title_of("fast_at"), title_of("unknown")
    ('fast AT', 'unknown')
    """
    return TRAININGS[training].title if training in TRAININGS else training
