"""GEMMs of whole arrays, for tests of what computes them."""

from __future__ import annotations

import numpy as np

from autofuse.ops.contraction import BatchAxis, GemmForm, Matrix


def contiguous(
    batch: int, m: int, n: int, k: int, trans_a: bool = False, trans_b: bool = False
) -> GemmForm:
    """A stored [batch, m, k], or [batch, k, m] when `trans_a`, and B accordingly."""
    a = Matrix(0, m if trans_a else k, trans_a)
    b = Matrix(0, k if trans_b else n, trans_b)
    return GemmForm(m, n, k, a, b, (BatchAxis(batch, m * k, k * n, m * n),) if batch > 1 else ())


def multiplied(form: GemmForm, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The products of two arrays, read as BLAS reads them; what lies outside is refused."""
    extents = tuple(axis.extent for axis in form.batch)

    def matrix(flat: np.ndarray, lies: Matrix, shape: tuple[int, int], *steps: int) -> np.ndarray:
        width, own = flat.itemsize, (1, lies.leading) if lies.transposed else (lies.leading, 1)
        strides = tuple(width * by for by in (*steps, *own))
        return np.ndarray((*extents, *shape), flat.dtype, flat, width * lies.offset, strides)

    left = matrix(a.reshape(-1), form.a, (form.m, form.k), *(axis.a for axis in form.batch))
    right = matrix(b.reshape(-1), form.b, (form.k, form.n), *(axis.b for axis in form.batch))
    return left @ right
