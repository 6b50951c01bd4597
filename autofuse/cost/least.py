"""A lower bound on the time of any plan of a graph, over every kernel, launch and strategy.

Kernels may recompute, be fused with anything, and share what they read. What no plan escapes: each
input is read and each output written at least once, as far as they are needed; each node's
arithmetic is done at least once; and there are at least as many kernels as nodes of which no two
may share one. All bytes go at the fastest bandwidth and all arithmetic at the fastest rate of the
device, each resource as if the others cost nothing, for a kernel that moves bytes and one that
computes may be the same. Loops take as long as the chain of their iterations, one loop after what
it waits for. The sum of `group_bound_us` over the kernels of a plan is never below it.

What kernels may leave out is not counted: what no call changes, products that a mask may cut short,
and loops of which an iteration may do less than the whole body.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from autofuse.cost.amounts import PRODUCTS, Work
from autofuse.cost.bounds import Calibration
from autofuse.cost.chains import chain_us
from autofuse.cost.masked import may_be_masked
from autofuse.cost.scalar_calls import least_ns
from autofuse.cost.work import group_work, least_elements
from autofuse.graph.settled import settled
from autofuse.graph.surgery.unroll import unrolled_body
from autofuse.graph.types import Graph, Value
from autofuse.ops.control import is_counted
from autofuse.ops.spec import Family
from autofuse.plan.fusion.barriers import stands_alone
from autofuse.plan.fusion.clusters import needed
from autofuse.plan.fusion.groups import is_inline, is_source

# Iterations written out together, for which it is checked that none computes less.
UNROLLED = (2, 3)
# The figures of a calibration that are rates, and what stands for those that may be 0.
INSTEAD = {"wide": "contraction", "narrow": "contraction", "byte": "narrow"}
RATES = ("gbytes_per_s", "cached_gbytes_per_s", "cheap", "special", "contraction", *INSTEAD)


def graph_bound_us(graph: Graph, calibration: Calibration) -> float:
    """Microseconds of one call that no plan of the graph can be below, whatever the state of the
    cache before the call."""
    peaks = _best(calibration)
    work, kernels = _least(graph)
    rate = max(peaks.cached_gbytes_per_s, peaks.gbytes_per_s)
    nodes = _above(graph)
    waits = chain_us(graph, nodes, graph.outputs, peaks.latency)
    busy = max(work.nbytes / (rate * 1e3), peaks.compute_us(work), waits)
    return kernels * peaks.launch_us + busy


def _best(calibration: Calibration) -> Calibration:
    """At every figure as fast as the fastest way to run a kernel: each may take its own."""
    found, other = calibration, calibration.alone
    while other is not None:
        rates: dict[str, Any] = {
            name: max(_rate(found, name), _rate(other, name)) for name in RATES
        }
        known, others = least_ns(found.scalar), least_ns(other.scalar)
        both = sorted(known.keys() & others.keys())
        scalar = tuple((f"{name}.0", min(known[name], others[name])) for name in both)
        launch_us = min(found.launch_us, other.launch_us)
        found = replace(found, **rates, scalar=scalar, launch_us=launch_us, alone=None)
        other = other.alone
    return found


def _rate(calibration: Calibration, name: str) -> float:
    """A rate, or the one that stands for it where it is 0."""
    found: float = getattr(calibration, name)
    return found or _rate(calibration, INSTEAD[name])


@lru_cache(maxsize=64)
def _above(graph: Graph) -> tuple[int, ...]:
    """What outputs that a call may change are computed from."""
    wanted = (v.node for v in graph.outputs if v.node not in settled(graph))
    above = needed(graph, wanted, range(len(graph.nodes)))
    return tuple(n for n in above if not is_source(graph, n))


@lru_cache(maxsize=64)
def _least(graph: Graph) -> tuple[Work, int]:
    """The work that every plan does, and the kernels that it has at least."""
    known = settled(graph)
    wanted = [v for v in dict.fromkeys(graph.outputs) if v.node not in known]
    above = needed(graph, (v.node for v in wanted), range(len(graph.nodes)))
    nodes = tuple(n for n in above if n not in known and _counts(graph, n))
    inside = frozenset(nodes)
    outputs = tuple(
        dict.fromkeys(m for v in wanted for m in _made(graph, v, inside) if m.node in inside)
    )
    if not outputs:
        return Work(), 0
    work = Work() if _is_masked(graph, nodes) else group_work(graph, nodes, outputs)
    if any(graph[n].spec.family is Family.CONTROL for n in nodes):
        work = replace(work, calls=tuple(c for c in work.calls if not c[0].startswith("div.")))
    least = least_elements(graph, nodes, outputs)
    alone = frozenset(n for n in nodes if stands_alone(graph, n) is not None)
    nbytes = _written(graph, outputs) + _read(graph, nodes, least, known)
    nbytes += _between(graph, alone, outputs, least)
    return replace(work, nbytes=nbytes), max(1, len(alone))


def _counts(graph: Graph, node: int) -> bool:
    """Whether a node is work: of loops those of which no iteration can do less than the body says,
    also where several iterations are one plan of the host."""
    spec = graph[node].spec
    if spec.family is not Family.CONTROL:
        return not is_source(graph, node)
    call = graph.call(node)
    if not is_counted(graph[node].op) or call["trip"] < 1:
        return False
    body, outs = call["body"], range(len(graph[node].types))
    inner = tuple(n for n in range(len(body.nodes)) if not is_source(body, n))
    if may_be_masked(body, inner) or any(body[n].spec.overwrites for n in inner):
        return False
    if not all(_counts(body, n) for n in inner):
        return False
    each = group_work(graph, (node,), tuple(Value(node, k) for k in outs)).computing(
        1 / call["trip"]
    )
    return all(_does_all(body, call["carries"], factor, each) for factor in UNROLLED)


def _does_all(body: Graph, carries: int, factor: int, each: Work) -> bool:
    """Whether so many iterations together compute `factor` times what one is said to."""
    many = unrolled_body(body, carries, factor)
    inner = tuple(n for n in range(len(many.nodes)) if not is_source(many, n))
    found, wanted = group_work(many, inner, many.outputs), each.computing(factor)
    figures = ("cheap", "special", *PRODUCTS)
    room = 1 - 1e-9
    return all(getattr(found, name) >= getattr(wanted, name) * room for name in figures)


def _made(graph: Graph, value: Value, inside: frozenset[int]) -> Iterator[Value]:
    """What is stored of a wanted value at least: where it is an array that was there, with windows
    written anew, these windows. An array that a kernel makes is written whole before."""
    windows, root = list[Value](), value
    while graph[root.node].spec.overwrites:
        windows.append(graph[root.node].inputs[1])
        root = graph[root.node].inputs[0]
    there = root.node not in inside or graph[root.node].spec.family is Family.CONTROL
    yield from windows if windows and there else (value,)


def _is_masked(graph: Graph, nodes: tuple[int, ...]) -> bool:
    """Whether a kernel may leave out what a mask hides, a constant or made of positions."""
    if not may_be_masked(graph, nodes):
        return False
    given = set(graph.inputs)
    masks = (
        graph[n].inputs[0].node
        for n in nodes
        if graph[n].spec.family is Family.ELEMENTWISE and len(graph[n].inputs) > 2
    )
    return any(given.isdisjoint(needed(graph, (n,), range(len(graph.nodes)))) for n in masks)


def _written(graph: Graph, outputs: Collection[Value]) -> float:
    """Bytes of outputs that every plan writes: what a loop hands through is not written again."""
    found = 0.0
    for v in outputs:
        if graph[v.node].spec.family is Family.CONTROL:
            body: Graph = graph.call(v.node)["body"]
            if is_source(body, body.outputs[v.index].node):
                continue
        found += graph.type_of(v).nbytes
    return found


def _read(
    graph: Graph, nodes: Collection[int], least: Mapping[Value, int], known: frozenset[int]
) -> float:
    """Bytes of inputs that every plan reads. What was prepared of constants counts as the constant
    that it is a view of, at the narrowest on the way, and else not at all."""
    read: dict[Value, float] = {}
    for n in nodes:
        for v in graph[n].inputs:
            found = _origin(graph, v, known)
            if found is not None:
                root, width = found
                read[root] = max(read.get(root, 0.0), least.get(v, 0) * float(width))
    return sum(read.values())


def _origin(graph: Graph, value: Value, known: frozenset[int]) -> tuple[Value, int] | None:
    width = graph.type_of(value).dtype.itemsize
    while not is_source(graph, value.node):
        node = graph[value.node]
        same = len(node.inputs) == 1 and graph.type_of(node.inputs[0]).size == node.types[0].size
        if value.node not in known or node.spec.view is None or not same:
            return None
        value = node.inputs[0]
    return None if is_inline(graph, value.node) else (value, width)


def _between(
    graph: Graph, alone: Collection[int], outputs: Collection[Value], least: Mapping[Value, int]
) -> float:
    """Bytes written and read because two nodes that share no kernel follow each other."""
    found = 0.0
    for v in {v for n in alone for v in graph[n].inputs if v.node in alone}:
        kind = graph.type_of(v)
        found += kind.nbytes * (v not in outputs) + least.get(v, 0) * kind.dtype.itemsize
    return found
