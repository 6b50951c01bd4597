"""Fourier transforms as ops: by their definition and by libraries, on both devices."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse.backends.cpu import pocketfft
from autofuse.backends.cpu.backend import kernel_code, lacking
from autofuse.backends.cuda.build import cuda_artifact
from autofuse.backends.cuda.cufft import CufftError, CufftPlan
from autofuse.backends.cuda.driver import CupyDriver
from autofuse.backends.cuda.emulated import EmulatedArtifact, EmulatedPlan
from autofuse.backends.cuda.launch import CudaPlan
from autofuse.backends.cuda.ordering import places, singles
from autofuse.backends.cuda.program import Fft, cuda_program
from autofuse.backends.library import load
from autofuse.baselines import BASELINES
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.array import TracedArray as Array
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.kernel.library.gemm import library_of
from autofuse.kernel.text.dialects import CUDA, C
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import Transform
from autofuse.ops.types import GraphError
from autofuse.plan.fusion.legalise import legalise
from autofuse.plan.fusion.legality import check_group
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig, Refusal
from search_spaces import CpuLaunchSpace, CudaLaunchSpace
from search_spaces.launch import first_option
from tests.support.batching import Case, build
from tests.support.fake_cuda import FakeDriver
from tests.support.fake_cufft import FakeCufft

KINDS = ("fft", "ifft", "rfft", "irfft")
# Numbers along each axis, and which of them is transformed.
CASES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((40,), 0), ((3, 37), 1), ((36, 5), 0), ((2, 34, 3), 1), ((4, 9, 2), 1), ((1, 1), 1),
    ((3, 9, 5), 1), ((6, 7, 3), 1),
)  # fmt: skip
LIBRARY = LaunchConfig.of(impl="fft", threads=2)


def transform(kind: str, numbers: tuple[int, ...], axis: int, dtype: DType = DType.F32) -> Graph:
    """One op of an input."""
    w, shape, n = GraphWriter(), list(numbers), numbers[axis]
    attrs = {"n": n} if kind == "irfft" else {}
    if kind == "irfft":
        shape[axis] = n // 2 + 1
    x = w.input("x", (*shape, *(() if kind == "rfft" else (2,))), dtype)
    return w.build([w.op(kind, x, axis=axis, **attrs)])


def whole(graph: Graph) -> FusionGroup:
    (output,) = graph.outputs
    return FusionGroup((output.node,), (output,))


def alone(graph: Graph, launch: LaunchConfig) -> Candidate:
    return Candidate(FusionPlan((whole(graph),)), (launch,))


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    eps = 2e-6 if np.float32 in (found.dtype, wanted.dtype) else 1e-13
    np.testing.assert_allclose(found, wanted, atol=eps * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("kind", KINDS)
def test_pocketfft_and_the_definition_are_the_reference(kind: str, dtype: DType) -> None:
    graphs = [transform(kind, numbers, axis, dtype) for numbers, axis in CASES]
    launches = (LIBRARY, LaunchConfig.of(threads=1))
    cases = [Case(graph, alone(graph, launch), "") for graph in graphs for launch in launches]
    for case, made in zip(cases, build(cases), strict=True):
        inputs = random_inputs(case.graph, 3)
        (wanted,) = evaluate(case.graph, inputs)
        with load(made) as plan:
            (found,) = plan.run(inputs)
        assert found.dtype == dtype.numpy
        close(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_the_emulator_and_cufft_are_the_reference(kind: str) -> None:
    cufft = FakeCufft()
    for numbers, axis in CASES:
        for dtype in (DType.F32, DType.F64):
            graph = transform(kind, numbers, axis, dtype)
            inputs = random_inputs(graph, 4)
            (wanted,) = evaluate(graph, inputs)
            made = cuda_program(graph, alone(graph, LIBRARY))
            (action,) = made.actions
            assert isinstance(action, Fft) and not made.sources
            (found,) = EmulatedPlan(EmulatedArtifact(made)).run(inputs)
            close(found, wanted)
            out = np.full_like(found, np.nan)
            plan = CufftPlan(action.transform, dtype, _zeros, cufft)
            _driver().fft(plan, inputs[0].ctypes.data, out.ctypes.data)
            close(out, wanted)
            assert np.isfinite(inputs[0]).all(), "cuFFT may write over complex numbers"
    assert set(cufft.streams) == {7}


class _Memory:
    """A device array on NumPy memory."""

    def __init__(self, count: int) -> None:
        self.array = np.zeros(count, np.uint8)
        self.data = self
        self.ptr = self.array.ctypes.data


_zeros = _Memory


class _Cuda:
    """What `fft` asks CuPy for."""

    ptr, memcpyDeviceToDevice = 7, 3  # noqa: N815 - CuPy's name

    def __getattr__(self, name: str) -> Any:
        return self

    def get_current_stream(self) -> Any:
        return self

    def memcpyAsync(self, target: int, source: int, nbytes: int, *_: int) -> None:  # noqa: N802 - as above
        ctypes.memmove(target, source, nbytes)


def _driver() -> CupyDriver:
    return CupyDriver(_Cuda())


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_program_calls_cufft(mode: str) -> None:
    w = GraphWriter()
    x = w.input("x", (4, 40), DType.F32)
    z = w.op("rfft", x, axis=1)
    graph = w.build([w.op("irfft", z, axis=1, n=40), w.op("ifft", z, axis=0)])
    nodes = [n for n in range(len(graph.nodes)) if graph[n].op != "input"]
    groups = tuple(FusionGroup((n,), (Value(n),)) for n in nodes)
    made = cuda_program(graph, Candidate(FusionPlan(groups), (LIBRARY,) * 3))
    artifact = cuda_artifact(made, {}, {})
    inputs, driver = random_inputs(graph, 5), FakeDriver()
    plan = CudaPlan(artifact, driver, mode)
    for _ in range(2):
        for found, wanted in zip(plan.run(inputs), evaluate(graph, inputs), strict=True):
            close(found, wanted)
    assert driver.names().count("fft") >= 6


def test_plans_of_cufft_end_with_their_program() -> None:
    cufft = FakeCufft()
    plan = CufftPlan(Transform("fft", 8, 1, 1), DType.F32, _zeros, cufft)
    assert len(cufft.plans) == 1 and plan.copied == 0
    del plan
    gc.collect()
    assert not cufft.plans
    with pytest.raises(CufftError, match="cufftMakePlanMany64"):
        CufftPlan(Transform("fft", 0, 1, 1), DType.F32, _zeros, cufft)


def test_transforms_that_share_a_plan_stay_in_order() -> None:
    graph = transform("fft", (4, 8), 1)
    (action,) = cuda_program(graph, alone(graph, LIBRARY)).actions
    assert isinstance(action, Fft)
    other = replace(action, target=replace(action.target, index=1))
    assert [place.after for place in places(tuple(singles((action, other))))] == [(), (0,)]


def test_a_transform_shares_no_kernel() -> None:
    graph = trace(lambda a: xp.exp(xp.fft.rfft(a)[0]), spec((2, 64)))
    nodes = tuple(n for n in range(len(graph.nodes)) if graph[n].op != "input")
    verdict = check_group(graph, nodes, graph.outputs)
    assert isinstance(verdict, Refusal) and verdict.rule == "library"


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_leaves_it_to_a_library(name: str) -> None:
    def program(a: Array) -> Array:
        re, im = xp.fft.rfft(xp.sin(a))
        return xp.exp(re * re + im * im)

    graph = canonical(trace(program, spec((4, 64))))
    plan = BASELINES[name](graph).plan
    (own,) = (g for g in legalise(graph, plan)[0].groups if has_transform(graph, g))
    assert len(own.nodes) == 1


def has_transform(graph: Graph, group: FusionGroup) -> bool:
    return any(graph[n].op == "rfft" for n in group.nodes)


def test_a_library_comes_first_and_only_where_it_is() -> None:
    graph = transform("fft", (4, 64), 1)
    group = whole(graph)
    found = CpuLaunchSpace().default(graph, group)
    assert library_of(graph, group, found, C) == "fft"
    without = CpuLaunchSpace(fft=False)
    assert library_of(graph, group, without.default(graph, group), C) == ""
    cuda = CudaLaunchSpace().choose(graph, group, first_option, "")
    assert library_of(graph, group, cuda, CUDA) == "fft"


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = transform("fft", (4, 64), 1)
    candidate = alone(graph, LIBRARY)
    assert lacking(candidate) == "" and pocketfft.has_pocketfft()

    def missing() -> Any:
        raise pocketfft.PocketfftMissing("Fourier transforms by a library need NumPy 2")

    monkeypatch.setattr("autofuse.backends.cpu.backend.pocketfft_table", missing)
    assert "need NumPy 2" in lacking(candidate)


def test_its_code_names_the_library() -> None:
    from autofuse.plan.program.schedule import Run, schedule

    graph = transform("fft", (4, 64), 1)
    (run,) = schedule(graph, alone(graph, LIBRARY)).steps
    (own,) = schedule(graph, alone(graph, LaunchConfig.of(threads=1))).steps
    assert isinstance(run, Run) and isinstance(own, Run)
    assert kernel_code(run) != kernel_code(own)
    assert np.__version__ in pocketfft.pocketfft_name()


@pytest.mark.parametrize(
    ("op", "shape", "attrs", "words"),
    [
        ("fft", (4, 3), {"axis": 0}, "no last axis of real and imaginary parts"),
        ("fft", (4, 2), {"axis": 1}, "axis"),
        ("rfft", (0,), {"axis": 0}, "a transform of 0 elements"),
        ("irfft", (4, 2), {"axis": 0, "n": 9}, "has 5 elements"),
    ],
)
def test_bad_calls(op: str, shape: tuple[int, ...], attrs: dict[str, int], words: str) -> None:
    w = GraphWriter()
    with pytest.raises(GraphError, match=words):
        w.op(op, w.input("x", shape, DType.F32), **attrs)


@pytest.mark.parametrize(
    ("n", "parts", "inverse", "half"), [(40, 1, 0, 0), (40, 1, 0, 1), (40, 2, 1, 0), (33, 2, 1, 1)]
)
def test_onnx_transforms_of_any_length(
    tmp_path: Path, n: int, parts: int, inverse: int, half: int
) -> None:
    onnx = pytest.importorskip("onnx")  # an extra of its own
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, n, 3, parts])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [1])
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], inverse=inverse, onesided=half)
    made = helper.make_graph([node], "g", [x], [y], [axis])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    array = np.random.default_rng(1).standard_normal((2, n, 3, parts)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": array})
    (found,) = evaluate(autofuse.load(tmp_path / "m.onnx").graph, (array,))
    close(found, wanted)
