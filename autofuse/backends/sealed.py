"""Libraries of the build cache in this process: what was checked is what runs.

A file is read once, its SHA-256 compared with the one that was noted when it was made, and these
very bytes are handed to the loader in memory that is sealed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import threading
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from pathlib import Path

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NUMBERS = count()
_kept: dict[str, ctypes.CDLL] = {}
_lock = threading.Lock()


class ChangedFileError(OSError):
    """A file is not the one that was made."""


def file_content(path: Path, digest: str) -> bytes:
    """The bytes of a file of that SHA-256, in hexadecimal; no link is followed. Raises
    ChangedFileError and OSError."""
    with os.fdopen(os.open(path, _READ), "rb") as file:
        content = file.read()
    if sha256(content).hexdigest() != digest:
        raise ChangedFileError(f"{path.name} is not what was compiled")
    return content


def sealed(content: bytes) -> int:
    """A descriptor of a file in memory that nobody can change. Raises OSError."""
    file = os.memfd_create("autofuse", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(file, "wb", closefd=False) as out:
            out.write(content)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:  # whatever it is, no descriptor stays open
        os.close(file)
        raise
    return file


def load_checked(
    path: Path, digest: str, kind: Callable[[str], ctypes.CDLL] = ctypes.CDLL
) -> ctypes.CDLL:
    """The library of a file of that digest; one without a digest was checked by whoever names it.
    `kind` is how it is called: as PyDLL it keeps the interpreter's lock. Raises OSError."""
    if not digest:
        return kind(str(path))
    file = sealed(file_content(path, digest))
    try:
        return kind(_own_name(file))
    finally:
        os.close(file)  # the mapping stays


def load_kept(path: Path, digest: str) -> ctypes.CDLL:
    """As `load_checked`, for one that is never closed: loaded again it is the same library, at the
    same addresses. Raises OSError."""
    with _lock:
        if digest not in _kept:
            _kept[digest] = load_checked(path, digest)
        return _kept[digest]


def _own_name(file: int) -> str:
    """A path of a descriptor that no library was loaded by before: the loader takes an equal path
    for the same library, and numbers of descriptors are used again."""
    bits = f"{next(_NUMBERS):b}"
    return f"/proc/self/fd/{''.join('./' if bit == '1' else '/' for bit in bits)}{file}"
