"""A graph planned by xla-2022, as its tests look at it."""

from __future__ import annotations

from collections.abc import Sequence

from test_baselines import check_plan

from autofuse.baselines.base import BaselineResult, Decision
from autofuse.baselines.xla_2022 import xla_2022
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType

F32, F64, U32 = DType.F32, DType.F64, DType.U32
N = (64,)


class Planned:
    """A graph planned by xla-2022, seen through op names."""

    def __init__(self, builder: GraphBuilder, *outputs: Value) -> None:
        self.graph: Graph = canonical(builder.build(outputs))
        self.result: BaselineResult = xla_2022(self.graph)
        check_plan(self.graph, self.result.plan)

    @property
    def groups(self) -> list[list[str]]:
        """Ops of each group, sorted; groups sorted."""
        found = self.result.plan.groups
        return sorted(sorted(self.graph[n].op for n in g.nodes) for g in found)

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
