"""Equations: banded and sparse systems, and one solved by iteration."""

from __future__ import annotations

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.types import Graph

Array = TracedArray
# Kepler's equation is solved when both sides differ by no more than this, in radians.
CONVERGED = 1e-5


def thomas(length: int, systems: int) -> Graph:
    """`systems` tridiagonal systems of `length` unknowns by Thomas' algorithm: the three diagonals
    and the right side, f32[length, systems] each; the first of lower and the last of upper are not
    used."""

    def fn(lower: Array, diagonal: Array, upper: Array, right: Array) -> dict[str, Array]:
        def eliminate(t: Array, above: tuple[Array, ...]) -> tuple[tuple[Array, ...], object]:
            factor, value = above
            low, middle, high, side = (
                xp.take(a, t, axis=0) for a in (lower, diagonal, upper, right)
            )
            low = xp.where(t == 0, 0.0, low)
            pivot = 1.0 / (middle - low * factor)
            now = high * pivot, (side - low * value) * pivot
            return now, now

        nothing = xp.zeros(systems)
        _, (factors, values) = xp.scan(eliminate, (nothing, nothing), length)

        def substitute(t: Array, below: Array) -> tuple[Array, Array]:
            at = length - 1 - t
            factor = xp.where(t == 0, 0.0, xp.take(factors, at, axis=0))
            now = xp.take(values, at, axis=0) - factor * below
            return now, now

        _, found = xp.scan(substitute, nothing, length)
        return {"x": xp.flip(found, axis=0)}

    side = spec((length, systems), low=-1, high=1)
    return trace(fn, side, spec((length, systems), low=3, high=4), side, side)


def sparse_product(rows: int, columns: int, entries: int) -> Graph:
    """A sparse matrix in compressed rows times x f32[columns]: values f32[entries] in the columns
    i32[entries]; ends i32[rows - 1] says, in any order, before which entry each row but the last
    ends."""

    def fn(values: Array, columns_of: Array, ends: Array, x: Array) -> dict[str, Array]:
        # As many rows have ended before an entry as its own row's number.
        ended = xp.scatter(xp.zeros(entries, "i32"), ends, 1, combine="add")
        row = xp.cumulative_sum(ended)
        return {"y": xp.segment_sum(values * xp.take(x, columns_of), row, rows)}

    return trace(
        fn, spec(entries, low=-1, high=1), spec(entries, "i32", low=0, high=columns - 1),
        spec(rows - 1, "i32", low=0, high=entries - 1), spec(columns, low=-1, high=1),
    )  # fmt: skip


def kepler(bodies: int, bound: int) -> Graph:
    """The eccentric anomaly e with e - eccentricity sin(e) = mean, f32[bodies] each, by Newton's
    method, each until it has converged, in no more than `bound` iterations."""

    def fn(mean: Array, eccentricity: Array) -> dict[str, Array]:
        def error(found: Array) -> Array:
            return found - eccentricity * xp.sin(found) - mean

        def far(found: Array) -> Array:
            return xp.abs(error(found)) > CONVERGED

        def better(found: Array) -> Array:
            return found - error(found) / (1.0 - eccentricity * xp.cos(found))

        start = mean + eccentricity * xp.sin(mean)
        return {"anomaly": xp.while_loop(far, better, start, max_trips=bound)}

    return trace(fn, spec(bodies, low=0, high=6.28), spec(bodies, low=0, high=0.8))
