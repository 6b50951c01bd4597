"""Which state of the cache a workload's plans are timed in.

Where every plan's arrays fit the last-level cache, a program that calls a plan again and again
finds them there: plans are timed warm. Else each call starts cold, and kernels inside it meet what
those before them left. The state is one for a workload on a device, so that sums never mix it.
"""

from __future__ import annotations

from autofuse.cost.bounds import peak_bytes
from autofuse.devices import DeviceKind
from autofuse.graph.types import Graph
from autofuse.tuning.options import check_state
from autofuse.tuning.plans import baseline_plan

# The plan that keeps most values in memory: if it fits, all do.
LARGEST = "unfused"


def working_set_bytes(graph: Graph) -> int:
    """Bytes that a plan of a canonical graph touches at most: its inputs, its outputs and the
    intermediates of the plan that has most of them."""
    arrays = sum(t.nbytes for t in (*graph.input_types, *graph.output_types))
    return arrays + peak_bytes(graph, baseline_plan(graph, LARGEST)[0])


def cache_state(wanted: str, graph: Graph, device: DeviceKind) -> str:
    """ "cold" or "warm": what is wanted, or for "auto" what the workload meets on this device.

    Raises AutofuseError for another state."""
    check_state(wanted)
    if wanted != "auto":
        return wanted
    return "warm" if working_set_bytes(graph) <= device.cache_bytes() else "cold"
