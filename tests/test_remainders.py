"""Remainders of f32 in C, which vectors compute: to the bit what C's own function gives."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse
from autofuse import spec, trace
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType

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


def test_remainders_beside_other_operations() -> None:
    """In one kernel, whose lanes are those of all of it."""
    graph = trace(lambda a: (a * 3.0 % 1.0) * 2.0 + 1.0, spec((1001,)))
    x = np.random.default_rng(1).standard_normal(1001).astype(np.float32) * 100
    (found,) = autofuse.compile(graph, device="cpu")(x)
    wanted = np.mod(x * np.float32(3.0), np.float32(1.0)) * 2.0 + 1.0
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
