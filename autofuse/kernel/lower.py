"""lower: a group and its decisions become one kernel. Nothing is decided here."""

from __future__ import annotations

from functools import lru_cache

from autofuse.graph.canonical import subgraph
from autofuse.graph.types import Graph, Value
from autofuse.kernel.block_per_row import BlockPerRow
from autofuse.kernel.emit import Emitter
from autofuse.kernel.ir import Kernel, Param
from autofuse.kernel.pack_panels import forms_of, input_params
from autofuse.kernel.passes import run_passes
from autofuse.kernel.thread_per_element import ThreadPerElement
from autofuse.kernel.tile import emit_tiles
from autofuse.kernel.tile_block import TileBlock
from autofuse.kernel.tile_parts import TileSettings
from autofuse.kernel.tile_walk import walks
from autofuse.kernel.values import Frame
from autofuse.plan.forms import Form
from autofuse.plan.packing import PackedOperand, packed_operands, reads_beside
from autofuse.plan.parameters import LOOP_UNROLL, MERGE, STAGE, TILE, WALK
from autofuse.plan.reshaped import before_reshapes
from autofuse.plan.tiles import Tiles, tiles_of
from autofuse.plan.types import FusionGroup, LaunchConfig

WALKING = LaunchConfig.of(**{WALK.name: True})


@lru_cache(maxsize=4096)
def extract(graph: Graph, group: FusionGroup) -> tuple[Graph, tuple[Value, ...]]:
    """The group as a graph of its own, and the values of `graph` behind its inputs."""
    return subgraph(graph, group.nodes, group.outputs)


def lower(group: Graph, launch: LaunchConfig, name: str = "kernel") -> Kernel:
    """The kernel that computes a group given as its own graph (see `extract`).

    Parameters are the group's inputs `in0..` in order, panels that `lower_panels` packs (inputs
    that only those are made of are left out), then its outputs `out0..`. Reads the launch
    parameters TILE, LOOP_UNROLL, STAGE and MERGE; the others are left to passes and the printer as
    facts. Raises LoweringError when the group is not a legal kernel, or a loop's iterations are no
    multiple of `loop_unroll`, and LaunchSettingError."""
    verdict, emitter = forms_of(group), Emitter()
    operands = packed_operands(group, launch)
    given = tuple(input_params(group, reads_beside(group, operands)))
    sources = {value: source for _, value, source in given}
    params = [param for param, _, _ in given]
    packed: dict[int, tuple[str, PackedOperand]] = {}
    for each in operands:
        buffer = f"packed{len(packed)}"
        packed[each.product.node] = buffer, each
        params.append(Param(buffer, each.dtype, each.type.size, "in"))
    targets: dict[Value, str] = {}
    for value in group.outputs:
        own = group.type_of(value)
        buffer = targets[value] = f"out{len(targets)}"
        params.append(Param(buffer, own.dtype, own.size, "out"))
    inside = frozenset(range(len(group.nodes))) - set(group.inputs)
    for value, buffer in tuple(targets.items()):
        targets.setdefault(before_reshapes(group, value, inside), buffer)
    for form in verdict:
        if all(group.type_of(value).size == 0 for value in form.outputs):
            continue
        frame = Frame(group, emitter, dict(sources))
        tiles = _tiles(group, form, launch, frame)
        if tiles is not None:
            emit_tiles(group, form, tiles, emitter, frame, targets, launch, packed)
        elif form.kind == "row":
            rows = BlockPerRow(group, form, emitter, frame, targets, merge=MERGE.of(launch))
            rows.emit(STAGE.of(launch))
        else:
            items = ThreadPerElement(group, form, emitter, frame, targets)
            items.emit(TILE.of(launch), LOOP_UNROLL.of(launch))
    return run_passes(Kernel(name, tuple(params), emitter.body, launch.settings))


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
    for form in forms_of(own):
        every = input_params(own, tuple(range(len(own.inputs))))
        frame = Frame(own, Emitter(), {value: source for _, value, source in every})
        tiles = tiles_of(own, form) or tiles_of(own, form, diagonal=True)
        if tiles is not None and tiles.columns and _walks(own, form, tiles, frame):
            return tiles
    return None
