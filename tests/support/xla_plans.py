"""A graph planned by the rules of XLA, as tests look at it."""

from __future__ import annotations

from autofuse.baselines.base import Baseline
from autofuse.baselines.priority.planner import fused_2026
from autofuse.baselines.xla.planner import xla_2022
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType
from tests.support.rule_plans import F32 as F32
from tests.support.rule_plans import N as N
from tests.support.rule_plans import Ruled
from tests.support.rule_plans import inputs as inputs

F64, U32 = DType.F64, DType.U32


class Planned(Ruled):
    """A graph planned by xla-2022, seen through op names."""

    rules: Baseline = staticmethod(xla_2022)

    def __init__(self, builder: GraphBuilder, *outputs: Value) -> None:
        super().__init__(self.rules, builder, *outputs)

    @property
    def groups(self) -> list[list[str]]:
        """Ops of each group, sorted; groups sorted."""
        found = self.result.plan.groups
        return sorted(sorted(self.graph[n].op for n in g.nodes) for g in found)


class Planned2026(Planned):
    """A graph planned by xla-2026, kernels as XLA has them."""

    rules: Baseline = staticmethod(fused_2026)
