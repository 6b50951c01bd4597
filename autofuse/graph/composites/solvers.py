"""Factorisations of matrices that are too large for loops over columns: calls of a library."""

from __future__ import annotations

import math
from itertools import accumulate

from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.solvers import parts_of

# Rows or columns up to which loops over columns, which fuse with what is around them, are no slower
# than LAPACK is on AVX2, one matrix or a thousand: eliminations and reflections, rotations.
LOOPED, ROTATED = 8, 4


def is_large(w: GraphWriter, *matrices: Value, looped: int = LOOPED) -> bool:
    """Whether a library factorises the first of these matrices: it has more than `looped` rows or
    columns. Where one has no elements none does."""
    shapes = [w.shape(each) for each in matrices]
    return max(shapes[0][-2:]) > looped and all(0 not in shape for shape in shapes)


def by_library(
    w: GraphWriter, op: str, a: Value, *sides: Value, **flags: bool
) -> tuple[Value, ...]:
    """The parts that op `op` (see `autofuse.ops.solvers`) makes of matrices `a`, of their dtype;
    half floats are computed in f32."""
    dtype = w.dtype(a)
    a = w.cast(a, dtype.compute)
    made = w.op(op, a, *(w.cast(v, dtype.compute) for v in sides), **flags)
    shapes = () if sides else parts_of(op, w.type_of(a))
    if len(shapes) < 2:
        return (w.cast(made, dtype),)
    lead = w.shape(a)[:-2]
    ends = accumulate(map(math.prod, shapes), initial=0)
    cut = zip(shapes, ends, strict=False)
    parts = ((w.part(made, len(lead), at, at + math.prod(s)), s) for s, at in cut)
    return tuple(w.cast(w.reshape(part, (*lead, *s)), dtype) for part, s in parts)
