"""What a hostile file is: how it is made, and the command that reads it. `cli/test_hostile_files.py` runs them all."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CANARY = "canary"  # a file that appears if code inside a file was run


@dataclass(frozen=True)
class Hostile:
    """A file and the command that gets it; in `words`, {file} is the file and {folder} its folder."""

    words: str
    make: Callable[[Path], object]  # writes the file at the path it is given
    name: str = "hostile"  # of the file
    says: str = ""  # a part of what the command says
    code: int = 2  # exit code; 0: the file is harmless

    def written(self, folder: Path) -> list[str]:
        """The words of the command, after the file was made in the folder."""
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.make(path)
        return [word.format(file=path, folder=folder) for word in self.words.split()]


def holding(content: bytes | str) -> Callable[[Path], object]:
    """Makes a file with this content."""
    data = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(data)


def pipe(path: Path) -> None:
    """Make a named pipe: opening it to read blocks forever."""
    os.mkfifo(path)


def link_to(target: str) -> Callable[[Path], object]:
    """Makes a symbolic link."""
    return lambda path: path.symlink_to(target)


def folder(path: Path) -> None:
    """Make a folder."""
    path.mkdir()
