"""Finds what comes with locality: manifests and suites, inside the wheel or in the checkout.

>>> shipped("manifests/photos.csv").name
'photos.csv'
"""

from __future__ import annotations

from pathlib import Path

# A room inside the wheel, and where its files lie in a checkout; pyproject.toml copies the one to the other.
ROOMS = {"manifests": "data_manifests", "suites": "bench/suites"}
PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The file of that name, such as `suites/demo.toml`; FileNotFoundError lists what there is."""
    room, _, file = name.partition("/")
    if room not in ROOMS:
        raise FileNotFoundError(f"`{name}` must start with {' or '.join(f'{room}/' for room in ROOMS)}")
    folders = [PACKAGE / "shipped_files" / room, PACKAGE.parent / ROOMS[room]]
    for folder in folders:
        if file and (folder / file).is_file():
            return folder / file
    there = sorted({path.name for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file()})
    raise FileNotFoundError(f"locality ships no `{name}`: there is {', '.join(there) or 'nothing'} in {room}/")
