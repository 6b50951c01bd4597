"""Random factorisations: of matrices that are far from being singular, so that rounding moves
their parts by little."""

from __future__ import annotations

import math

import numpy as np

from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType
from benchmarks.fuzz.elementwise import Move
from benchmarks.fuzz.maker import Made, Maker

_SQUARE = ("cholesky", "eigh", "triangular_solve")
# No element of a part is larger than the norm of its matrix.
_NORM = 60.0


def solver(op: str) -> Move:
    """Draws a call of `op`."""

    def move(m: Maker) -> None:
        dtype = m.dtype((DType.F32, DType.F64))
        rows = m.choice((1, 2, 3, 5, 8, 17))
        columns = rows if op in _SQUARE else m.choice((1, 2, 4, 7, 16))
        if op == "orgqr":
            columns = min(rows, columns)
        lead = m.shape(m.choice((0, 0, 1)), 4)
        if math.prod(lead) == 0:
            return
        a, inner = _matrix(m, TensorType((*lead, rows, columns), dtype), op), m.choice((1, 3))
        if op == "triangular_solve":
            b = m.within(m.of_type(TensorType((*lead, rows, inner), dtype)), -1, 1)
            made = m.add(op, [a, b], -_NORM, _NORM, lower=m.chance(0.5), unit=m.chance(0.3))
        elif op == "orgqr":
            taus = m.within(m.of_type(TensorType((*lead, columns), dtype)), 0.0, 1.0)
            made = m.add(op, [a, taus], -_NORM, _NORM)
        else:
            flags = {"lower": m.chance(0.5)} if op == "eigh" else {}
            made = m.add(op, [a], -_NORM, _NORM, **flags)
        m.keep(made)

    return move


def _matrix(m: Maker, type_: TensorType, op: str) -> Made:
    """Elements within a tenth, and numbers that differ by more than that on the diagonal."""
    rows, columns = type_.shape[-2:]
    small = m.within(m.of_type(type_), -0.1, 0.1)
    if op == "orgqr":
        return small
    diagonal = np.zeros((rows, columns))
    np.fill_diagonal(diagonal, 2.0 + np.arange(min(rows, columns)) * 0.75)
    stored = np.broadcast_to(diagonal, type_.shape).astype(type_.dtype.numpy)
    large = Made(m.builder.constant(stored, type_.dtype), type_, 0.0, 16.0)
    return m.add("add", [small, large], -0.1, 16.1)
