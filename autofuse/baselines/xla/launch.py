"""How XLA:GPU launches a loop kernel: blocks, threads and unrolling, as of 2022 and of 2026."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autofuse.graph.types import Graph
from autofuse.ops.spec import Family
from autofuse.plan.types import FusionGroup

MAX_UNROLL = 4
WARP = 32
FEW_WAVES_THREADS = 128
LOOP_THREADS = 128
MANY_CONCAT_OPERANDS = 10
# Unrolling would only repeat their long instruction sequences (2022).
LONG_BODIES = frozenset(("sin", "cos", "pow", "atan2", "asin", "acos", "atan", "tan"))


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device as XLA describes it: clock in GHz, bandwidth in bytes per nanosecond, caches and
    DRAM transactions in bytes, `issue_bytes` what one SM may move in a clock."""

    sms: int
    threads_per_sm: int
    threads_per_block: int
    fpus_per_sm: int
    clock_ghz: float
    bandwidth: float
    l2_bytes: int
    l1_bytes_per_sm: int = 2048
    transaction_bytes: int = 64
    issue_bytes: int = 32

    @property
    def full(self) -> int:
        """Threads that fill the device once."""
        return self.sms * self.threads_per_sm


# NVIDIA H100 SXM with 80 GB, from the target description XLA ships.
H100 = Gpu(132, 2048, 1024, 128, 1.98, 3352.32, 52_428_800)


@dataclass(frozen=True, slots=True)
class Launch:
    """`blocks` of `threads`; each thread computes `unroll` neighbouring elements, and when
    `strided` goes on a whole grid further until all are done."""

    blocks: int
    threads: int
    unroll: int = 1
    strided: bool = False


LaunchRule = Callable[[Graph, FusionGroup], Launch]


def _blocks_unrolling(graph: Graph, nodes: Iterable[int]) -> bool:
    """What no version unrolls: library-sized bodies, variadic reductions, windows, wide concats."""
    for n in nodes:
        node = graph[n]
        if node.spec.family in (Family.CONTRACTION, Family.SCAN, Family.SORT, Family.WINDOW):
            return True
        if node.op in ("argmax", "argmin"):
            return True
        if node.op == "concat" and len(node.inputs) > MANY_CONCAT_OPERANDS:
            return True
    return False


def _plain(graph: Graph, nodes: Iterable[int]) -> bool:
    """Elementwise ops and broadcasts of scalars only."""
    for n in nodes:
        node = graph[n]
        scalar = node.op == "broadcast" and graph.type_of(node.inputs[0]).size == 1
        if node.spec.family is not Family.ELEMENTWISE and not scalar:
            return False
    return True


def loop_launch_2022(
    graph: Graph, nodes: tuple[int, ...], elements: int, gpu: Gpu = H100
) -> Launch:
    """The launch of a loop kernel of `nodes` writing `elements` elements, in 2022.

    A body that broadcasts rows may also have got a row-shaped block, which is not modelled."""
    long = any(graph[n].op in LONG_BODIES for n in nodes)
    unroll = 1
    if elements >= gpu.full and not long and not _blocks_unrolling(graph, nodes):
        unroll = math.gcd(elements, MAX_UNROLL)
    most = max(WARP, gpu.threads_per_block // unroll // WARP * WARP)
    threads = max(1, min(most, elements // unroll))
    blocks = max(1, -(-elements // (unroll * threads)))
    few = gpu.sms * (gpu.threads_per_sm // FEW_WAVES_THREADS)
    if _plain(graph, nodes) and few < blocks:
        return Launch(few, FEW_WAVES_THREADS, unroll, strided=True)
    return Launch(blocks, threads, unroll)


def group_launch_2022(graph: Graph, group: FusionGroup) -> Launch:
    """How XLA of 2022 launched a group that is a loop kernel."""
    return loop_launch_2022(graph, group.nodes, _elements(graph, group))


def group_launch_2026(graph: Graph, group: FusionGroup) -> Launch:
    """How XLA of 2026 launches a group that is a loop kernel."""
    return loop_launch_2026(
        _elements(graph, group), H100, not _blocks_unrolling(graph, group.nodes)
    )


def _elements(graph: Graph, group: FusionGroup) -> int:
    return max(graph.type_of(v).size for v in group.outputs)


def loop_launch_2026(elements: int, gpu: Gpu, unrolls: bool) -> Launch:
    """The launch of a loop kernel in 2026; `unrolls` is whether its body allows it."""
    unroll = math.gcd(elements, MAX_UNROLL) if unrolls and elements >= gpu.full else 1
    threads = max(1, min(LOOP_THREADS, elements // unroll))
    return Launch(max(1, -(-elements // (unroll * threads))), threads, unroll)


def never_unrolled(graph: Graph, node: int) -> bool:
    """Whether one op keeps the loop kernel around it from being unrolled (2026)."""
    return _blocks_unrolling(graph, (node,))


def row_launch(kept: int, length: int) -> Launch:
    """A row reduction: a thread takes up to 16 elements, short rows share a block of 256."""
    warps = -(-length // (16 * WARP))
    per_row = min(256, max(1, warps) * WARP)
    return Launch(max(1, -(-kept // (256 // per_row))), 256)


def column_launch(major: int, reduced: int, minor: int) -> Launch:
    """A column reduction: tiles of 32 columns by 32 threads of 128 rows each."""
    return Launch(max(1, major * -(-reduced // 4096) * -(-minor // 32)), 1024)


def transpose_launch(elements: int) -> Launch:
    """A transposition through shared memory: tiles of 32 x 32 for 128 threads."""
    return Launch(max(1, -(-elements // 1024)), 128)
