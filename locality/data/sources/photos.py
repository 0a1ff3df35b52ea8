"""`photos`: photographs that come with scikit-image and matplotlib and show an ImageNet class, with boxes drawn by us.

The files are those inside the installed packages; only the manifest is ours.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import IO

from locality.data.manifest_csv import read_manifest
from locality.data.roots import Folder
from locality.data.source import FileReader, Source
from locality.errors import DataError
from locality.files import packaged_file

PACKAGES = ("skimage", "matplotlib")


def photos(split: str = "eval") -> Source:
    """The source of all photographs; there is only the split `eval`."""
    if split != "eval":
        raise DataError(f"`split` of photos must be eval, got {split!r}: there are too few photographs to train on")
    manifest, faults = read_manifest(packaged_file("manifests/photos.csv"))
    return Source("photos", manifest, manifest.classes(), FileReader(manifest, Packages()), tuple(faults))


class Packages(Folder):
    """The installed packages as one folder: `skimage/data/coffee.png` lies wherever skimage does."""

    def __init__(self) -> None:
        super().__init__(_home("skimage").parent)

    def open(self, name: str) -> IO[bytes]:
        package, _, inside = name.partition("/")
        if package not in PACKAGES:
            raise DataError(f"photographs come from {' and '.join(PACKAGES)}, not from {package!r}")
        return Folder(_home(package)).open(inside)


def _home(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise DataError(f"`photos` needs {package}: pip install {package}")
    return Path(found.origin).parent
