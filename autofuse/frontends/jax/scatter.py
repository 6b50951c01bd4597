"""Rules for jax primitives that write, or combine, at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.index import component, inside, mode_of
from autofuse.frontends.jax.types import PrimitiveRule
from autofuse.graph.composites.moves import overwrite, slice_at
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType

# What combines truth values as numbers do.
_OF_BOOLS = {"add": "max", "mul": "min", "max": "max", "min": "min"}


@dataclass(frozen=True, slots=True)
class _Windows:
    """A scatter in the op's own form: batch axes first, then windows, then what they consist of.
    `order` are the operand's axes in that form."""

    indices: Value
    updates: Value
    order: tuple[int, ...]
    batch: int
    axes: tuple[int, ...]


def drops(eqn: Any) -> bool:
    """Whether a window out of range is left out, as it is by XLA where indices were promised to be
    in range."""
    return "CLIP" not in mode_of(eqn)


def _scatter(kind: str | None) -> PrimitiveRule:
    """Windows written into (or combined by `kind` with) the operand, one after another."""

    def rule(w: GraphWriter, eqn: Any, x: Value, starts: Value, updates: Value) -> Value:
        if w.dtype(x) is DType.BOOL and kind is not None:
            return _of_bools(w, eqn, x, starts, updates, kind)
        if 0 in (*w.shape(x), *w.shape(updates)):
            return x
        found = _windows(w, eqn, x, starts, updates)
        count = w.shape(found.indices)[found.batch]
        if not found.axes and count > 1:
            raise FrontendError(f"a scatter of {count} windows at one place is not supported")
        moved = w.transpose(x, found.order)
        if count == 1 and not found.batch:
            written = _one_window(w, moved, found, kind, drops(eqn))
        else:
            op = "scatter" if kind is None else f"scatter_{kind}"
            written = w.op(
                op, moved, found.indices, found.updates, axes=found.axes, batch=found.batch,
                drop=drops(eqn),
            )  # fmt: skip
        back = sorted(range(len(found.order)), key=found.order.__getitem__)
        return w.transpose(written, back)

    return rule


def _of_bools(
    w: GraphWriter, eqn: Any, x: Value, starts: Value, updates: Value, kind: str
) -> Value:
    numbers = _scatter(_OF_BOOLS[kind])(w, eqn, w.cast(x, DType.U8), starts,
                                        w.cast(updates, DType.U8))  # fmt: skip
    assert isinstance(numbers, Value)
    return w.cast(numbers, DType.BOOL)


def _windows(w: GraphWriter, eqn: Any, x: Value, starts: Value, updates: Value) -> _Windows:
    numbers, shape = eqn.params["dimension_numbers"], w.shape(x)
    shared, own = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
    rest = tuple(a for a in range(len(shape)) if a not in shared)
    order = (*shared, *rest)
    # The axes of the index vectors, those that the operand has too first; updates have them all.
    lead = w.shape(starts)[:-1]
    turned = (*own, *(a for a in range(len(lead)) if a not in own))
    count = math.prod(lead[a] for a in turned[len(own) :])
    batch = tuple(lead[a] for a in own)
    indices = w.transpose(starts, (*turned, len(lead)))
    indices = w.reshape(indices, (*batch, count, w.shape(starts)[-1]))
    rank = len(w.shape(updates))
    spread = [a for a in range(rank) if a not in numbers.update_window_dims]
    moved = w.transpose(updates, (*(spread[a] for a in turned), *numbers.update_window_dims))
    extents = iter(w.shape(updates)[a] for a in numbers.update_window_dims)
    window = tuple(1 if a in numbers.inserted_window_dims else next(extents) for a in rest)
    axes = tuple(order.index(a) for a in numbers.scatter_dims_to_operand_dims)
    return _Windows(indices, w.reshape(moved, (*batch, count, *window)), order, len(shared), axes)


def _one_window(w: GraphWriter, x: Value, found: _Windows, kind: str | None, drop: bool) -> Value:
    """An update of one slice, fused with whatever is around it. What is to be dropped or combined
    first reads what is there, so that no more than the window is ever touched."""
    shape, sizes = w.shape(x), w.shape(found.updates)[1:]
    start = w.reshape(found.indices, w.shape(found.indices)[1:])
    at = [w.constant(0, DType.I32)] * len(shape)
    for v, axis in enumerate(found.axes):
        at[axis] = component(w, start, v)
    written = w.reshape(found.updates, sizes)
    there = slice_at(w, x, at, sizes)
    if kind is not None:
        written = w.map(kind, there, written)
    if drop:
        written = w.select(inside(w, start, found.axes, shape, sizes), written, there)
    return overwrite(w, x, written, at)


def _subtracted(w: GraphWriter, eqn: Any, x: Value, starts: Value, updates: Value) -> Any:
    return _scatter("add")(w, eqn, x, starts, w.map("neg", updates))


_KINDS: Sequence[tuple[str, str | None]] = (
    ("scatter", None), ("scatter-add", "add"), ("scatter-mul", "mul"), ("scatter-min", "min"),
    ("scatter-max", "max"),
)  # fmt: skip
SCATTER_RULES: dict[str, PrimitiveRule] = {
    name: _scatter(kind) for plain, kind in _KINDS for name in (plain, plain.replace("-", "_"))
} | {"scatter-sub": _subtracted}
