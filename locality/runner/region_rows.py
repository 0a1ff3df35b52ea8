"""Rows of region tests: the images of a batch, each with the background of another image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from torch import Tensor, nn

from locality.data.dataset import ImageDataset
from locality.data.donors import donors
from locality.model_calls import Calls, model_device
from locality.model_calls.randomness import image_seeds
from locality.results.region_tests import REGIONS
from locality.scores.interventions import background_images
from locality.scores.region_tests import TESTS, RegionSettings, region_tests
from locality.types import Batch, Sample


def region_rows(
    model: nn.Module,
    batch: Batch,
    data: ImageDataset,
    model_name: str,
    settings: RegionSettings,
    seed: int,
    decoded: Mapping[int, Sample] | None = None,
    calls: Calls | None = None,
) -> pd.DataFrame:
    """One row per image × test, with the columns of `REGIONS`; donors are images of `data` of another class."""
    device = model_device(model) or torch.device("cpu")
    given = donors(data, batch.ids, image_seeds(batch.images, seed), decoded)
    tests = region_tests(
        model,
        batch.images.to(device),
        batch.masks.to(device),
        batch.accepted,
        _backgrounds(batch, given, settings.blur),
        settings=settings,
        seed=seed,
        calls=calls,
    )
    known = torch.tensor([bool(labels) for labels in batch.accepted])
    before = pd.array(tests.correct.nan_to_num().bool().tolist(), dtype="boolean")
    before[~known.numpy()] = pd.NA
    tables = []
    for name in TESTS:
        here, there = tests.outcomes[name, "region"], tests.outcomes[name, "elsewhere"]
        swapped = [sample if name == "outside_swapped" else None for sample in given]
        columns = {
            "model": model_name,
            "image_id": batch.ids,
            "region": data.region,
            "share": tests.share.tolist(),
            "overlap": tests.overlap.tolist(),
            "test": name,
            "before": before,
            "donor": pd.array([None if sample is None else sample.id for sample in swapped], dtype="str"),
            "donor_label": [-1 if sample is None else sample.label for sample in swapped],
        }
        for suffix, outcome in (("", here), ("_elsewhere", there)):
            for column in ("correct", "kept", "logit_change", "prediction"):
                columns[column + suffix] = getattr(outcome, column).tolist()
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables).loc[range(len(batch))].reset_index(drop=True)[list(REGIONS)]


def _backgrounds(batch: Batch, given: Sequence[Sample | None], blur: float) -> Tensor:
    """The donors without their own objects, `nan` where there is none."""
    backgrounds = torch.full_like(batch.images, torch.nan)
    for row, one in enumerate(given):
        if one is not None:
            backgrounds[row] = background_images(one.image[None], one.mask[None], blur)[0]
    return backgrounds
