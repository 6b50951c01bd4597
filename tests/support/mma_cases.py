"""Drawn products for tensor cores: what is multiplied, how it lies, and under which settings."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse import spec, trace
from autofuse.backends.cuda.geometry import UnsupportedKernel
from autofuse.frontends import array_api as xp
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.parameters import GROUP_MMA, HALF_MMA, STRICT_MMA, TF32_MMA
from autofuse.plan.types import LaunchConfig, Setting
from tests.support.emulation import OneKernel, one_kernel
from tests.support.tile_programs import (
    attention,
    masked_attention,
    rms_norm,
    sigmoid_gated,
    softmax,
)

# Rows, columns, terms -> a function and the shapes of its operands.
Program = Callable[[int, int, int], tuple[Callable[..., Any], list[tuple[int, ...]]]]


def turned(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


PROGRAMS: dict[str, Program] = {
    "product": lambda m, n, k: (lambda a, b: a @ b, [(m, k), (k, n)]),
    "right turned": lambda m, n, k: (lambda a, b: a @ b.T, [(m, k), (n, k)]),
    "left turned": lambda m, n, k: (lambda a, b: a.T @ b, [(k, m), (k, n)]),
    "both turned": lambda m, n, k: (lambda a, b: a.T @ b.T, [(k, m), (n, k)]),
    "result turned": lambda m, n, k: (lambda a, b: (a @ b).T + 1, [(m, k), (k, n)]),
    "batch": lambda m, n, k: (lambda a, b: a @ b * 2, [(2, m, k), (2, k, n)]),
    "batch inside": lambda m, n, k: (
        lambda a, b: np.swapaxes(a, 0, 1) @ np.swapaxes(b, 0, 1), [(m, 2, k), (k, 2, n)],
    ),
    "batch last": lambda m, n, k: (
        lambda a, b: xp.permute_dims(a, (2, 0, 1)) @ xp.permute_dims(b, (2, 0, 1)),
        [(m, k, 2), (k, n, 2)],
    ),
    "shared right": lambda m, n, k: (
        lambda a, b: sigmoid_gated(a @ b), [(2, m, k), (k, n)],
    ),
    "windows": lambda m, n, k: (
        lambda a, b: a[1:, 8:] @ b[:, :n], [(m + 1, k + 8), (k, n + 3)],
    ),
    "epilogue": lambda m, n, k: (
        lambda a, b, c, r: sigmoid_gated(a @ b + c) + r, [(m, k), (k, n), (n,), (m, n)],
    ),
    "prologues": lambda m, n, k: (lambda a, b: np.tanh(a) @ (b * b), [(m, k), (k, n)]),
    "left computed": lambda m, n, k: (lambda a, b: np.tanh(a) @ turned(b), [(m, k), (n, k)]),
    "gated": lambda m, n, k: (
        lambda a, b, c: sigmoid_gated(a @ b) * (a @ c), [(m, k), (k, n), (k, n)],
    ),
    "softmax": lambda m, n, k: (lambda a, b: softmax(a @ b), [(m, k), (k, n)]),
    "norm before": lambda m, n, k: (lambda a, b: rms_norm(a) @ b, [(m, k), (k, n)]),
    "two layers": lambda m, n, k: (
        lambda a, b, c: np.tanh(a @ b) @ c, [(m, k), (k, n), (n, 1 + k // 2)],
    ),
    "attention": lambda m, n, k: (attention, [(2, m, k), (2, n, k), (2, n, k)]),
    "masked attention": lambda m, n, k: (masked_attention, [(m, k), (m, k), (m, k)]),
    "row maxima": lambda m, n, k: (lambda a, b: np.max(a @ b, axis=-1), [(m, k), (k, n)]),
    "convolution": lambda m, n, k: (
        lambda x, w: np.maximum(xp.conv(x, w, padding=1), 0),
        [(1, 1 + k % 4, 7, 5 + m % 9), (n, 1 + k % 4, 3, 3)],
    ),
    "convolution, channels last": lambda m, n, k: (
        lambda x, w: xp.conv(x, w, padding=1, channels_last=True),
        [(1, 7, 5 + m % 9, 8), (3, 3, 8, n)],
    ),
}  # fmt: skip
# (type, instruction class, the largest difference, relative to 1 + |wanted|)
CLASSES = (
    ("bf16", HALF_MMA, 2e-2), ("f16", HALF_MMA, 3e-3), ("f32", STRICT_MMA, 2e-5),
    ("f32", TF32_MMA, 1e-2), ("bf16", GROUP_MMA, 2e-2), ("f16", GROUP_MMA, 3e-3),
)  # fmt: skip
MICRO = ((16, 32), (16, 64), (32, 32), (32, 64), (64, 32), (64, 64))
GROUP_MICRO = ((64, 32), (64, 64), (64, 128), (128, 64))


@dataclass(frozen=True)
class Case:
    """A kernel, and how far it may be from the reference."""

    name: str
    one: OneKernel
    tolerance: float


def drawn(seed: int) -> Case:
    """Sizes that are whole pieces, or not; settings that matter to tensor cores."""
    r = random.Random(seed)
    name = r.choice(list(PROGRAMS))
    dtype, kind, tolerance = r.choice(CLASSES)
    step = r.choice((8, 8, 1))
    m, n, k = (step * r.randint(1, 88 // step) for _ in "mnk")
    by_group = kind == GROUP_MMA
    rows, columns = r.choice(GROUP_MICRO if by_group else MICRO)
    settings: dict[str, Setting] = {
        "impl": "loops", "mma": kind,
        "threads": r.choice((256, 384) if by_group else (32, 64, 128)),
        "stages": r.choice((0, 2, 3) if by_group else (0, 2, 3, 4)), "micro": f"{rows}x{columns}",
        "row_block": rows * r.choice((1, 2)), "column_block": columns * r.choice((0, 1, 2)),
        "term_block": r.choice((0, 0, 16, 32)), "pack": r.choice((True, False)),
        "grid": r.choice(("one", "stride")), "vector": r.choice((1, 4)),
        "tail": r.choice((1, 1, 2)), "wave": r.choice((1, 3, 7)),
        "pingpong": by_group and r.choice((True, False)),
        "maps": by_group and r.choice((True, False)),
    }  # fmt: skip
    label = f"{name} {m}x{n}x{k} {dtype} {settings}"
    try:
        one = one_kernel(program(name, (m, n, max(k, 2)), dtype), launch(settings))
    except UnsupportedKernel:
        return drawn(seed + 1_000_000)  # no block has room for it
    return Case(label, one, tolerance)


def launch(settings: dict[str, Setting]) -> LaunchConfig:
    return LaunchConfig.of(**settings)


def program(name: str, sizes: tuple[int, int, int], dtype: str) -> Graph:
    """The canonical graph of a program, all inputs of one type."""
    function, shapes = PROGRAMS[name](*sizes)
    return canonical(trace(function, *(spec(shape, dtype) for shape in shapes)))
