"""Products with what follows them by cuBLASLt, by ctypes on the library that is there.

What a call needs is made when a program is loaded; a call only sets addresses, and is given its
workspace, so it may be captured. Which algorithm is used is a launch setting: a place in the list
that the library's heuristic gives for the shapes, the best guess first. Enumerators and structures
are those of cublasLt.h and library_types.h, from CUDA 12 on.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from autofuse.backends.cuda.actions import Matmul
from autofuse.backends.cuda.blas import WORKSPACE_BYTES
from autofuse.ops.contraction import Matrix
from autofuse.ops.dtypes import DType
from autofuse.ops.types import AutofuseError
from autofuse.plan.fusion.epilogues import GELU, GELU_GRADIENT, RELU
from autofuse.plan.parameters import BLASLT, IMPL
from autofuse.plan.types import Candidate

MAJORS = ("13", "12")
MISSING = "no cuBLASLt found: it comes with the extra cuda13 (or cuda12)"
_TYPES = {DType.F32: 0, DType.F16: 2, DType.BF16: 14}  # CUDA_R_32F and so on
_COMPUTE_32F, _COMPUTE_TF32, _SCALE_32F = 68, 77, 0
# cublasLtEpilogue_t, as bits.
_DEFAULT, _BIAS, _AUX = 1, 4, 128
_ACTIVATIONS = {"": 0, RELU: 2, GELU: 32, GELU_GRADIENT: 64 | _AUX}
# cublasLtMatmulDescAttributes_t
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER, _AUX_POINTER = 3, 4, 7, 8, 11
_AUX_LD, _AUX_STRIDE, _BIAS_TYPE = 12, 13, 26
# cublasLtMatrixLayoutAttribute_t and cublasLtMatmulPreferenceAttributes_t
_BATCHES, _BATCH_STRIDE = 5, 6
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)
_POINTER, _INT, _LONG, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_size_t
_MAKES = ctypes.POINTER(_POINTER)
_ATTRIBUTE = (_POINTER, _INT, _POINTER, _SIZE)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_MAKES,),
    "cublasLtMatmulDescCreate": (_MAKES, _INT, _INT),
    "cublasLtMatmulDescSetAttribute": _ATTRIBUTE,
    "cublasLtMatmulDescDestroy": (_POINTER,),
    "cublasLtMatrixLayoutCreate": (_MAKES, _INT, ctypes.c_uint64, ctypes.c_uint64, _LONG),
    "cublasLtMatrixLayoutSetAttribute": _ATTRIBUTE,
    "cublasLtMatrixLayoutDestroy": (_POINTER,),
    "cublasLtMatmulPreferenceCreate": (_MAKES,),
    "cublasLtMatmulPreferenceSetAttribute": _ATTRIBUTE,
    "cublasLtMatmulPreferenceDestroy": (_POINTER,),
    "cublasLtMatmulAlgoGetHeuristic": (*(_POINTER,) * 7, _INT, _POINTER, ctypes.POINTER(_INT)),
    "cublasLtMatmul": (*(_POINTER,) * 14, _SIZE, _POINTER),
}


class CublasLtMissing(AutofuseError):  # noqa: N818 - the name is what the user is told
    """There is no cuBLASLt that could be loaded."""


class CublasLtError(RuntimeError):
    """A call that cuBLASLt refused, or an algorithm that it does not have."""


class _Found(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("workspace", _SIZE), ("state", _INT),
        ("waves", ctypes.c_float), ("reserved", _INT * 4),
    )  # fmt: skip


def declared(library: Any) -> Any:
    """A library with its functions declared; raises AttributeError where one is missing."""
    for name, arguments in _SIGNATURES.items():
        getattr(library, name).argtypes = arguments
    library.cublasLtGetVersion.restype = _SIZE
    return library


@lru_cache(maxsize=1)
def cublaslt_library() -> Any:
    """cuBLASLt, which needs no driver to be loaded. Raises CublasLtMissing."""
    with suppress(ImportError, RuntimeError):
        # CuPy's module is bound to cuBLAS, wherever it was installed, and that to cuBLASLt.
        from cupy.cuda import cublas as _  # noqa: F401 - imported for what it loads
    for major in MAJORS:
        try:
            return declared(ctypes.CDLL(f"libcublasLt.so.{major}"))
        except (OSError, AttributeError):
            continue
    raise CublasLtMissing(MISSING)


def cublaslt_name() -> str:
    """The library and its version; raises CublasLtMissing."""
    number = int(cublaslt_library().cublasLtGetVersion())
    major, rest = divmod(number, 10_000)
    return f"cuBLASLt {major}.{rest // 100}.{rest % 100}"


def has_cublaslt() -> bool:
    """Whether it is here."""
    try:
        cublaslt_library()
    except CublasLtMissing:
        return False
    return True


def lacking(candidate: Candidate) -> str:
    """That a candidate calls cuBLASLt, which is missing here, in a sentence; "" where all is
    there."""
    launches = candidate.all_launches
    if all(launch.get(IMPL.name, "") != BLASLT for launch in launches) or has_cublaslt():
        return ""
    return MISSING


class CublasLt:
    """A handle on the current device; it lives as long as the process."""

    def __init__(self, library: Any = None) -> None:
        """Raises CublasLtMissing, CublasLtError."""
        self.library = library or cublaslt_library()
        self.lock = threading.Lock()
        self.handle = self.made("cublasLtCreate")

    def check(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            raise CublasLtError(f"cuBLASLt failed in {name} (status {code})")

    def made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """What a function creates."""
        found = ctypes.c_void_p()
        self.check(name, ctypes.byref(found), *arguments)
        return found

    def prepare(self, product: Matmul) -> LtPlan:
        """What calls of a product need; not while a graph is captured. Raises CublasLtError."""
        return LtPlan(self, product)


class LtPlan:
    """One product with its layouts and its algorithm."""

    def __init__(self, lt: CublasLt, product: Matmul) -> None:
        self.lt, self.product = lt, product
        # alpha, and beta: whether an array is added.
        self._scales = np.array([1, product.residual is not None], np.float32)
        self._own: list[tuple[str, int | None]] = []
        compute = _COMPUTE_TF32 if _is_fast(product) else _COMPUTE_32F
        self.call = self._kept("MatmulDesc", compute, _SCALE_32F)
        for attribute, value in _described(product):
            self._set("MatmulDesc", self.call, attribute, value)
        self.layouts = [self._layout(*each) for each in _layouts(product)]
        self.algorithm = self._chosen()
        weakref.finalize(self, _destroy, lt.library, self._own).atexit = False

    def multiply(self, addresses: Sequence[int], stream: int, workspace: int) -> None:
        """The arrays A, B, the result, and then bias, residual and aux as far as the product has
        them, at these addresses. `workspace`: WORKSPACE_BYTES that nothing else uses meanwhile.
        Raises CublasLtError."""
        a, b, c, *more = addresses
        given = iter(more)
        place = {name: next(given) for name, ref in self.product.beside if ref is not None}
        pointers = (_BIAS_POINTER, place.get("bias")), (_AUX_POINTER, place.get("aux"))
        left, right, out = self.layouts
        one, beta = self._scales.ctypes.data, self._scales.ctypes.data + 4
        with self.lt.lock:
            for attribute, address in pointers:
                if address is not None:
                    self._set("MatmulDesc", self.call, attribute, ctypes.c_void_p(address))
            self.lt.check(
                "cublasLtMatmul", self.lt.handle, self.call, one, b, left, a, right, beta,
                place.get("residual", c), out, c, out, ctypes.byref(self.algorithm.algorithm),
                workspace, WORKSPACE_BYTES, stream,
            )  # fmt: skip

    def _kept(self, kind: str, *arguments: Any) -> ctypes.c_void_p:
        found = self.lt.made(f"cublasLt{kind}Create", *arguments)
        self._own.append((f"cublasLt{kind}Destroy", found.value))
        return found

    def _set(self, kind: str, target: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.sizeof(value)
        self.lt.check(
            f"cublasLt{kind}SetAttribute", target, attribute, ctypes.byref(value), size
        )  # fmt: skip

    def _layout(
        self, rows: int, columns: int, leading: int, batches: int, stride: int
    ) -> ctypes.c_void_p:
        type_ = _TYPES[self.product.dtype]
        found = self._kept("MatrixLayout", type_, rows, columns, leading)
        if batches > 1:
            self._set("MatrixLayout", found, _BATCHES, ctypes.c_int32(batches))
            self._set("MatrixLayout", found, _BATCH_STRIDE, _LONG(stride))
        return found

    def _chosen(self) -> _Found:
        """The algorithm at the place that is asked for, in the heuristic's order."""
        preference = self._kept("MatmulPreference")
        room = ctypes.c_uint64(WORKSPACE_BYTES)
        self._set("MatmulPreference", preference, _WORKSPACE, room)
        for attribute in _ALIGNMENTS:
            boundary = ctypes.c_uint32(self.product.boundary)
            self._set("MatmulPreference", preference, attribute, boundary)
        asked, count = self.product.algorithm + 1, _INT()
        found = (_Found * asked)()
        left, right, out = self.layouts
        self.lt.check(
            "cublasLtMatmulAlgoGetHeuristic", self.lt.handle, self.call, left, right, out, out,
            preference, asked, found, ctypes.byref(count),
        )  # fmt: skip
        if count.value < asked or found[asked - 1].state:
            raise CublasLtError(f"cuBLASLt has {count.value} algorithms, not {asked}")
        return found[asked - 1]


def _destroy(library: Any, own: Sequence[tuple[str, int | None]]) -> None:
    for name, address in reversed(own):
        getattr(library, name)(address)


def _is_fast(product: Matmul) -> bool:
    return product.relaxed and product.dtype is DType.F32


def _described(product: Matmul) -> Iterator[tuple[int, Any]]:
    """The attributes of a call: row-major C = A B is the column-major product of the transposes, so
    that a bias for each column is one for each row."""
    form, epilogue = product.form, _ACTIVATIONS[product.activation]
    epilogue |= (product.bias is not None) * _BIAS | (product.aux is not None) * _AUX
    yield _TRANSA, ctypes.c_int32(form.b.transposed)
    yield _TRANSB, ctypes.c_int32(form.a.transposed)
    yield _EPILOGUE, ctypes.c_uint32(epilogue or _DEFAULT)
    if product.bias is not None:
        yield _BIAS_TYPE, ctypes.c_int32(_TYPES[product.dtype])
    if product.aux is not None:
        yield _AUX_LD, _LONG(form.n)
        yield _AUX_STRIDE, _LONG(form.walked.c)


def _layouts(product: Matmul) -> Iterator[tuple[int, int, int, int, int]]:
    """Rows, columns and leading dimension of the matrices as they lie, column by column, and of a
    batch how many there are and how far apart: of B, A and the result."""
    form, walked = product.form, product.form.walked
    yield (*_stored(form.b, form.k, form.n), walked.extent, walked.b)
    yield (*_stored(form.a, form.m, form.k), walked.extent, walked.a)
    yield form.n, form.m, form.n, walked.extent, walked.c


def _stored(matrix: Matrix, rows: int, columns: int) -> tuple[int, int, int]:
    """A row-major matrix read column by column."""
    return (*((rows, columns) if matrix.transposed else (columns, rows)), matrix.leading)


@lru_cache(maxsize=8)
def device_cublaslt(device: int) -> CublasLt:
    """The process's handle for the device of this number, which must be the current one."""
    return CublasLt()
