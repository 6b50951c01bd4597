"""The strategy "launches": partitions stay as the rules make them, their launch configurations are
searched.

This is what tuning buys a compiler that has rules (TorchInductor's max-autotune, TVM's schedules of
fused subgraphs). What the strategy "exact" finds beyond it is the partition's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from autofuse.plan.types import FusionPlan
from autofuse.tuning.bench import Bench, Findings, Standing
from autofuse.tuning.search.candidates import candidate_kernels
from autofuse.tuning.search.cover import cover_problem
from autofuse.tuning.search.profiling import Kernels

LAUNCHES = "launches"
# Rounds of new configurations for one plan before it is another plan's turn.
ROUNDS = 2


def rule_launches(bench: Bench) -> Findings:
    """Rounds of new launch configurations for each rule's plan in turn, the fastest first, until
    every kernel has been through its space. Kernels that plans share are tuned once."""
    plans = [plan for plan in dict.fromkeys(bench.plans.values()) if bench.fits(plan)]
    if not plans:
        return Findings()
    kernels = _kernels(bench, plans)
    trials, waiting = 0, deque(plans)
    while waiting and not bench.is_over():
        found = waiting.popleft()
        if not kernels.is_timed(found):
            continue
        drawn = kernels.draw_rounds(found, ROUNDS)
        for asked in drawn:
            if not bench.is_over():
                kernels.tune_launches(found, asked)
                trials += 1
                bench.tell(Standing(LAUNCHES, trials))
        if drawn:
            waiting.append(found)
        if not bench.is_over():
            kernels.residual_us(found)  # the best of each kernel together, as a plan to choose from
    return Findings(trials)


def _kernels(bench: Bench, plans: Sequence[FusionPlan]) -> Kernels:
    """The kernels of these plans alone."""
    of_plans = candidate_kernels(bench.graph, plans, bench.calibration(), should_stop=lambda: True)
    cover = cover_problem(of_plans, digests=True)
    return Kernels(bench, cover.places(), cover.bounds(), origin=LAUNCHES)
