"""Verify a data set: every file is present, intact, of the right hash and size; every box is inside its image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from locality.data.source import FileReader, Source
from locality.errors import DataError, Fault
from locality.progress import Progress, no_progress

BLOCK = 512


def verified(source: Source, progress: Progress = no_progress) -> Iterator[str | DataError]:
    """The sha256 of each image's file (`""` for a generated image), or an error with its faults."""

    def verify(index: int) -> str | DataError:
        try:
            if isinstance(source.read, FileReader):
                return source.read.verify(index)
            source.read(index)
            return ""
        except DataError as error:
            return error

    total, done = len(source.manifest), 0
    # Decoding releases the interpreter's lock, so threads use all cores. In blocks, since a pool queues all it is given.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, total, BLOCK):
            for result in pool.map(verify, range(start, min(start + BLOCK, total))):
                yield result
                done += 1
                progress(done, total)


def check_source(source: Source, progress: Progress = no_progress) -> list[Fault]:
    """All faults of a source; reads every file."""
    faults = list(source.faults)
    for result in verified(source, progress):
        if isinstance(result, DataError):
            faults += result.faults
    return faults
