"""A graph planned by the rules of XLA, as tests look at it."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.baselines.base import Baseline, BaselineResult, Decision
from autofuse.baselines.priority.planner import fused_2026
from autofuse.baselines.xla.planner import xla_2022
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from tests.support.checked_plans import check_plan

F32, F64, U32 = DType.F32, DType.F64, DType.U32
N = (64,)


class Planned:
    """A graph planned by xla-2022, seen through op names."""

    planner: Baseline = staticmethod(xla_2022)

    def __init__(self, builder: GraphBuilder, *outputs: Value) -> None:
        self.graph: Graph = canonical(builder.build(outputs))
        self.result: BaselineResult = self.planner(self.graph)
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


class Planned2026(Planned):
    """A graph planned by xla-2026, kernels as XLA has them."""

    planner: Baseline = staticmethod(fused_2026)


def inputs(b: GraphBuilder, count: int, shape: Sequence[int] = N) -> list[Value]:
    return [b.input(f"x{k}", shape, F32) for k in range(count)]
