"""The kernel that packs the right operands of a group's products, as its main kernel reads them."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.graph.types import Graph, Value
from autofuse.kernel.elements.values import ElementSource, Frame, memory
from autofuse.kernel.ir.emit import Emitter, LoweringError
from autofuse.kernel.ir.types import Kernel, Panel, Param
from autofuse.kernel.passes import run_passes
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.operands import fill
from autofuse.kernel.tiles.parts import TileSettings
from autofuse.kernel.tiles.staging import Lines
from autofuse.ops import index as ix
from autofuse.ops.scalar import Expr
from autofuse.plan.fusion.groups import is_inline
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.program.packing import PackedOperand, packed_operands, packing_reads
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.tiles import tiles_of
from autofuse.plan.types import LaunchConfig


def forms_of(group: Graph) -> tuple[Form, ...]:
    """The forms of a group given as its own graph; raises LoweringError where it is no kernel."""
    nodes = tuple(
        i for i, n in enumerate(group.nodes) if n.op != "input" and not is_inline(group, i)
    )
    verdict = check_group(group, nodes, tuple(dict.fromkeys(group.outputs)))
    if isinstance(verdict, Refusal):
        raise LoweringError(f"not one kernel: {verdict}")
    return verdict


def input_params(
    group: Graph, positions: tuple[int, ...]
) -> Iterator[tuple[Param, Value, ElementSource]]:
    """Some inputs of a group as parameters of a kernel, and how their elements are read."""
    for position in positions:
        node, name = group.inputs[position], f"in{position}"
        own = group[node].types[0]
        yield (
            Param(name, own.dtype, own.size, "in"), Value(node), memory(name, own.shape, own.dtype)
        )  # fmt: skip


def lower_panels(group: Graph, launch: LaunchConfig, name: str = "kernel") -> Kernel:
    """The kernel that packs panels (see `packed_operands`) of a group given as its own graph.

    Parameters are the inputs that panels are made of, in order, then the panels `out0..`. One grid
    iteration packs one panel. Raises LoweringError where there is nothing to pack."""
    packed = packed_operands(group, launch)
    if not packed:
        raise LoweringError("no operand of this group can be packed once")
    emitter, settings = Emitter(), TileSettings.of(launch)
    given = tuple(input_params(group, packing_reads(group, packed)))
    sources = {value: source for _, value, source in given}
    outs = [Param(f"out{k}", each.dtype, each.type.size, "out") for k, each in enumerate(packed)]
    forms = [(form, tiles_of(group, form)) for form in forms_of(group)]
    for out, each in zip(outs, packed, strict=True):
        (block,) = (
            TileBlock(form, tiles, Frame(group, emitter, dict(sources)), {}, settings)
            for form, tiles in forms
            if tiles is not None and each.product in tiles.products
        )  # fmt: skip
        _emit(block, each, out.name)
    params = (*(param for param, _, _ in given), *outs)
    return run_passes(Kernel(name, params, emitter.body, launch.settings))


def _emit(b: TileBlock, packed: PackedOperand, target: str) -> None:
    """Grids over the full panels of all matrices, then over the last ones."""
    if packed.full:
        with b.matrices(packed.batch * packed.full) as number:
            matrix = b.e.let_index(ix.idiv(number, packed.full), "z", packed.batch)
            first = ix.imul(ix.imod(number, packed.full), packed.columns)
            _panel(b, packed, target, matrix, first)
    if packed.last:
        rest = packed.product.width % packed.columns
        with b.matrices(packed.batch) as number:
            first = ix.lit(packed.product.width - rest)
            _panel(b, packed, target, number, first, rest)


def _panel(
    b: TileBlock, packed: PackedOperand, target: str, matrix: Expr, first: Expr, rest: int = 0
) -> None:
    """A panel from column `first` on: a full one, or the last one, of `rest` columns."""
    count, padded = (rest, packed.last) if rest else (packed.columns, packed.columns)
    b.place_batch(matrix)
    at = packed.start(matrix, first)
    fill(b, packed.product, Lines(first, count, Panel(target, at, padded)))
