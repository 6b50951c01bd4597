"""Products with what follows them by cuBLASLt: what is one, how it is called, who is offered it."""

from __future__ import annotations

import ctypes
import gc
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.backends.cuda import blaslt
from autofuse.backends.cuda.actions import Gemm, Matmul
from autofuse.backends.cuda.blas import WORKSPACE_BYTES
from autofuse.backends.cuda.blaslt import (
    CublasLt,
    CublasLtError,
    CublasLtMissing,
    declared,
    lacking,
)
from autofuse.backends.cuda.build import cuda_artifact
from autofuse.backends.cuda.emulated import EmulatedArtifact, EmulatedPlan
from autofuse.backends.cuda.launch import CudaPlan
from autofuse.backends.cuda.ordering import access, places, singles
from autofuse.backends.cuda.program import cuda_program
from autofuse.backends.toolchain import find_compiler
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.array import TracedArray as Array
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.library.gemm import library_of
from autofuse.kernel.text.dialects import CUDA
from autofuse.plan.fusion.epilogues import epilogue_of
from autofuse.plan.fusion.groups import is_source
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.simplify import normal_form
from search_spaces import CudaLaunchSpace
from tests.support.fake_cuda import FakeDriver

A, B, V, R = spec((16, 32)), spec((32, 24)), spec((24,)), spec((16, 24))
A3, B3, R3 = spec((3, 16, 32)), spec((3, 32, 24)), spec((3, 16, 24))


def slope(x: Array) -> Array:
    """The derivative of gelu."""
    t = xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
    inside = 0.7978845608028654 * (1 + 0.134145 * x * x)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inside


def with_aux(a: Array, b: Array, v: Array) -> tuple[Array, Array]:
    made = a @ b + v
    return made, xp.gelu(made)


# What it is: a program, its arguments, and what cuBLASLt is told (cublasLtEpilogue_t).
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "product": (lambda a, b: a @ b, (A, B), 1),
    "bias": (lambda a, b, v: a @ b + v, (A, B, V), 4),
    "residual": (lambda a, b, r: r + a @ b, (A, B, R), 1),
    "relu": (lambda a, b: xp.relu(a @ b), (A, B), 2),
    "relu of a bias": (lambda a, b, v: xp.relu(a @ b + v), (A, B, V), 6),
    "gelu of both": (lambda a, b, v, r: xp.gelu(r + (a @ b + v)), (A, B, V, R), 36),
    "gelu and its operand": (with_aux, (A, B, V), 164),
    "gradient of gelu": (lambda a, b, r: (a @ b) * slope(r), (A, B, R), 192),
    "transposed": (lambda a, b, v: xp.relu(a.T @ b.T + v), (spec((32, 16)), spec((24, 32)), V), 6),
    "batch": (lambda a, b, r: xp.relu(a @ b + r), (A3, B3, R3), 2),
    "batch of one matrix": (lambda a, b, v: xp.gelu(a @ b + v), (A3, B, V), 36),
}
OTHERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "exact gelu": (lambda a, b: xp.gelu(a @ b, approximate=False), (A, B)),
    "silu": (lambda a, b: xp.silu(a @ b), (A, B)),
    "residual afterwards": (lambda a, b, r: xp.gelu(a @ b) + r, (A, B, R)),
    "a bias for each row": (lambda a, b, v: a @ b + v[:, None], (A, B, spec((16,)))),
    "two residuals": (lambda a, b, r, s: a @ b + r + s, (A, B, R, R)),
    "f64": (lambda a, b: xp.relu(a @ b), (spec((4, 8), "f64"), spec((8, 8), "f64"))),
    "operand of seven columns": (with_aux, (A, spec((32, 7)), spec((7,)))),
    "a row reduced": (lambda a, b: xp.sum(a @ b, axis=1), (A, B)),
}


def graph_of(name: str) -> Graph:
    fn, arguments = (CASES[name] if name in CASES else OTHERS[name])[:2]
    return normal_form(trace(fn, *arguments))


def whole(graph: Graph) -> FusionGroup:
    nodes = tuple(n for n in range(len(graph.nodes)) if not is_source(graph, n))
    return FusionGroup(nodes, tuple(sorted(set(graph.outputs))))


def launch(**settings: Any) -> LaunchConfig:
    return LaunchConfig.of(impl="blaslt", **settings)


def matmul_of(name: str, **settings: Any) -> tuple[Graph, Matmul]:
    graph = graph_of(name)
    candidate = Candidate(FusionPlan((whole(graph),)), (launch(**settings),))
    made = cuda_program(graph, candidate)
    (action,) = made.actions
    assert isinstance(action, Matmul) and not made.sources
    return graph, action


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("stub") / "libcublasLt.so"
    source = Path(__file__).with_name("support") / "stub_cublaslt.c"
    command = [*find_compiler().command, "-O1", "-shared", "-fPIC", "-o", str(path), str(source)]
    subprocess.run([*command, "-lm"], check=True)
    found: ctypes.CDLL = declared(ctypes.CDLL(str(path)))
    return found


class _Record(ctypes.Structure):
    _fields_ = (
        ("epilogue", ctypes.c_uint32), ("algorithm", ctypes.c_uint64), ("compute", ctypes.c_int32),
        ("alignment", ctypes.c_uint32), ("stream", ctypes.c_void_p),
    )  # fmt: skip


def last_call(stub: ctypes.CDLL) -> _Record:
    count = ctypes.c_int.in_dll(stub, "stub_count").value
    return (_Record * 64).in_dll(stub, "stub_calls")[count - 1]


def called(stub: ctypes.CDLL, graph: Graph, product: Matmul) -> tuple[np.ndarray, ...]:
    """What the library makes of random inputs, held against the reference."""
    ctypes.c_int.in_dll(stub, "stub_count").value = 0
    inputs = random_inputs(graph, 3)
    outputs = [np.full(t.shape, np.nan, t.dtype.numpy) for t in graph.output_types]
    spaces = {"in": inputs, "out": outputs}
    addresses = [spaces[ref.space][ref.index].ctypes.data + ref.offset for ref in product.refs]
    workspace = np.zeros(WORKSPACE_BYTES, np.uint8)
    plan = CublasLt(stub).prepare(product)
    plan.multiply(addresses, 7, workspace.ctypes.data)
    for found, wanted in zip(outputs, evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    return tuple(outputs)


@pytest.mark.parametrize("name", CASES)
def test_the_library_is_told_all_of_it(name: str, stub: ctypes.CDLL) -> None:
    graph, product = matmul_of(name)
    called(stub, graph, product)
    record = last_call(stub)
    assert record.epilogue == CASES[name][2] and record.stream == 7
    assert (record.compute, record.algorithm, record.alignment) == (68, 1, 16)


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_device_does_the_same(name: str) -> None:
    graph = graph_of(name)
    candidate = Candidate(FusionPlan((whole(graph),)), (launch(),))
    inputs = random_inputs(graph, 4)
    found = EmulatedPlan(EmulatedArtifact(cuda_program(graph, candidate))).run(inputs)
    for one, wanted in zip(found, evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_library_does_not_do_is_left_to_kernels(name: str) -> None:
    graph = graph_of(name)
    assert epilogue_of(graph, whole(graph)) is None
    assert library_of(graph, whole(graph), launch(), CUDA) == ""


def test_a_setting_says_which_algorithm(stub: ctypes.CDLL) -> None:
    for algorithm in range(3):
        called(stub, *matmul_of("relu of a bias", algorithm=algorithm))
        assert last_call(stub).algorithm == algorithm + 1
    with pytest.raises(CublasLtError, match="has 3 algorithms, not 4"):
        CublasLt(stub).prepare(matmul_of("relu", algorithm=3)[1])


def test_factors_may_be_rounded_where_that_is_allowed(stub: ctypes.CDLL) -> None:
    called(stub, *matmul_of("gelu of both", math="relaxed"))
    assert last_call(stub).compute == 77


def test_what_it_makes_is_destroyed(stub: ctypes.CDLL) -> None:
    gc.collect()
    alive = ctypes.c_int.in_dll(stub, "stub_alive")
    before = alive.value
    plan = CublasLt(stub).prepare(matmul_of("bias")[1])
    assert alive.value > before
    del plan
    gc.collect()
    assert alive.value == before


def test_a_refusal_is_told(stub: ctypes.CDLL) -> None:
    plan = CublasLt(stub).prepare(matmul_of("bias")[1])
    with pytest.raises(CublasLtError, match=r"cublasLtMatmul \(status 7\)"):
        plan.multiply((64, 64, 64, 64), 0, 0)


def test_products_share_a_workspace_and_what_they_write_is_known() -> None:
    _, product = matmul_of("gelu and its operand")
    found = access(product)
    assert {r.memory for r in found.writes} >= {("out", 0), ("out", 1), ("blas", 0)}
    assert {r.memory for r in found.reads} == {("in", 0), ("in", 1), ("in", 2)}
    assert [p.after for p in places(tuple(singles((product, product))))] == [(), (0,)]


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_program_gives_it_a_workspace(mode: str) -> None:
    graph = graph_of("gelu and its operand")
    made = cuda_program(graph, Candidate(FusionPlan((whole(graph),)), (launch(),)))
    driver = FakeDriver()
    plan = CudaPlan(cuda_artifact(made, {}, {}), driver, mode)
    plan.run(random_inputs(graph, 1))
    entries = [entry for entry in driver.log if entry[0] == "matmul"]
    # In a graph it is called once before, so that the library loads its kernels.
    assert len(entries) == (2 if mode == "graph" else 1)
    _, product, *addresses = entries[-1]
    assert isinstance(product, Matmul) and len(addresses) == 6 and all(addresses)


def options_of(graph: Graph, space: CudaLaunchSpace) -> dict[str, tuple[Any, ...]]:
    asked: dict[str, tuple[Any, ...]] = {}

    def ask(name: str, options: tuple[Any, ...]) -> Any:
        asked[name.split(".")[2]] = options
        return "blaslt" if "blaslt" in options else options[0]

    space.choose(graph, whole(graph), ask, "k")
    return asked


def test_it_competes_where_it_is() -> None:
    lone, more = graph_of("product"), graph_of("relu of a bias")
    assert options_of(lone, CudaLaunchSpace(blaslt=True))["impl"] == ("blas", "blaslt", "loops")
    assert options_of(lone, CudaLaunchSpace())["impl"] == ("blas", "loops")
    there = options_of(more, CudaLaunchSpace(blaslt=True))
    assert there["impl"] == ("loops", "blaslt") and there["algorithm"] == tuple(range(8))
    assert set(there) == {"impl", "algorithm"}
    assert "impl" not in options_of(more, CudaLaunchSpace())
    assert "impl" not in options_of(graph_of("silu"), CudaLaunchSpace(blaslt=True))


def test_default_kernels_are_what_they_were() -> None:
    for name in ("product", "relu of a bias"):
        graph = graph_of(name)
        with_it = CudaLaunchSpace(blaslt=True).default(graph, whole(graph))
        assert with_it == CudaLaunchSpace().default(graph, whole(graph))
    graph = graph_of("product")
    made = cuda_program(graph, Candidate(FusionPlan((whole(graph),)), (LaunchConfig(),)))
    assert isinstance(made.actions[0], Gemm)


def test_where_it_is_missing_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise CublasLtMissing(blaslt.MISSING)

    monkeypatch.setattr(blaslt, "cublaslt_library", missing)
    graph = graph_of("relu")
    candidate = Candidate(FusionPlan((whole(graph),)), (launch(),))
    assert lacking(candidate) == "no cuBLASLt found: it comes with the extra cuda13 (or cuda12)"
    plain = Candidate(FusionPlan((whole(graph),)), (LaunchConfig(),))
    assert lacking(plain) == "" and not blaslt.has_cublaslt()


def test_its_version_is_a_part_of_its_code(stub: ctypes.CDLL, monkeypatch: Any) -> None:
    monkeypatch.setattr(blaslt, "cublaslt_library", lambda: stub)
    assert blaslt.cublaslt_name() == "cuBLASLt 13.2.0" and blaslt.has_cublaslt()
