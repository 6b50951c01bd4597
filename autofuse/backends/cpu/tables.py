"""What programs find their libraries by: addresses that an entry gets."""

from __future__ import annotations

from autofuse.backends.cpu.blas import blas_pointers
from autofuse.backends.cpu.lapack import lapack_address
from autofuse.backends.cpu.pocketfft import pocketfft_address


def library_tables() -> tuple[int, int, int, int, int]:
    """BLAS (sgemm, dgemm, set_threads), the table of the transforms and that of LAPACK, the last
    two 0 where they are missing. SciPy takes long to import: only for programs that call one."""
    return (*blas_pointers(), pocketfft_address(), lapack_address())
