"""box_copies: operands of warpgroups that are plain matrices are copied in boxes by tensor maps.

Before: kernel k(in in0: bf16[..]) {.. tile 128x128x4096 bf16 by wgmma: acc[..] = in0[..] * in1[..]}
After:  kernel k(in in0: bf16[..], map map0: bf16[..] of in0) {.. the same, in0 in boxes of map0}
An operand is one where it lies in memory, copied as it is, in lines a multiple of 16 bytes apart,
and where what a box has beyond its last term is beyond the array, too: that is filled with zeros.
Others are copied as before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autofuse.kernel.cuda.settings import Settings, settings
from autofuse.kernel.cuda.wgmma import ALONE, LINE_BYTES, LINES, ROWS, GroupFactor, group_tile
from autofuse.kernel.ir.indices import divided, is_multiple
from autofuse.kernel.ir.instructions import by_group
from autofuse.kernel.ir.tensor_map import MOST_BOX, TensorMap
from autofuse.kernel.ir.tile import BoxCopies
from autofuse.kernel.ir.types import Kernel, Loop, Panel, Param, Stmt, TileProduct
from autofuse.ops import index as ix
from autofuse.ops.scalar import Call, Expr, Lit


def box_copies(kernel: Kernel) -> Kernel:
    """Say how operands are copied by tensor maps, which become parameters, where that is asked
    for."""
    own = settings(kernel)
    if not own.maps:
        return kernel
    boxes = _Boxes({p.name: p for p in kernel.params if p.role == "in"}, own, {})
    body = boxes.block(kernel.body)
    made = (replace(param, name=name) for (param, name) in boxes.maps.items())
    return replace(kernel, params=(*kernel.params, *made), body=body)


@dataclass
class _Boxes:
    """The inputs of a kernel, and the maps that are made of them, with their names."""

    inputs: dict[str, Param]
    own: Settings
    maps: dict[Param, str]

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(self.stmt(stmt) for stmt in body)

    def stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Loop):
            return replace(stmt, body=self.block(stmt.body))
        if isinstance(stmt, TileProduct) and by_group(stmt.mma):
            return self.product(stmt)
        return stmt

    def product(self, stmt: TileProduct) -> TileProduct:
        threads = ALONE if stmt.alone else self.own.threads
        tile = group_tile(stmt, threads, self.own.stages)
        a, b = stmt.left, stmt.right
        left = None if stmt.walk is not None else a
        boxes = (
            self.boxes(stmt, tile.left, left, tile.left.padded),
            self.boxes(stmt, tile.right, b.turned(), min(tile.right.padded, tile.columns)),
        )
        return replace(stmt, boxes=boxes, left=replace(a, whole=None), right=replace(b, whole=None))

    def boxes(
        self, stmt: TileProduct, o: GroupFactor, panel: Panel | None, lines: int
    ) -> BoxCopies | None:
        """An operand, a panel of rows (or columns) and terms, in boxes of so many lines. None where
        it cannot be."""
        if panel is None or panel.whole is None or not o.copied(frozenset(self.inputs)):
            return None
        whole, param = panel.whole, self.inputs[panel.buffer]
        if panel.start != replace(panel, start=whole.origin).moved(*whole.at).start:
            return None  # it was moved by who does not know of boxes
        if not _is_filled(stmt.extent, whole.at[1], whole.sizes[1], o.run):
            return None
        count = -(-lines // (ROWS if o.turned else MOST_BOX))
        each = ROWS if o.turned else -(-lines // count)
        offset, batch = _batch(param.size, panel)
        rows = _Axis(o.across, whole.sizes[0], whole.at[0], each)
        terms = _Axis(o.along, whole.sizes[1], whole.at[1], o.run)
        axes = sorted((rows, terms, *batch), key=lambda axis: axis.stride)
        tensor = TensorMap(
            param.dtype,
            tuple(axis.size for axis in axes),
            tuple(axis.stride * o.itemsize for axis in axes[1:]),
            tuple(axis.box for axis in axes),
            offset * o.itemsize,
        )
        if tensor.refusal or (count > 1 and each % LINES):
            return None
        made = Param("", param.dtype, param.size, "map", param.name, tensor)
        name = self.maps.setdefault(made, f"map{len(self.maps)}")
        apart = (o.aside if o.turned else each * LINE_BYTES) // o.itemsize
        at = tuple(axis.at for axis in axes)
        number = axes.index(terms), axes.index(rows)
        return BoxCopies(name, at, *number, count, each, apart, tensor.box_bytes)


@dataclass(frozen=True, slots=True)
class _Axis:
    """A dimension of an array: `stride` elements from one of `size` places to the next, of which a
    box has `box`, the first one `at`."""

    stride: int
    size: int
    at: Expr
    box: int


def _is_filled(extent: Expr, first: Expr, whole: int, run: int) -> bool:
    """Whether runs of so many terms, of `extent` from the `first` on, have no more of them, or what
    they have more is beyond all of the `whole`."""
    match extent:
        case Lit(value=value) if int(value) >= whole:
            return True
        case Call(fn="select", args=(_, a, b)) | Call(fn="min", args=(a, b)):
            return _is_filled(a, first, whole, run) and _is_filled(b, first, whole, run)
    ends = ix.isub(ix.iadd(first, extent), ix.lit(whole)) == ix.lit(0)
    return ends or is_multiple(extent, run)


def _batch(room: int, panel: Panel) -> tuple[int, tuple[_Axis, ...]]:
    """Where the first of the matrices begins that a panel may be a part of, in a buffer of so many
    elements, and the axis of all of them where there are several."""
    assert panel.whole is not None
    rest, offset = ix.parted(panel.whole.origin)
    step = _divisor(rest)
    if not step:
        return offset, ()
    rows, terms = panel.whole.sizes
    span = (rows - 1) * panel.outer + (terms - 1) * panel.inner + 1
    return offset, (_Axis(step, (room - offset - span) // step + 1, divided(rest, step), 1),)


def _divisor(expr: Expr) -> int:
    """The largest number that an index `is_multiple` of (0: it is zero)."""
    match expr:
        case Lit(value=value):
            return abs(int(value))
        case (
            Call(fn="add" | "sub" | "min" | "max", args=(a, b)) | Call(fn="select", args=(_, a, b))
        ):
            return math.gcd(_divisor(a), _divisor(b))
        case Call(fn="mul", args=(a, b)):
            return max(_divisor(a), _divisor(b))
    return 1
