"""Factorisations and solutions of systems, one matrix for every place of the leading axes.

Each is a loop over columns whose body updates whole matrices, so that a graph is as long for eight
columns as for two; larger ones are left to a library (`solvers.py`). Matrices are the last two
axes; results have the dtype of the first operand, and half floats are computed in f32. `Columns`
names what one step of such a loop reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.graph.composites.order import take_along
from autofuse.graph.composites.solvers import by_library, is_large
from autofuse.graph.loops import LoopWriter
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType


def swapped(w: GraphWriter, x: Value) -> Value:
    """The last two axes exchanged."""
    rank = len(w.shape(x))
    return w.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def triangle(
    w: GraphWriter, x: Value, lower: bool, fill: float = 0.0, strict: bool = False
) -> Value:
    """The elements on and below (or above) the diagonal, `fill` elsewhere; `strict` leaves the
    diagonal out."""
    rows, columns = positions(w, w.shape(x))
    op = ("gt" if lower else "lt") if strict else ("ge" if lower else "le")
    return w.select(w.map(op, rows, columns), x, fill)


def positions(w: GraphWriter, shape: tuple[int, ...]) -> tuple[Value, Value]:
    """The row and the column (i32) of every element of matrices of this shape."""
    rows, columns = shape[-2:]
    own = (w.iota((rows, columns), DType.I32, axis) for axis in (0, 1))
    row, column = (w.spread(v, shape) for v in own)
    return row, column


def eye(w: GraphWriter, shape: tuple[int, ...], dtype: DType) -> Value:
    """Ones on the diagonal of every matrix, zeros elsewhere."""
    rows, columns = positions(w, shape)
    return w.cast(w.map("eq", rows, columns), dtype)


def diagonal(w: GraphWriter, x: Value) -> Value:
    """The diagonals of square matrices."""
    rows, columns = positions(w, w.shape(x))
    return w.reduce("reduce_sum", w.select(w.map("eq", rows, columns), x, 0.0), -1)


@dataclass(frozen=True)
class Columns:
    """Step `k` (i32, ()) of a loop over the columns of matrices of `shape`."""

    w: GraphWriter
    k: Value
    shape: tuple[int, ...]

    def column(self, x: Value) -> Value:
        """Column k of matrices, without its axis."""
        return self.w.op("gather", x, self.k, axis=len(self.w.shape(x)) - 1)

    def row(self, x: Value) -> Value:
        """Row k of matrices, without its axis."""
        return self.w.op("gather", x, self.k, axis=len(self.w.shape(x)) - 2)

    def at(self, column: Value) -> Value:
        """Element k of a column."""
        return self.w.op("gather", column, self.k, axis=len(self.w.shape(column)) - 1)

    def rows(self, op: str) -> Value:
        """Where the number of a row compares so with k, for a column."""
        return self.w.map(op, self._numbers(), self.k)

    def _numbers(self) -> Value:
        *lead, rows, _ = self.shape
        return self.w.spread(self.w.iota((rows,), DType.I32, 0), (*lead, rows))


def outer(w: GraphWriter, column: Value, row: Value) -> Value:
    """column[i] * row[j]."""
    return w.mul(upright(w, column), flat(w, row))


def upright(w: GraphWriter, column: Value) -> Value:
    """A vector as a matrix of one column."""
    return w.reshape(column, (*w.shape(column), 1))


def flat(w: GraphWriter, row: Value) -> Value:
    """A vector as a matrix of one row."""
    *lead, n = w.shape(row)
    return w.reshape(row, (*lead, 1, n))


def behind(w: GraphWriter, stacked: Value, axis: int) -> Value:
    """What a loop stacked along a first axis, with that axis at another place."""
    order = list(range(1, len(w.shape(stacked))))
    order.insert(axis % (len(order) + 1), 0)
    return w.transpose(stacked, order)


# Systems with triangular matrices


def triangular_solve(w: GraphWriter, a: Value, b: Value, lower: bool, unit: bool = False) -> Value:
    """x of a x = b for triangular `a`, of which the other triangle is not read; with `unit` neither
    is the diagonal, which is then 1."""
    if is_large(w, a, b):
        return by_library(w, "triangular_solve", a, b, lower=lower, unit=unit)[0]
    dtype, rank = w.dtype(a), len(w.shape(b))
    a, b = (w.cast(v, dtype.compute) for v in (a, b))
    n = w.shape(a)[-1]
    if n == 0 or 0 in w.shape(b):
        return w.cast(b, dtype)
    if not lower:
        a, b = w.reverse(a, (rank - 2, rank - 1)), w.reverse(b, rank - 2)
    loop = LoopWriter(w, n)
    rest = loop.state(b, "rest")
    c, own = Columns(loop.body, loop.step, w.shape(a)), loop.capture(a)
    column, found = c.column(own), c.row(rest)
    if not unit:
        found = loop.body.div(found, upright(loop.body, c.at(column)))
    below = loop.body.select(c.rows("gt"), column, 0.0)
    _, rows = loop.finish([loop.body.sub(rest, outer(loop.body, below, found))], [found])
    x = behind(w, rows, rank - 2)
    return w.cast(x if lower else w.reverse(x, rank - 2), dtype)


def cholesky(w: GraphWriter, a: Value) -> Value:
    """Lower triangular L of a = L L^T, of which the lower triangle is read; NaN where a matrix is
    not positive definite."""
    if is_large(w, a):
        return by_library(w, "cholesky", a)[0]
    dtype = w.dtype(a)
    a = w.cast(a, dtype.compute)
    if 0 in w.shape(a):
        return w.cast(a, dtype)
    loop = LoopWriter(w, w.shape(a)[-1])
    rest, body = loop.state(a, "rest"), loop.body
    c = Columns(body, loop.step, w.shape(a))
    column = c.column(rest)
    root = body.map("sqrt", c.at(column))
    scaled = body.div(column, upright(body, root))
    made = body.select(c.rows("gt"), scaled, body.select(c.rows("eq"), upright(body, root), 0.0))
    _, columns, roots = loop.finish([body.sub(rest, outer(body, made, made))], [made, root])
    good = w.reduce("reduce_all", w.map("gt", behind(w, roots, -1), 0.0), -1)
    wide = w.broadcast(good, w.shape(a), range(len(w.shape(a)) - 2))
    found = w.select(wide, behind(w, columns, -1), float("nan"))
    return w.cast(triangle(w, found, lower=True), dtype)


# Gaussian elimination


def lu(w: GraphWriter, a: Value) -> tuple[Value, Value, Value]:
    """Both factors of P a = L U in one matrix, the row (i32) that each row was exchanged with in
    turn, and the permutation (i32) of rows; by partial pivoting, of equal pivots the first."""
    if is_large(w, a):
        packed, exchanges = by_library(w, "lu", a)
        pivots = w.cast(exchanges, DType.I32)
        return packed, pivots, permutation(w, pivots, w.shape(a)[-2])
    dtype, shape = w.dtype(a), w.shape(a)
    a, (*lead, rows, columns) = w.cast(a, dtype.compute), shape
    order = w.spread(w.iota((rows,), DType.I32, 0), (*lead, rows))
    steps = min(rows, columns)
    if 0 in shape:
        return w.cast(a, dtype), w.full(0, (*lead, steps), DType.I32), order
    loop = LoopWriter(w, steps)
    rest, places, body = loop.state(a, "rest"), loop.state(order, "order"), loop.body
    c = Columns(body, loop.step, shape)
    size = body.select(c.rows("ge"), body.map("abs", c.column(rest)), -1.0)
    pivot = body.cast(body.op("argmax", size, axis=len(lead)), DType.I32)
    turn = exchanged(body, pivot, loop.step, rows)
    moved = take_along(body, rest, body.spread(upright(body, turn), shape), -2)
    column = c.column(moved)
    top = upright(body, c.at(column))
    factor = body.div(column, body.select(body.map("eq", top, 0.0), 1.0, top))
    after = body.sub(moved, outer(body, factor, c.row(moved)))
    at = positions(body, shape)[1]
    left = body.select(body.map("eq", at, loop.step), upright(body, factor), moved)
    below = body.select(body.map("gt", at, loop.step), after, left)
    made = body.select(upright(body, c.rows("gt")), below, moved)
    last, places, pivots = loop.finish([made, take_along(body, places, turn)], [pivot])
    return w.cast(last, dtype), behind(w, pivots, -1), places


def exchanged(w: GraphWriter, one: Value, other: Value, count: int) -> Value:
    """0, 1, ... below `count`, with numbers `one` (one for each place) and `other` exchanged."""
    shape = (*w.shape(one), count)
    numbers = w.spread(w.iota((count,), DType.I32, 0), shape)
    wide = upright(w, one)
    moved = w.select(w.map("eq", numbers, wide), other, numbers)
    return w.select(w.map("eq", numbers, other), wide, moved)


def permutation(w: GraphWriter, pivots: Value, count: int) -> Value:
    """The permutation (i32) of `count` rows that exchanging rows 0, 1, ... with `pivots` makes."""
    *lead, steps = w.shape(pivots)
    order = w.spread(w.iota((count,), DType.I32, 0), (*lead, count))
    if not steps or 0 in lead:
        return order
    loop = LoopWriter(w, steps)
    places, body = loop.state(order, "order"), loop.body
    one = body.op("gather", loop.capture(w.cast(pivots, DType.I32)), loop.step, axis=len(lead))
    turn = exchanged(body, one, loop.step, count)
    return loop.finish([take_along(body, places, turn)])[0]


# Reflections


def geqrf(w: GraphWriter, a: Value) -> tuple[Value, Value]:
    """R and below it the vectors of Householder's reflections I - tau v v^T, as LAPACK keeps them,
    and tau of each."""
    if is_large(w, a):
        packed, taus = by_library(w, "geqrf", a)
        return packed, taus
    dtype, shape = w.dtype(a), w.shape(a)
    a, (*lead, rows, columns) = w.cast(a, dtype.compute), shape
    steps = min(rows, columns)
    if 0 in shape:
        return w.cast(a, dtype), w.full(0, (*lead, steps), dtype)
    loop = LoopWriter(w, steps)
    rest, body = loop.state(a, "rest"), loop.body
    c = Columns(body, loop.step, shape)
    column = c.column(rest)
    v, tau, beta = _reflection(c, column)
    product = body.reduce("reduce_sum", body.mul(rest, upright(body, v)), -2)
    after = body.sub(rest, outer(body, body.mul(v, upright(body, tau)), product))
    packed = body.select(c.rows("gt"), v, body.select(c.rows("eq"), upright(body, beta), column))
    at = positions(body, shape)[1]
    made = body.select(body.map("gt", at, loop.step), after, rest)
    made = body.select(body.map("eq", at, loop.step), upright(body, packed), made)
    last, taus = loop.finish([made], [tau])
    return w.cast(last, dtype), w.cast(behind(w, taus, -1), dtype)


def _reflection(c: Columns, column: Value) -> tuple[Value, Value, Value]:
    """v, tau and what remains of the column at k: nothing is reflected where there is nothing below
    k already (LAPACK's larfg)."""
    w, alpha = c.w, c.at(column)
    below = w.select(c.rows("gt"), column, 0.0)
    power = w.reduce("reduce_sum", w.mul(below, below), -1)
    none = w.map("eq", power, 0.0)
    size = w.map("sqrt", w.add(w.mul(alpha, alpha), power))
    turned = w.select(w.map("ge", alpha, 0.0), w.map("neg", size), size)
    beta = w.select(none, alpha, turned)
    tau = w.select(none, 0.0, w.div(w.sub(turned, alpha), w.select(none, 1.0, turned)))
    scale = w.select(none, 1.0, w.sub(alpha, turned))
    v = w.div(below, upright(w, scale))
    return w.select(c.rows("eq"), 1.0, v), tau, beta


def householder_product(w: GraphWriter, a: Value, taus: Value) -> Value:
    """The first columns of the product of reflections that `geqrf` packs in `a`."""
    if is_large(w, a, taus):
        return by_library(w, "orgqr", a, taus)[0]
    dtype, shape, steps = w.dtype(a), w.shape(a), w.shape(taus)[-1]
    a, taus = (w.cast(v, dtype.compute) for v in (a, taus))
    start = eye(w, shape, dtype.compute)
    if not steps or 0 in shape:
        return w.cast(start, dtype)
    loop = LoopWriter(w, steps)
    made, body = loop.state(start, "made"), loop.body
    c = Columns(body, body.sub(steps - 1, loop.step), shape)
    below = body.select(c.rows("gt"), c.column(loop.capture(a)), 0.0)
    v = body.select(c.rows("eq"), 1.0, below)
    scaled = body.mul(v, upright(body, c.at(loop.capture(taus))))
    product = body.reduce("reduce_sum", body.mul(made, upright(body, v)), -2)
    return w.cast(loop.finish([body.sub(made, outer(body, scaled, product))])[0], dtype)


def qr(w: GraphWriter, a: Value, full: bool) -> tuple[Value, Value]:
    """Q and upper triangular R of a = Q R; `full`: Q is square, else it has no more columns than
    rows or columns of `a`."""
    *lead, rows, columns = w.shape(a)
    if 0 in (rows, columns):
        inner = rows if full else 0
        made = eye(w, (*lead, rows, inner), w.dtype(a))
        return made, w.full(0, (*lead, inner, columns), w.dtype(a))
    packed, taus = geqrf(w, a)
    axis = len(lead) + 1
    vectors = packed if rows >= columns else w.part(packed, axis, 0, rows)
    if full and rows > columns:
        empty = w.full(0, (*lead, rows, rows - columns), w.dtype(a))
        vectors = w.concat((vectors, empty), axis)
    upper = triangle(w, packed, lower=False)
    q = householder_product(w, vectors, taus)
    return q, upper if full or rows <= columns else w.part(upper, axis - 1, 0, columns)


# Systems of three diagonals


def tridiagonal_solve(w: GraphWriter, low: Value, d: Value, high: Value, b: Value) -> Value:
    """x of A x = b where A has the diagonals low (its first element is not read), d and high (its
    last one is not read); by Gaussian elimination with exchanges of neighbours (LAPACK's gtsv)."""
    dtype, n = w.dtype(b), w.shape(d)[-1]
    if 0 in w.shape(b):
        return b
    low, d, high = (upright(w, w.cast(v, dtype.compute)) for v in (low, d, high))
    rows = len(w.shape(b)) - 2
    lines = [behind_first(w, v, rows) for v in (low, d, high, w.cast(b, dtype.compute))]
    if n == 1:
        return w.cast(w.div(b, d), dtype)
    eliminated = _eliminated(w, lines, n)
    loop = LoopWriter(w, n)
    zero = w.full(0.0, w.shape(lines[3])[1:], dtype.compute)
    x1, x2 = loop.state(zero, "next"), loop.state(zero, "after")
    body, at = loop.body, loop.body.sub(n - 1, loop.step)
    pivot, first, second, right = (
        body.op("gather", loop.capture(v), at, axis=0) for v in eliminated
    )
    x = body.sub(body.sub(right, body.mul(first, x1)), body.mul(second, x2))
    x = body.div(x, pivot)
    *_, found = loop.finish([x, x1], [x])
    return w.cast(behind(w, w.reverse(found, 0), rows), dtype)


def behind_first(w: GraphWriter, x: Value, axis: int) -> Value:
    """One axis before all others."""
    rank = len(w.shape(x))
    return w.transpose(x, (axis, *(a for a in range(rank) if a != axis)))


def _eliminated(w: GraphWriter, lines: list[Value], n: int) -> list[Value]:
    """The rows of the upper triangular system, along a first axis: pivot, first and second element
    behind it, right side."""
    low, d, high, b = lines
    high = w.concat((w.part(high, 0, 0, n - 1), w.full(0, (1, *w.shape(high)[1:]), w.dtype(b))), 0)
    loop = LoopWriter(w, n - 1)
    first = [w.reshape(w.part(v, 0, 0, 1), w.shape(v)[1:]) for v in (d, high, b)]
    pivot, right, own = (loop.state(v) for v in first)
    body, at = loop.body, loop.body.add(loop.step, 1)
    under, e, u, c = (body.op("gather", loop.capture(v), at, axis=0) for v in (low, d, high, b))
    stays = body.map("ge", body.map("abs", pivot), body.map("abs", under))
    top, bottom = body.select(stays, pivot, under), body.select(stays, under, pivot)
    factor = body.div(bottom, top)
    ends = [(right, e), (body.full(0, body.shape(u), body.dtype(u)), u), (own, c)]
    kept = [body.select(stays, p, q) for p, q in ends]
    other = [body.select(stays, q, p) for p, q in ends]
    after = [body.sub(o, body.mul(factor, k)) for o, k in zip(other, kept, strict=True)]
    pivot, right, own, *stacks = loop.finish(after, [top, *kept])
    none = w.full(0, w.shape(right), w.dtype(right))
    last = (pivot, right, none, own)
    return [
        w.concat((s, w.reshape(v, (1, *w.shape(v)))), 0) for s, v in zip(stacks, last, strict=True)
    ]
