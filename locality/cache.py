"""Where downloads go."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Where downloads go: LOCALITY_CACHE, else the platform's cache."""
    place = os.environ.get("LOCALITY_CACHE")
    return Path(place).expanduser() if place else Path(platformdirs.user_cache_dir("locality"))
