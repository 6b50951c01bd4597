"""The thread pool that kernels run on (`pool.c`), built once per machine, loaded once per process.

Kernels are cut into grid iterations that threads claim in chunks, rather than shared out by an
OpenMP parallel region: see the comment in `pool.c` for what that saves.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib.resources import files

from autofuse.backends.base import Program, Source
from autofuse.backends.ccompiler import compile_program

ENTRY = "af_parallel"


@lru_cache(maxsize=1)
def pool_source() -> Source:
    """The pool's translation unit."""
    return Source("pool", files("autofuse.backends").joinpath("pool.c").read_text(), ("-O2",))


@lru_cache(maxsize=1)
def pool_pointer() -> int:
    """Address of `void af_parallel(task, args, total, threads)`, valid for the process's life.

    Raises CompilerMissing or CompileError when the pool is not built yet and cannot be."""
    built = compile_program(Program((pool_source(),), ENTRY, (), ()))
    # Never closed: its threads outlive every library that uses them.
    function = ctypes.CDLL(str(built.artifact.path))[ENTRY]
    return ctypes.cast(function, ctypes.c_void_p).value or 0
