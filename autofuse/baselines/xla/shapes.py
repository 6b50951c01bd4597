"""Our ops as XLA:GPU sees them: the facts its fusion rules ask for, once per node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.spec import Family, spec_of
from autofuse.ops.types import OpCall
from autofuse.ops.window_reduction import sliding_axes

WARP = 32
# The expensive-op list, by our names. XLA expands tan, sinh and cosh into quotients and
# exponentials, asin, acos and atan into atan2; erf becomes a polynomial, which is cheap.
EXPENSIVE = frozenset((
    "exp", "expm1", "log", "log1p", "logistic", "pow", "tanh", "tan", "sinh", "cosh", "atan2",
    "asin", "acos", "atan", "sqrt", "rsqrt", "div", "reciprocal", "rem",
))  # fmt: skip
# The GPU override: cheap in f32 and f16 because the hardware has fast forms.
CHEAP_ON_GPU = frozenset(("div", "reciprocal", "rsqrt", "exp", "tan", "sinh", "cosh"))
# Ops after which an emitter may not reuse what it computed for another index.
INVALIDATES_CACHE = frozenset(("concat", "dot_general", "pad"))


@dataclass(frozen=True, slots=True)
class Fact:
    """One node in XLA's terms; byte counts are of its (first) output."""

    node: int
    op: str
    shape: tuple[int, ...]
    dtype: DType
    size: int
    nbytes: int
    operands: tuple[Value, ...]  # distinct arrays read; scalar constants are part of the kernel
    raw_operands: tuple[int, ...]  # operand nodes with repeats, scalar constants included
    scalars: int  # scalar constants read
    library: bool  # a call of its own: nothing fuses into or out of it
    elementwise: bool
    loop_fusible: bool
    expensive: bool
    fast: str  # "row", "column" or "" : what the reduction emitter does with it
    loops: bool  # an elemental reduction or an overlapping window: emits a loop inside a kernel
    reuses: bool  # reads an operand element for several output elements
    invalidates: bool
    keeps_index: bool  # hands the index it gets on to operands of any shape (transpose)
    duplicable: bool  # may be duplicated even by the pass that duplicates nothing
    transposes: bool
    bitcast: bool
    outputs: int
    shared_bytes: int
    loop_shape: tuple[int, ...]  # the iteration space: for a fast reduction, that of its input
    axes: tuple[int, ...]  # reduced axes of a reduction

    def repeats(self, value: Value) -> bool:
        """Whether elements of operand `value` are read for several elements of the output; a
        padded array's own are not, its padding is."""
        padding = self.op == "pad" and value.node == self.raw_operands[1]
        return self.reuses or (padding and value.node != self.raw_operands[0])

    @property
    def true_rank(self) -> int:
        return sum(n > 1 for n in self.shape)


# Families that are calls of a library, or kernels of XLA's own.
LIBRARIES = (
    Family.CONTRACTION, Family.RANDOM, Family.CONTROL, Family.SORT, Family.SOLVER,
)  # fmt: skip


def is_library(family: Family, op: str) -> bool:
    """Whether XLA calls a library for the op: contractions, loops, sorting (kernels of its
    own), Fourier transforms, and random numbers, which XLA:GPU of 2022 drew by a custom call
    (Threefry too)."""
    barrier = family in LIBRARIES
    return barrier or op == "threefry2x32" or spec_of(op).transforms is not None


def slides(family: Family, op: str) -> bool:
    """Whether XLA has the op as a reduce-window: a running fold is one, too."""
    return family in (Family.SCAN, Family.WINDOW) and not is_library(family, op)


def _overlaps(family: Family, op: str, call: OpCall) -> bool:
    if not slides(family, op):
        return False
    if family is Family.WINDOW:
        return any(axis.overlaps for axis in sliding_axes(call))
    return family is Family.SCAN


def is_expensive(op: str, family: Family, dtype: DType, call: OpCall) -> bool:
    """The expensive-op list with the GPU override."""
    if family is Family.REDUCTION or slides(family, op) or op == "gather":
        return True
    if op in CHEAP_ON_GPU and dtype in (DType.F32, DType.F16):
        return False
    return op in EXPENSIVE


def _divides_by_constant(graph: Graph, node: int) -> bool:
    """An integer quotient or remainder by a constant: a multiplication and a shift."""
    found = graph[node]
    if found.op not in ("div", "rem") or not found.types[0].dtype.is_int:
        return False
    divisor = graph[found.inputs[1].node]
    if divisor.op == "broadcast":
        divisor = graph[divisor.inputs[0].node]
    return divisor.op == "constant"


def _consecutive(axes: Sequence[int]) -> bool:
    return all(b == a + 1 for a, b in pairwise(axes))


# Column reductions of fewer elements in fewer columns are slow.
_SLOW_COLUMNS = ((32, math.inf), (64, 32), (128, 8), (256, 3))


def reduction_kind(shape: Sequence[int], axes: Sequence[int]) -> str:
    """What the fast reduction emitter makes of reducing `axes`: "row", "column", or "" when only
    the elemental emitter can. Axes of one element do not count."""
    extents, gone, kept = _without_units(shape, axes)
    if not (_consecutive(gone) or _consecutive(kept)):
        return ""
    if not kept or gone[-1:] == [len(extents) - 1]:
        # One row, rows of (kept, reduced), or a batch of rows (reduced, kept, reduced).
        length = _after(kept, gone, extents)
        return "row" if length >= WARP or WARP % max(length, 1) == 0 else ""
    reduced, minor = math.prod(extents[k] for k in gone), _after(gone, kept, extents)
    return "" if _is_slow(reduced, minor) else "column"


def _is_slow(reduced: int, columns: int) -> bool:
    return any(reduced < least and columns < fewest for least, fewest in _SLOW_COLUMNS)


def _without_units(shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], ...]:
    """Extents of the axes of more than one element, and which of those are reduced and kept."""
    real = [a for a, n in enumerate(shape) if n != 1]
    gone = [k for k, a in enumerate(real) if a in axes]
    kept = sorted(set(range(len(real))) - set(gone))
    return [shape[a] for a in real], gone, kept


def _after(some: Sequence[int], others: Sequence[int], extents: Sequence[int]) -> int:
    """Elements along the others behind the last of some."""
    return math.prod(extents[k] for k in others if not some or k > some[-1])


def _is_bitcast(op: str, call: OpCall) -> bool:
    """Whether the op only renames a row-major array: same elements in the same order."""
    if op == "reshape":
        return True
    if op == "transpose":
        moved = [a for a in call["perm"] if call.ins[0].shape[a] != 1]
        return moved == sorted(moved)
    if op in ("broadcast", "slice") or op.startswith("reduce_"):
        return call.ins[0].size == call.out.size
    return False


def _shared_bytes(kind: str, item: int, variadic: int) -> int:
    if kind == "row":
        return 32 * item * variadic
    return 2 * 32 * 33 * item if kind == "column" else 0


def fact_of(graph: Graph, node: int, inlined: Sequence[bool]) -> Fact:
    """The facts of one computed node; `inlined` marks the scalar constants."""
    found, call = graph[node], graph.call(node)
    family, op, out = found.spec.family, found.op, found.types[0]
    library, bitcast = is_library(family, op), _is_bitcast(op, call)
    reduction = family is Family.REDUCTION and not bitcast
    variadic = 2 if op in ("argmax", "argmin") else 1
    axes = reduced_axes(call) if reduction else ()
    kind = reduction_kind(call.ins[0].shape, axes) if reduction else ""
    array_inputs = [v for v in found.inputs if not inlined[v.node]]
    widens = op == "cast" and out.dtype.itemsize > call.ins[0].dtype.itemsize
    return Fact(
        node=node,
        op=op,
        shape=out.shape,
        dtype=out.dtype,
        size=out.size,
        nbytes=out.nbytes,
        operands=tuple(dict.fromkeys(array_inputs)),
        raw_operands=tuple(v.node for v in found.inputs),
        scalars=len({v.node for v in found.inputs if inlined[v.node]}),
        library=library,
        elementwise=family is Family.ELEMENTWISE and not library,
        loop_fusible=not library and not kind and not (reduction and variadic > 1),
        expensive=is_expensive(op, family, out.dtype, call)
        and not (bitcast or _divides_by_constant(graph, node)),
        fast=kind,
        loops=_overlaps(family, op, call) or (reduction and not kind),
        reuses=not bitcast and (op == "broadcast" or slides(family, op)),
        invalidates=op in INVALIDATES_CACHE or slides(family, op) or reduction,
        keeps_index=op == "transpose",
        duplicable=(op == "broadcast" and not bitcast) or widens,
        transposes=op == "transpose" and not bitcast,
        bitcast=bitcast,
        outputs=max(len(found.types), variadic),
        shared_bytes=_shared_bytes(kind, call.ins[0].dtype.itemsize, variadic) if kind else 0,
        loop_shape=call.ins[0].shape if kind else out.shape,
        axes=axes,
    )
