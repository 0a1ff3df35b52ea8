"""Loss landscapes as grids of numbers: how flat they are, how two models differ, and as files. No torch is needed."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from locality.errors import ArgumentError
from locality.files import write_atomically, write_csv
from locality.robustness import Space
from locality.statistics import Paired, Summary, paired, summary

if TYPE_CHECKING:
    import pandas as pd

Numbers = NDArray[np.float64]
# The axes of a landscape, each with a curvature of its own.
AXES: dict[Space, tuple[str, ...]] = {"input": ("gradient", "random"), "weights": ("weights",)}
FILES = ("landscape.parquet", "landscape.json", "flatness.csv")


@dataclass(frozen=True, eq=False)
class Landscape:
    """The loss of each image at the points of a grid around the model or the image.

    In input space rows move along the sign of the gradient and columns along random signs, both by `offsets` pixels. In
    weight space each row is a direction, and columns move along it by `offsets` times its length.
    """

    space: Space
    ids: tuple[str, ...]  # of N images
    offsets: Numbers  # P, ascending, symmetric around 0
    losses: Numbers  # N×P×P (input) or N×directions×P (weights)
    slopes: Numbers  # N×2 (input) or N×directions (weights): derivatives of the loss at the centre

    @property
    def centre(self) -> int:
        """The index of offset 0."""
        return len(self.offsets) // 2


@dataclass(frozen=True, eq=False)
class Flatness:
    """How far a landscape is from a plane, N numbers each; all but `range` are 0 for a plane."""

    range: Numbers  # largest minus smallest loss
    deviation: Numbers  # root mean square of the loss minus its tangent plane
    nonlinearity: Numbers  # the largest |loss minus tangent plane|: the local linearity of Qin et al. (2019)
    curvature: dict[str, Numbers]  # by axis: mean |second difference| / step², an estimate of |second derivative|

    @property
    def columns(self) -> dict[str, Numbers]:
        """The numbers by name."""
        curvatures = {f"curvature_{axis}": values for axis, values in self.curvature.items()}
        return {"range": self.range, "deviation": self.deviation, "nonlinearity": self.nonlinearity} | curvatures


def flatness(landscape: Landscape) -> Flatness:
    """The numbers of each image; in weight space, their means over the directions.

    >>> square = Landscape("weights", ("a",), np.array([-1.0, 0, 1]), np.array([[[3.0, 0, 3]]]), np.zeros((1, 1)))
    >>> flatness(square).curvature["weights"].item()  # 3t² has a second derivative of 6
    6.0
    """
    offsets, losses, slopes, middle = landscape.offsets, landscape.losses, landscape.slopes, landscape.centre
    step = float(offsets[1] - offsets[0])
    along = np.abs(np.diff(losses, 2, axis=2)) / step**2
    if landscape.space == "weights":
        plane = losses[:, :, middle, None] + slopes[:, :, None] * offsets
        away = np.abs(losses - plane)
        return Flatness(
            range=np.ptp(losses, axis=2).mean(1),
            deviation=np.sqrt(np.square(away).mean(2)).mean(1),
            nonlinearity=away.max(2).mean(1),
            curvature={"weights": along.mean((1, 2))},
        )
    plane = losses[:, middle, middle, None, None] + slopes[:, 0, None, None] * offsets[:, None]
    away = np.abs(losses - plane - slopes[:, 1, None, None] * offsets)
    across = np.abs(np.diff(losses, 2, axis=1)) / step**2
    return Flatness(
        range=np.ptp(losses, axis=(1, 2)),
        deviation=np.sqrt(np.square(away).mean((1, 2))),
        nonlinearity=away.max((1, 2)),
        curvature={"gradient": across.mean((1, 2)), "random": along.mean((1, 2))},
    )


@dataclass(frozen=True, eq=False)
class Landscapes:
    """The landscapes of one model, or of two on the same images, with the settings that made them."""

    by_model: dict[str, Landscape]
    settings: dict[str, Any]  # as plain values

    @functools.cached_property
    def flatness(self) -> dict[str, dict[str, Numbers]]:
        """Model ↦ number ↦ one value per image."""
        return {model: flatness(landscape).columns for model, landscape in self.by_model.items()}

    @property
    def means(self) -> dict[str, dict[str, Summary]]:
        """Model ↦ number ↦ its mean over the images with a 95 % interval."""
        return {
            model: {name: summary(values, support=(0.0, math.inf)) for name, values in numbers.items()}
            for model, numbers in self.flatness.items()
        }

    @property
    def differences(self) -> dict[str, Paired]:
        """Number ↦ second model minus first on the same images; empty for one model."""
        if len(self.by_model) < 2:
            return {}
        first, second = self.flatness.values()
        return {name: paired(first[name], second[name]) for name in first}

    @property
    def rows(self) -> pd.DataFrame:
        """One row per model, image and point of the grid."""
        import pandas as pd

        return pd.concat([_grid_rows(model, landscape) for model, landscape in self.by_model.items()], ignore_index=True)

    @property
    def flatness_rows(self) -> pd.DataFrame:
        """One row per model and image."""
        import pandas as pd

        parts = [
            pd.DataFrame({"model": model, "image_id": self.by_model[model].ids, **numbers})
            for model, numbers in self.flatness.items()
        ]
        return pd.concat(parts, ignore_index=True)

    def to_json(self, **more: Any) -> dict[str, Any]:
        """`more`, the settings, means and differences as plain values; undefined is None."""
        first = next(iter(self.by_model.values()))
        means = {model: {name: _plain(one) for name, one in numbers.items()} for model, numbers in self.means.items()}
        differences = {name: _plain(one) for name, one in self.differences.items()}
        return more | {
            "space": first.space,
            "n": len(first.ids),
            **self.settings,
            "flatness": means,
            "differences": differences,
        }

    def write(self, folder: Path, **more: Any) -> tuple[Path, ...]:
        """Write grids, summary and one row per image, each file complete or not at all; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = tuple(folder / name for name in FILES)
        grids = {
            model: {
                "ids": one.ids,
                "offsets": one.offsets.tolist(),
                "slopes": one.slopes.tolist(),
                "shape": one.losses.shape,
            }
            for model, one in self.by_model.items()
        }
        content = self.to_json(**more) | {"settings": self.settings, "grids": grids}
        write_atomically(paths[0], lambda path: self.rows.to_parquet(path, index=False))
        write_atomically(paths[1], json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        write_csv(paths[2], self.flatness_rows)
        return paths


def read_landscapes(folder: Path) -> Landscapes:
    """What `Landscapes.write` wrote: figures are drawn from it, without a model."""
    import pandas as pd

    try:
        content = json.loads((folder / FILES[1]).read_text(encoding="utf-8"))
        rows = pd.read_parquet(folder / FILES[0])
        by_model = {}
        for model, grid in content["grids"].items():
            losses = rows.loc[rows["model"] == model, "loss"].to_numpy(np.float64).reshape(grid["shape"])
            offsets, slopes = np.array(grid["offsets"]), np.array(grid["slopes"])
            by_model[model] = Landscape(content["space"], tuple(grid["ids"]), offsets, losses, slopes)
        return Landscapes(by_model, content["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError("folder", f"one with {' and '.join(FILES[:2])}", str(folder), str(error)) from None


def _grid_rows(model: str, landscape: Landscape) -> pd.DataFrame:
    import pandas as pd

    images, rows, columns = (index.ravel() for index in np.indices(landscape.losses.shape))
    return pd.DataFrame(
        {
            "model": model,
            "image_id": np.array(landscape.ids)[images],
            "row": rows,
            "column": columns,
            "loss": landscape.losses.ravel(),
        }
    )


def _plain(value: Summary | Paired) -> dict[str, Any]:
    numbers: Mapping[str, float] = asdict(value)
    return {name: None if math.isnan(number) else number for name, number in numbers.items()}
