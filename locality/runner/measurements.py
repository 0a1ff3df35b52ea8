"""The measurements of a benchmark: each takes a model and a batch of images and gives tables with `Results`' columns."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from locality.attribution import method
from locality.boundary import find_boundary
from locality.data.dataset import ImageDataset
from locality.imagenet_classes import class_word
from locality.model_calls import model_device
from locality.results.gallery import GALLERY
from locality.results.schema import ROWS, Schema
from locality.robustness.robust_accuracy import robust_accuracy
from locality.runner.evaluate import Explained, Settings, explain, rows_of
from locality.runner.plan import Part
from locality.runner.suite_file import Suite
from locality.scores.faithfulness import faithfulness
from locality.scores.layer_randomisation import REFERENCE, sanity_check
from locality.scores.similarity import boundary_similarity
from locality.types import Batch, PathMaps

Tables = dict[str, pd.DataFrame]
COMPARED = ("SM", "BSM", "IG", "BIG")
# One row per model × image × threat: accuracy under attack.
ROBUST: Schema = {
    "model": str,
    "image_id": str,
    "attack": str,
    "norm": str,
    "epsilon": float,
    "clean": bool | None,
    "robust": bool | None,
}
# One row per model × image × pair of methods, "SM-BSM", "IG-BIG" and "IG-BIG integral".
SIMILARITY: Schema = {"model": str, "image_id": str, "pair": str, "l2": float, "cosine": float, "unit_l2": float}
# One row per model × image × method × noise.
FAITHFULNESS: Schema = {
    "model": str,
    "image_id": str,
    "method": str,
    "noise": str,
    "raw": float,
    "normalised": float,
    "scaled": float,
    "error": float,
    "gap": float,
}
# One row per model × image × method × step of randomisation.
LAYER_RANDOMISATION: Schema = {
    "model": str,
    "image_id": str,
    "method": str,
    "step": int,
    "layers": int,
    "layer": str,
    "spearman": float,
    "ssim": float,
}
# One row per model × image × search.
SEARCHES: Schema = {
    "model": str,
    "image_id": str,
    "search": str,
    "distance": float,
    "found": bool,
    "gradients": float,
    "forwards": float,
    "seconds": float,
}
SCHEMAS: dict[str, Schema] = {
    "rows": ROWS,
    "robust": ROBUST,
    "similarity": SIMILARITY,
    "faithfulness": FAITHFULNESS,
    "layer_randomisation": LAYER_RANDOMISATION,
    "searches": SEARCHES,
    "gallery": GALLERY,
}


@dataclass(frozen=True, eq=False)
class Subject:
    """The model under measurement, and where its images come from."""

    model: nn.Module
    name: str
    suite: Suite
    part: Part
    data: ImageDataset  # all images of the part

    @property
    def device(self) -> torch.device:
        return model_device(self.model) or torch.device("cpu")


def locality_rows(subject: Subject, batch: Batch) -> Tables:
    """Accuracy, boundary distance and locality scores; with `similarity`, SM–BSM and IG–BIG, too."""
    suite, settings = subject.suite, subject.suite.settings
    if not suite.similarity:
        return {"rows": rows_of(explain(subject.model, batch, settings), settings, subject.name)}
    wider = replace(settings, methods=tuple(dict.fromkeys((*settings.methods, *COMPARED))))
    explained = explain(subject.model, batch, wider)
    asked = replace(explained, maps={name: explained.maps[name] for name in settings.methods})
    return {"rows": rows_of(asked, settings, subject.name), "similarity": _similarity(explained, subject.name)}


def _similarity(explained: Explained, name: str) -> pd.DataFrame:
    found: dict[str, Tensor | PathMaps] = {"SM": explained.maps["SM"], "BSM": explained.maps["BSM"]}
    found |= {method: explained.paths[method] for method in ("IG", "BIG")}
    pairs = boundary_similarity(found).pairs()
    rows = [
        (name, image_id, pair, float(each.distance[place]), float(each.cosine[place]), float(each.unit_distance[place]))
        for place, image_id in enumerate(explained.batch.ids)
        for pair, each in pairs.items()
    ]
    return pd.DataFrame(rows, columns=list(SIMILARITY))


def robust_rows(subject: Subject, batch: Batch) -> Tables:
    """What an attack leaves of the accuracy. The batch is attacked as one: AutoAttack's random numbers depend on it."""
    attack = subject.suite.robust[subject.part.place]
    rows = robust_accuracy(
        subject.model,
        batch,
        norm=attack.norm,
        epsilon=attack.epsilon,
        attack=attack.attack,
        batch_size=len(batch),
        seed=subject.suite.seed,
    ).rows
    table = pd.DataFrame({"model": subject.name, "image_id": rows["image_id"], "attack": attack.attack, "norm": attack.norm})
    table["epsilon"] = attack.epsilon
    table["clean"], table["robust"] = rows["correct"], rows["robust"]
    return {"robust": table[list(ROBUST)]}


def faithfulness_rows(subject: Subject, batch: Batch) -> Tables:
    """INFD under every noise, and the completeness gap; a method without a path has no rows for noise along it."""
    asked = subject.suite.faithfulness
    assert asked is not None
    settings = _settings(subject.suite, asked.methods)
    explained = explain(subject.model, batch, settings)
    images = batch.images.to(subject.device)
    known = torch.where(explained.targets < 0, explained.predictions, explained.targets)
    rows = []
    for name, maps in explained.maps.items():
        path = explained.paths.get(name)
        baseline: Any = None
        if path is not None:
            baseline = explained.boundary.points if name == "BIG" and explained.boundary is not None else "black"
        found = faithfulness(
            subject.model,
            images,
            maps if path is None else path,
            known,
            baseline,
            sigma=asked.sigma,
            samples=asked.samples,
            seed=settings.seed,
        )
        noises = {found.gaussian.noise: found.gaussian, found.removal.noise: found.removal}
        if path is not None:
            noises |= {"own path": found.path, "own baseline": found.step}
        undefined = maps.isnan().flatten(1).any(1)  # also where the label is no class of the model
        for place, image_id in enumerate(batch.ids):
            for noise, each in noises.items():
                values = (each.raw, each.normalised, each.scaled, each.raw_error, found.gap)
                numbers = [float("nan") if undefined[place] else float(value[place]) for value in values]
                rows.append((subject.name, image_id, name, noise, *numbers))
    return {"faithfulness": pd.DataFrame(rows, columns=list(FAITHFULNESS))}


def sanity_rows(subject: Subject, batch: Batch) -> Tables:
    """How alike maps stay while layers are drawn anew; the reference is the same for every unit of the part."""
    asked = subject.suite.sanity
    assert asked is not None
    settings = _settings(subject.suite, asked.methods)
    count = min(len(subject.data), REFERENCE)
    reference = subject.data.batch(range(count)).images.to(subject.device)
    rows = []
    for name in settings.methods:
        curve = sanity_check(
            subject.model,
            batch.images.to(subject.device),
            functools.partial(method(name), **_method_options(name, settings)),
            layers_at_once=asked.layers_at_once,
            reference=reference,
            seed=settings.seed,
        )
        for place, image_id in enumerate(batch.ids):
            for step, layers in enumerate(curve.randomised):
                layer = curve.layers[layers - 1] if layers else ""
                likeness = float(curve.correlation[step, place]), float(curve.ssim[step, place])
                rows.append((subject.name, image_id, name, step, layers, layer, *likeness))
    return {"layer_randomisation": pd.DataFrame(rows, columns=list(LAYER_RANDOMISATION))}


def search_rows(subject: Subject, batch: Batch) -> Tables:
    """One search's distances. Evaluations and seconds are those of the batch, shared equally among its images."""
    assert subject.suite.searches is not None
    name = subject.suite.searches.names[subject.part.place]
    start = time.perf_counter()
    edge = find_boundary(subject.model, batch.images.to(subject.device), search=name, seed=subject.suite.seed)
    seconds = (time.perf_counter() - start) / len(batch.ids)
    table = pd.DataFrame({"model": subject.name, "image_id": batch.ids, "search": name})
    table["distance"], table["found"] = edge.distance.tolist(), edge.found.tolist()
    table["gradients"] = edge.gradients / len(batch.ids)
    table["forwards"] = edge.forwards / len(batch.ids)
    table["seconds"] = seconds
    return {"searches": table[list(SEARCHES)]}


def gallery_rows(subject: Subject, batch: Batch) -> Tables:
    """Pixels, boxes and maps, summed over channels and scaled to a largest absolute value of 1, in half precision."""
    explained = explain(subject.model, batch, subject.suite.settings)
    manifest = subject.data.manifest.images
    wnids = dict(zip(manifest["id"], manifest["wnid"], strict=True))
    classes = subject.data.classes
    pixels = (batch.images * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
    rows = []
    for place, image_id in enumerate(batch.ids):
        boxes = json.dumps([(box.x0, box.y0, box.x1, box.y1) for box in batch.boxes[place]])
        prediction = int(explained.predictions[place])
        predicted = class_word(classes[prediction]) if prediction < len(classes) else f"class {prediction}"
        about = (subject.name, image_id, class_word(wnids[image_id].split()[0]), predicted)
        picture = (*pixels[place].shape[:2], pixels[place].tobytes(), boxes)
        for name, maps in explained.maps.items():
            plane = maps[place].sum(0).cpu().double()
            largest = float(plane.abs().max())
            scaled = plane / largest if largest > 0 else plane  # nan where undefined
            rows.append((*about, *picture, name, scaled.numpy().astype(np.float16).tobytes()))
    return {"gallery": pd.DataFrame(rows, columns=list(GALLERY))}


MEASUREMENTS: dict[str, Callable[[Subject, Batch], Tables]] = {
    "locality": locality_rows,
    "robust": robust_rows,
    "faithfulness": faithfulness_rows,
    "sanity": sanity_rows,
    "searches": search_rows,
    "gallery": gallery_rows,
}


def _settings(suite: Suite, methods: tuple[str, ...]) -> Settings:
    return replace(suite.settings, methods=methods or suite.methods)


def _method_options(name: str, settings: Settings) -> dict[str, Any]:
    """What the method's own class takes of the suite's settings."""
    if name in ("BSM", "BIG"):
        return {"search": settings.search, "seed": settings.seed}
    return {"seed": settings.seed} if name in ("SmoothGrad", "AGI") else {}
