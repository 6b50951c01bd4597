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
from autofuse.kernel.tile_block import TileBlock, TileSettings
from autofuse.kernel.tile_walk import walks
from autofuse.kernel.values import ElementSource, Frame, memory
from autofuse.plan.forms import Form
from autofuse.plan.groups import is_inline
from autofuse.plan.legality import Refusal, check_group
from autofuse.plan.parameters import LOOP_UNROLL, MERGE, STAGE, TILE, WALK
from autofuse.plan.tiles import Tiles, tiles_of
from autofuse.plan.types import FusionGroup, LaunchConfig

WALKING = LaunchConfig.of(**{WALK.name: True})


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
    emitter, sources = Emitter(), _sources(group)
    params = [
        Param(f"in{position}", own.dtype, own.size, "in")
        for position, own in enumerate(group.input_types)
    ]
    targets: dict[Value, str] = {}
    for value in group.outputs:
        own = group.type_of(value)
        targets[value] = f"out{len(targets)}"
        params.append(Param(targets[value], own.dtype, own.size, "out"))
    for form in _forms(group):
        if all(group.type_of(value).size == 0 for value in form.outputs):
            continue
        frame = Frame(group, emitter, dict(sources))
        tiles = _tiles(group, form, launch, frame)
        if tiles is not None:
            emit_tiles(group, form, tiles, emitter, frame, targets, launch)
        elif form.kind == "row":
            rows = BlockPerRow(group, form, emitter, frame, targets, merge=MERGE.of(launch))
            rows.emit(STAGE.of(launch))
        else:
            items = ThreadPerElement(group, form, emitter, frame, targets)
            items.emit(TILE.of(launch), LOOP_UNROLL.of(launch))
    return run_passes(Kernel(name, tuple(params), emitter.body, launch.settings))


def _forms(group: Graph) -> tuple[Form, ...]:
    nodes = tuple(
        i for i, n in enumerate(group.nodes) if n.op != "input" and not is_inline(group, i)
    )
    verdict = check_group(group, nodes, tuple(dict.fromkeys(group.outputs)))
    if isinstance(verdict, Refusal):
        raise LoweringError(f"not one kernel: {verdict}")
    return verdict


def _sources(group: Graph) -> dict[Value, ElementSource]:
    """The inputs of a group, which are in memory."""
    types = ((Value(node), group[node].types[0]) for node in group.inputs)
    return {
        value: memory(f"in{position}", own.shape, own.dtype)
        for position, (value, own) in enumerate(types)
    }


def _tiles(group: Graph, form: Form, launch: LaunchConfig, frame: Frame) -> Tiles | None:
    """The tiles of a form; diagonal ones only where they are walked."""
    tiles = tiles_of(group, form)
    if tiles is None and WALK.of(launch):
        tiles = tiles_of(group, form, diagonal=True)
        return tiles if tiles is not None and _walks(group, form, tiles, frame) else None
    return tiles


def _walks(group: Graph, form: Form, tiles: Tiles, frame: Frame) -> bool:
    return walks(TileBlock(group, form, tiles, frame.e, frame, {}, TileSettings.of(WALKING)))


@lru_cache(maxsize=4096)
def walked_tiles(graph: Graph, group: FusionGroup) -> Tiles | None:
    """The tiles of a group's first form that has some with a left operand to be walked, those of
    diagonal products included; None where nothing can be. Raises LoweringError as `lower` does."""
    own, _ = extract(graph, group)
    for form in _forms(own):
        frame = Frame(own, Emitter(), _sources(own))
        tiles = tiles_of(own, form) or tiles_of(own, form, diagonal=True)
        if tiles is not None and tiles.columns and _walks(own, form, tiles, frame):
            return tiles
    return None
