"""Where the operands of a product lie: as a matrix in memory, or in panels that a kernel fills."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.graph.types import Value
from autofuse.kernel.values import Frame
from autofuse.ops import index as ix
from autofuse.ops.contraction import contract_shape, operand_indices
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Load, Sym
from autofuse.ops.spec import Family, Index
from autofuse.ops.types import OpCall
from autofuse.plan.tiles import Product


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand in memory: element (i, k) is buffer[start + i * along + k * term], where i counts
    its rows or columns and k the terms."""

    buffer: str
    start: Expr
    along: int
    term: int


class _NotPlainError(Exception):
    """An element that is computed, not just found in memory."""


def term_order(call: OpCall, product: Product) -> tuple[int, ...]:
    """The contracted axes in the order in which they lie in the left operand."""
    axes = call["lhs_contract"] if product.left == 0 else call["rhs_contract"]
    return tuple(sorted(range(len(axes)), key=lambda k: axes[k]))


def operand_at(call: OpCall, product: Product, out_index: Index, term: Expr) -> tuple[Index, Index]:
    """The indices of the left and the right operand at one term of one element."""
    order, extents = term_order(call, product), contract_shape(call)
    steps = ix.delinearize(term, tuple(extents[k] for k in order))
    found = dict(zip(order, steps, strict=True))
    both = operand_indices(call, out_index, tuple(found[k] for k in range(len(order))))
    return both[product.left], both[product.right]


def matrix_of(frame: Frame, value: Value, index: Index, along: Sym, term: Sym) -> Matrix | None:
    """`value` as a matrix over two variables of `index`, or None where it is not just memory of
    the type that it is computed in, or not laid out evenly."""
    try:
        element = _element(frame, value, index)
    except _NotPlainError:
        return None
    if element.dtype is not frame.graph.type_of(value).dtype.compute:
        return None
    found = ix.coefficients(element.index, (along.name, term.name))
    if found is None:
        return None
    (first, second), start = found
    return Matrix(element.buffer, start, first, second)


def _element(frame: Frame, value: Value, index: Index) -> Load:
    """The memory that an element comes from, through ops that only move elements."""
    source, node = frame.sources.get(value), frame.graph[value.node]
    if source is not None:
        found = source(index)
    elif node.spec.family is Family.MOVEMENT and node.spec.body is not None:
        (found,) = node.spec.body(frame.graph.call(value.node), index, _Finder(frame, value.node))
    else:
        raise _NotPlainError
    if not isinstance(found, Load):
        raise _NotPlainError
    return found


@dataclass(frozen=True, slots=True)
class _Finder:
    """What a body of movement sees: memory instead of values."""

    frame: Frame
    node: int

    def __call__(self, operand: int, index: Index) -> Expr:
        return _element(self.frame, self.frame.graph[self.node].inputs[operand], index)

    def let(self, value: Expr) -> Expr:
        return value


def column_index(call: OpCall, product: Product, column: Expr) -> dict[int, Expr]:
    """A column number as positions of the output axes that are columns."""
    extents = tuple(call.out.shape[a] for a in product.columns)
    return dict(zip(product.columns, ix.delinearize(column, extents), strict=True))


def column_number(call: OpCall, product: Product, index: Index) -> Expr:
    """The number of the column that an output index is in."""
    extents = tuple(call.out.shape[a] for a in product.columns)
    return ix.linearize(tuple(index[a] for a in product.columns), extents)


def symbol(name: str, extent: int) -> Sym:
    """A made-up variable to look at indices with."""
    return Sym(name, DType.I64, max(extent, 1))
