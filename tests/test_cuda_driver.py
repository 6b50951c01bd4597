"""`CupyDriver` on a CuPy that refuses what the real one refuses."""

from __future__ import annotations

from threading import get_ident

import numpy as np
import pytest

from autofuse.backends.cuda.blas import Cublas, CublasError, CublasMissing, cublas_library
from autofuse.backends.cuda.driver import CupyDriver
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.nvrtc import nvrtc_version
from autofuse.backends.cuda.program import Gemm
from autofuse.ops.contraction import GemmForm
from autofuse.ops.dtypes import DType
from autofuse.plan.program.schedule import Ref
from tests.support.fake_cublas import FakeCublas
from tests.support.fake_cupy import FakeCupy, Resources, Stream
from tests.support.gemm_forms import contiguous


@pytest.mark.parametrize("dynamic", [41 << 10, 48 << 10, 80_000])
def test_a_kernel_may_use_the_dynamic_shared_memory_it_is_made_for(dynamic: int) -> None:
    cupy = FakeCupy(k=Resources(shared=8 << 10))
    driver = CupyDriver(cupy)
    function = driver.function(cupy.module(), "k", dynamic)
    driver.launch(function, Geometry(3, 64, dynamic), ())
    assert cupy.launched == [("k", 3, dynamic)]


def test_the_driver_says_how_many_blocks_there_is_room_for() -> None:
    cupy = FakeCupy(k=Resources(registers=64))
    driver = CupyDriver(cupy)
    function = driver.function(cupy.module(), "k", 0)
    held = driver.blocks_held(function, Geometry(1, 256))
    assert held == 4 * cupy.target.sms
    driver.launch(function, Geometry(held + 1, 256, cooperative=True), ())
    assert cupy.launched == [("k", held, 0)], "CuPy launches what fits, and blocks would wait"


def test_a_thread_makes_the_context_current() -> None:
    cupy = FakeCupy()
    CupyDriver(cupy).enter()
    assert cupy.contexts == {(get_ident(), 0)}


WORKSPACE = 256
FORMS = [
    contiguous(batch, 3, 4, 5, trans_a, trans_b)
    for batch in (1, 2)
    for trans_a in (False, True)
    for trans_b in (False, True)
]


def product(form: GemmForm, dtype: DType, relaxed: bool = False) -> Gemm:
    return Gemm(form, dtype, Ref("in"), Ref("in", 1), Ref("out"), relaxed)


def operands(form: GemmForm, dtype: DType) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A and B as they are stored, and room for C."""
    rng = np.random.default_rng(0)
    shape_a = (form.k, form.m) if form.a.transposed else (form.m, form.k)
    shape_b = (form.n, form.k) if form.b.transposed else (form.k, form.n)
    a, b = (
        rng.integers(-4, 5, (form.products, *s)).astype(dtype.numpy) for s in (shape_a, shape_b)
    )
    return a, b, np.zeros((form.products, form.m, form.n), dtype.numpy)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16, DType.BF16])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_products_are_captured(form: GemmForm, dtype: DType) -> None:
    library = FakeCublas()
    cupy = FakeCupy()
    driver = CupyDriver(cupy, Cublas(library))
    a, b, c = operands(form, dtype)
    addresses = (a.ctypes.data, b.ctypes.data, c.ctypes.data)
    work = [lambda: driver.gemm(product(form, dtype), addresses, WORKSPACE)]
    assert driver.capture(Stream(cupy, 7), work) == "graph"
    left = a.swapaxes(1, 2) if form.a.transposed else a
    right = b.swapaxes(1, 2) if form.b.transposed else b
    wanted = left.astype(np.float64) @ right.astype(np.float64)
    np.testing.assert_array_equal(c.astype(np.float64), wanted)
    assert library.streams == [7], "one call, however many products"


def test_sums_are_in_f32_at_least_and_tf32_is_asked_for() -> None:
    library, form = FakeCublas(), FORMS[0]
    blas = Cublas(library)
    kinds = (DType.F32, DType.F64, DType.F16, DType.BF16)
    for asked in [product(form, t, relaxed) for relaxed in (False, True) for t in kinds]:
        a, b, c = operands(form, asked.dtype)
        blas.multiply(asked, (a.ctypes.data, b.ctypes.data, c.ctypes.data), 0, WORKSPACE)
    strict, relaxed = library.computes[:4], library.computes[4:]
    assert strict == [68, 70, 68, 68], "CUBLAS_COMPUTE_32F and 64F"
    assert relaxed == [77, 70, 68, 68], "CUBLAS_COMPUTE_32F_FAST_TF32 for f32 alone"


@pytest.mark.parametrize(("dtype", "large"), [(DType.F16, 2048), (DType.BF16, 256)])
def test_parts_of_a_sum_are_rounded_in_relaxed_products_alone(dtype: DType, large: int) -> None:
    """2048 + 1 is no number of f16, so what parts of it add up to is another one."""
    form = contiguous(1, 1, 1, 4)
    a = np.array([[large, 1, -large, 0]], dtype.numpy)
    b, c = np.ones((4, 1), dtype.numpy), np.zeros((1, 1), dtype.numpy)
    found = []
    for relaxed in (False, True, False):
        addresses = (a.ctypes.data, b.ctypes.data, c.ctypes.data)
        Cublas(FakeCublas()).multiply(product(form, dtype, relaxed), addresses, 0, WORKSPACE)
        found.append(float(c[0, 0]))
    assert found == [1.0, 0.0, 1.0]


def test_cublas_without_a_workspace_or_a_driver_says_so() -> None:
    with pytest.raises(CublasError, match=r"cublasCreate_v2 \(status 1\)"):
        Cublas(FakeCublas(working=False))
    a, b, c = operands(FORMS[0], DType.F32)
    with pytest.raises(CublasError, match=r"cublasGemmEx_64 \(status 3\)"):
        Cublas(FakeCublas()).multiply(
            product(FORMS[0], DType.F32), (a.ctypes.data, b.ctypes.data, c.ctypes.data), 0, 0
        )


@pytest.mark.parametrize("kind", [OSError, RuntimeError])
def test_a_cublas_that_is_not_there_is_one_sentence(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str, mode: int = 0) -> None:
        raise kind(f"{name}: cannot open shared object file\nfor reasons")

    nvrtc_version()
    monkeypatch.setattr("ctypes.CDLL", nothing)
    with pytest.raises(CublasMissing, match=r"no cuBLAS of CUDA \d+ found: install") as caught:
        cublas_library.__wrapped__()
    assert "\n" not in str(caught.value)
