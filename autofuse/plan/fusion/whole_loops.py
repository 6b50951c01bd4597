"""Which loops are kernels with all of their iterations: states in registers, bodies of scalar work,
loops in these bodies too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.plan.schedules.axis_facts import RUNS
from autofuse.plan.schedules.forms import (
    REGISTERS,
    STATE_LIMIT,
    Form,
    Tags,
    carries_inside,
    local_shape,
)
from autofuse.plan.types import Refusal

# Products of a contraction per item and iteration that a whole-loop kernel may unroll.
LOOP_PRODUCTS = 512


def loop_refusal(graph: Graph, form: Form, n: int) -> Refusal | None:
    """The state of a whole-loop kernel must fit registers and its body must be scalar work."""
    stacks = _stacks(graph, n)
    if any(not stacks.isdisjoint(graph[user].inputs) for user in form.nodes):
        return Refusal("loop-stack", f"a stack of %{n} is read in the kernel that writes it")
    problem = _body_refusal(graph, n, form.items)
    if problem is not None:
        return problem
    total = _state_elements(graph, n, dict(form.carries), dict(form.tags), len(form.parallel))
    if total > STATE_LIMIT:
        return Refusal("loop-state", f"{total} state elements per item exceed {STATE_LIMIT}")
    return None


def _stacks(graph: Graph, n: int) -> set[Value]:
    return {Value(n, k) for k in range(graph.call(n)["carries"], len(graph[n].types))}


@lru_cache(maxsize=4096)
def _body_refusal(graph: Graph, n: int, items: int) -> Refusal | None:
    """Why the body of a loop is no scalar work; loops in it leave their last states only."""
    body: Graph = graph.call(n)["body"]
    found = (_refused(body, inner, items) for inner in range(len(body.nodes)))
    return next((problem for problem in found if problem is not None), None)


def _refused(body: Graph, inner: int, items: int) -> Refusal | None:
    """Why a node is no scalar work in a body."""
    node = body[inner]
    family = node.spec.family
    if family in (*RUNS, Family.SCATTER):
        return Refusal("loop-body", f"the loop body has {node.op}, not scalar work")
    folding = family in (Family.WINDOW, Family.CONTRACTION)
    if folding and not _is_scalar_work(body, inner, items):
        return Refusal("loop-body", f"the loop body has a {node.op} of many elements")
    if family is not Family.CONTROL:
        return None
    read = {v for user in body.nodes for v in user.inputs}
    if not _stacks(body, inner).isdisjoint(read.union(body.outputs)):
        return Refusal("loop-body", f"the loop body has a {node.op} whose rows are read")
    return _body_refusal(body, inner, items)


def _state_elements(
    graph: Graph, n: int, carries: Mapping[tuple[int, int], Tags], tags: Mapping[Value, Tags],
    parallel: int,
) -> int:  # fmt: skip
    """Elements of the states of a loop, and of those in its body, that an item holds."""
    body: Graph = graph.call(n)["body"]
    count = range(graph.call(n)["carries"])
    total = sum(math.prod(local_shape(graph, Value(n, k), carries[n, k])) for k in count)
    inside = carries_inside(graph, n, carries, tags, parallel)
    for inner in {node for node, _ in inside}:
        total += _state_elements(body, inner, inside, {}, parallel)
    return total


def _is_scalar_work(body: Graph, n: int, items: int) -> bool:
    """Whether every item has few terms of a contraction or of windows to itself. (One with fewer
    elements than there are items is the same for many of them, which would each do all of it.)"""
    length = body[n].spec.terms(body.call(n))
    made = body[n].types[0].size
    return length <= REGISTERS and items <= made and made * length <= LOOP_PRODUCTS * items
