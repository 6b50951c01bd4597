"""The thread pool that kernels run on (`pool.c`), built once per machine, loaded once per process.

Kernels are cut into grid iterations that threads claim in chunks, rather than shared out by an
OpenMP parallel region: see the comment in `pool.c` for what that saves.
"""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from pathlib import Path

from autofuse.backends.base import LaunchError, Program, Source
from autofuse.backends.sealed import load_checked
from autofuse.errors import Blame

ENTRY = "af_parallel"
_lock = threading.Lock()
_loaded: list[int] = []


@lru_cache(maxsize=1)
def pool_source() -> Source:
    """The pool's translation unit."""
    from importlib.resources import files  # slow to import, and nothing to who brings a library

    return Source("pool", files("autofuse.backends.cpu").joinpath("pool.c").read_text(), ("-O2",))


def pool_pointer(library: Path | None = None) -> int:
    """Address of `void af_parallel(task, args, total, threads)`, valid for the process's life.

    A process has one pool, the one asked for first: `library`, or one built here. Raises
    LaunchError where `library` cannot be loaded, CompilerMissing or CompileError when there is none
    and the pool is not built yet and cannot be."""
    with _lock:
        if not _loaded:
            path, digest = _built() if library is None else (library, "")
            try:
                # Never closed: its threads outlive every library that uses them.
                function = load_checked(path, digest)[ENTRY]
            except (OSError, AttributeError) as error:
                raise LaunchError(f"cannot load the thread pool: {error}", Blame.MACHINE) from error
            _loaded.append(ctypes.cast(function, ctypes.c_void_p).value or 0)
        return _loaded[0]


def pool_library() -> Path:
    """The pool's library, built if it is not cached. Raises CompilerMissing or CompileError."""
    return _built()[0]


def _built() -> tuple[Path, str]:
    """The library, and its SHA-256."""
    # Imported here: who brings the library along needs no compiler.
    from autofuse.backends.ccompiler import compile_program

    artifact = compile_program(Program((pool_source(),), ENTRY, (), ())).artifact
    return artifact.path, artifact.digest
