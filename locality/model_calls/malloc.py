"""Keep freed memory in the process between gradients, on Linux.

The C library returns the top of its heap to the system when 64 MB or more of it are free. A network's activations exceed
that: each gradient frees them, and for the next one the system maps and zeroes every page again. On EfficientNet this is a
fifth of the time (bench/speed/attribution.py). While a model is open, the C library may keep 1 GB. Afterwards the limit is
the one that glibc chooses itself after freeing large arrays, and the memory returns with the next array freed. An allocator
or limits chosen by the usual environment variables are left alone.
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
    """Keep freed memory for the next gradient inside this block; blocks may be nested or in several threads."""
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
    """The C library if it is glibc, else None."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None
    except (OSError, TypeError):  # not on this system
        return None
