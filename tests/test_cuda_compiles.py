"""The CUDA seam: the kernels that run on the CPU print as CUDA and compile for a GPU."""

from __future__ import annotations

import struct

import pytest

from autofuse.backends.base import CompileError
from autofuse.backends.cuda.nvrtc import FLAGS, compile_cubin
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.kernel.render import render_cuda
from autofuse.kernel.text.dialects import CUDA
from autofuse.zoo import zoo_graph
from tests.support.cuda_texts import pack, whole_kernel
from tests.support.op_cases import KERNELS, one_op

ZOO = ("softmax:small", "layer_norm_gelu:small", "black_scholes:small", "cartpole_naive:small")


def rows(op: str, dtype: str, **attrs: object) -> Graph:
    """One op over the rows of a matrix, squared first."""
    b = GraphBuilder()
    x = b.input("x", (64, 300), dtype)
    return b.build([b.add(op, b.add("mul", x, x), **attrs)])


def column_sums() -> Graph:
    """Sums over the slow axis, left in scratch and read by the rows again."""
    b = GraphBuilder()
    x = b.input("x", (6, 50, 80), "f32")
    total = b.add("reduce_sum", x, axes=(1,))
    spread = b.add("broadcast", total, shape=(6, 50, 80), dims=(0, 2))
    return b.build([b.add("sub", x, spread)])


GRAPHS = {
    **{f"zoo_{name.split(':')[0]}": zoo_graph(*name.split(":")) for name in ZOO},
    "pack": pack(),
    "scan": rows("cumsum", "f32", axis=1),
    "argmax": rows("argmax", "f32", axis=1),
    "largest": rows("reduce_max", "f64", axes=(1,)),
    "any_i8": rows("reduce_sum", "i8", axes=(1,)),
    "half": rows("reduce_sum", "f16", axes=(1,)),
    "brain": rows("exp", "bf16"),
    "columns": column_sums(),
}  # fmt: skip


def test_kernels_compile_for_sm_90_without_a_word() -> None:
    texts = [render_cuda(whole_kernel(graph, name)) for name, graph in GRAPHS.items()]
    cubin, log = compile_cubin("\n".join([CUDA.prelude, *texts]))
    assert log == ""
    assert cubin[:4] == b"\x7fELF"
    for name in GRAPHS:
        assert name.encode() in cubin


def distinct_ops() -> list[Graph]:
    """One graph for each op and dtypes of its operands and results."""
    graphs = [one_op(*case) for case in KERNELS.values()]
    kinds = {
        (g.nodes[-1].op, *(t.dtype for t in (*g.input_types, *g.output_types))): g for g in graphs
    }
    return list(kinds.values())


def test_every_op_compiles_for_sm_90_without_a_word() -> None:
    texts = [render_cuda(whole_kernel(g, f"op{k}")) for k, g in enumerate(distinct_ops())]
    quick = (*FLAGS, "-Xptxas", "-O0")
    _, log = compile_cubin("\n".join([CUDA.prelude, *texts]), flags=quick)
    assert log == ""


def test_an_error_names_what_the_compiler_said() -> None:
    with pytest.raises(CompileError, match='"nothing" is undefined'):
        compile_cubin('extern "C" __global__ void f(float *x) { *x = nothing; }')


def test_a_cubin_is_whole() -> None:
    cubin, _ = compile_cubin('extern "C" __global__ void f(float *x) { *x = 1; }')
    program_table, section_table = struct.unpack_from("<QQ", cubin, 32)
    sizes = struct.unpack_from("<4H", cubin, 54)
    ends = (program_table + sizes[0] * sizes[1], section_table + sizes[2] * sizes[3])
    assert len(cubin) == max(ends), "the file ends where its last table does"
