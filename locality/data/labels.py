"""The labels of images as indices of a model's logits."""

from __future__ import annotations

import warnings

import pandas as pd

from locality.data.class_names import match_classes, names_text
from locality.data.source import Source
from locality.types import ModelSpec

NAME_CLASSES = "name its classes (--classes FILE, or `classes` of load_model)"
STACK = 4  # the warnings are about the caller of `load_dataset`


class UnknownClassesWarning(UserWarning):
    """Some images are of classes that the model does not know, or its classes are not known at all."""


def accepted_labels(
    source: Source, images: pd.DataFrame, spec: ModelSpec | None
) -> tuple[list[tuple[int, ...]], dict[str, str]]:
    """The accepted labels of each image, its own first, and the model's class of each name that is written differently.

    A label is −1 for a class that the model does not have. Where the model's classes are unknown, the labels are the data's.
    """
    classes = spec.classes if spec is not None else ()
    if not classes:
        own = {wnid: label for label, wnid in enumerate(source.classes) if wnid}
        labels = [
            (label, *(own[wnid] for wnid in wnids.split()[1:] if wnid in own))
            for label, wnids in zip(images["label"].tolist(), images["wnid"].tolist(), strict=True)
        ]
        if spec is not None:
            usable, problem = _labels_as_logits(source, labels, spec)
            if problem:
                warnings.warn(problem, UnknownClassesWarning, stacklevel=STACK)
            return (labels if usable else [(-1,)] * len(labels)), {}
        return labels, {}
    accepted_names = [wnids.split() for wnids in images["wnid"].tolist()]
    match = match_classes((name for names in accepted_names for name in names), classes)
    accepted = [tuple(match.index.get(name, -1) for name in names) for names in accepted_names]
    unknown = [names[0] for names, labels in zip(accepted_names, accepted, strict=True) if max(labels) < 0]
    if unknown:
        listed = names_text([_with_fits(name, match.ambiguous.get(name, ())) for name in dict.fromkeys(unknown)])
        warnings.warn(
            f"{len(unknown):,} of {len(accepted):,} images of {source.name} are of classes that {spec.name if spec else ''} "
            f"does not know ({listed}): their accuracy is undefined, their attributions are not",
            UnknownClassesWarning,
            stacklevel=STACK,
        )
    # A model that has only the second of several accepted classes is correct with that one.
    return [tuple(sorted(dict.fromkeys(labels), key=lambda label: label < 0)) for labels in accepted], match.by_name


def _labels_as_logits(source: Source, labels: list[tuple[int, ...]], spec: ModelSpec) -> tuple[bool, str]:
    """Whether labels can be the logits of a model whose classes are unknown, and a sentence about it."""
    count = spec.num_classes
    largest = max((label for several in labels for label in several), default=-1)
    if count is not None and largest >= count:
        return False, (
            f"{spec.name} has {count:,} classes, but {source.name} has labels up to {largest:,}: they are not labels "
            f"of this model, so its accuracy is undefined; {NAME_CLASSES}"
        )
    if not source.assumed_order:
        return True, ""
    if count is not None and count != len(source.classes):
        return False, (
            f"{spec.name} has {count:,} classes, but {source.name} has {len(source.classes):,}, and nobody says which is "
            f"which: its accuracy is undefined; {NAME_CLASSES}"
        )
    order = names_text([f"{label} {name}" for label, name in enumerate(source.classes)], 5)
    return True, f"the classes of {spec.name} are taken to be in the order of {source.name} ({order}): {NAME_CLASSES}"


def _with_fits(name: str, fitting: tuple[str, ...]) -> str:
    """A name, with the classes that it fits if there are several."""
    return f"{name}, which is {' or '.join(fitting[:3])}" if fitting else name
