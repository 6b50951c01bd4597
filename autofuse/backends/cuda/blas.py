"""Matrix products by cuBLAS, called without CuPy, which refuses it while a graph is captured.

Where a call is given its stream and its workspace, cuBLAS allocates nothing, and the call may be
captured (cuBLAS guide, "CUDA Graphs Support"). Enumerators are those of cublas_api.h and
library_types.h; the functions take 64-bit sizes and are there from CUDA 12 on.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from functools import lru_cache
from itertools import product as iterate
from typing import Any

import numpy as np

from autofuse.backends.cuda.actions import Gemm
from autofuse.backends.cuda.vendor import cuda_major, vendor_library
from autofuse.ops.dtypes import DType
from autofuse.ops.types import AutofuseError

# What NVIDIA advises for sm_90 (cublasSetWorkspace); older devices need less.
WORKSPACE_BYTES = 32 << 20
_TYPES = {DType.F32: 0, DType.F64: 1, DType.F16: 2, DType.BF16: 14}  # CUDA_R_32F and so on
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_TF32 = 68, 70, 77
_DEFAULT_ALGORITHM = -1
# CUBLAS_DEFAULT_MATH, under which parts of a 16-bit product may be added up in 16 bits, and
# CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, under which all sums are of the compute type.
_NARROW_SUMS, _WIDE_SUMS = 0, 16
# alpha and beta, which cuBLAS reads on the host, in the type of the sums.
_ONE_ZERO_32, _ONE_ZERO_64 = np.array([1, 0], np.float32), np.array([1, 0], np.float64)

Addresses = tuple[int, int, int]
_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_HEAD = (_POINTER, _INT, _INT, _LONG, _LONG, _LONG, _POINTER)
_MATRIX = (_POINTER, _INT, _LONG)
_SIGNATURES = {
    "cublasCreate_v2": (_POINTER,),
    "cublasSetStream_v2": (_POINTER, _POINTER),
    "cublasSetWorkspace_v2": (_POINTER, _POINTER, ctypes.c_size_t),
    "cublasSetMathMode": (_POINTER, _INT),
    "cublasGemmEx_64": (*_HEAD, *_MATRIX, *_MATRIX, _POINTER, *_MATRIX, _INT, _INT),
    "cublasGemmStridedBatchedEx_64": (
        *_HEAD, *_MATRIX, _LONG, *_MATRIX, _LONG, _POINTER, *_MATRIX, _LONG, _LONG, _INT, _INT,
    ),
}  # fmt: skip


class CublasMissing(AutofuseError):  # noqa: N818 - the name is what the user is told
    """There is no cuBLAS that could be loaded."""


class CublasError(RuntimeError):
    """A call that cuBLAS refused."""


@lru_cache(maxsize=1)
def cublas_library() -> Any:
    """cuBLAS with its functions declared; it needs no driver. Raises CublasMissing."""
    file = f"libcublas.so.{cuda_major()}"
    return vendor_library("cuBLAS", "cublas", file, _SIGNATURES, CublasMissing)


class Cublas:
    """A handle of cuBLAS on the current device. It lives as long as the process."""

    def __init__(self, library: Any = None) -> None:
        """Raises CublasMissing, CublasError. Allocates: not while a graph is captured."""
        self._library, self._handle = library or cublas_library(), ctypes.c_void_p()
        # The stream, workspace and mode of a call are set on the handle before it.
        self._lock = threading.Lock()
        self._check("cublasCreate_v2", ctypes.byref(self._handle))

    def multiply(self, product: Gemm, addresses: Addresses, stream: int, workspace: int) -> None:
        """The product of the arrays A and B at the first two addresses, into C at the third, on a
        stream.

        `workspace` is the address of WORKSPACE_BYTES that nothing else uses meanwhile. Elements of
        16 bits are summed in f32, all of them unless the product is relaxed. Raises CublasError."""
        with self._lock:
            # Setting the stream takes the workspace away.
            self._check("cublasSetStream_v2", self._handle, stream)
            self._check("cublasSetWorkspace_v2", self._handle, workspace, WORKSPACE_BYTES)
            sums = _NARROW_SUMS if product.relaxed else _WIDE_SUMS
            self._check("cublasSetMathMode", self._handle, sums)
            for name, arguments in _calls(product, addresses):
                self._check(name, self._handle, *arguments)

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CublasError(f"cuBLAS failed in {name} (status {code})")


def _calls(product: Gemm, addresses: Addresses) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The functions and their arguments after the handle: one walks a batch axis by strides, and
    there is a call for each place along the others."""
    form, width = product.form, product.dtype.itemsize
    others = [axis for axis in form.batch if axis is not form.walked]
    for at in iterate(*(range(axis.extent) for axis in others)):
        moved = (
            form.a.offset + sum(i * axis.a for i, axis in zip(at, others, strict=True)),
            form.b.offset + sum(i * axis.b for i, axis in zip(at, others, strict=True)),
            sum(i * axis.c for i, axis in zip(at, others, strict=True)),
        )
        a, b, c = (start + width * by for start, by in zip(addresses, moved, strict=True))
        yield _call(product, (a, b, c))


def _call(product: Gemm, addresses: Addresses) -> tuple[str, tuple[int, ...]]:
    """Row-major C = A B is the column-major product of the transposes."""
    form, kind, walked = product.form, _TYPES[product.dtype], product.form.walked
    a, b, c = addresses
    wide = product.dtype is DType.F64
    scale = _ONE_ZERO_64 if wide else _ONE_ZERO_32
    one, zero = scale.ctypes.data, scale.ctypes.data + scale.itemsize
    fast = product.relaxed and product.dtype is DType.F32
    compute = _COMPUTE_64F if wide else _COMPUTE_TF32 if fast else _COMPUTE_32F
    left, right, out = (b, kind, form.b.leading), (a, kind, form.a.leading), (c, kind, form.n)
    turned = int(form.b.transposed), int(form.a.transposed)
    head = (*turned, form.n, form.m, form.k, one)
    tail = (compute, _DEFAULT_ALGORITHM)
    if walked.extent == 1:
        return "cublasGemmEx_64", (*head, *left, *right, zero, *out, *tail)
    batched = (*left, walked.b, *right, walked.a, zero, *out, walked.c, walked.extent)
    return "cublasGemmStridedBatchedEx_64", (*head, *batched, *tail)


@lru_cache(maxsize=8)
def device_cublas(device: int) -> Cublas:
    """The process's handle for the device of this number, which must be the current one."""
    return Cublas()
