"""Drawn attention and its kin for kernels that keep scores in registers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse import spec, trace
from autofuse.frontends import array_api as xp
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.parameters import GROUP_MMA, HALF_MMA, STRICT_MMA, TF32_MMA, Setting
from autofuse.plan.types import LaunchConfig
from tests.support.emulation import OneKernel, one_kernel
from tests.support.tile_programs import attention, masked, softmax

# Rows, columns, depth, width -> a function and the shapes of its operands.
Sizes = tuple[int, int, int, int]
Program = Callable[[int, int, int, int], tuple[Callable[..., Any], list[tuple[int, ...]]]]


def scores(q: Any, k: Any) -> Any:
    return q @ np.swapaxes(k, -1, -2) * 0.3


def with_log_sum(q: Any, k: Any, v: Any) -> Any:
    s = scores(q, k)
    m = np.max(s, axis=-1, keepdims=True)
    e = np.exp(s - m)
    total = np.sum(e, axis=-1, keepdims=True)
    return e / total @ v, (m + np.log(total))[..., 0]


def grouped(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k[:, None], v[:, None])


def heads_inside(q: Any, k: Any, v: Any) -> Any:
    return np.swapaxes(attention(*(np.swapaxes(x, 0, 1) for x in (q, k, v))), 0, 1)


def capped(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return softmax(np.tanh(scores(q, k) * 0.2) * 5 + bias) @ v


def gated(q: Any, k: Any, v: Any, gate: Any) -> Any:
    return attention(q, k, v) * np.tanh(gate) + gate


PROGRAMS: dict[str, Program] = {
    "attention": lambda m, n, d, w: (attention, [(2, m, d), (2, n, d), (2, n, w)]),
    "causal": lambda m, n, d, w: (
        masked(lambda r, c: c <= r, -np.inf), [(m, d), (m, d), (m, w)],
    ),
    "causal, a large number": lambda m, n, d, w: (
        masked(lambda r, c: c <= r, -1e30), [(2, m, d), (2, m, d), (2, m, w)],
    ),
    "window": lambda m, n, d, w: (
        masked(lambda r, c: (c <= r) & (r - c < 7), -np.inf), [(m, d), (m, d), (m, w)],
    ),
    "rows that see nothing": lambda m, n, d, w: (
        masked(lambda r, c: (c < r) | (c > r + 5), -np.inf), [(m, d), (n, d), (n, w)],
    ),
    "log-sum-exp": lambda m, n, d, w: (with_log_sum, [(2, m, d), (2, n, d), (2, n, w)]),
    "grouped": lambda m, n, d, w: (grouped, [(2, 3, m, d), (2, n, d), (2, n, w)]),
    "heads inside": lambda m, n, d, w: (heads_inside, [(m, 2, d), (n, 2, d), (n, 2, w)]),
    "capped, with a bias": lambda m, n, d, w: (
        capped, [(2, m, d), (2, n, d), (2, n, w), (2, m, n)],
    ),
    "bias of columns": lambda m, n, d, w: (
        lambda q, k, v, c: softmax(scores(q, k) + c) @ v, [(m, d), (n, d), (n, w), (n,)],
    ),
    "converted": lambda m, n, d, w: (
        lambda q, k, v: xp.softmax(scores(q, k)) @ v, [(2, m, d), (2, n, d), (2, n, w)],
    ),
    "keys turned": lambda m, n, d, w: (
        lambda q, k, v: softmax(q @ k * 0.3) @ v, [(m, d), (d, n), (n, w)],
    ),
    "values turned": lambda m, n, d, w: (
        lambda q, k, v: softmax(scores(q, k)) @ v.T, [(m, d), (n, d), (w, n)],
    ),
    "epilogue": lambda m, n, d, w: (gated, [(m, d), (n, d), (n, w), (m, w)]),
    "no softmax": lambda m, n, d, w: (
        lambda q, k, v: np.tanh(scores(q, k)) @ v, [(m, d), (n, d), (n, w)],
    ),
    "two products of a row": lambda m, n, d, w: (
        lambda q, k, v, u: softmax(scores(q, k)) @ v - softmax(scores(q, k)) @ u,
        [(m, d), (n, d), (n, w), (n, w)],
    ),
    "two sources": lambda m, n, d, w: (
        lambda q, k, u, v: softmax(scores(q, k) * np.tanh(scores(q, u))) @ v,
        [(m, d), (n, d), (n, d), (n, w)],
    ),
    "one row": lambda m, n, d, w: (attention, [(2, 1, d), (2, n, d), (2, n, w)]),
    "sums of a row": lambda m, n, d, w: (
        lambda q, k: np.sum(np.maximum(scores(q, k), 0), axis=-1), [(m, d), (n, d)],
    ),
    "largest of a row": lambda m, n, d, w: (
        lambda q, k: np.max(scores(q, k), axis=-1), [(m, d), (n, d)],
    ),
}  # fmt: skip
# (type, instruction class, the largest difference, relative to 1 + |wanted|)
TYPES = (
    ("bf16", HALF_MMA, 2e-2), ("f16", HALF_MMA, 3e-3), ("f32", STRICT_MMA, 3e-5),
    ("f32", TF32_MMA, 1e-2),
)  # fmt: skip


@dataclass(frozen=True)
class FragmentCase:
    """A kernel, and how far it may be from the reference."""

    name: str
    one: OneKernel
    tolerance: float


def drawn_fragments(seed: int) -> FragmentCase:
    """Sizes that are whole pieces, or not, under settings that matter."""
    r = random.Random(seed)
    name, (dtype, kind, tolerance) = r.choice(list(PROGRAMS)), r.choice(TYPES)
    if dtype == "f32" and name == "values turned":
        name = "keys turned"  # whose terms a fragment of 32 bits can be multiplied by
    step = r.choice((8, 8, 1))
    m, n, d, w = (step * r.randint(1, most // step) for most in (72, 120, 40, 40))
    threads, parts = r.choice((32, 64, 128)), r.choice((1, 2))
    settings: dict[str, Setting] = {
        "mma": kind, "threads": threads, "row_block": threads // 32 * 16 * parts,
        "column_block": r.choice((16, 32, 48, 64)), "stages": r.choice((0, 2, 3, 4)),
        "grid": r.choice(("one", "stride")), "vector": r.choice((1, 4)),
    }  # fmt: skip
    m, n = max(m, 2), max(n, 2)  # products of one key, or of one row of a window, are no tiles
    label = f"{name} {m}x{n}x{d}x{w} {dtype} {settings}"
    return FragmentCase(
        label, in_registers(name, (m, n, max(d, 2), max(w, 2)), dtype, **settings), tolerance
    )


# Programs without one product before another, between which warpgroups could change places.
OTHER_PRODUCTS = ("two sources", "sums of a row", "largest of a row")


def drawn_groups(seed: int) -> FragmentCase:
    """The same programs, by warpgroups."""
    r = random.Random(seed)
    name, (dtype, _, tolerance) = r.choice(list(PROGRAMS)), r.choice(TYPES[:2])
    step = r.choice((8, 8, 1))
    m, n, d, w = (step * r.randint(1, most // step) for most in (200, 300, 140, 100))
    groups = r.choice((2, 3))
    columns, stages = r.choice(((64, 2), (64, 3), (64, 4), (64, 6), (128, 2)))
    if name in ("two sources", "two products of a row"):
        columns, stages, n = 64, 2, min(n, 64)  # which take the room of two queries, or of all keys
    settings: dict[str, Setting] = {
        "mma": GROUP_MMA, "threads": groups * 128, "row_block": (groups - 1) * 64,
        "column_block": columns, "stages": stages, "grid": r.choice(("one", "stride")),
    }  # fmt: skip
    if groups == 3 and name not in OTHER_PRODUCTS:
        settings["pingpong"] = r.choice((False, True))
    label = f"{name} {m}x{n}x{d}x{w} {dtype} {settings}"
    return FragmentCase(
        label, in_registers(name, (m, n, max(d, 2), max(w, 2)), dtype, **settings), tolerance
    )


def in_registers(name: str, sizes: Sizes, dtype: str = "bf16", **settings: Setting) -> OneKernel:
    """The kernel of a program that keeps its scores in registers."""
    usual: dict[str, Setting] = {
        "impl": "loops", "mma": HALF_MMA, "fragments": True, "threads": 64, "row_block": 32,
        "column_block": 32, "stages": 3, "grid": "one",
    }  # fmt: skip
    return one_kernel(rows_program(name, sizes, dtype), LaunchConfig.of(**{**usual, **settings}))


def rows_program(name: str, sizes: Sizes, dtype: str = "bf16") -> Graph:
    """The canonical graph of a program, all inputs of one type."""
    function, shapes = PROGRAMS[name](*sizes)
    return canonical(trace(function, *(spec(shape, dtype) for shape in shapes)))
