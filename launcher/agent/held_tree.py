"""A tree of synced code that a job uses: it must not be pruned meanwhile (launcher/hosts/sync_remote.py)."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


def hold_tree(workdir: str) -> int | None:
    """Share the lock of the tree that holds `workdir` until this process ends; None where it is no synced code."""
    for folder in (Path(workdir), *Path(workdir).parents):
        if (folder.parent / "objects").is_dir() and Path(f"{folder}.json").is_file():
            with suppress(OSError):  # some shared file systems have no locks
                lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(lock, fcntl.LOCK_SH)
                return lock
    return None
