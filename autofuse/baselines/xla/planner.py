"""The rules of XLA:GPU of April 2022: four fusion passes to a fixpoint, then horizontal fusion.

This is the compiler of "Operator Fusion in XLA: Analysis and Evaluation" (arXiv 2301.13062).
"""

from __future__ import annotations

from functools import partial

from autofuse.baselines.base import NONE_OFF, BaselineResult, Off, planned_bodies
from autofuse.baselines.xla.horizontal import horizontal_input_fusion, horizontal_loop_fusion
from autofuse.baselines.xla.instruction_fusion import instruction_fusion
from autofuse.baselines.xla.merger import fusion_merger
from autofuse.baselines.xla.multi_output import multi_output_fusion
from autofuse.baselines.xla.state import XlaState
from autofuse.graph.types import Graph
from autofuse.plan.fusion.groups import ordered_plan


def xla_2022(graph: Graph, off: Off = NONE_OFF) -> BaselineResult:
    """The plan XLA:GPU would have made of a canonical graph, without the rules that are `off`.

    Random numbers, contractions and loops are calls of their own; a loop's body is planned by the
    same rules except horizontal loop fusion, which XLA ran on the entry computation only.
    """
    return _planned(graph, entry=True, off=off)


def _planned(graph: Graph, entry: bool, off: Off) -> BaselineResult:
    state = XlaState(graph, entry, off)
    while _fusion_stage(state):
        pass
    while _horizontal_stage(state):
        pass
    state.dissolve_bitcasts()
    bodies, inner = planned_bodies(graph, state.live, partial(_planned, entry=False, off=off))
    plan = ordered_plan(graph, state.plan_groups(bodies))
    return BaselineResult(plan, (*state.decisions.values(), *inner))


def _fusion_stage(state: XlaState) -> bool:
    changed = instruction_fusion(state, may_duplicate=False)
    changed |= instruction_fusion(state, may_duplicate=True)
    changed |= fusion_merger(state)
    return multi_output_fusion(state) or changed


def _horizontal_stage(state: XlaState) -> bool:
    changed = horizontal_loop_fusion(state) if state.entry else False
    return horizontal_input_fusion(state) or changed
