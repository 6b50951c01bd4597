"""Calls of oneDNN as data: what may be one, its pieces, who is offered it, and what its code is."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.backends.cpu import backend as cpu
from autofuse.backends.cpu.onednn import OneDnnError
from autofuse.devices import DEVICES
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.array import TracedArray as Array
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.library.gemm import library_of
from autofuse.kernel.library.onednn import DnnlCall, dnnl_group, pieces
from autofuse.kernel.text.dialects import CUDA, C
from autofuse.ops.dtypes import DType
from autofuse.ops.views import View
from autofuse.plan.fusion.products import folded_moves, product_of
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig
from autofuse.tuning.search.launches import LaunchProblem
from search_spaces import CpuLaunchSpace
from tests.support.gemm_forms import multiplied
from tests.support.library_calls import (
    CALLED,
    KERNEL_LAST,
    LAST,
    candidate,
    convolution,
    product,
    whole,
)
from tests.support.moved_products import moved_product

EVERYWHERE = CpuLaunchSpace(512, lambda call, threads: True)


def call_of(graph: Graph) -> DnnlCall:
    found = dnnl_group(graph, whole(graph))
    assert found is not None
    return found.call


def seen(view: View, memory: np.ndarray) -> np.ndarray:
    """The array that a view is of, in place."""
    strides = tuple(by * memory.itemsize for by in view.strides)
    return np.ndarray(view.shape, memory.dtype, memory, view.offset * memory.itemsize, strides)


def compute(call: DnnlCall, src: np.ndarray, weights: np.ndarray, dst: np.ndarray) -> None:
    """What oneDNN is told to do, in float64, each result once."""
    a, b, c = seen(call.src, src), seen(call.weights, weights), seen(call.dst, dst)
    assert np.isnan(c).all(), "computed twice"
    if not call.windows:
        c[...] = a @ b
        return
    padding = [(0, 0), (0, 0), *((w.low, w.high) for w in call.windows)]
    image, spatial = np.pad(a, padding), len(call.windows)
    groups = b if b.ndim == spatial + 3 else b[None]
    sizes = zip(b.shape[-spatial:], call.windows, strict=True)
    reach = [(n - 1) * w.dilation + 1 for n, w in sizes]
    axes = tuple(range(2, 2 + spatial))
    view = np.lib.stride_tricks.sliding_window_view(image, reach, axes)
    steps = tuple(slice(None, None, w.stride) for w in call.windows)
    taps = tuple(slice(None, None, w.dilation) for w in call.windows)
    view = view[(slice(None), slice(None), *steps, *taps)]
    assert view.shape[2 : 2 + spatial] == c.shape[2:], "padding does not fit the result"
    s = "xyz"[:spatial]
    parts = zip(np.split(view, len(groups), 1), groups, strict=True)
    made = [np.einsum(f"nc{s}{s.upper()},oc{s.upper()}->no{s}", v, w) for v, w in parts]
    c[...] = np.concatenate(made, 1)


def check_pieces(graph: Graph, threads: int, inputs: list[np.ndarray]) -> int:
    """The pieces together are the op; how many there are."""
    found = dnnl_group(graph, whole(graph))
    assert found is not None
    (wanted,) = evaluate(graph, inputs)
    place = dict(zip(graph.inputs, inputs, strict=True))
    lhs, rhs = (np.float64(place[v.node]).ravel() for v in (found.lhs, found.rhs))
    out = np.full(wanted.size, np.nan)
    parts = pieces(found.call, threads)
    for part in parts:
        compute(part, lhs, rhs, out)
    np.testing.assert_allclose(out.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5)
    return len(parts)


@given(st.integers(0, 2**31), st.integers(1, 5))
def test_pieces_of_a_product_are_the_product(seed: int, threads: int) -> None:
    graph = moved_product(seed, "f32")
    (dot,) = (n for n, node in enumerate(graph.nodes) if node.op == "dot_general")
    found = product_of(graph, (*folded_moves(graph, dot), dot))
    if found is None or found != product_of(graph, whole(graph).nodes):
        return
    inputs = random_inputs(graph, seed)
    check_pieces(graph, threads, inputs)
    place = dict(zip(graph.inputs, inputs, strict=True))
    form = multiplied(
        found.form, np.float64(place[found.lhs.node]), np.float64(place[found.rhs.node])
    )
    assert form.size == math.prod(call_of(graph).dst.shape)


SMALL = st.integers(1, 3)


@st.composite
def convolutions(draw: st.DrawFn) -> Graph:
    """Of 1 to 3 axes, channels first or last, padded, strided, dilated, grouped."""
    spatial = draw(st.integers(1, 3))
    n, groups, ins, outs = (draw(SMALL) for _ in range(4))
    size, taps = (
        [draw(st.integers(lo, hi)) for _ in range(spatial)] for lo, hi in ((5, 9), (1, 3))
    )
    numbers = {
        key: tuple(draw(st.integers(lo, 2)) for _ in range(spatial))
        for key, lo in (("stride", 1), ("rhs_dilation", 1), ("low", 0), ("high", 0))
    }
    axes: dict[str, object] = {}
    image, kernel = [n, ins * groups, *size], [outs * groups, ins, *taps]
    if draw(st.booleans()):
        image, kernel = [n, *size, ins * groups], [*taps, ins, outs * groups]
        last = (0, spatial + 1, *range(1, spatial + 1))
        axes = {"lhs_axes": last, "out_axes": last,
                "rhs_axes": (spatial + 1, spatial, *range(spatial))}  # fmt: skip
    return convolution(tuple(image), tuple(kernel), groups=groups, **numbers, **axes)


@given(convolutions(), st.integers(1, 4), st.integers(0, 2**31))
def test_pieces_of_a_convolution_are_the_convolution(graph: Graph, threads: int, seed: int) -> None:
    check_pieces(graph, threads, random_inputs(graph, seed))


def test_pieces_are_about_two_for_each_thread() -> None:
    inputs = {threads: len(pieces(call_of(product(256, 64, 64)), threads)) for threads in (1, 2, 4)}
    assert inputs == {1: 1, 2: 4, 4: 8}
    batched = canonical(trace(xp.matmul, spec((9, 8, 8)), spec((9, 8, 8))))
    assert len(pieces(call_of(batched), 2)) == 4
    few = canonical(trace(xp.matmul, spec((2, 64, 8)), spec((2, 8, 64))))
    assert len(pieces(call_of(few), 2)) == 4
    image = convolution((1, 16, 16, 4), (3, 3, 4, 8), lhs_axes=LAST, rhs_axes=KERNEL_LAST,
                        out_axes=LAST)  # fmt: skip
    assert len(pieces(call_of(image), 2)) == 4
    first = convolution((1, 4, 16, 16), (8, 4, 3, 3))
    assert len(pieces(call_of(first), 2)) == 1, "its rows have no layout of their own"


@pytest.mark.parametrize(
    "graph",
    [
        product(dtype="f64"),
        product(dtype="i32"),
        convolution((1, 2, 5), (2, 2, 2), lhs_dilation=(2,)),
        convolution((1, 2, 5), (2, 2, 2), low=(-1,)),
        convolution((4, 2, 5), (6, 2, 3), batch_groups=2),
        canonical(trace(lambda x, y: xp.exp(xp.matmul(x, y)), spec((4, 4)), spec((4, 4)))),
        canonical(trace(xp.exp, spec((4, 4)))),
    ],
    ids=["f64", "i32", "holes", "cut", "batch groups", "fused", "no product"],
)
def test_what_is_no_call(graph: Graph) -> None:
    assert dnnl_group(graph, whole(graph)) is None
    assert library_of(graph, whole(graph), CALLED, C) == ""


# --- who is offered it --------------------------------------------------------------------------


def offered(graph: Graph, space: CpuLaunchSpace) -> list[dict[str, object]]:
    """What is tried of a lone kernel before anything is learned."""
    problem = LaunchProblem(graph, whole(graph), space)
    found = []
    for seed in problem.seeds():

        def choose(name: str, options: tuple[Any, ...], seed: Any = seed) -> Any:
            return seed.get(name, options[0])

        launch = problem.propose(choose).payload
        assert isinstance(launch, LaunchConfig)
        found.append(dict(launch.settings))
    return found


def test_a_product_is_tried_by_everyone_who_is_here() -> None:
    tried = [one.get("impl", "blas") for one in offered(product(), EVERYWHERE)]
    assert tried[:3] == ["blas", "onednn", "loops"]
    tried = [one.get("impl", "blas") for one in offered(product(), CpuLaunchSpace())]
    assert tried[:2] == ["blas", "loops"] and "onednn" not in tried


def test_a_product_of_few_rows_is_ours_first() -> None:
    tried = [one.get("impl", "blas") for one in offered(product(4), EVERYWHERE)]
    assert tried[:3] == ["loops", "onednn", "blas"]


def test_large_products_are_not_tried_on_one_thread() -> None:
    def threads(graph: Graph) -> set[object]:
        return {one["threads"] for one in offered(graph, EVERYWHERE)}

    assert len(threads(product(256, 256, 256))) == 1
    assert 1 in threads(product())


def test_a_convolution_is_ours_first_and_has_one_name_for_that() -> None:
    graph = convolution((1, 8, 8, 4), (3, 3, 4, 8), lhs_axes=LAST, rhs_axes=KERNEL_LAST,
                        out_axes=LAST)  # fmt: skip
    default, other, *_ = offered(graph, EVERYWHERE)
    assert default == dict(CpuLaunchSpace().default(graph, whole(graph)).settings)
    assert "impl" not in default and other == {"impl": "onednn", "threads": default["threads"]}
    assert all("impl" not in one for one in offered(graph, CpuLaunchSpace()))


def test_narrow_products_may_be_calls_too() -> None:
    graph = product(dtype="bf16")
    assert {"impl": "onednn", "threads": 1} in [
        {"impl": one.get("impl"), "threads": 1} for one in offered(graph, EVERYWHERE)
    ]


def test_the_space_asks_for_the_threads_it_has_chosen() -> None:
    asked: list[int] = []
    space = CpuLaunchSpace(512, lambda call, threads: bool(asked.append(threads)))
    made = space.choose(product(), whole(product()), lambda name, options: options[-1], "k")
    assert asked == [dict(made.settings)["threads"]]


def test_cuda_knows_nothing_of_it() -> None:
    assert library_of(product(), whole(product()), LaunchConfig(), CUDA) == "blas"
    group = whole(convolution((1, 4, 8), (8, 4, 3)))
    assert library_of(convolution((1, 4, 8), (8, 4, 3)), group, LaunchConfig(), CUDA) == ""


# --- its code and program -------------------------------------------------------------------------


def test_a_program_has_the_pieces_of_its_calls(no_onednn: None) -> None:
    graph = product()
    made = cpu.program(graph, candidate(graph))
    assert made.calls == (pieces(call_of(graph), 2),)
    (entry,) = made.sources
    assert "af_dnnl_call(p, 0, parallel, 2)" in entry.text and "sgemm" not in entry.text
    plain = cpu.program(graph, candidate(graph, LaunchConfig()))
    assert plain.calls == () and "af_dnnl" not in plain.sources[0].text


def codes(graph: Graph, launch: LaunchConfig) -> str:
    (code,) = DEVICES["cpu"].backend.codes(graph, candidate(graph, launch))
    return code


def test_the_library_belongs_to_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, found = product(), set()
    for name in ("oneDNN 3.2.0", "oneDNN 3.3.0"):
        monkeypatch.setattr(cpu, "onednn", lambda name=name: SimpleNamespace(name=name))
        found.add(codes(graph, CALLED))
    found.add(codes(graph, LaunchConfig.of(impl="onednn", threads=3)))
    assert len(found) == 3
    before = codes(graph, LaunchConfig())
    assert codes(graph, LaunchConfig()) == before
    monkeypatch.setattr(cpu, "blas_name", lambda: "another BLAS")
    assert codes(graph, LaunchConfig()) != before


def test_without_the_library_there_is_no_code(no_onednn: None) -> None:
    with pytest.raises(OneDnnError, match="oneDNN is not installed"):
        codes(product(), CALLED)
    said = "oneDNN is not installed (pip install 'autofuse[onednn]')"
    assert cpu.lacking(candidate(product())) == said
    inner = Candidate(FusionPlan(()), (LaunchConfig((), (CALLED,)),))
    assert cpu.lacking(inner) == said
    assert cpu.lacking(candidate(product(), LaunchConfig())) == ""


def test_dtypes_that_are_named_are_those_that_onednn_has() -> None:
    assert {call_of(product(dtype=d)).dtype for d in ("f32", "bf16", "f16")} == {
        DType.F32, DType.BF16, DType.F16,
    }  # fmt: skip
    call = call_of(product())
    assert replace(call, dtype=DType.BF16) == call_of(product(dtype="bf16"))


def test_moves_of_operands_are_strides_of_the_call() -> None:
    def turned(x: Array, w: Array) -> Array:
        return xp.matmul(x, xp.permute_dims(w, (1, 0)))

    call = call_of(canonical(trace(turned, spec((8, 4)), spec((6, 4)))))
    assert call.weights == View((4, 6), (1, 4)) and call.src == View((8, 4), (4, 1))
