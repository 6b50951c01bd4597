"""What a time depends on: the fingerprint of device "cpu"."""

from __future__ import annotations

from autofuse.backends.base import CompilerMissing
from autofuse.backends.machine import host_facts
from autofuse.backends.toolchain import Compiler, find_compiler
from autofuse.records import Environment


def cpu_environment() -> Environment:
    """The fingerprint of device "cpu": what must match, and what makes a time stale.

    Arguments that come with the compiler (`CC="gcc -ffast-math"`) change what programs compute:
    they must match. Another compiler makes other code of the same meaning: times are stale."""
    try:
        compiler = find_compiler()
    except CompilerMissing:
        compiler = Compiler((), "none", (), "none")
    must, stale = host_facts()
    if compiler.flags:
        must["flags"] = " ".join(compiler.flags)
    stale["compiler"] = compiler.identity
    return Environment("cpu", tuple(sorted(must.items())), tuple(sorted(stale.items())))
