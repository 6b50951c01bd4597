"""Loops that read what an earlier iteration wrote: it is carried instead of looked up."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autofuse.graph.counting import counted
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.types import make_attrs
from autofuse.simplify.draft import Draft
from autofuse.simplify.loops import (
    LoopParts,
    Rebuilt,
    outputs_of,
    parts_of_loop,
    rebuilt,
    same_reads,
)
from autofuse.simplify.rules import Replacement, rule
from autofuse.simplify.stacks import SteppedWrite, stepped_write, with_row

# How many iterations back rows are carried.
_MOST = 4


@dataclass(frozen=True, slots=True)
class _Reads:
    """Gathers of a state, by how many iterations ago their row was written; those of rows that are
    not written yet."""

    earlier: dict[int, list[Value]]
    untouched: list[Value]


@rule("carried-row", "LLVM LoopLoadElimination; GVN load PRE", "loop")
def carried_row(draft: Draft, at: int) -> Replacement:
    """A state of which iteration i writes row i, and reads only rows of the last iterations and
    such as are not written yet -> these rows are states of their own; the others are read from what
    the state began as. Then it is only written."""
    loop = parts_of_loop(draft, at)
    for k in range(loop.carries):
        write = stepped_write(loop, k)
        if write is None or write.size > 1:
            continue
        found = _reads(loop, k, write)
        if found is not None and (found.earlier or found.untouched):
            return _carried(draft, at, loop, k, write, found)
    return None


def _reads(loop: LoopParts, k: int, write: SteppedWrite) -> _Reads | None:
    """What is read of state `k`; None where that may be any row."""
    body, state = loop.body, loop.states[k]
    found = _Reads({}, [])
    for user in body.users[state.node]:
        if state in body[user].inputs[1:]:
            return None
        if user == loop.news[k].node:
            continue
        ahead = _ahead(body, body[user], write)
        if ahead is None:
            return None
        if ahead < 0:
            found.earlier.setdefault(-ahead, []).append(Value(user))
        else:
            found.untouched.append(Value(user))
    return found if set(found.earlier) == set(range(1, 1 + len(found.earlier))) else None


def _ahead(body: Graph, node: Node, write: SteppedWrite) -> int | None:
    """How many iterations later the row is written that a gather reads; None where that may be any
    row, or one that would be carried for too long."""
    place = counted(body, node.inputs[1]) if node.op == "gather" else None
    if place is None or body.type_of(node.inputs[1]).shape:
        return None
    if dict(node.attrs)["axis"] != write.axis or place[1] != write.step:
        return None
    ahead = (place[0] - write.start) * write.step
    # The first iterations read what was there before; a place out of range is another one.
    begins = 0 <= place[0] < body.type_of(node.inputs[0]).shape[write.axis] or ahead == -1
    return None if ahead < -_MOST or (ahead < 0 and not begins) else ahead


def _carried(
    draft: Draft, at: int, loop: LoopParts, k: int, write: SteppedWrite, found: _Reads
) -> tuple[Value, ...]:
    body, row = with_row(loop.body, write)
    reads = same_reads(loop)
    if found.untouched:
        body, before = _reading_anew(body, loop.states[k], found.untouched)
        reads.append((loop.init[k], (before,)))
    extent = draft.shape(loop.init[k])[write.axis]
    more: list[tuple[Value, list[Value], Value]] = []
    for back in sorted(found.earlier):
        first = min(max(write.start - back * write.step, 0), extent - 1)
        begins = draft.cut(loop.init[k], write.axis, first, first + 1)
        begins = draft.reshape(begins, body.type_of(row).shape)
        more.append((begins, found.earlier[back], row))
        row = found.earlier[back][0]
    states, rows = range(loop.carries), range(len(loop.rows))
    new = Rebuilt(states, rows, reads, more_states=more)
    return outputs_of(draft, at, rebuilt(draft, replace(loop, body=body), new), new, {})


def _reading_anew(body: Graph, state: Value, gathers: list[Value]) -> tuple[Graph, Value]:
    """The body with one more input, of a state's type, that these gathers read instead."""
    kind = body.type_of(state)
    attrs = {"position": len(body.inputs), "shape": kind.shape, "dtype": str(kind.dtype)}
    before = Value(len(body.nodes))
    nodes = list(body.nodes)
    for value in gathers:
        own = nodes[value.node]
        nodes[value.node] = replace(own, inputs=(before, *own.inputs[1:]))
    nodes.append(Node("input", (), make_attrs(attrs), (kind,)))
    return Graph(tuple(nodes), (*body.inputs, before.node), body.outputs), before
