"""A binary of a bundle as an artifact that can be loaded.

The library is handed to the loader as a file in memory that is sealed: what was checked is what
runs, no folder has to be writeable, and nothing is left behind.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np

from autofuse.backends.base import INTERFACE, Artifact, DnnlCalls
from autofuse.runtime.loaded import Signature
from autofuse.serving.container import Container
from autofuse.serving.entries import StoredBinary, StoredType, Variant
from autofuse.serving.keys import BundleError

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
# By SHA-256, and never closed: the loader knows a library by its path, which names the descriptor.
_files: dict[bytes, int] = {}
_lock = threading.Lock()


class StoredLiteral(NamedTuple):
    """A constant of a program, as bytes of `type`."""

    type: StoredType
    data: bytes

    def array(self) -> np.ndarray:
        return np.frombuffer(self.data, self.type.dtype.numpy).reshape(self.type.shape)


def why_not(bundle: Container, variant: Variant) -> str:
    """Why the binary of a variant for this device is not run, in a few words; "" if it is."""
    binary = variant.binary
    if binary is None and not variant.cubins:
        return "the bundle has no binary of it"
    if not bundle.authentic:
        return "binaries are run only from a bundle whose key or digest is given"
    if binary is not None and binary.interface != INTERFACE:
        return f"its binary is called by interface {binary.interface}, not {INTERFACE}"
    return ""


def artifact_of(
    bundle: Container,
    binary: StoredBinary,
    signature: Signature,
) -> Artifact:
    """What is loaded. Raises BundleError for a content that is missing or damaged, and where the
    system gives no memory for it."""
    literals = (StoredLiteral(t, content_of(bundle, digest)) for t, digest in binary.literals)
    calls: DnnlCalls = ()
    if binary.calls:
        from autofuse.serving.dnnl import calls_of  # takes graphs and kernels

        calls = calls_of(binary.calls)
    return Artifact(
        in_memory(bundle, binary.library),
        binary.entry,
        signature.types,
        signature.outputs,
        tuple(literals),
        binary.workspace,
        calls,
        binary.binding,
        binary.blas,
        in_memory(bundle, binary.pool),
    )


def content_of(bundle: Container, digest: bytes) -> bytes:
    """A content by its digest. Raises BundleError where it is missing or damaged."""
    data = bundle.get(digest)
    if data is None:
        raise BundleError(f"the bundle {bundle.path} lacks a content that it names")
    return data


def in_memory(bundle: Container, digest: bytes) -> Path:
    """A content as a file that nobody can change, for the life of the process."""
    with _lock:
        if digest not in _files:
            _files[digest] = _sealed(content_of(bundle, digest))
        return Path(f"/proc/self/fd/{_files[digest]}")


def _sealed(data: bytes) -> int:
    try:
        file = os.memfd_create("autofuse", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise BundleError(f"no memory for a library: {error.strerror}") from error
    try:
        with open(file, "wb", closefd=False) as out:
            out.write(data)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(file)
        raise BundleError(f"no memory for a library: {error.strerror}") from error
    return file
