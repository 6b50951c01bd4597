"""Remainders of f32 in C, which vectors compute: to the bit what C's own function gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import autofuse
from autofuse import spec, trace
from autofuse.backends.registry import CPU_BACKEND
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.plan.types import LaunchConfig
from autofuse.tuning.plans import fused_candidate
from search_spaces import CpuLaunchSpace

COUNT = 200_000
SPECIAL = (
    0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38,
    -3.4028235e38, 0.5, 2.0, 3.0, 1e30, 16777216.0, 1e-30,
)  # fmt: skip


def remainder(count: int) -> Graph:
    b = GraphBuilder()
    x, y = (b.input(name, (count,), DType.F32) for name in "xy")
    return b.build([b.add("rem", x, y)])


def drawn(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2**32, (2, COUNT), dtype=np.uint32)
    x, y = bits.view(np.float32)
    if kind == "any bits":
        return x, y
    if kind == "near multiples":
        y = rng.uniform(-100, 100, COUNT).astype(np.float32)
        x = (y * rng.integers(1, 1 << 20, COUNT)).astype(np.float32)
        return np.nextafter(x, rng.choice([-np.inf, np.inf], COUNT), dtype=np.float32), y
    if kind == "small quotients":
        exponent = np.uint32(0x7F800000)
        return x, ((bits[1] & ~exponent) | (bits[0] & exponent)).view(np.float32)
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL], np.float32)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


@pytest.mark.parametrize("kind", ["any bits", "near multiples", "small quotients", "special"])
def test_remainders_are_those_of_c(kind: str) -> None:
    x, y = drawn(kind)
    (found,) = autofuse.compile(remainder(x.size), device="cpu")(x, y)
    with np.errstate(all="ignore"):
        wanted = np.fmod(x, y)
    same = (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))
    assert same.all(), [(x[k], y[k], found[k], wanted[k]) for k in np.flatnonzero(~same)[:5]]


INTEGERS = (0, 1, 2, 3, 7, 65535, 65536, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1)


def integer_pairs() -> np.ndarray:
    """Any bits, small divisors, numbers next to multiples, and all pairs of special ones."""
    rng = np.random.default_rng(11)
    x, y = rng.integers(0, 2**32, (2, COUNT), dtype=np.uint32)
    small = y >> rng.integers(0, 32, COUNT, dtype=np.uint32)
    divisor = (y >> np.uint32(20)) | np.uint32(1)
    near = divisor * (x >> np.uint32(12)) - (x & np.uint32(1))
    special = np.array([(a, b) for a in INTEGERS for b in INTEGERS], np.uint32).T
    rows = [(x, y), (x, small), (near, divisor), tuple(special)]
    return np.concatenate([np.stack(row) for row in rows], axis=1)


@pytest.mark.parametrize("math", ["strict", "relaxed"])
@pytest.mark.parametrize("dtype", [DType.I32, DType.U32])
@pytest.mark.parametrize("op", ["div", "rem"])
def test_divisions_of_whole_numbers_are_those_of_the_definition(
    op: str, dtype: DType, math: str
) -> None:
    """In a kernel where lanes compute them: quotients are cut off, nothing divides by zero. Math
    that is relaxed makes products of quotients, though not of these."""
    x, y = (np.ascontiguousarray(row).view(dtype.numpy) for row in integer_pairs())
    b = GraphBuilder()
    left, right = (b.input(name, x.shape, dtype) for name in "xy")
    graph = canonical(b.build([b.add(op, left, right)]))
    plain = fused_candidate(graph, CpuLaunchSpace())
    launches = (LaunchConfig.of(**{**dict(c.settings), "math": math}) for c in plain.launches)
    program = CPU_BACKEND.program(graph, replace(plain, launches=tuple(launches)))
    assert any(f"af_lane_{op}_{dtype}(" in source.text for source in program.sources)
    found = np.empty(x.shape, dtype.numpy)
    CPU_BACKEND.load(CPU_BACKEND.build(program).artifact, "").run((x, y), (found,))
    wanted = [whole(op, int(p), int(q), dtype) for p, q in zip(x, y, strict=True)]
    np.testing.assert_array_equal(found, np.array(wanted, dtype.numpy))


def whole(op: str, x: int, y: int, dtype: DType) -> int:
    """Python's own integers, as the ops are defined."""
    if y == 0:
        quotient, rest = -1, x
    else:
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        rest = x - quotient * y
    bits = (quotient if op == "div" else rest) % 2**32
    return bits - 2**32 if dtype is DType.I32 and bits >= 2**31 else bits


def test_remainders_beside_other_operations() -> None:
    """In one kernel, whose lanes are those of all of it."""
    graph = trace(lambda a: (a * 3.0 % 1.0) * 2.0 + 1.0, spec((1001,)))
    x = np.random.default_rng(1).standard_normal(1001).astype(np.float32) * 100
    (found,) = autofuse.compile(graph, device="cpu")(x)
    wanted = np.mod(x * np.float32(3.0), np.float32(1.0)) * 2.0 + 1.0
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
