"""`photos`: photographs of ImageNet classes inside scikit-image and matplotlib, with boxes drawn by us.

The files are those of the installed packages; locality ships the manifest only.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import IO

from locality.data.manifest_csv import read_manifest
from locality.data.roots import Folder, is_inside
from locality.data.source import FileReader, Source
from locality.errors import ArgumentError, DataError
from locality.files import packaged_file

PACKAGES = ("skimage", "matplotlib")


def photos(split: str = "eval") -> Source:
    """The source of all photographs; its only split is `eval`."""
    if split != "eval":
        raise ArgumentError("split", "eval for photos", split, "there are too few photographs to train on")
    manifest, faults = read_manifest(packaged_file("manifests/photos.csv"))
    return Source("photos", manifest, manifest.classes(), FileReader(manifest, Packages()), tuple(faults))


class Packages(Folder):
    """The installed packages as one folder: `skimage/data/coffee.png` is a file of the package skimage."""

    def __init__(self) -> None:
        super().__init__(_package_folder("skimage").parent)

    def open(self, name: str) -> IO[bytes]:
        package, _, inside = name.partition("/")
        if package not in PACKAGES or not is_inside(inside):
            raise DataError(f"photographs come from {' and '.join(PACKAGES)}, not from {name!r}")
        return (_package_folder(package) / inside).open("rb")  # some installers link a package's files to their cache


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise DataError(f"`photos` needs {package}: pip install {package}")
    return Path(spec.origin).parent
