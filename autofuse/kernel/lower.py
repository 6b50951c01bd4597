"""lower: a group and its decisions become one kernel. Nothing is decided here."""

from __future__ import annotations

from functools import lru_cache

from autofuse.graph.canonical import subgraph
from autofuse.graph.types import Graph, Value
from autofuse.kernel.block_per_row import BlockPerRow
from autofuse.kernel.emit import Emitter, LoweringError
from autofuse.kernel.ir import Kernel, Param
from autofuse.kernel.passes import run_passes
from autofuse.kernel.thread_per_element import ThreadPerElement
from autofuse.kernel.tile import emit_tiles
from autofuse.kernel.values import ElementSource, Frame, memory
from autofuse.plan.groups import is_inline
from autofuse.plan.legality import Refusal, check_group
from autofuse.plan.parameters import LOOP_UNROLL, MERGE, STAGE, TILE
from autofuse.plan.tiles import tiles_of
from autofuse.plan.types import FusionGroup, LaunchConfig


@lru_cache(maxsize=4096)
def extract(graph: Graph, group: FusionGroup) -> tuple[Graph, tuple[Value, ...]]:
    """The group as a graph of its own, and the values of `graph` behind its inputs."""
    return subgraph(graph, group.nodes, group.outputs)


def lower(group: Graph, launch: LaunchConfig, name: str = "kernel") -> Kernel:
    """The kernel that computes a group given as its own graph (see `extract`).

    Parameters are the group's inputs `in0..` in order, then its outputs `out0..`. Reads the launch
    parameters TILE, LOOP_UNROLL, STAGE and MERGE; the others are left to passes and the printer as
    facts. Raises LoweringError when the group is not a legal kernel, or a loop's iterations are no
    multiple of `loop_unroll`, and LaunchSettingError."""
    nodes = tuple(
        i for i, n in enumerate(group.nodes) if n.op != "input" and not is_inline(group, i)
    )
    verdict = check_group(group, nodes, tuple(dict.fromkeys(group.outputs)))
    if isinstance(verdict, Refusal):
        raise LoweringError(f"not one kernel: {verdict}")
    emitter = Emitter()
    sources: dict[Value, ElementSource] = {}
    params: list[Param] = []
    for position, node in enumerate(group.inputs):
        own = group[node].types[0]
        params.append(Param(f"in{position}", own.dtype, own.size, "in"))
        sources[Value(node)] = memory(f"in{position}", own.shape, own.dtype)
    targets: dict[Value, str] = {}
    for value in group.outputs:
        own = group.type_of(value)
        targets[value] = f"out{len(targets)}"
        params.append(Param(targets[value], own.dtype, own.size, "out"))
    for form in verdict:
        if all(group.type_of(value).size == 0 for value in form.outputs):
            continue
        frame = Frame(group, emitter, dict(sources))
        tiles = tiles_of(group, form)
        if tiles is not None:
            emit_tiles(group, form, tiles, emitter, frame, targets, launch)
        elif form.kind == "row":
            rows = BlockPerRow(group, form, emitter, frame, targets, merge=MERGE.of(launch))
            rows.emit(STAGE.of(launch))
        else:
            items = ThreadPerElement(group, form, emitter, frame, targets)
            items.emit(TILE.of(launch), LOOP_UNROLL.of(launch))
    return run_passes(Kernel(name, tuple(params), emitter.body, launch.settings))
