"""cuBLAS on NumPy memory, with its rules: a call that has no workspace would allocate one, which
ends a capture, and setting the stream takes the workspace away (cublasSetStream). It adds up 16-bit
products in two parts, rounded to 16 bits unless the mode forbids it (cublasMath_t)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from autofuse.ops.dtypes import DType

_TYPES = {0: DType.F32, 1: DType.F64, 2: DType.F16, 14: DType.BF16}
_NOT_INITIALIZED, _ALLOC_FAILED = 1, 3
_WIDE_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
Matrix = tuple[int, int, int]  # address, type, leading dimension


class FakeCublas:
    """The library. `streams` and `computes` hold what each product was given; `working` is False
    where there is no driver."""

    def __init__(self, working: bool = True) -> None:
        self.working, self.workspace, self.stream, self.mode = working, 0, 0, 0
        self.streams: list[int] = []
        self.computes: list[int] = []

    def cublasCreate_v2(self, handle: Any) -> int:  # noqa: N802 - the library's name
        return 0 if self.working else _NOT_INITIALIZED

    def cublasSetStream_v2(self, handle: Any, stream: int) -> int:  # noqa: N802 - as above
        self.stream, self.workspace = stream, 0
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, address: int, nbytes: int) -> int:  # noqa: N802 - as above
        self.workspace = address if nbytes >= 32 << 20 else 0
        return 0

    def cublasSetMathMode(self, handle: Any, mode: int) -> int:  # noqa: N802 - as above
        self.mode = mode
        return 0

    def cublasGemmEx_64(self, handle: Any, *arguments: int) -> int:  # noqa: N802 - as above
        """As a batch of one."""
        given = iter(arguments)
        head, left, right = _take(given, 6), _take(given, 3), _take(given, 3)
        zero, out, tail = _take(given, 1), _take(given, 3), _take(given, 2)
        return self.cublasGemmStridedBatchedEx_64(
            handle, *head, *left, 0, *right, 0, *zero, *out, 0, 1, *tail
        )

    def cublasGemmStridedBatchedEx_64(self, handle: Any, *arguments: int) -> int:  # noqa: N802 - as above
        if not self.workspace:
            return _ALLOC_FAILED
        given = iter(arguments)
        trans_a, trans_b, m, n, k, _ = _take(given, 6)
        *a, step_a = _take(given, 4)
        *b, step_b = _take(given, 4)
        (_, *c), (step_c, batch, compute, _) = _take(given, 4), _take(given, 4)
        self.streams.append(self.stream)
        self.computes.append(compute)
        for t in range(batch):
            left = _columns(a, step_a * t, (k, m) if trans_a else (m, k))
            right = _columns(b, step_b * t, (n, k) if trans_b else (k, n))
            turned = (left.T if trans_a else left), (right.T if trans_b else right)
            out = _columns(c, step_c * t, (m, n))
            out[...] = self._product(*turned, out.dtype)
        return 0

    def _product(self, left: np.ndarray, right: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
        """In float64, by halves of the terms."""
        middle = left.shape[1] // 2
        terms = slice(middle), slice(middle, None)
        parts = [left[:, t].astype(np.float64) @ right[t].astype(np.float64) for t in terms]
        if kind.itemsize == 2 and not self.mode & _WIDE_SUMS:
            parts = [part.astype(kind).astype(np.float64) for part in parts]
        return np.asarray(parts[0] + parts[1])


def _take(given: Iterator[int], count: int) -> list[int]:
    return [next(given) for _ in range(count)]


def _columns(matrix: list[int], skip: int, shape: tuple[int, int]) -> np.ndarray:
    """A column-major matrix that starts `skip` elements after an address."""
    address, kind, leading = matrix
    dtype = _TYPES[kind]
    assert leading >= shape[0], "cuBLAS refuses a leading dimension below the rows"
    start, size = address + skip * dtype.itemsize, leading * shape[1] * dtype.itemsize
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start)).view(dtype.numpy)
    return as_strided(raw, shape, (dtype.itemsize, leading * dtype.itemsize))


def product_spans(product: Any, addresses: Sequence[int]) -> list[tuple[int, int, bool]]:
    """Where the arrays of a product with what follows it begin and end, and which are written."""
    left, right, out = product.form.sizes
    beside = {"bias": product.form.n, "residual": out, "aux": out}
    names = [name for name, ref in product.beside if ref is not None]
    sizes = [left, right, out, *(beside[name] for name in names)]
    written = [False, False, True, *(name == "aux" and product.writes_aux for name in names)]
    width = product.dtype.itemsize
    found = zip(addresses, sizes, written, strict=True)
    return [(at, at + n * width, writes) for at, n, writes in found]
