"""What a time depends on: the fingerprint of device "cpu"."""

from __future__ import annotations

import platform
import struct

from autofuse.backends.base import CompilerMissing
from autofuse.backends.ccompiler import find_compiler
from autofuse.backends.machine import cpu_model, isa_digest, usable_cores
from autofuse.records import Environment


def cpu_environment() -> Environment:
    """The fingerprint of device "cpu": what must match, and what makes a time stale."""
    try:
        compiler = find_compiler().identity
    except CompilerMissing:
        compiler = "none"
    must = {
        "cores": str(usable_cores()),
        "isa": isa_digest(),
        "model": cpu_model(),
        "word": str(8 * struct.calcsize("P")),
    }
    stale = {
        "compiler": compiler,
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
    }
    return Environment("cpu", tuple(sorted(must.items())), tuple(sorted(stale.items())))
