"""Loops run by the host whose states change places."""

from __future__ import annotations

from autofuse.graph.canonical import canonical
from autofuse.graph.composites.moves import overwrite, slice_at
from autofuse.graph.loops import LoopBodyWriter, LoopWriter, WhileWriter
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import group_of, is_source, ordered_plan
from tests.support.batching import Case
from tests.support.unrolled_plans import candidate, fused

ROWS, COLUMNS = 6, 40
F32, I32 = DType.F32, DType.I32
# What an iteration leaves as each state: a state as it was, "new" or, in place, "row".
New = int | str


def looping(news: list[New], trip: int, ends: bool) -> Graph:
    """A loop of `trip` iterations of which each leaves `news`; by a flag if it `ends`."""
    w = GraphWriter()
    first = [w.input(f"x{k}", (ROWS, COLUMNS), F32, low=-1.0, high=1.0) for k in range(len(news))]
    # Some states begin as arrays of ours, which nobody needs afterwards.
    first = [w.op("neg", x) if k % 2 else x for k, x in enumerate(first)]
    if not ends:
        loop = LoopWriter(w, trip)
        states = [loop.state(x) for x in first]
        return canonical(w.build(loop.finish(made(loop, states, news))))
    number = w.input("trips", (), I32, low=trip, high=trip + 1)
    until = WhileWriter(w, w.op("gt", number, w.constant(0, I32)), trip + 3)
    states = [until.state(x) for x in first]
    go = until.body.op("lt", until.body.add(until.step, 1), until.capture(number))
    return canonical(w.build(until.end(go, made(until, states, news))))


def made(loop: LoopBodyWriter, states: list[Value], news: list[New]) -> list[Value]:
    b, found = loop.body, []
    for k, new in enumerate(news):
        if isinstance(new, int):
            found.append(states[new])
        elif new == "new":
            turned = b.reverse(states[k - 1], (0,))
            found.append(b.op("sin", b.add(turned, b.mul(states[k], 0.5))))
        else:
            at = (b.op("min", loop.step, b.constant(ROWS - 1, I32)), b.constant(0, I32))
            row = slice_at(b, states[k], at, (1, COLUMNS))
            found.append(overwrite(b, states[k], b.op("exp", b.op("sin", row)), at))
    return found


def case_of(news: list[New], trip: int, ends: bool) -> Case:
    """The loop run by the host, its body unfused but for updates."""
    graph = looping(news, trip, ends)
    loop = next(n for n, node in enumerate(graph.nodes) if node.op in ("loop", "while"))
    own = group_of(graph, [loop], fused(graph.call(loop)["body"]))
    rest = [group_of(graph, [n]) for n in range(len(graph.nodes)) if not is_source(graph, n)]
    groups = [g for g in rest if g.nodes != (loop,)]
    plan = ordered_plan(graph, [own, *groups])
    return Case(graph, candidate(graph, plan), f"{news} x {trip}{' ends' * ends}")


LEAPFROG: list[New] = ["new", 0]

DRAWN: list[list[New]] = [
    LEAPFROG, [1, "new"], [1, 0], ["new", 0, 1], ["new", 0, 0], ["new", 0, "new"], ["row", 0],
    ["row", "new", 1], [0, "row"], ["row", "row"], [1, 2, 0], ["new", "new", 1, 2],
]  # fmt: skip
