"""Rows that fold what a loop computes element by element: folded after the loop instead.

The loop is divided as loop distribution does (Allen and Kennedy, Optimizing Compilers for Modern
Architectures, 2001, 5.2): what is left in it mixes no elements, so that each goes through all
iterations by itself, side by side with others.
"""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.spec import Family
from autofuse.ops.types import TensorType
from autofuse.simplify.draft import Draft
from autofuse.simplify.loops import (
    LoopParts,
    Rebuilt,
    outputs_of,
    parts_of_loop,
    reached,
    rebuilt,
    repeated_literal,
    same_reads,
)
from autofuse.simplify.rules import Replacement, rule

# Elements that are folded in an iteration at least, and that all iterations leave at most: fewer
# are registers of one item, more would go through memory.
_LEAST, _MOST = 16, 1 << 18
_FOLDS = ("reduce_sum", "reduce_max", "reduce_min")
# Moves that mix no elements of a state.
_STRAIGHT = ("broadcast", "gather", "reshape")


@dataclass(frozen=True, slots=True)
class _Fold:
    """`value` is folded by the node, and of that each of `after` computes the next, with numbers as
    other operands; the last is the row."""

    value: Value
    node: Node
    after: tuple[Node, ...]


@rule("row-folded-outside", "Allen and Kennedy 2001, 5.2 (loop distribution)", "loop")
def row_folded_outside(draft: Draft, at: int) -> Replacement:
    """Rows that fold an array, in a loop whose states mix no elements -> the array stacked, and
    folded after the loop."""
    loop = parts_of_loop(draft, at)
    for k, row in enumerate(loop.rows):
        fold = _fold_of(loop.body, row)
        if fold is None or not _is_worth(loop, fold.value):
            continue
        rows = [other for other in range(len(loop.rows)) if other != k]
        new = Rebuilt(range(loop.carries), rows, same_reads(loop), more_rows=[fold.value])
        made = rebuilt(draft, loop, new)
        folded = _folded(draft, loop.body, fold, made[-1])
        return outputs_of(draft, at, made, new, {loop.carries + k: folded})
    return None


def _fold_of(body: Graph, row: Value) -> _Fold | None:
    """How a row is made of a fold, if it is."""
    after: list[Node] = []
    while body[row.node].op not in _FOLDS:
        node = body[row.node]
        varying = [v for v in node.inputs if repeated_literal(body, v) is None]
        if node.spec.family is not Family.ELEMENTWISE or len(varying) != 1:
            return None
        after.append(node)
        (row,) = varying
    node = body[row.node]
    return _Fold(node.inputs[0], node, tuple(reversed(after)))


def _is_worth(loop: LoopParts, value: Value) -> bool:
    """Whether no element of the states, nor of what is folded, needs others."""
    body, size = loop.body, loop.body.type_of(value).size
    if not _LEAST <= size <= _MOST // max(1, loop.trip):
        return False
    if not any(body.type_of(v).size == size for v in loop.states):
        return False
    straight = (Family.ELEMENTWISE, Family.SOURCE)
    needed = (body[n] for n in reached(body, [*loop.news, value]))
    return all(n.spec.family in straight or n.op in _STRAIGHT for n in needed)


def _folded(draft: Draft, body: Graph, fold: _Fold, stack: Value) -> Value:
    """The rows of a stack folded, and what is made of that."""
    attrs = dict(fold.node.attrs)
    axes = tuple(axis + 1 for axis in attrs["axes"])
    found = draft.add(fold.node.op, stack, **(attrs | {"axes": axes}))
    for node in fold.after:
        shape = draft.shape(found)
        operands = []
        for v in node.inputs:
            literal = repeated_literal(body, v)
            if literal is None:
                operands.append(found)
                continue
            operands.append(draft.full(literal.scalar, TensorType(shape, literal.type.dtype)))
        found = draft.add(node.op, *operands, **dict(node.attrs))
    return found
