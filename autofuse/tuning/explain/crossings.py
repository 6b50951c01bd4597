"""What crossed the walls that library calls are elsewhere: kernels that hold products or
convolutions with what is before and after them, and what that saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.barriers import may_be_library
from autofuse.plan.fusion.clusters import ancestors, mask_of
from autofuse.plan.fusion.groups import needed_outputs
from autofuse.plan.types import FusionGroup, FusionPlan

# Whether a group's time was measured or is a bound, and the time in microseconds.
TimeOf = Callable[[FusionGroup], tuple[str, float]]


@dataclass(frozen=True, slots=True)
class CrossedWall:
    """A product that is not a kernel of its own. `before` are the values that its kernel computes
    for it, `after` those that it makes of its result; `bytes` are what the values between them
    and the product would cost to write and to read. `apart_us` is the time of the product alone and
    of the rest of its kernel as kernels of their own (each measured, else its lower bound)."""

    kernel: int
    product: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    bytes: int
    apart: str
    apart_us: float
    fused: str
    fused_us: float


def crossings(graph: Graph, plan: FusionPlan, timed: TimeOf) -> Iterator[CrossedWall]:
    """The crossings of a plan, by kernel and product."""
    for position, group in enumerate(plan.groups):
        if group.body is not None or len(group.nodes) == 1:
            continue
        for n in group.nodes:
            if may_be_library(graph, n):
                found = _crossing(graph, group, position, n, timed)
                if found is not None:
                    yield found


def parts_of_crossings(graph: Graph, plan: FusionPlan) -> list[FusionGroup]:
    """The groups whose times `crossings` asks for."""
    asked: list[FusionGroup] = []

    def note(group: FusionGroup) -> tuple[str, float]:
        asked.append(group)
        return "bound", 0.0

    for _ in crossings(graph, plan, note):
        pass
    return asked


def _crossing(
    graph: Graph, group: FusionGroup, position: int, product: int, timed: TimeOf
) -> CrossedWall | None:
    inside, written = set(group.nodes), set(group.outputs)
    operands = [v for v in graph[product].inputs if v.node in inside]
    own = Value(product)
    kept = own not in written
    if not operands and not kept:
        return None
    before = tuple(n for n in group.nodes if n != product and _feeds(graph, n, product))
    after = tuple(n for n in group.nodes if n not in before and n != product)
    parts = [part for part in (before, (product,), after) if part]
    times = [timed(FusionGroup(part, needed_outputs(graph, part))) for part in parts]
    saved = [*operands, *([own] if kept else [])]
    kind, us = timed(group)
    return CrossedWall(
        kernel=position,
        product=product,
        before=tuple(dict.fromkeys(map(str, operands))),
        after=tuple(str(Value(u)) for u in sorted(set(graph.users[product]) & inside)),
        bytes=sum(2 * graph.type_of(v).nbytes for v in dict.fromkeys(saved)),
        apart="measured" if all(kind == "measured" for kind, _ in times) else "bound",
        apart_us=sum(us for _, us in times),
        fused=kind,
        fused_us=us,
    )


def _feeds(graph: Graph, node: int, reader: int) -> bool:
    """Whether one node depends on another."""
    return bool(ancestors(graph)[reader] & mask_of((node,)))
