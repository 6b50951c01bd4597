"""Values that a row has scratch for: several passes over it would compute them again."""

from __future__ import annotations

import math

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.plan.schedules.axis_facts import RUNS
from autofuse.plan.schedules.forms import (
    LOCAL,
    ROW_SCRATCH,
    Form,
    Tags,
    local_shape,
)
from autofuse.plan.schedules.scalings import is_of_an_item

# Flops per element from which recomputing costs more than keeping a row in scratch.
HEAVY = 8.0
# What is computed once a row, in a pass of its own.
FOLDED = (Family.REDUCTION, *RUNS)


def staged_values(graph: Graph, form: Form) -> frozenset[Value]:
    """Heavy values that several passes over a row would otherwise compute again."""
    tags, inside = dict(form.tags), frozenset(form.nodes)
    sinks: dict[Value, frozenset[Value]] = {}
    staged: set[Value] = set()
    outputs = frozenset(form.outputs)
    for n in reversed(form.nodes):
        node = graph[n]
        for i in range(len(node.types)):
            value = Value(n, i)
            found: set[Value] = {value} if value in outputs else set()
            for user in graph.users[n]:
                if user in inside and value in graph[user].inputs:
                    found |= _sinks_of(graph, user, sinks)
            own = tags.get(value)
            if len(found) > 1 and own is not None and _worth_keeping(graph, value, own, inside):
                staged.add(value)
                found = {value}
            sinks[value] = frozenset(found)
    return frozenset(staged)


def _sinks_of(graph: Graph, user: int, sinks: dict[Value, frozenset[Value]]) -> frozenset[Value]:
    if graph[user].spec.family in FOLDED:
        return frozenset((Value(user),))
    own = (sinks.get(Value(user, i), frozenset()) for i in range(len(graph[user].types)))
    return frozenset().union(*own)


def _worth_keeping(graph: Graph, value: Value, tags: Tags, inside: frozenset[int]) -> bool:
    node, out = graph[value.node], graph.type_of(value)
    if node.spec.family in FOLDED or is_of_an_item(graph, value, tags):
        return False
    local = math.prod(local_shape(graph, value, tags))
    if local > ROW_SCRATCH or any(t != LOCAL for t in tags if isinstance(t, frozenset)):
        return False
    return _inline_flops(graph, value.node, inside, 64) >= HEAVY * max(out.size, 1)


def _inline_flops(graph: Graph, n: int, inside: frozenset[int], limit: int) -> float:
    """Operations one recomputation of node `n` repeats, down to reductions and memory."""
    total, stack, seen = 0.0, [n], {n}
    while stack and len(seen) <= limit:
        at = stack.pop()
        node = graph[at]
        if node.spec.family in FOLDED:
            continue
        total += node.spec.flops(graph.call(at))
        for value in node.inputs:
            if value.node in inside and value.node not in seen:
                seen.add(value.node)
                stack.append(value.node)
    return total
