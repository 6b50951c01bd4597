"""pocketfft without linking to it: the loops of NumPy's transforms, as its ufuncs hold them.

They are C functions of type PyUFuncGenericFunction (ufuncobject.h, NumPy 2): no Python runs in
them, and what they are given is memory and strides.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError, Blame

# In the order of the table that programs get; of real numbers n is even or odd.
UFUNCS = ("fft", "ifft", "rfft_n_even", "rfft_n_odd", "irfft")
# NumPy's letters of real dtypes, and those of the complex ones beside them.
_LETTERS = {"f": "F", "d": "D"}


class PocketfftMissing(AutofuseError):  # noqa: N818 - the name is what the user is told
    """NumPy has no transforms that could be called."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.blame = Blame.MACHINE


class _Ufunc(ctypes.Structure):
    """The public head of PyUFuncObject, behind that of every Python object."""

    _fields_ = (
        ("nin", ctypes.c_int), ("nout", ctypes.c_int), ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int), ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)), ("ntypes", ctypes.c_int),
    )  # fmt: skip


def _head(ufunc: Any) -> _Ufunc:
    found = _Ufunc.from_address(id(ufunc) + object.__basicsize__)
    known = (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes)
    if (found.nin, found.nout, found.nargs, found.ntypes) != known:
        raise PocketfftMissing("this NumPy keeps its ufuncs in another way")
    return found


def slot(kind: str, n: int, dtype: np.dtype[Any]) -> int:
    """Where the table has the loop of a transform; what it works with is the entry behind."""
    name = f"rfft_n_{'odd' if n % 2 else 'even'}" if kind == "rfft" else kind
    return 2 * (2 * UFUNCS.index(name) + (dtype == np.float64))


@lru_cache(maxsize=1)
def pocketfft_table() -> Any:
    """Addresses of all loops, each with that of its data; they live as long as the process.

    Raises PocketfftMissing."""
    try:
        ufuncs = import_module("numpy.fft._pocketfft_umath")
    except ImportError as error:
        raise PocketfftMissing("Fourier transforms by a library need NumPy 2") from error
    found = []
    for name, real in product(UFUNCS, _LETTERS):
        ufunc = getattr(ufuncs, name)
        head, own = _head(ufunc), _LETTERS[real]
        given, made = own if name[:4] != "rfft" else real, real if name == "irfft" else own
        at = ufunc.types.index(f"{given}{real}->{made}")
        found += [head.functions[at], head.data[at] if head.data else None]
    return (ctypes.c_void_p * len(found))(*found)


def pocketfft_name() -> str:
    """What transforms on a CPU; raises PocketfftMissing."""
    pocketfft_table()
    return f"pocketfft of NumPy {np.__version__}"


def has_pocketfft() -> bool:
    """Whether it can be called here."""
    try:
        pocketfft_table()
    except PocketfftMissing:
        return False
    return True


def pocketfft_address() -> int:
    """Of the table; 0 where there is none."""
    return ctypes.addressof(pocketfft_table()) if has_pocketfft() else 0
