"""What a time depends on: the fingerprint of device "cpu"."""

from __future__ import annotations

from autofuse.backends.base import CompilerMissing
from autofuse.backends.ccompiler import find_compiler
from autofuse.backends.machine import host_facts
from autofuse.records import Environment


def cpu_environment() -> Environment:
    """The fingerprint of device "cpu": what must match, and what makes a time stale."""
    try:
        compiler = find_compiler().identity
    except CompilerMissing:
        compiler = "none"
    must, stale = host_facts()
    stale["compiler"] = compiler
    return Environment("cpu", tuple(sorted(must.items())), tuple(sorted(stale.items())))
