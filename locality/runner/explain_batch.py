"""Predictions, boundary points and maps of a batch of images, and the rows of scores made of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd
import torch
from torch import Tensor, nn

from locality.attribution.all_at_once import AT_BOUNDARY, OWN, attribute_all, check_method, other_methods
from locality.attribution.integrated_gradients import Points, relative_gap
from locality.boundary import SEARCHES, find_boundary
from locality.boundary.search import resolve_search
from locality.certified.bracket import certify_boundary, has_small_bound
from locality.data.labels import UnknownClassesWarning
from locality.errors import ArgumentError, unknown_choice
from locality.model_calls import Calls, model_device, open_model
from locality.model_calls.checks import UNIT
from locality.model_calls.decisions import correct, decisions
from locality.results.schema import ROWS, SCORES
from locality.scores import SCORES as SCORE_TABLE
from locality.scores import score_maps
from locality.scores.locality import F1, Lift, Precision, Recall
from locality.scores.map_features import Score
from locality.types import ABSTAINED, Batch, Boundary, Channels, PathMaps, TargetName

METHODS = ("SM", "IG", "BIG")


@dataclass(frozen=True)
class Settings:
    """What decides the numbers of an evaluation, besides the model and the images."""

    methods: tuple[str, ...] = METHODS
    search: str | None = "fast"  # None: no boundary, and no method that needs one
    target: TargetName = "predicted"
    channels: Channels = "all"
    rho: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.methods:
            raise ArgumentError("methods", "at least one method, such as SM, IG, BIG", list(self.methods))
        for name in self.methods:
            check_method(name)
            if self.search is None and name in AT_BOUNDARY:
                raise ArgumentError("search", f"a boundary search for {name}, which starts at the boundary", None)
        if self.search is not None:
            resolve_search(self.search, SEARCHES)
        if self.target not in ("predicted", "label"):
            raise unknown_choice("target", self.target, ("predicted", "label"))
        if self.channels not in ("all", "sum"):
            raise unknown_choice("channels", self.channels, ("all", "sum"))


@dataclass(frozen=True, eq=False)
class Explanations:
    """Everything computed about a batch. Abstentions are not attributed: fields with n rows leave them out."""

    batch: Batch  # all N images
    predictions: Tensor  # N, −1 for an abstention
    attributed: Batch  # the n images that the model decided on
    targets: Tensor  # n, the class attributed; −1 where the label is the target and the model does not know it
    boundary: Boundary | None  # n
    maps: dict[str, Tensor]  # method ↦ n×C×H×W, `nan` where undefined
    paths: dict[str, PathMaps]  # n, of the methods that integrate

    @property
    def classes(self) -> Tensor:
        """n: the class whose logit the maps attribute; the predicted one where the target is none."""
        return torch.where(self.targets < 0, self.predictions[self.predictions != ABSTAINED], self.targets)


def explain(
    model: nn.Module,
    batch: Batch,
    settings: Settings,
    calls: Calls | None = None,
    points: Points = 20,
    to: int | None = None,
) -> Explanations:
    """Predictions, boundary points and maps of one batch; `calls` is the model where it is open already.

    `points` are those on the paths of IG and BIG. `to` is the class that boundary points must have; None: any other.
    """
    device = model_device(model) or torch.device("cpu")
    images = batch.images.to(device)
    own = [name for name in settings.methods if name in OWN]
    with open_model(calls or model, images) as opened:
        logits = opened.logits(images)
        predictions, batch = decisions(model, logits), with_possible_labels(batch, logits.shape[1])
        decided = predictions != ABSTAINED
        attributed = batch if bool(decided.all()) else rows_of_batch(batch, decided)
        labels = attributed.labels.to(device)
        targets = predictions[decided] if settings.target == "predicted" else labels
        explanations = Explanations(batch, predictions, attributed, targets, None, {}, {})
        if len(attributed) == 0:
            return explanations
        pixels = images[decided] if len(attributed) < len(batch) else images
        classes = explanations.classes
        boundary = None
        if settings.search is not None:
            boundary = find_boundary(opened, pixels, search=settings.search, seed=settings.seed, to=to)
            if has_small_bound(model):
                boundary = certify_boundary(model, pixels, boundary)
        found = attribute_all(opened, pixels, own, classes, boundary, points=points, seed=settings.seed) if own else {}
    # Other methods than our own may hook into the model, so they open it themselves.
    for name, attribute in other_methods(settings.methods, model, settings.seed, UNIT).items():
        found[name] = attribute(pixels, target=classes)
    # A label that the model does not know cannot be attributed: the maps, which are the predicted class's, are not shown.
    undefined = (targets < 0)[:, None, None, None]
    plain = {name: value.maps if isinstance(value, PathMaps) else value for name, value in found.items()}
    maps = {name: plain[name].masked_fill(undefined, torch.nan) for name in settings.methods}
    paths = {name: value for name, value in found.items() if isinstance(value, PathMaps)}
    return Explanations(batch, predictions, attributed, targets, boundary, maps, paths)


def gaps_of(explanations: Explanations) -> pd.DataFrame:
    """The completeness gap of each image and method that integrates, relative to |f(x) − f(b)|; `nan` where undefined."""
    tables = [pd.DataFrame({"image_id": [], "method": [], "gap": []})]
    for name, path_maps in explanations.paths.items():
        gaps = relative_gap(path_maps).masked_fill(explanations.targets < 0, torch.nan).tolist()
        tables.append(pd.DataFrame({"image_id": explanations.attributed.ids, "method": name, "gap": gaps}))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def brackets_of(explanations: Explanations) -> pd.DataFrame:
    """Certified radius and distance of each boundary point that was found; no rows for a network without a small bound."""
    boundary = explanations.boundary
    if boundary is None or boundary.radius is None:
        return pd.DataFrame({"image_id": [], "radius": [], "distance": []})
    table = {"image_id": explanations.attributed.ids, "radius": boundary.radius.tolist()}
    return pd.DataFrame({**table, "distance": boundary.distance.tolist()})[boundary.found.cpu().numpy()]


def rows_of(
    explanations: Explanations, settings: Settings, model_name: str, more_scores: Sequence[str] = ()
) -> pd.DataFrame:
    """The rows of one batch, image by image, methods in the order of the settings; `more_scores` are further columns."""
    batch, predictions = explanations.batch, explanations.predictions
    abstained = (predictions == ABSTAINED).cpu()
    right = pd.array(correct(predictions, batch.accepted).tolist(), dtype="boolean")
    right[[not accepted for accepted in batch.accepted]] = pd.NA

    def spread(values: Tensor, missing: float) -> list[float]:
        """One value per image of the batch, from those of the attributed images."""
        column = torch.full((len(batch),), missing, dtype=values.dtype)
        column[~abstained] = values.cpu()
        listed: list[float] = column.tolist()
        return listed

    boundary = explanations.boundary
    common = {
        "model": model_name,
        "image_id": batch.ids,
        "label": batch.labels.tolist(),
        "prediction": predictions.tolist(),
        "target": spread(explanations.targets, ABSTAINED),
        "correct": right,
        "abstained": abstained.numpy(),
        "box_share": batch.masks.float().mean((1, 2, 3)).tolist(),
        "distance": float("nan") if boundary is None else spread(boundary.distance, float("nan")),
        "found": False if boundary is None else spread(boundary.found, False),
        "crossed_to": -1 if boundary is None else spread(boundary.crossed_to, -1),
    }
    tables = []
    for name in settings.methods:
        scores: dict[str, object] = dict.fromkeys([*SCORES, *more_scores], float("nan"))
        if name in explanations.maps:
            maps = explanations.maps[name]
            values = scored(maps, explanations.attributed.masks.to(maps.device), settings, more_scores)
            scores = {score: spread(numbers, float("nan")) for score, numbers in values.items()}
        tables.append(pd.DataFrame({**common, "method": name, **scores}))
    return pd.concat(tables).loc[range(len(batch))].reset_index(drop=True)[[*ROWS, *more_scores]]


def scored(maps: Tensor, masks: Tensor, settings: Settings, more_scores: Sequence[str] = ()) -> dict[str, Tensor]:
    """Precision, recall, F1 and lift at the settings' threshold, and further scores of the table by name."""
    rho = settings.rho
    scores: dict[str, Score] = {"precision": Precision(rho), "recall": Recall(rho), "f1": F1(rho), "lift": Lift(rho)}
    return score_maps(maps, masks, scores | {name: SCORE_TABLE[name]() for name in more_scores}, settings.channels)


def with_possible_labels(batch: Batch, classes: int) -> Batch:
    """The batch without labels that a model of so many classes cannot have: a model without a `.spec` names no classes."""
    possible = [tuple(label for label in accepted if label < classes) for accepted in batch.accepted]
    if tuple(possible) == batch.accepted:
        return batch
    count = sum(after != before for after, before in zip(possible, batch.accepted, strict=True))
    warnings.warn(
        f"{count:,} of {len(batch):,} images have labels that a model of {classes:,} classes cannot have: their accuracy is "
        "undefined; give the model a `.spec` that lists its classes",
        UnknownClassesWarning,
        stacklevel=4,
    )
    labels = torch.tensor([accepted[0] if accepted else -1 for accepted in possible])
    return replace(batch, labels=labels, accepted=tuple(possible))


def rows_of_batch(batch: Batch, chosen: Tensor) -> Batch:
    """The images of the batch where `chosen` is True."""
    indices = chosen.nonzero()[:, 0].tolist()
    return Batch(
        ids=tuple(batch.ids[index] for index in indices),
        images=batch.images[indices],
        labels=batch.labels[indices],
        masks=batch.masks[indices],
        boxes=tuple(batch.boxes[index] for index in indices),
        accepted=tuple(batch.accepted[index] for index in indices),
    )
