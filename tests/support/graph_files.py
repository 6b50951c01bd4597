"""A graph with all that the JSON format can say."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType


def full_graph() -> Graph:
    """A loop with a nested body, literals of both forms, odd and repeated names, two outputs."""
    body = GraphBuilder()
    step = body.input("", (), DType.I32)
    state = body.input("s", (3, 4), DType.F32)
    more = body.add("broadcast", body.add("cast", step, dtype="f32"), shape=(3, 4), dims=())
    new = body.add("add", state, more, name="new")
    b = GraphBuilder()
    x = b.input("x", (3, 4), DType.F32, low=0.1, high=float(np.float32(0.7)))
    y = b.add("mul", x, b.constant(np.float32(0.1), DType.F32, (3, 4)), name="y")
    big = b.constant(np.arange(200.0), DType.F64)
    total = b.add("reduce_sum", y, axes=(0, 1), name="y")
    late = b.input("late input", (), DType.BOOL)
    special = b.constant(np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45]), DType.F32)
    loop = b.add_multi("loop", y, body=body.build([new, new]), trip=3, carries=1)
    names = ["total", "big", "special", "last", "all", "late"]
    return b.build([total, big, special, *loop, late], names)


GOOD: dict[str, Any] = {
    "autofuse_graph": 1,
    "inputs": [{"name": "x", "type": "f32[3,4]"}, {"name": "k", "type": "i32[]"}],
    "nodes": [
        {"name": "c", "op": "add", "inputs": ["b", "a"]},
        {"name": "a", "op": "exp", "inputs": ["x"]},
        {"name": "b", "op": "slice", "inputs": ["wide"],
         "attrs": {"start": [0, 0], "stop": [3, 4], "stride": [1, 1]}},
        {"name": "wide", "op": "concat", "inputs": ["x", "a"], "attrs": {"axis": 1}},
    ],
    "outputs": ["c", "x"],
}  # fmt: skip
