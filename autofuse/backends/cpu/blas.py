"""BLAS without linking to it: the function pointers SciPy exports to Cython.

Both follow the Fortran convention (column-major, every argument by address) with 32-bit
integers: `void gemm(char *ta, char *tb, int *m, int *n, int *k, T *alpha, T *a, int *lda, T *b,
int *ldb, T *beta, T *c, int *ldc)`.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from autofuse.errors import AutofuseError

_NAMES = ("sgemm", "dgemm")


@lru_cache(maxsize=1)
def blas_pointers() -> tuple[int, int, int]:
    """Addresses of (sgemm, dgemm, set_threads), valid for the life of the process.

    `int set_threads(int)` sets how many threads BLAS itself uses and returns the number before;
    its address is 0 where the BLAS is not OpenBLAS. Raises AutofuseError."""
    found = [exported("blas", name) for name in _NAMES]
    return found[0], found[1], _thread_setter(_exporter("blas").__file__)


def exported(library: str, name: str) -> int:
    """The address of function `name` of "blas" or "lapack", valid for the life of the process.

    Raises AutofuseError, and ImportError or KeyError where SciPy lacks it."""
    capsule, api = _exporter(library).__pyx_capi__[name], ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    signature = api.PyCapsule_GetName(capsule)
    # An ILP64 build of SciPy would read 64-bit integers from our 32-bit ones.
    if b"int *" not in signature:
        raise AutofuseError(f"this SciPy's {name} does not take 32-bit integers: {signature}")
    return int(api.PyCapsule_GetPointer(capsule, signature))


@lru_cache(maxsize=1)
def blas_name() -> str:
    """What SciPy brings as BLAS: OpenBLAS says its version and for which processor its kernels are;
    of another one SciPy's own version is told."""
    library = ctypes.CDLL(_exporter("blas").__file__)
    for prefix in ("scipy_", ""):
        try:
            config = getattr(library, f"{prefix}openblas_get_config")
        except AttributeError:
            continue
        config.restype = ctypes.c_char_p
        words: list[str] = config().decode().split()
        return " ".join(word for word in words if not word.startswith("MAX_THREADS"))
    return f"the BLAS of SciPy {version('scipy')}"


@lru_cache(maxsize=2)
def _exporter(library: str) -> Any:
    """The module scipy.linalg.cython_blas or cython_lapack, by its file: the package around it
    takes a third of a second to import, and none of it is used."""
    name = f"scipy.linalg.cython_{library}"
    package = find_spec("scipy")
    folders = [] if package is None else package.submodule_search_locations or ()
    files = (Path(f, "linalg", f"cython_{library}{s}") for f in folders for s in EXTENSION_SUFFIXES)
    for path in files:
        if path.exists():
            found = spec_from_file_location(name, path)
            assert found is not None and found.loader is not None
            module = module_from_spec(found)
            found.loader.exec_module(module)
            return module
    return import_module(name)


def _thread_setter(extension: str) -> int:
    """Found through the extension, whose dependencies a look-up includes."""
    try:
        setter = ctypes.CDLL(extension).openblas_set_num_threads_local
    except (OSError, AttributeError):  # another BLAS: it keeps its own threads
        return 0
    return ctypes.cast(setter, ctypes.c_void_p).value or 0
