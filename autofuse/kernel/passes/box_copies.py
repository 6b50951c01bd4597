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

from autofuse.kernel.cuda_settings import Settings, settings
from autofuse.kernel.cuda_wgmma import LINE_BYTES, ROWS, GroupFactor, group_tile
from autofuse.kernel.indices import divided, is_multiple
from autofuse.kernel.instructions import by_group
from autofuse.kernel.ir import Kernel, Loop, Param, Stmt, TileProduct
from autofuse.kernel.tensor_map import MOST_BOX, TensorMap
from autofuse.kernel.tile_ir import BoxCopies
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
        tile = group_tile(stmt, self.own.threads, self.own.stages)
        right = min(tile.right.padded, tile.columns)
        boxes = (
            None if stmt.walk is not None else self.boxes(stmt, tile.left, tile.left.padded, 1),
            self.boxes(stmt, tile.right, right, 0),
        )
        left, right_panel = (replace(p, whole=None) for p in (stmt.left, stmt.right))
        return replace(stmt, boxes=boxes, left=left, right=right_panel)

    def boxes(self, stmt: TileProduct, o: GroupFactor, lines: int, term: int) -> BoxCopies | None:
        """An operand of so many rows (or columns) in boxes; its panel counts terms along axis
        `term`. None where it cannot be."""
        param, whole, panel = self.inputs.get(o.panel.buffer), o.panel.whole, o.panel
        if param is None or whole is None or not o.copied(frozenset(self.inputs)):
            return None
        (row, first), (rows, terms) = (
            (pair[1 - term], pair[term]) for pair in (whole.at, whole.sizes)
        )
        on = ix.iadd(ix.imul(whole.at[0], panel.outer), ix.imul(whole.at[1], panel.inner))
        if ix.isub(panel.start, ix.iadd(whole.origin, on)) != ix.lit(0):
            return None  # it was moved by who does not know of boxes
        if not _is_filled(stmt.extent, first, terms, o.run):
            return None
        offset, step, batch = _batch(whole.origin)
        size = _outer(param.size - offset, o, rows, terms, step)
        item, count = o.itemsize, -(-lines // (ROWS if o.turned else MOST_BOX))
        each = ROWS if o.turned else -(-lines // count)
        near, far = ((rows, row), (terms, first)) if o.turned else ((terms, first), (rows, row))
        box = (ROWS, o.run) if o.turned else (o.run, each)
        stride = o.along if o.turned else o.across
        axes = [(stride * item, *far, box[1])]
        if step:
            axes = sorted([*axes, (step * item, size, batch, 1)], key=lambda axis: axis[0])
        tensor = TensorMap(
            param.dtype, (near[0], *(a[1] for a in axes)), tuple(a[0] for a in axes),
            (box[0], *(a[3] for a in axes)), offset * item,
        )  # fmt: skip
        if tensor.refusal or size < 1 or each % 8 and count > 1:
            return None
        made = Param("", param.dtype, param.size, "map", param.name, tensor)
        name = self.maps.setdefault(made, f"map{len(self.maps)}")
        at = (near[1], *(a[2] for a in axes))
        outer = 1 + [a[0] for a in axes].index(stride * item)
        term_at, row_at = (outer, 0) if o.turned else (0, outer)
        apart = (o.aside if o.turned else each * LINE_BYTES) // item
        return BoxCopies(name, at, term_at, row_at, count, each, apart, tensor.box_bytes)


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


def _batch(origin: Expr) -> tuple[int, int, Expr]:
    """Where matrices begin: the first element, how far on the next one is (0: there is one), and
    the number of the present one."""
    rest, offset = ix.parted(origin)
    step = _divisor(rest)
    return (offset, step, divided(rest, step)) if step else (offset, 0, ix.lit(0))


def _divisor(expr: Expr) -> int:
    """The largest number that an index `is_multiple` of (0: it is zero)."""
    match expr:
        case Lit(value=value):
            return abs(int(value))
        case Call(fn="add" | "sub" | "min" | "max", args=(a, b)) | Call(
            fn="select", args=(_, a, b)
        ):
            return math.gcd(_divisor(a), _divisor(b))
        case Call(fn="mul", args=(a, b)):
            return max(_divisor(a), _divisor(b))
    return 1


def _outer(room: int, o: GroupFactor, rows: int, terms: int, step: int) -> int:
    """How many matrices lie `step` elements apart in so many; 1 for one that has room."""
    span = (rows - 1) * o.across + (terms - 1) * o.along + 1
    if room < span:
        return 0
    return (room - span) // step + 1 if step else 1
