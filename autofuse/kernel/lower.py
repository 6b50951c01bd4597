"""lower: a group and its decisions become one kernel. Nothing is decided here."""

from __future__ import annotations

from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.kernel.elements.block_per_row import BlockPerRow
from autofuse.kernel.elements.halo_tiles import HaloTiles
from autofuse.kernel.elements.thread_per_element import ThreadPerElement
from autofuse.kernel.elements.values import ElementSource, Frame, Landing, memory
from autofuse.kernel.ir.emit import Emitter, LoweringError
from autofuse.kernel.ir.types import Kernel, Param
from autofuse.kernel.passes import run_passes
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.pack_panels import forms_of, input_params
from autofuse.kernel.tiles.parts import TileSettings
from autofuse.kernel.tiles.tile import emit_tiles
from autofuse.kernel.tiles.walk import walks
from autofuse.ops.spec import Family
from autofuse.patience import look
from autofuse.plan.fusion.groups import reads
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.fusion.overwriting import extract as extract
from autofuse.plan.fusion.overwriting import is_overwritten, windows_only
from autofuse.plan.fusion.reshaped import before_reshapes
from autofuse.plan.parameters import HALO, LOOP_UNROLL, MERGE, STAGE, TILE, WALK
from autofuse.plan.program.packing import PackedOperand, packed_operands, reads_beside
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.halo import kept_values, tile_rows
from autofuse.plan.schedules.tiles import Tiles, tiles_of
from autofuse.plan.types import FusionGroup, LaunchConfig

WALKING = LaunchConfig.of(**{WALK.name: True})


def lower(group: Graph, launch: LaunchConfig, name: str = "kernel") -> Kernel:
    """The kernel that computes a group given as its own graph (see `extract`).

    Parameters are the group's inputs `in0..` in order, panels that `lower_panels` packs (inputs
    that only those are made of are left out), then its outputs `out0..`. Inputs that lie where an
    output does are read there, and of that output only a window is written. Reads the launch
    parameters TILE, HALO, LOOP_UNROLL, STAGE and MERGE; the others are left to passes and the
    printer as facts. Raises LoweringError when the group is not a legal kernel, or a loop's
    iterations are no multiple of `loop_unroll`, and LaunchSettingError."""
    look()
    _require_body(group)
    left, windows = windows_only(group)
    verdict, emitter = forms_of(left), Emitter()
    operands = packed_operands(left, launch)
    own_inputs = (p for p in reads_beside(left, operands) if not _is_result(group, p))
    given = tuple(input_params(left, tuple(own_inputs)))
    sources = {value: source for _, value, source in given}
    params = [param for param, _, _ in given]
    packed: dict[int, tuple[str, PackedOperand]] = {}
    for each in operands:
        buffer = f"packed{len(packed)}"
        packed[each.product.node] = buffer, each
        params.append(Param(buffer, each.dtype, each.type.size, "in"))
    results = {v: f"out{i}" for i, v in enumerate(dict.fromkeys(group.outputs))}
    for value, buffer in results.items():
        own = group.type_of(value)
        params.append(Param(buffer, own.dtype, own.size, "out"))
    inside = frozenset(range(len(left.nodes))) - set(left.inputs)
    targets = {before_reshapes(left, v, inside): b for v, b in results.items()} | results
    for value in windows:
        operand, kind = group[value.node].inputs[0], group.type_of(value)
        sources[operand] = memory(targets[value], kind.shape, kind.dtype)
    landing = {v: Landing(group.call(n), group[n].inputs) for v, n in windows.items()}
    for form in verdict:
        if all(left.type_of(value).size == 0 for value in form.outputs):
            continue
        frame = Frame(left, emitter, dict(sources), landing)
        tiles = _tiles(left, form, launch, frame)
        if tiles is not None:
            emit_tiles(form, tiles, frame, targets, launch, packed)
        elif form.kind == "row":
            rows = BlockPerRow(form, frame, targets, merge=MERGE.of(launch))
            rows.emit(STAGE.of(launch))
        elif rows_of_tile := 0 if windows else tile_rows(left, form, HALO.of(launch)):
            # Where a window is written in place, what lies around a tile may be new already.
            tiles_of_rows = HaloTiles(form, frame, targets)
            tiles_of_rows.emit(kept_values(left, form), rows_of_tile)
        else:
            items = ThreadPerElement(form, frame, targets)
            items.emit(TILE.of(launch), LOOP_UNROLL.of(launch))
    return run_passes(Kernel(name, tuple(params), emitter.body, launch.settings))


def _is_result(group: Graph, position: int) -> bool:
    return is_overwritten(group, Value(group.inputs[position]))


def _tiles(group: Graph, form: Form, launch: LaunchConfig, frame: Frame) -> Tiles | None:
    """The tiles of a form; diagonal ones only where they are walked."""
    tiles = tiles_of(group, form)
    if tiles is None and WALK.of(launch):
        tiles = tiles_of(group, form, diagonal=True)
        return tiles if tiles is not None and _walks(group, form, tiles, frame) else None
    return tiles


def _require_body(group: Graph) -> None:
    """Raises LoweringError for what only a library computes."""
    for node in group.nodes:
        if node.spec.family is Family.SOLVER:
            raise LoweringError(f"no library of this device does '{node.op}', and no kernel can")


def _walks(group: Graph, form: Form, tiles: Tiles, frame: Frame) -> bool:
    return walks(TileBlock(form, tiles, frame, {}, TileSettings.of(WALKING)))


def _in_memory(graph: Graph, group: FusionGroup) -> dict[Value, ElementSource]:
    """What a group reads, each under its own name."""
    kinds = ((v, graph.type_of(v)) for v in reads(graph, group.nodes))
    return {v: memory(str(v), t.shape, t.dtype) for v, t in kinds}


@lru_cache(maxsize=4096)
def walked_tiles(graph: Graph, group: FusionGroup) -> Tiles | None:
    """The tiles of a group's first form that has some with a left operand to be walked, those of
    diagonal products included; None where nothing can be. Raises LoweringError as `lower` does."""
    if not any(_has_taps(graph, n) for n in group.nodes):
        return None
    verdict = check_group(graph, group.nodes, group.outputs)
    if isinstance(verdict, Refusal):
        raise LoweringError(f"not one kernel: {verdict}")
    frame = Frame(graph, Emitter(), _in_memory(graph, group))
    for form in verdict:
        tiles = tiles_of(graph, form) or tiles_of(graph, form, diagonal=True)
        if tiles is not None and tiles.columns and _walks(graph, form, tiles, frame):
            return tiles
    return None


def _has_taps(graph: Graph, node: int) -> bool:
    """Whether a node sums products over several axes, so that runs of terms can be in memory."""
    spec = graph[node].spec
    if spec.family is not Family.CONTRACTION or spec.over is None:
        return False
    return len(spec.over.extents(graph.call(node))) > 1
