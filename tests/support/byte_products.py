"""Products of bytes, exact on the emulator."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse import spec, trace
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.geometry import UnsupportedKernel
from autofuse.backends.emulator.emulator import Emulated
from autofuse.frontends import array_api as xp
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.plan.parameters import MMA
from autofuse.plan.types import LaunchConfig, Setting
from search_spaces import CudaLaunchSpace
from tests.support.emulation import OneKernel, counted, one_kernel
from tests.support.tile_programs import whole

LIMITS = {"i8": (-128, 127), "u8": (0, 255)}
# Rows, columns, terms -> a function of two arrays of bytes, and their shapes.
Program = Callable[[int, int, int], tuple[Callable[..., Any], list[tuple[int, ...]]]]


def wide(x: Any) -> Any:
    return x.astype("i32")


def narrowed(x: Any) -> Any:
    return xp.clip(xp.round(x.astype("f32") * 2.0**-6), -128, 127).astype("i8")


PROGRAMS: dict[str, Program] = {
    "product": lambda m, n, k: (lambda a, b: wide(a) @ wide(b), [(m, k), (k, n)]),
    "right turned": lambda m, n, k: (lambda a, b: wide(a) @ wide(b).T, [(m, k), (n, k)]),
    "left turned": lambda m, n, k: (lambda a, b: wide(a.T) @ wide(b), [(k, m), (k, n)]),
    "both turned": lambda m, n, k: (lambda a, b: wide(a).T @ wide(b.T), [(k, m), (n, k)]),
    "batch": lambda m, n, k: (lambda a, b: wide(a) @ wide(b) * 2, [(2, m, k), (2, k, n)]),
    "batch last": lambda m, n, k: (
        lambda a, b: xp.permute_dims(wide(a), (2, 0, 1)) @ xp.permute_dims(wide(b), (2, 0, 1)),
        [(m, k, 2), (k, n, 2)],
    ),
    "windows": lambda m, n, k: (
        lambda a, b: wide(a)[1:, 16:] @ wide(b[:, :n]), [(m + 1, k + 16), (k, n + 3)],
    ),
    "narrow result": lambda m, n, k: (lambda a, b: narrowed(wide(a) @ wide(b)), [(m, k), (k, n)]),
    "row maxima": lambda m, n, k: (
        lambda a, b: np.max(wide(a) @ wide(b), axis=-1), [(m, k), (k, n)],
    ),
    "convolution": lambda m, n, k: (
        lambda x, w: xp.conv(wide(x), wide(w), padding=1, channels_last=True),
        [(1, 7, 5 + m % 9, 16), (3, 3, 16, n)],
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    one: OneKernel


def program(name: str, sizes: tuple[int, int, int], types: tuple[str, str]) -> Graph:
    function, shapes = PROGRAMS[name](*sizes)
    bounds = [LIMITS[dtype] for dtype in types]
    operands = zip(shapes, types, bounds, strict=True)
    return canonical(trace(function, *(spec(s, t, low=b[0], high=b[1]) for s, t, b in operands)))


def drawn_launch(seed: int, of_class: Callable[[random.Random], dict[str, Setting]]) -> Case:
    """A drawn product, under settings of an instruction class and others."""
    r = random.Random(seed)
    name, types = r.choice(list(PROGRAMS)), (r.choice(list(LIMITS)), r.choice(list(LIMITS)))
    step = r.choice((16, 16, 1))
    m, n, k = (step * r.randint(1, 96 // step) for _ in "mnk")
    chosen: dict[str, Setting] = {
        "impl": "loops", **of_class(r),
        "term_block": r.choice((0, 0, 16, 32)), "pack": r.choice((True, False)),
        "grid": r.choice(("one", "stride")), "tail": r.choice((1, 1, 2)),
        "wave": r.choice((1, 3, 7)),
    }  # fmt: skip
    try:
        one = one_kernel(program(name, (m, n, max(k, 2)), types), LaunchConfig.of(**chosen))
    except UnsupportedKernel:
        return drawn_launch(seed + 1_000_000, of_class)  # no block has room for it
    return Case(f"{name} {m}x{n}x{k} {types} {chosen}", one)


def exact(library: Emulated, one: OneKernel) -> tuple[bool, int]:
    """Whether every number is right, and the turns that conflicts of banks cost."""
    inputs = random_inputs(one.graph, 1)
    found, counts = counted(library, one, inputs)
    pairs = zip(found, evaluate(one.graph, inputs), strict=True)
    return all(np.array_equal(got, wanted) for got, wanted in pairs), counts.conflicts


def options_of(graph: Graph, device: str = "A100") -> tuple[Setting, ...]:
    seen: dict[str, tuple[Setting, ...]] = {}

    def choose(key: str, options: tuple[Setting, ...]) -> Setting:
        seen[key.split(".")[2]] = options
        return options[0]

    CudaLaunchSpace(TARGETS[device]).choose(graph, whole(graph), choose, "p")
    return seen.get(MMA.name, ())
