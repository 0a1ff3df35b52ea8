"""Write a manifest of any source, with the hash of every file."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from locality.data.check import verified
from locality.data.dataset import ImageDataset
from locality.data.manifest import Manifest
from locality.data.manifest_csv import write_manifest
from locality.data.roots import Folder, ZipRoot
from locality.data.source import FileReader, Source
from locality.errors import ArgumentError, DataError, Fault
from locality.progress import Progress, no_progress


@dataclass(frozen=True)
class Built:
    """What was written; the manifest's paths are relative to `root`, or to its own folder if that is None."""

    images: int
    boxes: int
    faults: list[Fault]
    root: Path | None


def build_manifest(
    data: ImageDataset,
    out: Path,
    skip_bad: bool = False,
    progress: Progress = no_progress,
    origin: str | None = None,
    licence: str | None = None,
) -> Built:
    """Write the manifest of the chosen images to `out`; images that are not files are written beside it as PNG files.

    `origin` and `licence` replace what the source says about where the images come from.
    """
    if out.suffix.lower() != ".csv":
        raise ArgumentError("out", "a file that ends in .csv, since a manifest is a CSV file", str(out))
    if not data.has_regions:
        raise DataError(f"`{data.name}` has no boxes, but a manifest has one row per box: load it by its name")
    if data.source.cue is not None:
        raise ArgumentError("cue", "none for a manifest, which lists files as they are", data.source.cue.cue)
    manifest = data.manifest
    reader = data.source.read
    faults = list(data.faults)
    if isinstance(reader, FileReader) and isinstance(reader.root, Folder | ZipRoot):
        source = Source(data.name, manifest, data.source.classes, FileReader(manifest, reader.root))
        hashes: list[str | None] = []
        for result in verified(source, progress):
            hashes.append(None if isinstance(result, DataError) else result)
            faults += result.faults if isinstance(result, DataError) else ()
        paths, root = _relative_paths(manifest, reader, out)
    else:
        hashes, paths, root = *_written_images(data, out, progress), None
    if faults and not skip_bad:
        raise DataError.of(faults)
    good = np.array([index for index, digest in enumerate(hashes) if digest is not None], dtype=np.int64)
    stated = {column: text for column, text in (("source", origin), ("licence", licence)) if text}
    images = manifest.images.assign(sha256=[digest or "" for digest in hashes], path=paths, **stated)
    written = replace(manifest, images=images).take(good)
    write_manifest(out, written)
    return Built(len(written), len(written.corners), faults, root)


def _relative_paths(manifest: Manifest, reader: FileReader, out: Path) -> tuple[list[str], Path | None]:
    """Paths relative to the manifest's own folder if the images are below it, else relative to the source's root."""
    paths = manifest.images["path"].tolist()
    root, folder = Path(reader.root.path), out.parent.resolve()
    if isinstance(reader.root, Folder) and root.resolve().is_relative_to(folder):
        prefix = root.resolve().relative_to(folder)
        return [(prefix / path).as_posix() for path in paths], None
    return paths, root


def _written_images(data: ImageDataset, out: Path, progress: Progress) -> tuple[list[str | None], list[str]]:
    """Hashes and paths of the images, which are written to the folder `out` without its suffix."""
    folder = out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    hashes: list[str | None] = []
    paths = []
    for done, index in enumerate(data.indices.tolist(), start=1):
        pixels = data.source.read(index).image.permute(1, 2, 0).numpy()
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        name = f"{data.source.manifest.images['id'].iloc[index]}.png"
        (folder / name).write_bytes(buffer.getvalue())
        hashes.append(hashlib.sha256(buffer.getvalue()).hexdigest())
        paths.append(f"{folder.name}/{name}")
        progress(done, len(data))
    return hashes, paths
