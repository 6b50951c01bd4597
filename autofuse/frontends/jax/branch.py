"""A choice between jaxprs as branches of which one is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.frontends.jax.loop import Runner, captured, rebuilt_item
from autofuse.frontends.jax.types import (
    Item,
    KeyArray,
    dtype_of,
    is_key,
    static_shape,
    values_of,
)
from autofuse.graph.loops import BranchWriter
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType


def taken_branch(
    runner: Runner, branches: Sequence[Any], which: Value, args: Sequence[Item],
    avals: Sequence[Any], live: Sequence[bool],
) -> list[Item]:  # fmt: skip
    """Results of branches[which] on `args`, an index beyond the ends taking the nearest branch;
    those that are not `live` are some value of their type."""
    w = runner.w
    found = [_blank(w, aval) for aval in avals]
    wanted = [k for k, needed in enumerate(live) if needed]
    for number, branch in enumerate(branches):
        taken = _is_taken(w, which, number, len(branches))
        writer = BranchWriter(w, taken, _values(found, wanted))
        read = captured(writer, getattr(branch, "jaxpr", branch), args)
        results = runner.on(writer.body).closed(branch, read)
        made = iter(writer.results(_values(results, wanted)))
        for k in wanted:
            found[k] = rebuilt_item(results[k], made)
    return found


def _is_taken(w: GraphWriter, which: Value, number: int, count: int) -> Value:
    if w.dtype(which) is DType.BOOL:
        return which if number else w.map("not", which)
    if number == 0 and count == 2:  # so that both conditions are seen to be opposites
        return w.map("not", w.map("ge", which, 1))
    op = "le" if number == 0 else "ge" if number == count - 1 else "eq"
    return w.map(op, which, number)


def _blank(w: GraphWriter, aval: Any) -> Item:
    if is_key(aval):
        word = w.full(0, static_shape(aval), DType.U32)
        return KeyArray(word, word)
    return w.full(0, static_shape(aval), dtype_of(aval.dtype))


def _values(items: Sequence[Item], wanted: Sequence[int]) -> list[Value]:
    return [v for k in wanted for v in values_of(items[k])]
