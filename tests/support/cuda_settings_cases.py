"""Graphs and launch settings that between them meet every pass for CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph, Value
from autofuse.plan.types import LaunchConfig, Setting


def pointwise(shape: tuple[int, ...], dtype: str) -> Graph:
    """exp(x) + y, with y one row that all rows share."""
    b = GraphBuilder()
    x, y = b.input("x", shape, dtype), b.input("y", shape[-1:], dtype)
    wide = b.add("broadcast", y, shape=shape, dims=(len(shape) - 1,))
    return b.build([b.add("add", b.add("exp", x), wide)])


def reduction(op: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> Graph:
    """One fold, of squares."""
    b = GraphBuilder()
    x = b.input("x", shape, dtype)
    return b.build([b.add(op, b.add("mul", x, x), axes=axes)])


def moments(shape: tuple[int, ...], axes: tuple[int, ...]) -> Graph:
    """Sum and largest element at once."""
    b = GraphBuilder()
    x = b.input("x", shape, "f32")
    return b.build([b.add("reduce_sum", x, axes=axes), b.add("reduce_max", x, axes=axes)])


def standardised(rows: int, width: int, dtype: str = "f32") -> Graph:
    """(x + y - sum) / max|x + y - sum|: three passes over each row of two inputs."""
    b = GraphBuilder()
    x, y = b.input("x", (rows, width), dtype), b.input("y", (rows, width), dtype)
    total = b.add("add", x, y)

    def spread(value: Value) -> Value:
        return b.add("broadcast", value, shape=(rows, width), dims=(0,))

    centred = b.add("sub", total, spread(b.add("reduce_sum", total, axes=(1,))))
    largest = b.add("reduce_max", b.add("abs", centred), axes=(1,))
    return b.build([b.add("div", centred, spread(largest)), largest])


def softmax(rows: int, width: int, dtype: str = "f32") -> Graph:
    """Softmax over rows."""
    b = GraphBuilder()
    x = b.input("x", (rows, width), dtype)

    def spread(value: Value) -> Value:
        return b.add("broadcast", value, shape=(rows, width), dims=(0,))

    e = b.add("exp", b.add("sub", x, spread(b.add("reduce_max", x, axes=(1,)))))
    return b.build([b.add("div", e, spread(b.add("reduce_sum", e, axes=(1,))))])


def transposed(shape: tuple[int, ...], order: tuple[int, ...], dtype: str = "f32") -> Graph:
    """tanh(transpose(x)) + y."""
    b = GraphBuilder()
    x = b.input("x", shape, dtype)
    y = b.input("y", tuple(shape[a] for a in order), dtype)
    return b.build([b.add("add", b.add("tanh", b.add("transpose", x, perm=order)), y)])


def running(rows: int, width: int) -> Graph:
    """A running sum, scaled: scratch that lanes read where one thread wrote."""
    b = GraphBuilder()
    x = b.input("x", (rows, width), "f32")
    sums = b.add("cumsum", x, axis=1)
    return b.build([b.add("mul", sums, x)])


def looped(items: int, trips: int) -> Graph:
    """A counted loop per item: x <- sin(x) + x, a number of times."""
    body = GraphBuilder()
    body.input("t", (), "i32")
    state = body.input("s", (items,), "f32")
    step = body.build([body.add("add", body.add("sin", state), state)])
    b = GraphBuilder()
    x = b.input("x", (items,), "f32")
    return b.build([b.add("loop", x, body=step, trip=trips, carries=1)])


def pack() -> Graph:
    """Unrelated work of different sizes, and a reduction among it."""
    b = GraphBuilder()
    inputs = [b.input(f"x{k}", shape, "f32") for k, shape in enumerate(((1000,), (40, 50), (7,)))]
    outs = [b.add("tanh", x) for x in inputs]
    rows = b.input("rows", (20, 96), "f32")
    return b.build([*outs, b.add("reduce_sum", rows, axes=(1,))])


ITEM: dict[str, Graph] = {
    "wide": pointwise((24, 160), "f32"),
    "odd": pointwise((5, 77), "f32"),
    "long": pointwise((3000,), "f32"),
    "half": pointwise((12, 264), "f16"),
    "brain": pointwise((7, 130), "bf16"),
    "bytes": reduction("reduce_sum", (300, 40), (0,), "i8"),
    "loop": looped(700, 5),
    "short": pointwise((37, 36), "f32"),
    "pack": pack(),
}
ROW: dict[str, Graph] = {
    "softmax": softmax(10, 200),
    "softmax_odd": softmax(5, 131),
    "softmax_half": softmax(6, 320, "f16"),
    "standard": standardised(7, 192),
    "standard_long": standardised(2, 1600),
    "sums": reduction("reduce_sum", (50, 4, 72), (1, 2), "f32"),
    "any": reduction("reduce_max", (9, 100), (1,), "i32"),
    "scan": running(6, 90),
    "pack": pack(),
    "whole": moments((60, 64), (0, 1)),
    "long": reduction("reduce_sum", (2, 5000), (1,), "f64"),
}
COLUMN: dict[str, Graph] = {
    "columns": reduction("reduce_sum", (300, 128), (0,), "f32"),
    "columns_odd": reduction("reduce_max", (130, 75), (0,), "f32"),
    "columns_two": moments((200, 96), (0,)),
    "columns_deep": reduction("reduce_sum", (12, 30, 40), (0, 1), "f16"),
    "columns_inner": reduction("reduce_sum", (3, 150, 64), (1,), "f32"),
}
TURN: dict[str, Graph] = {
    "turn": transposed((64, 96), (1, 0)),
    "turn_odd": transposed((45, 70), (1, 0)),
    "turn_half": transposed((96, 64), (1, 0), "f16"),
    "turn_back": transposed((2, 40, 50), (0, 2, 1)),
    "turn_all": transposed((34, 3, 66), (2, 1, 0)),
    "turn_mid": transposed((3, 64, 5), (1, 2, 0)),
}


REDUCE = ("warp", "block", "split", "barrier")
KEEP = ("registers", "shared", "reread")


def _settings(**choices: tuple[Setting, ...]) -> list[dict[str, Setting]]:
    made: list[dict[str, Setting]] = [{}]
    for name, options in choices.items():
        made = [{**m, name: option} for m in made for option in options]
    return made


def cases() -> Iterator[tuple[str, Graph, LaunchConfig]]:
    """(name, graph, launch): about three hundred of them."""
    choices = {
        "item": (
            ITEM,
            [
                *_settings(vector=(1, 4, 8), grid=("one", "stride"), items=(1, 2)),
                *_settings(vector=(2, 4), items=(2,), hints=(True,)),
            ],
        ),
        "row": (
            ROW,
            [
                *_settings(vector=(4,), reduce=REDUCE, keep=KEEP),
                *_settings(vector=(1,), reduce=REDUCE, keep=("registers",), rows=(3,)),
                *_settings(vector=(4,), reduce=REDUCE[:2], keep=KEEP, stages=(2, 3)),
                *_settings(vector=(4,), reduce=REDUCE, keep=("reread",), hints=(True,)),
                *_settings(vector=(1, 4), reduce=("cluster",), keep=KEEP, parts=(0, 4)),
            ],
        ),
        "column": (COLUMN, _settings(vector=(1, 2, 4), reduce=("", "block", "split"))),
        "turn": (TURN, _settings(vector=(1, 4), transpose=(True,))),
    }  # fmt: skip
    for kind, (graphs, settings) in choices.items():
        for name, graph in graphs.items():
            for n, chosen in enumerate(settings):
                tile = 64 * int(chosen.get("items", 2))
                launch = LaunchConfig.of(threads=64, tile=tile, **chosen)
                yield f"{kind}_{name}_{n}", graph, launch


# Kernels whose CUDA text is kept: one for each pass and then some.
GOLDEN: dict[str, tuple[Graph, LaunchConfig]] = {
    "pointwise_vectors": (ITEM["wide"], LaunchConfig.of(vector=4, tile=1024, grid="one")),
    "pointwise_brain": (ITEM["brain"], LaunchConfig.of(vector=2, threads=128, tile=512)),
    "short_rows": (ITEM["short"], LaunchConfig.of(vector=4, tile=1024, blocks=2)),
    "loop_vectors": (
        ITEM["loop"], LaunchConfig.of(vector=2, loop_unroll=5, compiler_unroll=5, tile=512),
    ),
    "pack_mixed": (ITEM["pack"], LaunchConfig.of(grid="one", reduce="warp", tile=256)),
    "softmax_warp": (
        ROW["softmax"], LaunchConfig.of(vector=4, reduce="warp", keep="registers", grid="one"),
    ),
    "softmax_shared": (ROW["softmax_half"], LaunchConfig.of(vector=8, keep="shared", threads=64)),
    "standard_ahead": (
        ROW["standard"],
        LaunchConfig.of(vector=4, reduce="warp", keep="registers", stages=3, threads=64),
    ),
    "standard_hints": (
        ROW["standard"],
        LaunchConfig.of(vector=4, reduce="warp", keep="reread", stage=False, hints=True),
    ),
    "standard_barrier": (
        ROW["standard_long"],
        LaunchConfig.of(vector=4, reduce="barrier", keep="registers", parts=3, threads=64),
    ),
    "standard_cluster": (
        ROW["standard_long"],
        LaunchConfig.of(vector=4, reduce="cluster", keep="registers", parts=2, threads=64),
    ),
    "sums_split": (ROW["long"], LaunchConfig.of(vector=2, reduce="split", parts=4)),
    "columns_block": (COLUMN["columns"], LaunchConfig.of(vector=4, reduce="block")),
    "columns_split": (COLUMN["columns_odd"], LaunchConfig.of(reduce="split", parts=2)),
    "turn_tiles": (TURN["turn_odd"], LaunchConfig.of(transpose=True)),
}  # fmt: skip
