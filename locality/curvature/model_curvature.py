"""`model_curvature`: how sharp the robust loss of a model is, and the gap between training and test images under attack."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from locality import __version__
from locality.curvature.attacked_losses import STEPS, Losses, attacked_split, number_of_images
from locality.curvature.bounds import DRAWS, PacBayes, pac_bayes
from locality.curvature.gap import RobustGap, gap_between
from locality.curvature.index import WeightCurvature, weight_curvature
from locality.curvature.top_layer import top_layer_traces
from locality.curvature.traces import LayerTraces, layer_traces
from locality.errors import ArgumentError
from locality.files import write_atomically, write_csv
from locality.model_calls.devices import on_device
from locality.progress import Progress, no_progress
from locality.statistics import Summary, summary
from locality.types import Batch, Norm, Threat
from locality.zoo.preprocessing import model_preprocessing
from locality.zoo.state_dict import weights_hash

if TYPE_CHECKING:
    import pandas as pd

    from locality.curvature.attacked_losses import Images

NO_TOP_LAYER = "the trace of the top layer is undefined: no linear layer returns the logits"


@dataclass(frozen=True, eq=False)
class ModelCurvature:
    """Layer traces, the weight-curvature index, the top layer's trace, the robust gap and, if asked for, the bounds."""

    traces: LayerTraces
    index: WeightCurvature
    top: Tensor | None  # one trace of the top layer per training image
    gap: RobustGap
    bound: PacBayes | None
    provenance: dict[str, Any]

    @property
    def top_trace(self) -> Summary | None:
        """The mean trace of the top layer, with its interval over images."""
        return None if self.top is None else summary(self.top, support=(0.0, math.inf))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know to read the numbers rightly."""
        notes = [] if self.top is not None else [NO_TOP_LAYER]
        if self.index.clipped:
            clear = int((self.traces.traces < -2 * self.traces.errors).sum())
            notes.append(
                f"traces below 0, which count as 0 in WCI: {self.index.clipped} of {len(self.traces.names)}, "
                f"{clear} of them by more than two standard errors"
            )
        return tuple(notes)

    @property
    def rows(self) -> pd.DataFrame:
        """One row per layer: name, trace, its standard error, norm of the weights, its term of WCI and its share."""
        import pandas as pd

        terms = self.index.layers
        table = {"name": self.traces.names, "trace": self.traces.traces, "error": self.traces.errors}
        table |= {"norm": self.traces.norms, "term": terms}
        rows = pd.DataFrame({name: _values(column) for name, column in table.items()})
        return rows.assign(share=rows["term"] / self.index.index if self.index.index else math.nan)

    @property
    def image_rows(self) -> pd.DataFrame:
        """One row per image of both splits: losses, errors and, for training images, the top layer's trace."""
        import pandas as pd

        train, test = (loss_rows(losses) for losses in (self.gap.train, self.gap.test))
        train["top_trace"] = math.nan if self.top is None else _values(self.top)
        return pd.concat([train.assign(split="train"), test.assign(split="test")], ignore_index=True)

    def to_json(self, **more: Any) -> dict[str, Any]:
        """The numbers as plain values, `more` before them and in the provenance: an undefined number is None."""
        layers = self.rows[["name", "trace", "error", "norm"]].to_dict("records")
        top = self.top_trace
        return {
            **more,
            "n": {"train": len(self.gap.train.ids), "test": len(self.gap.test.ids)},
            "wci": self.index.index,
            "upper": self.index.upper,
            "top_trace": None if top is None else top.mean,
            "layers": [{str(name): _defined(value) for name, value in layer.items()} for layer in layers],
            "gap": self.gap.to_json(),
            "bound": None if self.bound is None else self.bound.to_json(),
            "provenance": more | self.provenance | {"wci_error": _defined(self.index.error), "notes": list(self.notes)},
        }

    def write(self, folder: Path, **more: Any) -> tuple[Path, ...]:
        """Write layers and images as CSV and Parquet and all as curvature.json, each complete or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, rows in (("layers", self.rows), ("images", self.image_rows)):
            paths += [folder / f"curvature_{name}.{ending}" for ending in ("csv", "parquet")]
            write_csv(paths[-2], rows)
            write_atomically(paths[-1], functools.partial(rows.to_parquet, index=False))
        paths.append(folder / "curvature.json")
        write_atomically(paths[-1], json.dumps(self.to_json(**more), ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        return tuple(paths)


def model_curvature(
    model: nn.Module,
    train: Images,
    test: Images,
    epsilon: float = 8 / 255,
    norm: Norm = "linf",
    steps: int = STEPS,
    method: str = "auto",
    probes: int | None = None,
    seed: int = 0,
    *,
    training_images: int | None = None,
    initial: Mapping[str, Tensor] | None = None,
    chunk: int | None = None,
    device: torch.device | str | None = None,
    progress: Progress = no_progress,
) -> ModelCurvature:
    """Curvature of the robust loss at training images, and the robust gap between training and test images.

    Images are attacked as `robust_gap` says, at the model's own weights, and are then constants: the traces are those of
    the mean cross-entropy of the attacked training images. With `training_images`, the number of all images that the model
    was trained on, PAC-Bayes bounds are added; `initial` are the weights that training began with. `progress` counts images.
    """
    threat = Threat(norm, epsilon)
    default = train[0].device if isinstance(train, tuple) else torch.device("cpu")
    placed, where = on_device(model, device, default)
    assert isinstance(placed, nn.Module)
    first, second = number_of_images(train), number_of_images(test)
    total = 2 * first + second + (0 if training_images is None else first + 2 * DRAWS)
    progress(0, total)

    def after(before: int) -> Progress:
        return lambda done, _: progress(before + done, total)

    learnt = attacked_split(placed, train, threat, steps, seed, chunk, where, progress=after(0))
    images, labels = learnt.images, learnt.labels
    if not len(images):
        raise ArgumentError("train", "images of classes that the model knows", "none")
    unseen = attacked_split(placed, test, threat, steps, seed, chunk, where, keep=False, progress=after(first))
    gap = gap_between(learnt, unseen, threat, steps, seed)
    traces = layer_traces(placed, images, labels, method, probes, seed, chunk, after(first + second))
    bound = None
    if training_images is not None:
        bound = pac_bayes(
            placed,
            images,
            labels,
            training_images,
            initial=initial,
            seed=seed,
            chunk=chunk,
            progress=after(2 * first + second),
        )
    progress(total, total)
    return ModelCurvature(
        traces=traces,
        index=weight_curvature(traces),
        top=_with_unknown(top_layer_traces(placed, images, chunk), learnt.losses),
        gap=gap,
        bound=bound,
        provenance={
            "images": len(images),
            "norm": norm,
            "epsilon": epsilon,
            "steps": steps,
            "seed": seed,
            "method": traces.method,
            "probes": traces.probes,
            "clipped": int((traces.traces < 0).sum()),
            "gradients": {"attacks": gap.gradients, "traces": traces.gradients},
            "forwards": {"attacks": gap.forwards, "traces": traces.forwards},
            "weights_sha256": weights_hash(model),
            "preprocessing": model_preprocessing(model),
            "train_sha256": _fingerprint(train),
            "test_sha256": _fingerprint(test),
            "device": where.type,
            "threads": torch.get_num_threads(),
            "locality": __version__,
            "torch": torch.__version__,
        },
    )


def loss_rows(losses: Losses) -> pd.DataFrame:
    """One row per image: losses, and errors, which are missing where the model has no such class."""
    import pandas as pd

    rows = pd.DataFrame({"image_id": losses.ids})
    for name in ("clean_loss", "robust_loss"):
        rows[name] = _values(getattr(losses, name))
    for name in ("clean_error", "robust_error"):
        rows[name] = pd.array(_values(getattr(losses, name)), dtype="Float64").astype("boolean")
    return rows


def _with_unknown(top: Tensor | None, losses: Losses) -> Tensor | None:
    """The traces of all images, `nan` for those of classes that the model does not know."""
    if top is None:
        return None
    every = torch.full((len(losses),), torch.nan, dtype=torch.float64)
    every[~losses.robust_loss.isnan()] = top
    return every


def _fingerprint(data: Images) -> str | None:
    return None if isinstance(data, tuple | Batch) else data.fingerprint()


def _values(column: Any) -> Any:
    return column.cpu().numpy() if isinstance(column, Tensor) else column


def _defined(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
