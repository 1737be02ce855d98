"""Entries of the build cache for its tests."""

import os
import time

from stagecoach.hw import cache

HOUR = 3600.0


def keep(kind, key, size=1, age_hours=0.0):
    """An entry of so many bytes that was used so long ago."""
    path = cache.kept(kind, key, "it", lambda folder: (folder / "it").write_bytes(bytes(size)))
    then = time.time() - age_hours * HOUR
    os.utime(path.parent, (then, then))
    return path


def keys():
    return [entry.path.name for entry in cache.entries()]
