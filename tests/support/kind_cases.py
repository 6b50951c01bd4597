"""Kernels of every kind of reduction, layout and launch."""

from __future__ import annotations

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.plan.types import LaunchConfig
from autofuse.zoo import zoo_graph
from tests.support.cuda_texts import pack

Case = tuple[Graph, LaunchConfig]


def softmax(rows: int, length: int, dtype: str = "f32") -> Graph:
    b = GraphBuilder()
    x = b.input("x", (rows, length), dtype)
    top = b.add("reduce_max", x, axes=(1,))
    shifted = b.add("sub", x, b.add("broadcast", top, shape=(rows, length), dims=(0,)))
    powers = b.add("exp", shifted)
    total = b.add("reduce_sum", powers, axes=(1,))
    spread = b.add("broadcast", total, shape=(rows, length), dims=(0,))
    return b.build([b.add("div", powers, spread), total])


def fold(op: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "f32") -> Graph:
    """One reduction, with some work before and after it."""
    b = GraphBuilder()
    x = b.input("x", shape, dtype)
    return b.build([b.add("neg", b.add(op, b.add("neg", x), axes=axes))])


def pointwise(shape: tuple[int, ...], dtype: str) -> Graph:
    b = GraphBuilder()
    x, y = (b.input(name, shape, dtype) for name in "xy")
    return b.build([b.add("mul", b.add("add", x, y), y), b.add("sub", x, y)])


def transposed(shape: tuple[int, int]) -> Graph:
    b = GraphBuilder()
    x, y = b.input("x", shape, "f32"), b.input("y", shape[::-1], "f32")
    return b.build([b.add("add", b.add("transpose", x, perm=(1, 0)), y)])


def scan() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (5, 130), "f32")
    return b.build([b.add("cumsum", x, axis=1), b.add("argmax", x, axis=1)])


ROWS = {
    "softmax": softmax(6, 300),
    "softmax_f16": softmax(5, 256, "f16"),
    "sum": fold("reduce_sum", (3, 500), (1,), "f64"),
    "max_bf16": fold("reduce_max", (7, 96), (1,), "bf16"),
    "max_i16": fold("reduce_max", (7, 96), (1,), "i16"),
    "sum_u64": fold("reduce_sum", (7, 96), (1,), "u64"),
    "all": fold("reduce_sum", (900,), (0,)),
    "scan": scan(),
}

ITEMS = {
    "f32": pointwise((11, 64), "f32"),
    "f16": pointwise((1000,), "f16"),
    "i8": pointwise((777,), "i8"),
    "columns": fold("reduce_sum", (40, 70), (0,)),
    "column_max": fold("reduce_max", (4, 33, 20), (1,), "f64"),
    "transpose": transposed((70, 45)),
    "pack": pack(),
    "loop": zoo_graph("cartpole_naive", "small"),
}

ROW_SETTINGS = (
    {"threads": 64},
    {"threads": 128, "reduce": "warp", "vector": 4, "keep": "registers", "grid": "one"},
    {"threads": 64, "reduce": "block", "vector": 2, "keep": "shared", "grid": "one"},
    {"threads": 64, "reduce": "split", "vector": 2, "parts": 3, "grid": "one"},
    {"threads": 64, "reduce": "barrier", "keep": "registers", "parts": 2, "grid": "one"},
    {"threads": 64, "reduce": "cluster", "keep": "registers", "parts": 2, "grid": "one"},
    {"threads": 64, "reduce": "block", "vector": 4, "keep": "reread", "stages": 2, "hints": True},
    {"threads": 64, "reduce": "warp", "vector": 4, "keep": "registers", "stages": 3, "blocks": 1},
)

ITEM_SETTINGS = (
    {"threads": 16, "items": 1, "grid": "one"},
    {"threads": 64, "items": 1},
    {"threads": 128, "items": 4, "vector": 4, "grid": "one"},
    {"threads": 128, "items": 2, "transpose": True, "reduce": "block"},
)


def cases() -> dict[str, Case]:
    return {
        f"{name} {' '.join(f'{k}={v}' for k, v in own.items())}": (graph, LaunchConfig.of(**own))
        for graphs, settings in ((ROWS, ROW_SETTINGS), (ITEMS, ITEM_SETTINGS))
        for name, graph in graphs.items()
        for own in settings
    }


CASES = cases()
