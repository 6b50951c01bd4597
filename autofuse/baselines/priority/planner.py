"""The rules of XLA:GPU of August 2026: priority fusion by a cost model, then multi-output fusion.

The per-fusion autotuner that follows them in XLA measures, so it is no part of a baseline.
"""

from __future__ import annotations

from functools import partial

from autofuse.baselines.base import NONE_OFF, BaselineResult, Off, planned_bodies
from autofuse.baselines.buildable import buildable
from autofuse.baselines.priority.fusion import priority_fusion
from autofuse.baselines.priority.multi_output import RULES_2026
from autofuse.baselines.priority.state import PriorityState
from autofuse.baselines.xla.launch import H100, Gpu
from autofuse.baselines.xla.multi_output import multi_output_fusion
from autofuse.graph.types import Graph
from autofuse.plan.fusion.groups import ordered_plan


def xla_2026(graph: Graph, gpu: Gpu = H100, off: Off = NONE_OFF) -> BaselineResult:
    """The plan XLA:GPU makes of a canonical graph on `gpu`, in kernels we can build, without the
    rules that are `off`.

    Contractions and loops are calls of their own; random numbers are ops like others. A loop's
    body is planned by the same rules."""
    return buildable(graph, fused_2026(graph, gpu, off))


def fused_2026(graph: Graph, gpu: Gpu = H100, off: Off = NONE_OFF) -> BaselineResult:
    """XLA's own kernels, whether or not we could build them."""
    state = PriorityState(graph, gpu, off)
    priority_fusion(state)
    state.inline_constants()
    multi_output_fusion(state, RULES_2026)
    state.dissolve_bitcasts()
    bodies, inner = planned_bodies(graph, state.live, partial(fused_2026, gpu=gpu, off=off))
    plan = ordered_plan(graph, state.plan_groups(bodies))
    return BaselineResult(plan, (*state.decisions.values(), *inner))
