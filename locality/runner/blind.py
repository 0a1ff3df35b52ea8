"""What maps that have seen neither model nor image score on the same boxes: the rows that methods have to beat."""

from __future__ import annotations

import torch

from locality.data.dataset import ImageDataset
from locality.results.schema import SCORES
from locality.runner.evaluate import Settings, default_batch_size
from locality.scores.locality import map_scores
from locality.scores.model_free_maps import BLIND_MAPS
from locality.statistics import Summary, summary


def blind_summaries(data: ImageDataset, settings: Settings) -> dict[str, dict[str, Summary]]:
    """Blind map ↦ score ↦ summary over the images of `data`, scored as `settings` say.

    >>> from locality.data.dataset import load_dataset
    >>> found = blind_summaries(load_dataset("shapes", limit=4, count=10), Settings())
    >>> list(found), found["uniform"]["lift"].mean
    (['uniform', 'random', 'centred Gaussian'], 0.0)
    """
    values: dict[str, dict[str, list[float]]] = {name: {score: [] for score in SCORES} for name in BLIND_MAPS}
    size = default_batch_size(data)
    for first in range(0, len(data), size):
        batch = data.batch(range(first, min(first + size, len(data))))
        for name, make in BLIND_MAPS.items():
            scores = map_scores(make(batch.images, settings.seed), batch.masks, settings.rho, settings.channels)
            for score in SCORES:
                found: torch.Tensor = getattr(scores, score)
                values[name][score] += found.tolist()
    return {name: {score: summary(each) for score, each in scores.items()} for name, scores in values.items()}
