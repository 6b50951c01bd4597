"""LAPACK without linking to it: the function pointers that SciPy exports to Cython, as those of
BLAS are (`blas.py`). All arguments are addresses, integers have 32 bits."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from autofuse.backends.cpu.blas import exported
from autofuse.errors import AutofuseError, Blame

# In the order of the table that programs get, each for f32 and f64.
ROUTINES = ("potrf", "getrf", "geqrf", "orgqr", "syevd", "gesdd", "trsm")
_OF_BLAS = frozenset(("trsm",))


class LapackMissing(AutofuseError):  # noqa: N818 - the name is what the user is told
    """SciPy has no LAPACK that could be called."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.blame = Blame.MACHINE


def slot(routine: str, wide: bool) -> int:
    """Where the table has a routine; `wide`: of f64."""
    return 2 * ROUTINES.index(routine) + wide


@lru_cache(maxsize=1)
def lapack_table() -> Any:
    """Addresses of all routines, which live as long as the process. Raises LapackMissing."""
    try:
        found = [
            exported("blas" if routine in _OF_BLAS else "lapack", f"{letter}{routine}")
            for routine in ROUTINES
            for letter in "sd"
        ]
    except (ImportError, KeyError, AutofuseError) as error:
        raise LapackMissing(f"factorisations of matrices need SciPy's LAPACK: {error}") from error
    return (ctypes.c_void_p * len(found))(*found)


def lapack_name() -> str:
    """What factorises on a CPU; raises LapackMissing."""
    from importlib.metadata import version

    lapack_table()
    return f"the LAPACK of SciPy {version('scipy')}"


def lapack_address() -> int:
    """Of the table; 0 where there is none."""
    try:
        return ctypes.addressof(lapack_table())
    except LapackMissing:
        return 0
