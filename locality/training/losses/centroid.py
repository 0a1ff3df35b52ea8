"""Losses of Centroid Nets. The thesis gives none; these are ours. Class scores are negative distances of features, cnt_j."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from locality.errors import Problem
from locality.training.centroids import centroid_net_problems, centroid_network
from locality.training.losses.certified_loss import CertifiedLoss
from locality.training.losses.emma import emma_logits
from locality.training.settings import positive
from locality.training.step import LossValue, Terms, TrainingBatch
from locality.zoo.nets.centroid import reject_logit
from locality.zoo.nets.forward_pass import ForwardPass

if TYPE_CHECKING:
    from locality.training.recipe import Recipe


@dataclass(frozen=True)
class CentroidCe:
    """Cross-entropy of scale·cnt. Nothing holds the encoder's Lipschitz constant down: distances grow with it."""

    scale: float = 1.0

    def __call__(self, batch: TrainingBatch) -> LossValue:
        clean = batch.forward(batch.images)
        total = cross_entropy(self.scores(clean.logits, batch), batch.labels)
        abstained = centroid_network(batch.network).abstains(clean.logits.detach())
        terms: Terms = {
            "cross_entropy": cross_entropy(clean.logits.detach(), batch.labels),
            "abstained": abstained.float().mean(),
        }
        return LossValue(total, terms, clean=clean, fit=total)

    def scores(self, logits: Tensor, batch: TrainingBatch) -> Tensor:
        """What the cross-entropy is of."""
        return self.scale * logits

    def problems(self) -> list[Problem]:
        return positive("scale", self.scale)

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        return centroid_net_problems(recipe)


@dataclass(frozen=True)
class CentroidReject(CentroidCe):
    """Cross-entropy over the classes and ⊥, whose score is ρ times that of the second best class: GloRo's form."""

    def scores(self, logits: Tensor, batch: TrainingBatch) -> Tensor:
        ratio = centroid_network(batch.network).centroid_head.ratio
        return self.scale * torch.cat([logits, reject_logit(logits, ratio)[:, None]], dim=1)


@dataclass(frozen=True)
class CentroidEmma(CertifiedLoss):
    """Cross-entropy of scale·(cnt_i + ε̃_i·2K), EMMA's shift with the constant 2K of the difference of two distances."""

    scale: float = 1.0

    def value(self, clean: ForwardPass, labels: Tensor, norms: Tensor, radius: float) -> LossValue:
        total = cross_entropy(self.scale * emma_logits(clean.logits, labels, norms, radius), labels)
        return LossValue(total, {"cross_entropy": cross_entropy(clean.logits.detach(), labels)}, clean=clean, fit=total)

    def problems(self) -> list[Problem]:
        return super().problems() + positive("scale", self.scale)

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        return super().problems_with(recipe) or centroid_net_problems(recipe)
