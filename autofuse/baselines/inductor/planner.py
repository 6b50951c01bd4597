"""The rules of TorchInductor on a GPU (PyTorch 2.13, default settings): inlining while lowering,
then greedy fusion of the remaining buffers.

"PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode Transformation and Graph
Compilation" (ASPLOS 2024), sections 4 and 6; rules and limits are those of the source.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.baselines.base import NONE_OFF, BaselineResult, Off, planned_bodies
from autofuse.baselines.buildable import buildable
from autofuse.baselines.inductor.lowering import lower
from autofuse.baselines.inductor.nodes import Loops
from autofuse.baselines.inductor.scheduler import Scheduler
from autofuse.baselines.merging import MergeRefusal, Notes
from autofuse.graph.types import Graph
from autofuse.plan.fusion.groups import ordered_plan

InductorJudge = Callable[[Scheduler, Loops, Loops], MergeRefusal]


def inductor(graph: Graph, off: Off = NONE_OFF) -> BaselineResult:
    """The plan TorchInductor would make of a canonical graph without the rules that are `off`;
    bodies of loops likewise."""
    return inductor_plan(graph, lambda scheduler, a, b: None, off)


def inductor_plan(graph: Graph, judge: InductorJudge, off: Off = NONE_OFF) -> BaselineResult:
    """The same, with `judge` asked about every fusion that the rules would make."""
    low = lower(graph, Notes(graph), off)
    scheduler = Scheduler(low, judge)
    scheduler.run()
    bodies, inner = planned_bodies(graph, low.live, lambda body: inductor_plan(body, judge, off))
    plan = ordered_plan(graph, scheduler.groups(bodies))
    return buildable(graph, BaselineResult(plan, (*low.notes.decisions, *inner)))
