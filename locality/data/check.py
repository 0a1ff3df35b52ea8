"""Verify a data set: every file there, whole, of the right hash and size; every box inside its image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from locality.data.source import FileReader, Source
from locality.errors import DataError, Fault
from locality.progress import Progress

BLOCK = 512


def verified(source: Source, progress: Progress | None = None) -> Iterator[str | DataError]:
    """For each image in turn its file's sha256 (`""` for an image made on the fly), or what is wrong with it."""

    def verify(index: int) -> str | DataError:
        try:
            if isinstance(source.read, FileReader):
                return source.read.verify(index)
            source.read(index)
            return ""
        except DataError as error:
            return error

    total, done = len(source.manifest), 0
    # Decoding releases the interpreter's lock, so threads use all cores. A block at a time: a pool queues all it is given.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, total, BLOCK):
            for result in pool.map(verify, range(start, min(start + BLOCK, total))):
                yield result
                done += 1
                if progress is not None:
                    progress(done, total)


def check_source(source: Source, progress: Progress | None = None) -> list[Fault]:
    """Everything that is wrong with a source; reads every file."""
    faults = list(source.faults)
    for result in verified(source, progress):
        if isinstance(result, DataError):
            faults += result.faults
    return faults
