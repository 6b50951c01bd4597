"""TorchInductor with `benchmark_fusion`: a pair is fused when one kernel is faster than two.

The compiler would compile and time both ways. A baseline measures nothing: here the cost model of
`autofuse.cost.bounds` with one fixed calibration stands in for the clock, and an estimate of live
registers for the compiler's report of spills.
"""

from __future__ import annotations

from autofuse.baselines.base import BaselineResult
from autofuse.baselines.inductor.nodes import Loops, union
from autofuse.baselines.inductor.planner import inductor_plan
from autofuse.baselines.inductor.scheduler import Scheduler
from autofuse.baselines.merging import MergeRefusal
from autofuse.cost.bounds import NOMINAL, Calibration, work_bound_us
from autofuse.cost.work import group_work
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.groups import is_inline
from autofuse.plan.fusion.partition import is_rematerialisable

# What stands in for the device: `plan.cost.NOMINAL`, whatever the device at hand. Caches are cold,
# because Inductor's benchmark overwrites the last-level cache before every call.
CALIBRATION: Calibration = NOMINAL
# A thread keeps 8 elements of a pointwise block (1024 elements, 4 warps), addresses take about 16
# of its 255 registers, and a kernel with more than 16 spilled registers is never chosen.
ELEMENTS, ADDRESSES, REGISTERS, SPILL_THRESHOLD = 8, 16, 255, 16


def inductor_benchmark(graph: Graph) -> BaselineResult:
    """The plan of TorchInductor with benchmarked fusion, every benchmark answered by a model."""
    return inductor_plan(graph, faster_fused)


def faster_fused(scheduler: Scheduler, a: Loops, b: Loops) -> MergeRefusal:
    """Why two kernels are better than one, or None."""
    both = union(a, b)
    for what, one in (("fused", both), ("first", a), ("second", b)):
        spilled = spills(scheduler, one)
        if spilled > SPILL_THRESHOLD:
            return "spills", f"the {what} kernel would spill {spilled} registers"
    apart = modelled_us(scheduler, a) + modelled_us(scheduler, b)
    together = modelled_us(scheduler, both)
    if together < apart:
        return None
    return "slower", f"{together:.1f} us fused against {apart:.1f} us apart (modelled)"


def modelled_us(scheduler: Scheduler, one: Loops) -> float:
    """Microseconds of one kernel by the cost model, caches cold."""
    work = group_work(scheduler.graph, scheduler.nodes(one), scheduler.outputs(one))
    return work_bound_us(work, CALIBRATION, warm=False)


def spills(scheduler: Scheduler, one: Loops) -> int:
    """Registers per thread beyond those there are, by the most values alive at once."""
    return max(0, ADDRESSES + ELEMENTS * most_alive(scheduler, one) - REGISTERS)


def most_alive(scheduler: Scheduler, one: Loops) -> int:
    """Words per element alive at once when nodes are computed in order; a value dies with its
    last use in the kernel."""
    graph = scheduler.graph
    reads = {
        n: _operands(graph, n) for n in scheduler.nodes(one) if not is_rematerialisable(graph, n)
    }
    last = {v: n for n, values in reads.items() for v in values}
    alive: set[Value] = set()
    most = 0

    def words() -> int:
        return sum(_words(graph, v) for v in alive)

    for n, values in reads.items():
        alive |= set(values)
        most = max(most, words())
        made = {Value(n, k) for k in range(len(graph[n].types))}
        alive = {v for v in alive if last[v] != n} | (made & last.keys())
        most = max(most, words())
    return most


def _operands(graph: Graph, node: int) -> list[Value]:
    inputs = graph[node].inputs
    return [
        v for v in inputs if not (is_inline(graph, v.node) or is_rematerialisable(graph, v.node))
    ]


def _words(graph: Graph, value: Value) -> int:
    return -(-graph.type_of(value).dtype.itemsize // 4)
