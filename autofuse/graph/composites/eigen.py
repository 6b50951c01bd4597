"""Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations.

All pairs of columns are rotated once in a sweep, as many at the same time as there are disjoint
ones (Brent and Luk 1985): each column has a partner in every round. Convergence is quadratic, so
that a fixed number of sweeps reaches the rounding of the dtype for the orders that are taken.
"""

from __future__ import annotations

import numpy as np

from autofuse.graph.composites.linalg import (
    diagonal,
    eye,
    flat,
    qr,
    swapped,
    triangle,
    upright,
)
from autofuse.graph.composites.order import argsort, take_along
from autofuse.graph.composites.solvers import ROTATED, by_library, is_large
from autofuse.graph.loops import LoopWriter
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType


def partners(order: int) -> np.ndarray:
    """i32[rounds, order]: the partner of each column in every round of a sweep (a round-robin
    tournament); who has none is its own."""
    players = order + order % 2
    ring, rounds = list(range(players)), []
    for _ in range(players - 1):
        met = np.arange(order, dtype=np.int32)
        for one, other in zip(ring[: players // 2], ring[::-1], strict=False):
            if max(one, other) < order:
                met[one], met[other] = other, one
        rounds.append(met)
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return np.stack(rounds)


def sweeps(order: int, dtype: DType) -> int:
    """How many sweeps are enough: some more for every doubling of the order."""
    return (5 if dtype is DType.F32 else 6) + order.bit_length()


def eigh(w: GraphWriter, a: Value, lower: bool = True) -> tuple[Value, Value]:
    """Eigenvalues of symmetric matrices, ascending, and their vectors as columns; the other
    triangle is not read."""
    if is_large(w, a, looped=ROTATED):
        values, vectors = by_library(w, "eigh", a, lower=lower)
        return values, vectors
    dtype, shape = w.dtype(a), w.shape(a)
    a, (*lead, n, _) = w.cast(a, dtype.compute), shape
    a = w.add(triangle(w, a, lower), swapped(w, triangle(w, a, lower, strict=True)))
    vectors = eye(w, shape, w.dtype(a))
    if n > 1 and 0 not in lead:
        a, vectors = _diagonalised(w, a, vectors)
    values = diagonal(w, a)
    return _in_order(w, values, vectors, dtype, descending=False)


def _in_order(
    w: GraphWriter, values: Value, vectors: Value, dtype: DType, descending: bool
) -> tuple[Value, Value]:
    if w.shape(values)[-1] > 1 and w.type_of(values).size:
        order = argsort(w, values, -1, descending)
        places = w.spread(flat(w, order), w.shape(vectors))
        values, vectors = take_along(w, values, order), take_along(w, vectors, places)
    return w.cast(values, dtype), w.cast(vectors, dtype)


def _diagonalised(w: GraphWriter, a: Value, vectors: Value) -> tuple[Value, Value]:
    """V^T a V, whose elements off the diagonal vanish, and `vectors` V."""
    shape = w.shape(a)
    pairs = partners(shape[-1])
    loop = LoopWriter(w, len(pairs) * sweeps(shape[-1], w.dtype(a)))
    matrix, made, body = loop.state(a, "matrix"), loop.state(vectors, "vectors"), loop.body
    met = _met(body, pairs, loop.step)
    own = diagonal(body, matrix)
    columns = body.op("gather", matrix, met, axis=len(shape) - 1)
    other = body.op("gather", own, met, axis=len(shape) - 2)
    # The element of each column in the row of its partner is the diagonal of exchanged columns.
    cosine, sine = _rotation(body, own, other, diagonal(body, columns), met)
    turned = _turned(body, matrix, columns, cosine, sine)
    rows = body.op("gather", turned, met, axis=len(shape) - 2)
    whole = body.sub(body.mul(upright(body, cosine), turned), body.mul(upright(body, sine), rows))
    moved = body.op("gather", made, met, axis=len(shape) - 1)
    new = _turned(body, made, moved, cosine, sine)
    found, made = loop.finish([whole, new])
    return found, made


def _met(body: GraphWriter, pairs: np.ndarray, step: Value) -> Value:
    """The partners in one round of the loop."""
    at = body.map("rem", step, len(pairs)) if len(pairs) > 1 else body.constant(0, DType.I32)
    return body.op("gather", body.constant(pairs, DType.I32), at, axis=0)


def _turned(body: GraphWriter, x: Value, partner: Value, cosine: Value, sine: Value) -> Value:
    """Columns rotated, given those of their partners."""
    return body.sub(body.mul(flat(body, cosine), x), body.mul(flat(body, sine), partner))


def _rotation(
    w: GraphWriter, own: Value, other: Value, between: Value, met: Value
) -> tuple[Value, Value]:
    """The cosine and sine by which each column turns against its partner, so that `between` becomes
    zero (Golub and Van Loan, Matrix Computations, section 8.5); partners turn by opposite
    angles."""
    rest = w.map("eq", between, 0.0)
    numbers = w.iota((w.shape(own)[-1],), DType.I32, 0)
    alone = w.spread(w.map("eq", numbers, met), w.shape(own))
    first = w.spread(w.map("lt", numbers, met), w.shape(own))
    theta = w.div(w.sub(other, own), w.mul(w.select(rest, 1.0, between), 2.0))
    up = w.map("or", w.map("gt", theta, 0.0), w.map("and", w.map("eq", theta, 0.0), first))
    size = w.map("abs", theta)
    tangent = w.div(1.0, w.add(size, w.map("sqrt", w.add(w.mul(size, size), 1.0))))
    tangent = w.select(up, tangent, w.map("neg", tangent))
    tangent = w.select(w.map("or", rest, alone), 0.0, tangent)
    cosine = w.map("rsqrt", w.add(w.mul(tangent, tangent), 1.0))
    return cosine, w.mul(tangent, cosine)


def svd(w: GraphWriter, a: Value, full: bool) -> tuple[Value, Value, Value]:
    """Singular values of matrices, descending, their left vectors as columns and their right ones
    as rows; by rotations of columns (Hestenes 1958), left vectors by reflections, which make those
    of what vanishes."""
    rows, columns = w.shape(a)[-2:]
    if rows < columns:
        values, left, right = svd(w, swapped(w, a), full)
        return values, swapped(w, right), swapped(w, left)
    if is_large(w, a, looped=ROTATED):
        values, left, right = by_library(w, "svd", a)
        return values, _completed(w, left, full) if full else left, right
    dtype = w.dtype(a)
    a, lead = w.cast(a, dtype.compute), w.shape(a)[:-2]
    made, right = a, eye(w, (*lead, columns, columns), w.dtype(a))
    if columns > 1 and 0 not in lead:
        made, right = _orthogonal(w, a, right)
    values = w.map("sqrt", w.reduce("reduce_sum", w.mul(made, made), -2))
    both = w.concat((made, right), len(lead))
    values, both = _in_order(w, values, both, w.dtype(a), descending=True)
    made, right = (w.part(both, len(lead), *ends) for ends in ((0, rows), (rows, rows + columns)))
    left = _completed(w, made, full)
    return w.cast(values, dtype), w.cast(left, dtype), w.cast(swapped(w, right), dtype)


def singular_values(w: GraphWriter, a: Value) -> Value:
    """Those of matrices, descending."""
    if is_large(w, a, looped=ROTATED):
        return by_library(w, "svdvals", a)[0]
    return svd(w, a, full=False)[0]


def _completed(w: GraphWriter, columns: Value, full: bool) -> Value:
    """Columns at right angles, scaled to length 1 by reflections, which make those of what
    vanishes; `full`: as many as there are rows."""
    left, upper = qr(w, columns, full)
    return w.mul(left, flat(w, _signs(w, upper, w.shape(left)[-1])))


def _signs(w: GraphWriter, upper: Value, count: int) -> Value:
    """Those of a diagonal, as 1 or -1, and 1 for so many columns as it does not have."""
    *lead, _, columns = w.shape(upper)
    own = diagonal(w, w.part(upper, len(lead), 0, columns))
    signs = w.select(w.map("lt", own, 0.0), -1.0, w.full(1.0, w.shape(own), w.dtype(own)))
    if count == columns:
        return signs
    ones = w.full(1.0, (*lead, count - columns), w.dtype(own))
    return w.concat((signs, ones), len(lead))


def _orthogonal(w: GraphWriter, a: Value, right: Value) -> tuple[Value, Value]:
    """a V, whose columns are orthogonal, and `right` V."""
    shape = w.shape(a)
    pairs = partners(shape[-1])
    loop = LoopWriter(w, len(pairs) * sweeps(shape[-1], w.dtype(a)))
    matrix, made, body = loop.state(a, "matrix"), loop.state(right, "right"), loop.body
    met, axis = _met(body, pairs, loop.step), len(shape) - 1
    columns = body.op("gather", matrix, met, axis=axis)
    own = body.reduce("reduce_sum", body.mul(matrix, matrix), -2)
    between = body.reduce("reduce_sum", body.mul(matrix, columns), -2)
    other = body.op("gather", own, met, axis=axis - 1)
    cosine, sine = _rotation(body, own, other, between, met)
    turned = _turned(body, matrix, columns, cosine, sine)
    new = _turned(body, made, body.op("gather", made, met, axis=axis), cosine, sine)
    found, made = loop.finish([turned, new])
    return found, made
