"""What a loop computes anew in every iteration, though it is the same."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family, Motion
from autofuse.simplify.draft import Draft
from autofuse.simplify.loops import (
    LoopParts,
    Rebuilt,
    copied,
    parts_of_loop,
    reached,
    rebuilt,
    same_reads,
)
from autofuse.simplify.rules import Replacement, rule

_STILL = (Family.SOURCE, Family.MOVEMENT)


@rule("invariant-hoisted", "XLA WhileLoopInvariantCodeMotion; LLVM LICM", "loop")
def invariant_hoisted(draft: Draft, at: int) -> Replacement:
    """What depends on invariants alone is computed before the loop, unless it is larger than what
    it is computed from, or only moved."""
    loop = parts_of_loop(draft, at)
    hoisted = list(dict.fromkeys(_frontier(loop)))
    if not hoisted:
        return None
    places = dict(zip((v.node for v in loop.reads), loop.invariants, strict=True))
    needed = reached(loop.body, hoisted)
    outside = copied(draft, loop.body, places, [i for i in sorted(needed) if i not in places])
    reads = [*same_reads(loop), *((outside[v], (v,)) for v in hoisted)]
    new = Rebuilt(range(loop.carries), range(len(loop.rows)), reads)
    return rebuilt(draft, loop, new)


def _frontier(loop: LoopParts) -> Iterator[Value]:
    """The values to hoist: the last ones that are worth it on each way into what varies."""
    body = loop.body
    varies, still = _varying(loop), _constants(body)
    stack = [v for i in sorted(varies) for v in body[i].inputs]
    stack += body.outputs
    seen: set[Value] = set()
    while stack:
        value = stack.pop()
        out = value.node in varies or value.node in still or body[value.node].op == "input"
        if out or value in seen:
            continue
        seen.add(value)
        if _worth(body, value.node):
            yield value
        else:
            stack += body[value.node].inputs


def _varying(loop: LoopParts) -> set[int]:
    """Nodes that depend on the counter or a state, and these themselves."""
    body = loop.body
    found = {body.inputs[0], *(v.node for v in loop.states)}
    for i, node in enumerate(body.nodes):
        if any(v.node in found for v in node.inputs):
            found.add(i)
    return found


def _constants(body: Graph) -> set[int]:
    """Nodes that depend on no input at all."""
    found: set[int] = set()
    for i, node in enumerate(body.nodes):
        if node.op != "input" and all(v.node in found for v in node.inputs):
            found.add(i)
    return found


def _worth(body: Graph, i: int) -> bool:
    node = body[i]
    if node.spec.family in _STILL:
        return False
    largest = max((_least_size(body, v) for v in node.inputs), default=0)
    return sum(t.size for t in node.types) <= max(1, largest)


def _least_size(body: Graph, value: Value) -> int:
    """Elements that a value is made of, not counting repeated ones."""
    while body[value.node].spec.motion is Motion.REPEAT:
        value = body[value.node].inputs[0]
    return body.type_of(value).size
