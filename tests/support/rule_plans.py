"""A graph planned by any baseline, as decision tests look at it."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.baselines import BASELINES
from autofuse.baselines.base import Baseline, BaselineResult, Decision
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from tests.support.checked_plans import check_plan

F32 = DType.F32
N = (64,)


class Ruled:
    """A graph planned by a baseline, or the one of that name, seen through op names."""

    def __init__(self, planner: str | Baseline, builder: GraphBuilder, *outputs: Value) -> None:
        self.graph: Graph = canonical(builder.build(outputs))
        planner = BASELINES[planner] if isinstance(planner, str) else planner
        self.result: BaselineResult = planner(self.graph)
        check_plan(self.graph, self.result.plan)

    @property
    def groups(self) -> list[list[str]]:
        """Ops of each kernel, sorted and without spread literals; kernels sorted."""
        return sorted(self._ops(g.nodes) for g in self.result.plan.groups)

    def _ops(self, nodes: Sequence[int]) -> list[str]:
        return sorted(self.graph[n].op for n in nodes if not self._is_literal(n))

    def _is_literal(self, node: int) -> bool:
        n = self.graph[node]
        return n.op == "broadcast" and self.graph[n.inputs[0].node].op == "constant"

    def decisions(self, producer: str, consumer: str = "", passes: str = "") -> list[Decision]:
        return [
            d
            for d in self.result.decisions
            if self.graph[d.producer_node].op == producer
            and (not consumer or self.graph[d.consumer_node].op == consumer)
            and d.pass_name.startswith(passes)
        ]

    def refused(self, rule: str, producer: str, consumer: str = "", passes: str = "") -> bool:
        found = self.decisions(producer, consumer, passes)
        return any(d.rule == rule and not d.fused for d in found)

    def fused(self, rule: str, producer: str, consumer: str = "", passes: str = "") -> bool:
        found = self.decisions(producer, consumer, passes)
        return any(d.rule == rule and d.fused for d in found)


def inputs(b: GraphBuilder, count: int, shape: Sequence[int] = N) -> list[Value]:
    return [b.input(f"x{k}", shape, F32) for k in range(count)]


def chain(b: GraphBuilder, x: Value, length: int, op: str = "sin") -> Value:
    """`op` applied `length` times."""
    for _ in range(length):
        x = b.add(op, x)
    return x


def total(b: GraphBuilder, values: Sequence[Value]) -> Value:
    """The values added up, from the left."""
    found = values[0]
    for value in values[1:]:
        found = b.add("add", found, value)
    return found


def product(b: GraphBuilder, x: Value, y: Value) -> Value:
    """The matrix product of two matrices."""
    return b.add(
        "dot_general", x, y, lhs_contract=(1,), rhs_contract=(0,), lhs_batch=(), rhs_batch=()
    )


def softmax(b: GraphBuilder, x: Value, shape: tuple[int, int]) -> Value:
    """Softmax along rows."""
    top = b.add("broadcast", b.add("reduce_max", x, axes=(1,)), shape=shape, dims=(0,))
    raised = b.add("exp", b.add("sub", x, top))
    below = b.add("broadcast", b.add("reduce_sum", raised, axes=(1,)), shape=shape, dims=(0,))
    return b.add("div", raised, below)
