"""The build cache: files under content keys, in a directory private to the user.

Writes are atomic, readers need no lock. When the total passes the cap, the entries used longest
ago go first, down to 80 % of it. `AUTOFUSE_CACHE` names another directory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import platformdirs

from autofuse.backends.private import UnsafePathError, open_private
from autofuse.errors import AutofuseError

DEFAULT_CAP_BYTES = 1 << 30
VARIABLE = "AUTOFUSE_CACHE"


class CacheError(AutofuseError):
    """The cache directory cannot be used."""


def content_key(parts: Iterable[str]) -> str:
    """32 hex digits naming these strings in this order."""
    digest = sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


def cache_directory() -> Path:
    """Where this user's cache is; created (0700) if absent. Raises CacheError."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else Path(platformdirs.user_cache_dir("autofuse"))
    return private_directory(path.expanduser().absolute())


@contextmanager
def empty_cache() -> Iterator[None]:
    """What this process builds meanwhile is built from nothing, in a directory that then goes."""
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="autofuse-") as folder:
        os.environ[VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def private_directory(path: Path) -> Path:
    """`path` as a directory that only its owner may write, and nobody exchange for another;
    created 0700 if absent. Raises CacheError where an ancestor is another user's or may be written
    by others (but for sticky ones such as /tmp)."""
    try:
        os.close(open_private(path))
    except UnsafePathError as error:
        raise CacheError(f"{path} is not safe as cache directory: {error}") from error
    except OSError as error:
        raise CacheError(f"cannot use {path} as cache directory: {error.strerror}") from error
    return path


class BuildCache:
    """Files named KEY + suffix in one directory, together at most `cap_bytes`.

    Safe to use from several processes and threads: a lost race writes the same bytes twice.
    """

    def __init__(self, root: Path | None = None, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        base = cache_directory() if root is None else private_directory(root)
        self.root = private_directory(base / "build")
        self.cap_bytes = cap_bytes
        self._total: int | None = None

    def path(self, key: str, suffix: str) -> Path:
        """Where KEY + suffix is, or would be."""
        return self.root / f"{key}{suffix}"

    def find(self, key: str, *suffixes: str) -> tuple[Path, ...] | None:
        """The files of `key` if all are there, marked as used now; else None."""
        paths = tuple(self.path(key, suffix) for suffix in suffixes)
        try:
            for path in paths:
                os.utime(path)
        except FileNotFoundError:
            return None
        return paths

    def temporary(self, suffix: str) -> Path:
        """A fresh name in the cache directory, to be filled and handed to `publish`."""
        handle, name = tempfile.mkstemp(prefix="tmp-", suffix=suffix, dir=self.root)
        os.close(handle)
        return Path(name)

    def publish(self, temporary: Path, key: str, suffix: str) -> Path:
        """Move a finished file to its key at once, then evict if the cap is passed."""
        target = self.path(key, suffix)
        size = temporary.stat().st_size
        os.replace(temporary, target)
        if self._total is None:
            self._total = sum(entry[1] for entry in self._entries())
        else:
            self._total += size
        if self._total > self.cap_bytes:
            self._evict(keep=key)
        return target

    def put_text(self, key: str, suffix: str, text: str) -> Path:
        """Store a small text under `key`."""
        return self.put(key, suffix, text.encode())

    def put(self, key: str, suffix: str, data: bytes) -> Path:
        """Store a few bytes under `key`; nothing is left of them where that fails."""
        temporary = self.temporary(suffix)
        try:
            temporary.write_bytes(data)
            return self.publish(temporary, key, suffix)
        finally:
            temporary.unlink(missing_ok=True)

    def size_bytes(self) -> int:
        """Bytes held now."""
        return sum(entry[1] for entry in self._entries())

    def _entries(self) -> list[tuple[float, int, Path]]:
        found = []
        for path in self.root.iterdir():
            try:
                facts = path.stat()
            except FileNotFoundError:  # another process evicted it meanwhile
                continue
            found.append((facts.st_mtime, facts.st_size, path))
        return found

    def _evict(self, keep: str) -> None:
        """Drop what was used longest ago; never the entry just written."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= 0.8 * self.cap_bytes:
                break
            if not path.name.startswith(keep):
                path.unlink(missing_ok=True)
                total -= size
        self._total = total
