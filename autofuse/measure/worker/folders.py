"""Temporary folders that do not outlive their process for long: what a killed one left is removed.

A folder has a file that its process holds a lock on for as long as it lives; whoever gets that lock
may remove the folder. The file gets its name when it is locked already, and a folder without it is
left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "autofuse-"
_OWNER = "owner"


class OwnFolder:
    """A folder of this process, at `path`; making one removes those of processes that are gone.
    Raises OSError."""

    def __init__(self) -> None:
        sweep(Path(tempfile.gettempdir()))
        # Removed with the object too, where nobody closes it.
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self.path = Path(self._folder.name)
        fresh = self.path / f"{_OWNER}.new"
        self._lock = fresh.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        fresh.rename(self.path / _OWNER)

    def close(self) -> None:
        """Remove it, and all that is in it."""
        self._folder.cleanup()
        self._lock.close()


def sweep(folder: Path) -> int:
    """Remove what processes of this user that are gone left in `folder`; how many there were."""
    removed = 0
    for path in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # in use, removed by another process, or another user's
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            file = os.open(path / _OWNER, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
                removed += 1
            finally:
                os.close(file)
    return removed
