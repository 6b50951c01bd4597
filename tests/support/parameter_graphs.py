"""Small graphs, one for each kind of kernel, in which launch parameters show."""

from __future__ import annotations

import numpy as np

from autofuse import spec, trace
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.ops.convolution import conv_attrs
from tests.support.stencils import chain, padded
from tests.support.tile_programs import attention


def rows_folded(length: int = 1 << 15, rows: int = 64) -> Graph:
    b = GraphBuilder()
    shape = (rows, length)
    x = b.input("x", shape, "f32")
    spread = b.add("broadcast", b.add("reduce_max", x, axes=(1,)), shape=shape, dims=(0,))
    e = b.add("exp", b.add("sub", x, spread))
    total = b.add("broadcast", b.add("reduce_sum", e, axes=(1,)), shape=shape, dims=(0,))
    return canonical(b.build([b.add("div", e, total)]))


def pointwise() -> Graph:
    b = GraphBuilder()
    return canonical(b.build([b.add("exp", b.input("x", (1 << 23,), "f32"))]))


def turned() -> Graph:
    b = GraphBuilder()
    return canonical(b.build([b.add("transpose", b.input("x", (512, 256), "f32"), perm=(1, 0))]))


def product(constant: bool = False) -> Graph:
    b = GraphBuilder()
    x, y = b.input("x", (64, 32), "f32"), b.input("y", (32, 48), "f32", constant=constant)
    none: tuple[int, ...] = ()
    made = b.add("dot_general", x, y, lhs_batch=none, rhs_batch=none, lhs_contract=(1,),
                 rhs_contract=(0,))  # fmt: skip
    return canonical(b.build([made]))


def summed() -> Graph:
    """Few long columns, whose rows several blocks may share."""
    b = GraphBuilder()
    return canonical(b.build([b.add("reduce_sum", b.input("x", (4096, 64), "f32"), axes=(0,))]))


def fused() -> Graph:
    """A product long in every way, and what follows it."""
    b = GraphBuilder()
    x, y = b.input("x", (1 << 15, 600), "f32"), b.input("y", (600, 1100), "f32")
    none: tuple[int, ...] = ()
    made = b.add("dot_general", x, y, lhs_batch=none, rhs_batch=none, lhs_contract=(1,),
                 rhs_contract=(0,))  # fmt: skip
    return canonical(b.build([b.add("exp", made)]))


def short_wave() -> Graph:
    """A product of which few tiles are left when all multiprocessors have had some."""
    b = GraphBuilder()
    x, y = b.input("x", (64 * (2 * 132 + 10), 512), "f32"), b.input("y", (512, 64), "f32")
    none: tuple[int, ...] = ()
    made = b.add("dot_general", x, y, lhs_batch=none, rhs_batch=none, lhs_contract=(1,),
                 rhs_contract=(0,))  # fmt: skip
    return canonical(b.build([b.add("exp", made)]))


def halves(rows: int = 64, columns: int = 48, terms: int = 32) -> Graph:
    """A product of bf16, and what follows it."""
    b = GraphBuilder()
    x, y = b.input("x", (rows, terms), "bf16"), b.input("y", (terms, columns), "bf16")
    none: tuple[int, ...] = ()
    made = b.add("dot_general", x, y, lhs_batch=none, rhs_batch=none, lhs_contract=(1,),
                 rhs_contract=(0,))  # fmt: skip
    return canonical(b.build([b.add("exp", made)]))


def long_sums() -> Graph:
    """A product of few blocks, each a sum of many terms."""
    b = GraphBuilder()
    x, y = b.input("x", (24, 4096), "f32"), b.input("y", (4096, 64), "f32")
    none: tuple[int, ...] = ()
    made = b.add("dot_general", x, y, lhs_batch=none, rhs_batch=none, lhs_contract=(1,),
                 rhs_contract=(0,))  # fmt: skip
    return canonical(b.build([b.add("exp", made)]))


def added() -> Graph:
    """A product and an array that is added, which a library may do at once."""
    b = GraphBuilder()
    x, y, z = (b.input(k, s, "f32") for k, s in zip("xyz", ((8, 8),) * 3, strict=True))
    none: tuple[int, ...] = ()
    made = b.add("dot_general", x, y, lhs_batch=none, rhs_batch=none, lhs_contract=(1,),
                 rhs_contract=(0,))  # fmt: skip
    return canonical(b.build([b.add("add", made, z)]))


def batch_last() -> Graph:
    """Products whose batch axis is the last one everywhere."""
    b = GraphBuilder()
    x, y = b.input("x", (12, 20, 64), "f32"), b.input("y", (20, 10, 64), "f32")
    made = b.add("dot_general", x, y, lhs_batch=(2,), rhs_batch=(2,), lhs_contract=(1,),
                 rhs_contract=(0,))  # fmt: skip
    return canonical(b.build([b.add("transpose", made, perm=(1, 2, 0))]))


def dots() -> Graph:
    """A few rows times a matrix that lies along the terms, as it does."""
    b = GraphBuilder()
    x, y = b.input("x", (3, 600), "f32"), b.input("y", (1100, 600), "f32")
    none: tuple[int, ...] = ()
    made = b.add("dot_general", x, y, lhs_batch=none, rhs_batch=none, lhs_contract=(1,),
                 rhs_contract=(1,))  # fmt: skip
    return canonical(b.build([b.add("exp", made)]))


def patches() -> Graph:
    """A convolution, channels last, and what follows it."""
    b = GraphBuilder()
    x, k = b.input("x", (1, 12, 12, 16), "f32"), b.input("k", (3, 3, 16, 80), "f32")
    last = (0, 3, 1, 2)
    made = b.add("conv", x, k, **conv_attrs(2, lhs_axes=last, rhs_axes=(3, 2, 0, 1), out_axes=last,
                                            low=(1, 1), high=(1, 1)))  # fmt: skip
    return canonical(b.build([b.add("exp", made)]))


def looped() -> Graph:
    body = GraphBuilder()
    body.input("t", (), "i32")
    state = body.input("state", (4096,), "f32")
    inner = body.build([body.add("tanh", state)])
    b = GraphBuilder()
    return canonical(
        b.build([b.add("loop", b.input("x", (4096,), "f32"), body=inner, trip=8, carries=1)])
    )


def ordered() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (64, 512), "f32")
    return canonical(b.build([b.add("argsort", x, axis=1, descending=False)]))


def attended() -> Graph:
    each = spec((2, 128, 16), "bf16")
    return canonical(trace(attention, each, each, each))


def grouped() -> Graph:
    """A product that warpgroups multiply, and what follows it."""
    each = spec((128, 128), "bf16")
    return canonical(trace(lambda a, b: np.tanh(a @ b), each, each))


GRAPHS = {"item": pointwise(), "turned": turned(), "row": rows_folded(), "loop": looped(),
          "short": rows_folded(512, 4096), "gemm": product(), "fused": fused(),
          "summed": summed(), "weighted": product(constant=True), "dots": dots(),
          "long_sums": long_sums(), "ordered": ordered(), "halves": halves(),
          "whole_tiles": halves(256, 128, 64), "grouped": grouped(),
           "short_wave": short_wave(), "attended": attended(),
           "batch_last": batch_last(), "patches": patches(), "added": added(),
          "stencils": chain(padded, (64, 64), 2)}  # fmt: skip
