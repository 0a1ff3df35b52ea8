"""Memory that is freed between gradients stays with the process while we work, on Linux.

The C library hands the top of its heap back to the system whenever 64 MB or more of it are free, and a network's activations
are: each gradient frees them and the next one has every page mapped and zeroed again. On EfficientNet that is a fifth
of the time (bench/speed/attribution.py). While we work the C library may keep 1 GB. Afterwards its limit is what large
arrays make it anyway, and the memory goes back with the next one freed. Whoever chose an allocator or limits of their own by
the usual variables keeps those.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's names for these limits: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
KEPT = 2**30
USUAL_TRIM, USUAL_MMAP = 2**26, 2**25  # the largest that glibc sets by itself
CHOSEN_BY = ("LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")

_lock = threading.Lock()
_users = 0


@contextmanager
def memory_kept() -> Iterator[None]:
    """Within this block, nested or in several threads, freed memory is kept for the next gradient."""
    global _users
    library = _glibc()
    if library is None or any(os.environ.get(name) for name in CHOSEN_BY):
        yield
        return
    with _lock:
        _users += 1
        if _users == 1:
            library.mallopt(TRIM_THRESHOLD, KEPT)
            library.mallopt(MMAP_THRESHOLD, USUAL_MMAP)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                library.mallopt(TRIM_THRESHOLD, USUAL_TRIM)


@cache
def _glibc() -> Any:
    """The C library, where it is glibc; else None."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None
    except (OSError, TypeError):  # no such thing on this system
        return None
