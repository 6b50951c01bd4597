"""A directory that nobody but its owner can write, or put something else in the place of.

The path is walked from the root, each step opened under the descriptor of the one before it and
never through a link: a link is read, and walked to, only where who made it could as well have put
a directory there. So nobody can exchange what was checked for something else.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40


class UnsafePathError(Exception):
    """Why a path is refused, in a few words."""


def open_private(path: Path) -> int:
    """A descriptor of the directory `path`, owned by this user and 0700 from now on; what is
    missing of it is created so. Raises UnsafePathError and OSError."""
    at = os.open("/", _OPEN)
    names, links, seen = list(path.parts[1:]), 0, Path("/")
    try:
        while names:
            _check_ancestor(at, seen)
            name = names.pop(0)
            if name in ("", "."):
                continue
            target = _link_at(at, name, seen)
            if target is not None:
                if (links := links + 1) > _MOST_LINKS:
                    raise UnsafePathError("its links go around in circles")
                names = [*(part for part in Path(target).parts if part != "/"), *names]
                if target.startswith("/"):
                    at, seen = _stepped(at, os.open("/", _OPEN)), Path("/")
                continue
            at, seen = _stepped(at, _opened(at, name)), seen / name
        _make_own(at)
    except BaseException:  # whatever it is, no descriptor stays open
        os.close(at)
        raise
    return at


def _stepped(old: int, new: int) -> int:
    os.close(old)
    return new


def _opened(at: int, name: str) -> int:
    try:
        return os.open(name, _OPEN, dir_fd=at)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another process was first
            os.mkdir(name, 0o700, dir_fd=at)
        return os.open(name, _OPEN, dir_fd=at)


def _link_at(at: int, name: str, where: Path) -> str | None:
    """Where a link leads; None for what is none or is not there."""
    try:
        facts = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(facts.st_mode):
        return None
    if facts.st_uid not in _trusted():
        raise UnsafePathError(f"the link {where / name} belongs to another user")
    return os.readlink(name, dir_fd=at)


def _check_ancestor(at: int, path: Path) -> None:
    facts = os.fstat(at)
    if path != Path("/") and facts.st_uid not in _trusted():
        raise UnsafePathError(f"{path} belongs to another user")
    if facts.st_mode & _OTHERS_WRITE and not facts.st_mode & stat.S_ISVTX:
        raise UnsafePathError(f"others may write {path}")


def _make_own(at: int) -> None:
    facts = os.fstat(at)
    if facts.st_uid != os.getuid():
        raise UnsafePathError("it belongs to another user")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        os.fchmod(at, 0o700)


def _trusted() -> frozenset[int]:
    """Root and this user; in a user namespace that not all users are in, also the number that all
    others have there, since root outside is one of them."""
    own = {0, os.getuid()}
    try:
        whole = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
        if whole[:2] != ["0", "0"] or int(whole[2]) < 1 << 31:
            overflow = Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii")
            own.add(int(overflow))
    except (OSError, ValueError, IndexError):
        pass
    return frozenset(own)
