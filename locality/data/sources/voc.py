"""`voc`: images with Pascal VOC's XML files, in its layout (Annotations, JPEGImages, ImageSets) or side by side.

VOC counts pixels from 1 and both corners are inside the box, so a box becomes (xmin − 1, ymin − 1, xmax, ymax). Tools that
write edges counted from 0 in the same format need `first_pixel=0`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from locality.data.annotated import (
    SPLIT_FOLDERS,
    Annotation,
    annotated_source,
    annotation_files,
    by_stem,
    image_files,
    location,
    no_box_faults,
)
from locality.data.roots import Root, open_root
from locality.data.source import Source
from locality.data.voc_xml import read_voc_xml
from locality.errors import ArgumentError, DataError, Fault

MAX_LIST_BYTES = 2**24


def voc(
    path: str | Path,
    split: str = "eval",
    boxes: str | Path | None = None,
    categories: Sequence[str] | str = (),
    first_pixel: int = 1,
) -> Source:
    """The source of the images below `path` (folder or zip) that have an XML file of the same name, below `boxes` if given.

    `eval` and `train` are the lists val.txt (else test.txt) and train.txt of ImageSets/Main, where they exist.
    """
    if int(first_pixel) not in (0, 1):
        raise ArgumentError("first_pixel", "1, as in VOC, or 0", first_pixel)
    root = open_root(path)
    faults = root.faults()
    images = _listed(root, image_files(root, split), split)
    files, names = annotation_files(root, boxes, ".xml")
    if not names:
        raise DataError(f"`{boxes or root.path}` has no XML file: pass the folder of annotations as `boxes` (--boxes)")
    annotations = list(_annotations(files, names, images, int(first_pixel), faults))
    faults += no_box_faults(images, (one.image for one in annotations), faults, str(files.path))
    return annotated_source("voc", root, annotations, faults, categories=categories)


def _annotations(root: Root, names: list[str], images: list[str], first: int, faults: list[Fault]) -> Iterator[Annotation]:
    """The annotation of each image that has one; XML files that cannot be read are faults."""
    files = by_stem(names)
    for image in images:
        candidates = files.get(PurePosixPath(image).stem, [])
        beside = [name for name in candidates if PurePosixPath(name).parent == PurePosixPath(image).parent]
        name = (beside or candidates or [""])[0]
        if not name:
            continue
        file = location(root, name)
        if len(candidates) > 1 and not beside:
            problem = f"several XML files are named like {image}: pass the folder of one as `boxes`"
            faults.append(Fault(file, None, PurePosixPath(image).stem, "bad name", problem))
            continue
        try:
            content = read_voc_xml(root.read(name), file)
        except (DataError, OSError) as error:
            own = error.faults if isinstance(error, DataError) else ()
            faults += own or [Fault(file, None, PurePosixPath(image).stem, "bad XML", str(error))]
            continue
        yield Annotation(image, file, None, content.names, content.corners - [first, first, 0, 0], content.size)


def _listed(root: Root, images: list[str], split: str) -> list[str]:
    """The images that the lists of the split name; all where there is no list."""
    for folder in SPLIT_FOLDERS[split]:
        lists = [name for name in root.names() if name.endswith(f"ImageSets/Main/{folder}.txt")]
        if lists:
            text = "\n".join(root.read(name)[:MAX_LIST_BYTES].decode("utf-8", "replace") for name in lists)
            stems = {line.split()[0] for line in text.splitlines() if line.strip()}
            return [name for name in images if PurePosixPath(name).stem in stems]
    return images
