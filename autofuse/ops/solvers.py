"""Factorisations of dense matrices, and solutions with triangular ones, by LAPACK.

Matrices are the last two axes. What has several parts is one array: the parts of each matrix one
after another along its last axis, row-major (`parts_of`), whole numbers among them as floats. An op
has no body: a library does it, in a kernel of its own. Vectors that are known up to their sign
point along a fixed direction (`direction`), so that every computation means the same ones.

Names and packed forms are those of LAPACK (Anderson et al., LAPACK Users' Guide, 3rd edition).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autofuse.ops import checks
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import Solver
from autofuse.ops.spec import AxisMap, Family, OpSpec, Sample, register
from autofuse.ops.types import GraphError, OpCall, TensorType

Arrays = tuple[np.ndarray, ...]
Shape = tuple[int, ...]
DTYPES = (DType.F32, DType.F64)
# Rows or columns: work space is counted in 32-bit integers.
LARGEST = 1 << 14
# The fractional part of the golden ratio: its multiples lie evenly in 0..1 (Weyl).
GOLDEN = 0.6180339887498949


def direction(n: int) -> np.ndarray:
    """f64[n]: what eigenvectors and singular vectors do not point away from. Its elements are no
    small multiples of one another, so that a vector of simple numbers is never at right angles."""
    return np.asarray(0.5 + np.arange(n) * GOLDEN % 1.0)


@dataclass(frozen=True, slots=True)
class _Kind:
    """One op. `parts` are the shapes that it makes of one matrix, `reference` computes them in
    float64 for all matrices, `work` counts operations for one, and `blur` says of matrices how far
    rounding may as well have moved each of their elements, in epsilons, but for a factor that grows
    with the order (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition)."""

    name: str
    parts: Callable[[Solver], tuple[Shape, ...]]
    reference: Callable[[Arrays, Solver], Arrays]
    work: Callable[[Solver], float]
    blur: Callable[[np.ndarray], np.ndarray]
    square: bool = False
    flags: tuple[str, ...] = ()
    # The shape of a second operand, without leading axes.
    second: Callable[[Solver], Shape] | None = None

    def solver(self, c: OpCall) -> Solver:
        *lead, rows, columns = c.ins[0].shape
        inner = c.ins[1].shape[-1] if self.second else 0
        flags = {flag: bool(c[flag]) for flag in self.flags}
        return Solver(self.name, math.prod(lead), rows, columns, inner, **flags)

    def infer(self, c: OpCall) -> tuple[TensorType, ...]:
        checks.operands(c, 2 if self.second else 1)
        checks.dtype_in(checks.same_dtype(c), DTYPES)
        x = c.ins[0]
        if x.rank < 2 or not all(1 <= n <= LARGEST for n in x.shape[-2:]):
            raise GraphError(f"{x} has no matrices of 1 to {LARGEST} rows and columns")
        for flag in self.flags:
            if not isinstance(c[flag], bool):
                raise GraphError(f"attribute '{flag}' is {c[flag]!r}, not true or false")
        own, lead = self.solver(c), x.shape[:-2]
        if self.square and own.rows != own.columns:
            raise GraphError(f"matrices of {own.rows} x {own.columns} are not square")
        if self.second and c.ins[1].shape != (*lead, *self.second(own)):
            raise GraphError(f"{c.ins[1]} does not fit matrices {x}")
        if self.second and not 1 <= own.inner <= LARGEST:
            raise GraphError(f"{c.ins[1]} has no column, or more than {LARGEST}")
        parts = self.parts(own)
        made = parts[0] if len(parts) == 1 else (sum(map(math.prod, parts)),)
        return (TensorType((*lead, *made), x.dtype),)

    def computed(self, arrays: Arrays, c: OpCall) -> Arrays:
        with np.errstate(all="ignore"):
            made = self.reference(arrays, self.solver(c))
        if len(made) == 1:
            return made
        lead = c.ins[0].shape[:-2]
        return (np.concatenate([part.reshape(*lead, -1) for part in made], -1),)

    def blurs(self, arrays: Arrays, c: OpCall) -> Arrays:
        """Rounding errors add up as the root of their number (Higham and Mary 2019)."""
        size = math.sqrt(max(self.solver(c).rows, self.solver(c).columns)) * self.blur(arrays[0])
        return (size, *(np.zeros(a.shape) for a in arrays[1:]))

    def axes(self, c: OpCall) -> AxisMap:
        lead = c.ins[0].rank - 2
        kept = tuple(range(lead)) + (None,) * (c.out.rank - lead)
        return (kept,) * len(c.ins)

    def row(self, cases: tuple[tuple[Shape, ...], ...]) -> OpSpec:
        def samples() -> list[Sample]:
            flags = [dict.fromkeys(self.flags, on) for on in (True, False)[: 1 + bool(self.flags)]]
            return [
                Sample(tuple(TensorType(shape, dtype) for shape in shapes), attrs)
                for dtype in DTYPES
                for shapes in cases
                for attrs in flags
            ]

        return OpSpec(
            name=self.name,
            family=Family.SOLVER,
            infer=self.infer,
            reference=self.computed,
            flops=lambda c: self.solver(c).count * self.work(self.solver(c)),
            samples=samples,
            solves=self.solver,
            blurs=self.blurs,
            axes=self.axes,
            depends=lambda c: ((),) * len(c.ins),
            needed=lambda c, made: tuple(math.prod(t.shape[c.ins[0].rank - 2 :]) for t in c.ins),
        )


def parts_of(name: str, x: TensorType) -> tuple[Shape, ...]:
    """Shapes of the parts that an op of one operand makes of matrices `x`, leading axes apart."""
    kind = KINDS[name]
    return kind.parts(kind.solver(OpCall((("lower", True),), (x,))))


# What float64 says


def _each(
    compute: Callable[[np.ndarray], Arrays], a: np.ndarray, parts: tuple[Shape, ...]
) -> Arrays:
    """`compute` of all matrices; NaN for those that it fails for."""
    lead = a.shape[:-2]
    try:
        return compute(a)
    except np.linalg.LinAlgError:
        made = tuple(np.full((*lead, *part), np.nan) for part in parts)
    for at in np.ndindex(*lead):
        try:
            found = compute(a[at])
        except np.linalg.LinAlgError:
            continue
        for array, own in zip(made, found, strict=True):
            array[at] = own
    return made


def _pointing(vectors: np.ndarray, *others: np.ndarray) -> Arrays:
    """Columns of all arrays, each turned so that the first array's points along `direction`."""
    along = np.einsum("...ij,i->...j", vectors, direction(vectors.shape[-2]))
    sign = np.where(along < 0, -1.0, 1.0)[..., None, :]
    return tuple(np.asarray(v * sign) for v in (vectors, *others))


def _eigh(arrays: Arrays, s: Solver) -> Arrays:
    def compute(a: np.ndarray) -> Arrays:
        values, vectors = np.linalg.eigh(a, UPLO="L" if s.lower else "U")
        return (values, *_pointing(vectors))

    return _each(compute, arrays[0], _values_vectors(s))


def _svd(arrays: Arrays, s: Solver) -> Arrays:
    def compute(a: np.ndarray) -> Arrays:
        u, values, vt = np.linalg.svd(a, full_matrices=False)
        left, right = _pointing(u, vt.swapaxes(-1, -2))
        return values, left, right.swapaxes(-1, -2)

    return _each(compute, arrays[0], _three_parts(s))


def _svdvals(arrays: Arrays, s: Solver) -> Arrays:
    def compute(a: np.ndarray) -> Arrays:
        return (np.linalg.svd(a, compute_uv=False),)

    return _each(compute, arrays[0], _values(s))


def _cholesky(arrays: Arrays, s: Solver) -> Arrays:
    """Only the lower triangle counts."""
    return _each(lambda a: (np.linalg.cholesky(np.tril(a)),), arrays[0], _itself(s))


def _lu(arrays: Arrays, s: Solver) -> Arrays:
    """Gaussian elimination; of equal pivots the first, and nothing is divided by a zero one."""
    a = np.array(arrays[0]).reshape(-1, s.rows, s.columns)
    pivots = np.empty((len(a), s.least))
    every = np.arange(len(a))
    for k in range(s.least):
        at = k + np.argmax(np.abs(a[:, k:, k]), -1)
        pivots[:, k] = at
        a[every, k], a[every, at] = a[every, at], a[every, k].copy()
        top = a[:, k, k][:, None]
        a[:, k + 1 :, k] /= np.where(top == 0, 1.0, top)
        a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k, None] * a[:, k, None, k + 1 :]
    lead = arrays[0].shape[:-2]
    return a.reshape(arrays[0].shape), pivots.reshape(*lead, s.least)


def _geqrf(arrays: Arrays, s: Solver) -> Arrays:
    packed, taus = np.linalg.qr(arrays[0], mode="raw")
    return packed.swapaxes(-1, -2), taus


def _orgqr(arrays: Arrays, s: Solver) -> Arrays:
    """The first columns of I - tau v v^T, one reflection after another, from the last one."""
    a, taus = arrays
    made = np.zeros(a.shape) + np.eye(s.rows, s.columns)
    for k in reversed(range(s.inner)):
        v = np.array(a[..., k])
        v[..., :k], v[..., k] = 0.0, 1.0
        product = np.einsum("...i,...ij->...j", v, made)
        made -= (taus[..., k, None] * v)[..., None] * product[..., None, :]
    return (made,)


def _triangular_solve(arrays: Arrays, s: Solver) -> Arrays:
    a, x = arrays[0], np.array(arrays[1])
    for k in range(s.rows) if s.lower else reversed(range(s.rows)):
        if not s.unit:
            x[..., k, :] /= a[..., k, k, None]
        rest = slice(k + 1, None) if s.lower else slice(0, k)
        x[..., rest, :] -= a[..., rest, k, None] * x[..., k, None, :]
    return (x,)


# Shapes of parts


def _itself(s: Solver) -> tuple[Shape, ...]:
    return ((s.rows, s.columns),)


def _values(s: Solver) -> tuple[Shape, ...]:
    return ((s.least,),)


def _values_vectors(s: Solver) -> tuple[Shape, ...]:
    return ((s.rows,), (s.rows, s.rows))


def _three_parts(s: Solver) -> tuple[Shape, ...]:
    return ((s.least,), (s.rows, s.least), (s.least, s.columns))


def _packed(s: Solver) -> tuple[Shape, ...]:
    return ((s.rows, s.columns), (s.least,))


def _right_side(s: Solver) -> Shape:
    return (s.rows, s.inner)


# Backward errors


def _by_element(a: np.ndarray) -> np.ndarray:
    """Of substitution and of reflections that are given (8.1, 19.3)."""
    return np.asarray(np.abs(a))


def _by_column(a: np.ndarray) -> np.ndarray:
    """Of reflections (19.4)."""
    return np.broadcast_to(np.sqrt(np.square(a).mean(-2, keepdims=True)), a.shape)


def _by_diagonal(a: np.ndarray) -> np.ndarray:
    """Of Cholesky's factorisation (10.5)."""
    own = np.sqrt(np.abs(np.diagonal(a, axis1=-2, axis2=-1)))
    return np.asarray(own[..., :, None] * own[..., None, :])


def _by_norm(a: np.ndarray) -> np.ndarray:
    """Of elimination with exchanges, and of what turns matrices (9.3; Golub and Van Loan, 8.3)."""
    return np.broadcast_to(np.sqrt(np.square(a).mean((-2, -1), keepdims=True)), a.shape)


# Operations of one matrix (Golub and Van Loan, Matrix Computations, 4th edition: 4.2.5, 3.4.1,
# 5.2.2, 8.3.3 with vectors, figure 8.6.1).


def _reflections_work(s: Solver) -> float:
    long, short = max(s.rows, s.columns), s.least
    return 2.0 * short * short * (long - short / 3)


KINDS = {
    kind.name: kind
    for kind in (
        _Kind("cholesky", _itself, _cholesky, lambda s: s.rows**3 / 3, _by_diagonal, square=True),
        _Kind("lu", _packed, _lu, _reflections_work, _by_norm),
        _Kind("geqrf", _packed, _geqrf, _reflections_work, _by_column),
        _Kind(
            "orgqr", _itself, _orgqr, lambda s: 4.0 * s.rows * s.columns * s.inner, _by_element,
            second=lambda s: (s.inner,),
        ),
        _Kind(
            "triangular_solve", lambda s: (_right_side(s),), _triangular_solve,
            lambda s: float(s.rows**2 * s.inner), _by_element, square=True, flags=("lower", "unit"),
            second=_right_side,
        ),
        _Kind(
            "eigh", _values_vectors, _eigh, lambda s: 9.0 * s.rows**3, _by_norm, square=True,
            flags=("lower",),
        ),
        _Kind("svd", _three_parts, _svd, lambda s: 6 * _reflections_work(s), _by_norm),
        _Kind("svdvals", _values, _svdvals, lambda s: 2 * _reflections_work(s), _by_norm),
    )
}  # fmt: skip
_SQUARE = (((5, 5),), ((3, 4, 4),), ((1, 1),), ((33, 33),))
_TALL = (((5, 3),), ((2, 3, 6),), ((4, 4),), ((1, 7),), ((40, 33),))
_CASES: dict[str, tuple[tuple[Shape, ...], ...]] = {
    "cholesky": _SQUARE,
    "eigh": _SQUARE,
    "orgqr": (((5, 3), (3,)), ((2, 6, 6), (2, 4)), ((40, 33), (33,))),
    "triangular_solve": (((5, 5), (5, 2)), ((3, 4, 4), (3, 4, 1)), ((33, 33), (33, 9))),
}

register(*(kind.row(_CASES.get(name, _TALL)) for name, kind in KINDS.items()))
