"""Split-k: the terms of a product in several parts, each summed by blocks of its own.

Under the launch setting `split` the kernel of a group is two: one that sums parts, which is a
product with one batch axis more, and one that adds the parts up, always in the same order, and does
what follows. It gives work to more threads where a product has few tiles and many terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autofuse.graph.canonical import subgraph
from autofuse.graph.surgery.embed import copies
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.contraction import contract_shape
from autofuse.ops.dtypes import DType
from autofuse.ops.types import OpCall, TensorType
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import reads
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.fusion.products import PRODUCT
from autofuse.plan.parameters import MATH, SPLIT, THREADS, VECTOR_BITS
from autofuse.plan.program.fold_splitting import fold_parts, joined_parts, online_group
from autofuse.plan.program.steps import Ref, Run
from autofuse.plan.types import FusionGroup, LaunchConfig

# Sums of parts are kept as they are computed, not rounded to a narrower type.
DTYPES = (DType.F32, DType.F64)
# Settings of a product that mean the same to what follows it.
SHARED = (THREADS.name, MATH.name, VECTOR_BITS.name)
# Inputs of the second kernel that are no inputs of the group: this and a number.
PARTS = "parts"


@dataclass(frozen=True, slots=True)
class HalfOfGroup:
    """One of the two kernels: `group` is everything in `graph`. It reads these values of the graph
    that was split (numbers: of the parts), and writes these outputs of its group (their
    positions)."""

    graph: Graph
    group: FusionGroup
    launch: LaunchConfig
    reads: tuple[Value | int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Splitting:
    """The two kernels of a group, and the types of the parts of each sum."""

    sums: HalfOfGroup
    rest: HalfOfGroup
    parts: tuple[TensorType, ...]

    def runs(
        self, place: Mapping[Value, Ref], parts: Sequence[Ref], writes: Sequence[Ref]
    ) -> tuple[Run, Run]:
        """Both in order: where values of the graph are, the parts, and the outputs of the group."""
        halves = (self.sums, parts), (self.rest, writes)
        first, second = (
            Run(
                half.graph, half.group, half.launch,
                tuple(parts[v] if isinstance(v, int) else place[v] for v in half.reads),
                tuple(targets[k] for k in half.writes),
            )
            for half, targets in halves
        )  # fmt: skip
        return first, second


@lru_cache(maxsize=2048)
def splitting_of(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> Splitting | None:
    """The two kernels of a group; None where it is one: it is not to be split, has not just one
    product or folds of one (`fold_splitting.py`), or no axis that is cut has equal parts."""
    parts = SPLIT.of(launch)
    if parts == 1 or group.body is not None or group.overwrites:
        return None
    alone, values = subgraph(graph, group.nodes, group.outputs)
    products = [n for n in live(alone) if alone[n].op == PRODUCT]
    if len(products) > 1:
        return _folds(alone, launch, values)
    if len(products) != 1 or alone[products[0]].types[0].dtype not in DTYPES:
        return None
    (node,) = products
    axis = _split_axis(alone.call(node), parts)
    if axis is None:
        return None
    first, second = GraphWriter(), GraphWriter()
    sums = _parts(
        first, copies(first, alone, alone[node].inputs, {}), alone.call(node), axis, parts
    )
    given = {node: second.input(f"{PARTS}0", first.shape(sums), first.dtype(sums))}
    given[node] = second.reduce("reduce_sum", given[node], 0)
    results = copies(second, alone, alone.outputs, given)
    return _halves((first, [sums]), (second, results), launch, values)


def _folds(alone: Graph, launch: LaunchConfig, values: tuple[Value, ...]) -> Splitting | None:
    """The two kernels of products whose columns are folded."""
    online = online_group(alone)
    first = None if online is None else fold_parts(alone, online, SPLIT.of(launch))
    if online is None or first is None:
        return None
    second, w = GraphWriter(), first.writer
    given = {
        node: second.input(f"{PARTS}{k}", w.shape(made), w.dtype(made))
        for k, (node, made) in enumerate(first.made.items())
    }
    results = joined_parts(alone, online, second, given)
    if results is None:
        return None
    return _halves((w, [*first.made.values()]), (second, results), launch, values)


def _halves(
    sums: tuple[GraphWriter, list[Value]], rest: tuple[GraphWriter, list[Value]],
    launch: LaunchConfig, values: tuple[Value, ...],
) -> Splitting | None:  # fmt: skip
    """Both kernels; None where one of them is none."""
    first = _half(*sums, [s for s in launch.settings if s[0] != SPLIT.name], values)
    second = _half(*rest, [s for s in launch.settings if s[0] in SHARED], values)
    if first is None or second is None:
        return None
    return Splitting(first, second, tuple(sums[0].type_of(v) for v in sums[1]))


def _split_axis(call: OpCall, parts: int) -> int | None:
    """Which of the axes that are summed over is cut: the longest that has so many equal parts."""
    extents = contract_shape(call)
    even = [k for k, extent in enumerate(extents) if extent % parts == 0 and extent > parts]
    return max(even, key=lambda k: extents[k], default=None)


def _parts(w: GraphWriter, operands: list[Value], call: OpCall, axis: int, parts: int) -> Value:
    """The sums of all parts, the parts as the first axis."""
    roles: dict[str, tuple[int, ...]] = {}
    cut = []
    for side, operand in zip(("lhs", "rhs"), operands, strict=True):
        at, shape = call[f"{side}_contract"][axis], w.shape(operand)
        cut.append(w.reshape(operand, (*shape[:at], parts, shape[at] // parts, *shape[at + 1 :])))
        # The parts come where the axis was, what is summed of them after it.
        batch, summed = (
            tuple(a + (a >= at) for a in call[f"{side}_{role}"]) for role in ("batch", "contract")
        )
        roles |= {f"{side}_batch": (at, *batch), f"{side}_contract": summed}
    return w.op(PRODUCT, *cut, **roles)


def _half(
    w: GraphWriter, results: list[Value], settings: list[tuple[str, int | str | bool]],
    values: tuple[Value, ...],
) -> HalfOfGroup | None:  # fmt: skip
    """What was written as one kernel; None where it is none."""
    graph = w.build(results)
    nodes = live(graph)
    if len(set(graph.outputs)) < len(results) or any(v.node not in nodes for v in graph.outputs):
        return None
    if isinstance(check_group(graph, nodes, tuple(sorted(graph.outputs))), Refusal):
        return None
    names = dict(zip(graph.inputs, graph.input_names, strict=True))
    read = (names[v.node] for v in reads(graph, nodes) if v.node in names)
    found = tuple(
        int(name.removeprefix(PARTS)) if name.startswith(PARTS) else values[int(name)]
        for name in read
    )
    outputs = tuple(sorted(graph.outputs))
    written = tuple(graph.outputs.index(v) for v in outputs)
    group = FusionGroup(nodes, outputs)
    return HalfOfGroup(graph, group, LaunchConfig(tuple(settings)), found, written)
