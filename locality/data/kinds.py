"""The kinds of data sets by name, with one line about each. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from locality.errors import unknown_choice


@dataclass(frozen=True)
class Kind:
    """What a person has to know about a kind of data set."""

    written: str  # as a person types it
    about: str
    variable: str = ""  # of the environment: where the data set lies


KINDS: dict[str, Kind] = {
    "shapes": Kind("shapes[:none|:swapped][:LEVELS]", "ten generated shapes on noise, a planted cue of ±LEVELS/255 (4)"),
    "photos": Kind("photos", "photographs inside scikit-image and matplotlib, ImageNet classes"),
    "tiny-imagenet": Kind("tiny-imagenet[:PATH]", "Tiny-ImageNet, folder or zip", "LOCALITY_TINY_IMAGENET"),
    "imagenet": Kind("imagenet:PATH", "ImageNet with boxes as XML files or Kaggle's CSV", "LOCALITY_IMAGENET"),
    "coco": Kind("coco:PATH", "images with a COCO instances JSON: boxes or masks", "LOCALITY_COCO"),
    "cifar10": Kind("cifar10[:PATH]", "CIFAR-10, without boxes", "LOCALITY_CIFAR10"),
    "pets": Kind("pets[:PATH]", "Oxford-IIIT Pets with masks; cats and dogs, or breeds", "LOCALITY_PETS"),
    "voc": Kind("voc:PATH", "images with Pascal VOC's XML files"),
    "yolo": Kind("yolo:PATH", "images with YOLO's text files, and classes.txt or data.yaml"),
    "csv": Kind("csv:PATH", "images with a table filename,xmin,ymin,xmax,ymax,label"),
    "hf": Kind("hf:PATH", "a saved Hugging Face data set or its parquet files, with boxes or masks"),
    "folder": Kind("folder:PATH", "class folders, without boxes"),
}
LOCATIONS = {name: kind.variable for name, kind in KINDS.items() if kind.variable}
OWN = "a folder, zip or CSV of your own, whose kind is guessed"


def is_name(name: str) -> bool:
    """Whether a name can be that of data: a kind, with or without a path, or a path.

    >>> is_name("shapes:none"), is_name("mine.csv"), is_name("sheep")
    (True, True, False)
    """
    return name.partition(":")[0] in KINDS or name.lower().endswith(".csv") or Path(name).expanduser().exists()


def check_name(name: str, argument: str = "data") -> None:
    """Raise if the name is neither that of a data set nor a path; nothing is opened."""
    if not is_name(name):
        raise unknown_choice(argument, name, KINDS, also="the path of a folder, zip or CSV")


def sources_text() -> str:
    """Every source as a person types it, for `--help`."""
    return f"{', '.join(kind.written for kind in KINDS.values())}, or {OWN}"
