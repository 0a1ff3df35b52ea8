"""`folder`: images in one folder per class, without boxes, as torchvision's ImageFolder reads them.

Labels follow the alphabet of the folders. Folders `train` and `val` (or `test`) above the classes are the splits.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from locality.data.annotated import IMAGE_NAMES, NOT_STATED, SPLIT_FOLDERS, image_ids, location
from locality.data.class_names import one_word
from locality.data.decode import image_size
from locality.data.manifest import Entry, Manifest
from locality.data.roots import Root, open_root
from locality.data.source import FileReader, Source
from locality.errors import DataError, Fault, unknown_choice

NO_BOXES = np.empty((0, 4))


def folder(path: str | Path, split: str = "eval") -> Source:
    """The source of the images in the class folders of `path` (folder or zip)."""
    if split not in SPLIT_FOLDERS:
        raise unknown_choice("split", split, SPLIT_FOLDERS)
    root = open_root(path)
    by_class = class_folders(root, split)
    if len(by_class) < 2:
        raise DataError(
            f"`{root.path}` has no class folders with images, such as cat/1.jpg and dog/2.jpg: pass their folder"
        )
    faults, entries = root.faults(), []
    ids = image_ids([name for names in by_class.values() for name in names])
    for label, (class_name, names) in enumerate(sorted(by_class.items())):
        for name in names:
            try:
                with root.open(name) as file:
                    width, height = image_size(file)
            except (DataError, OSError) as error:
                faults.append(Fault(location(root, name), None, ids[name], "bad image", f"file {name!r}: {error}"))
                continue
            entries.append(
                Entry(ids[name], name, label, one_word(class_name), width, height, NO_BOXES, location(root, name))
            )
    name = f"folder:{root.path.absolute().name}"
    manifest = Manifest.of(entries, source=name, licence=NOT_STATED)
    classes = tuple(one_word(name) for name in sorted(by_class))
    return Source(name, manifest, classes, FileReader(manifest, root), tuple(faults), has_regions=False, assumed_order=True)


def class_folders(root: Root, split: str = "eval") -> dict[str, list[str]]:
    """The images of the split by class folder; nothing if some image is in no folder."""
    parts = {name: name.split("/") for name in root.names() if name.lower().endswith(IMAGE_NAMES) and "__MACOSX" not in name}
    depth = 0
    while len({each[depth] for each in parts.values()}) == 1 and all(len(each) > depth + 2 for each in parts.values()):
        depth += 1  # one folder around everything
    tops = {each[depth].lower() for each in parts.values()}
    splits = {folder for words in SPLIT_FOLDERS.values() for folder in words}
    # Where images lie directly in them, `train` and `test` are classes: a train is also a vehicle.
    if tops <= splits and all(len(each) > depth + 2 for each in parts.values()):
        chosen = next((folder for folder in SPLIT_FOLDERS[split] if folder in tops), "")
        parts = {name: each for name, each in parts.items() if each[depth].lower() == chosen}
        depth += 1
    if any(len(each) < depth + 2 for each in parts.values()):
        return {}
    by_class: dict[str, list[str]] = defaultdict(list)
    for name, each in parts.items():
        by_class[each[depth]].append(name)
    return dict(by_class)
