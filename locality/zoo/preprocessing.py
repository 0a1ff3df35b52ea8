"""How images are prepared for a model: what the caller says about it, and where each part of it comes from.

This module does not import torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from locality.errors import ArgumentError
from locality.toml_settings import read_limited
from locality.types import Interpolation, ModelSpec

PARTS = ("input_size", "resize", "interpolation", "mean", "std")
Origin = Mapping[str, str]  # part ↦ where it comes from
MAX_CLASSES_BYTES = 100_000_000


@dataclass(frozen=True)
class GivenPreprocessing:
    """What the caller says about a model's images and classes; None leaves it to its card or its architecture."""

    input_size: int | tuple[int, int] | None = None  # height and width; one number for a square
    resize: int | None = None  # of the short side; the longer side of `input_size` where only that is given
    interpolation: Interpolation | None = None
    mean: float | Sequence[float] | None = None  # of each channel; one number for all three
    std: float | Sequence[float] | None = None
    classes: Sequence[str] | str | Path | None = None  # in the order of the logits; or a file with one name per line

    def __post_init__(self) -> None:
        _ = self.parts  # raises if one of them is wrong

    @property
    def parts(self) -> dict[str, Any]:
        """The fields of ModelSpec that are given, the classes not among them."""
        given: dict[str, Any] = {}
        if self.input_size is not None:
            given["input_size"] = _size(self.input_size)
            given["resize"] = max(given["input_size"])
        if self.resize is not None:
            given["resize"] = self.resize
        if self.interpolation is not None:
            given["interpolation"] = self.interpolation
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None:
                given[name] = _channels(name, values)
        return given

    def applied(self, spec: ModelSpec) -> ModelSpec:
        """The spec with what is given in place of its own."""
        spec = replace(spec, **self.parts)
        if self.classes is None:
            return spec
        if isinstance(self.classes, str | Path):
            return replace(spec, classes=read_classes(Path(self.classes)))
        return replace(spec, classes=tuple(self.classes))

    def origin(self, otherwise: Origin) -> Origin:
        """Where each part comes from, given that of those that the caller does not give."""
        return dict(otherwise) | dict.fromkeys(self.parts, "as given")


def read_classes(path: Path) -> tuple[str, ...]:
    """The names in a file, in the order of the logits: one per line, or a JSON list."""
    try:
        text = read_limited(path, MAX_CLASSES_BYTES).decode("utf-8-sig").strip()
        names = json.loads(text) if text.startswith("[") else [line.strip() for line in text.splitlines()]
    except OSError as error:
        raise ArgumentError("classes", "a file with one class per line", str(path), error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise ArgumentError(
            "classes", "a text file with one class per line, or a JSON list", str(path), str(error)
        ) from None
    for number, name in enumerate(names, start=1):
        if not isinstance(name, str) or not name:
            raise ArgumentError("classes", "a name on every line", name, f"line {number} of {path}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError("classes", "a list of different names", twice, f"it is twice in {path}")
    if len(names) < 2:
        raise ArgumentError("classes", "a file with one class per line, two or more", str(path), f"it has {len(names)}")
    return tuple(names)


def all_from(source: str) -> Origin:
    """The origin of a preprocessing that comes from one place."""
    return dict.fromkeys(PARTS, source)


def preprocessing_text(spec: ModelSpec, origin: Origin | None = None) -> str:
    """The preprocessing in one line, and where it comes from.

    >>> preprocessing_text(ModelSpec("a", (64, 64), 64, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)), all_from("its card"))
    'resize 64 bilinear, crop 64×64, mean 0.5, std 0.25 (its card)'
    """
    size = "×".join(map(str, spec.input_size))
    if spec.resize is None:
        steps = [f"stretch to {size} {spec.interpolation}"]
    else:
        steps = [f"resize {spec.resize} {spec.interpolation}", f"crop {size}"]
    if (set(spec.mean), set(spec.std)) == ({0.0}, {1.0}):
        steps.append("no normalisation")
    else:
        steps += [f"mean {_numbers_text(spec.mean)}", f"std {_numbers_text(spec.std)}"]
    return ", ".join(steps) + (f" ({origin_text(origin)})" if origin else "")


def model_preprocessing(model: object) -> str:
    """The preprocessing of a model in one line; images are used as they are where it has no `.spec`."""
    spec = getattr(model, "spec", None)
    if not isinstance(spec, ModelSpec):
        return "none, since the model has no `.spec`"
    origin = getattr(model, "origin", None)
    return preprocessing_text(spec, origin if isinstance(origin, Mapping) else None)


def is_guessed(model: object) -> bool:
    """Whether a part of the model's preprocessing is guessed."""
    origin = getattr(model, "origin", None)
    return isinstance(origin, Mapping) and any(str(source).startswith("guessed") for source in origin.values())


def origin_text(origin: Origin) -> str:
    """Where the parts come from, those of one source together.

    >>> origin_text(all_from("its card") | {"mean": "as given", "std": "as given"})
    'input size, resize, interpolation: its card; mean, std: as given'
    """
    sources = list(dict.fromkeys(origin[part] for part in PARTS if part in origin))
    if len(sources) == 1:
        return sources[0]
    named = {source: [part.replace("_", " ") for part in PARTS if origin.get(part) == source] for source in sources}
    return "; ".join(f"{', '.join(parts)}: {source}" for source, parts in named.items())


def _size(value: int | tuple[int, int]) -> tuple[int, int]:
    sides = (value, value) if isinstance(value, int) else tuple(value)
    if len(sides) != 2 or not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in sides):
        raise ArgumentError("input_size", "a number of pixels, or (height, width)", value)
    return sides[0], sides[1]


def _channels(name: str, values: float | Sequence[float]) -> tuple[float, float, float]:
    numbers = (values,) * 3 if isinstance(values, int | float) else tuple(values)
    good = len(numbers) == 3 and all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
    if not good or (name == "std" and min(numbers) <= 0):
        raise ArgumentError(name, f"one {'positive ' if name == 'std' else ''}number, or one for each of 3 channels", values)
    if max(map(abs, numbers)) > 2:
        raise ArgumentError(name, "for pixels in [0, 1]", values, "divide it by 255")
    red, green, blue = map(float, numbers)
    return red, green, blue


def _numbers_text(numbers: Sequence[float]) -> str:
    if len(set(numbers)) == 1:
        return f"{numbers[0]:.6g}"
    return f"({', '.join(f'{number:.6g}' for number in numbers)})"


def check_same_pixels(model: ModelSpec, other: ModelSpec, argument: str) -> None:
    """Raise unless two models see the same pixels of an image and number its classes alike; each normalises by itself."""
    for what in ("input_size", "resize", "interpolation"):
        own, theirs = getattr(model, what), getattr(other, what)
        if own != theirs:
            raise ArgumentError(argument, f"a model of the same `{what}`, {own}", theirs, "both must see the same pixels")
    if model.classes and other.classes and model.classes != other.classes:
        raise ArgumentError(argument, f"a model of the same classes as {model.name}", other.name)
