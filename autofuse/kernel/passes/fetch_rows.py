"""fetch_rows: rows of inputs are copied to shared memory while those before them are computed.

Before: grid r < 900 {lane l < 512 {m = max(m, x[r*512 + l])} max->m ..}
After:  grid r < 900 {local row0[512] = x[r*512 ..] in 2 stages; lane l < 512 {.. row0[l] ..} ..}
Asked for by `stages`, of blocks that stride over rows: each asks for a row to come before it waits
for its own. Copies are of 16 bytes and begin at a multiple of as many.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from autofuse.kernel.cuda.settings import Settings, settings
from autofuse.kernel.ir.indices import has_load, is_multiple, mentions, spelled_out, value_range
from autofuse.kernel.ir.types import (
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Origin,
    Stmt,
    has_product,
    map_exprs,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load

COPY_BYTES = 16
# Bytes of all stages in a block: with what else it keeps, no device has more.
MOST_FETCHED = 200 << 10


def _rows(kernel: Kernel) -> Loop | None:
    """The one segment of a kernel, if it is rows without tile products."""
    first = kernel.body[0] if len(kernel.body) == 1 else None
    if not isinstance(first, Loop) or not isinstance(first.extent, Lit) or has_product(first):
        return None
    return first


def fetch_rows(kernel: Kernel) -> Kernel:
    """Rewrite a kernel that is one segment of rows without tile products; a warp must have one row
    at a time."""
    own = settings(kernel)
    segment = _rows(kernel)
    if segment is None or not _can_fetch(own):
        return kernel
    sizes = {p.name: p.size for p in kernel.params if p.role == "in"}
    fetcher = _Fetcher(segment, sizes, own.stages)
    body = tuple(fetcher.stmt(s) for s in segment.body)
    teams = own.warps if own.reduce == "warp" else 1
    row = sum(s.size * s.dtype.itemsize for s in fetcher.rows.values())
    if row * own.stages * teams > MOST_FETCHED:
        return kernel
    return replace(kernel, body=(replace(segment, body=(*fetcher.rows.values(), *body)),))


def _can_fetch(own: Settings) -> bool:
    """Each block goes from row to row, and whoever folds a row has no other one at that time."""
    alone = own.reduce in ("", "block") or (own.reduce == "warp" and own.rows in (0, own.warps))
    return own.stages > 0 and own.grid == "stride" and alone


@dataclass
class _Fetcher:
    segment: Loop
    sizes: dict[str, int]
    stages: int
    # What names of positions stand for.
    names: dict[str, Expr] = field(default_factory=dict)
    rows: dict[tuple[str, Expr, int], Local] = field(default_factory=dict)

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement of the segment, with rows in place of inputs."""
        match stmt:
            case Let():
                self.learn(stmt)
            case Loop(kind=LoopKind.LANE, extent=Lit(value=lanes)):
                return self.lane(stmt, int(lanes))
        return stmt

    def learn(self, let: Let) -> None:
        if let.sym.dtype is DType.I64 and not has_load(let.value):
            self.names[let.sym.name] = spelled_out(let.value, self.names, let.sym)

    def lane(self, loop: Loop, lanes: int) -> Loop:
        def change(expr: Expr) -> Expr:
            match expr:
                case Load(buffer, index, dtype):
                    row = self.row(expr, loop, lanes)
                    name, at = (buffer, change(index)) if row is None else (row.name, loop.var)
                    return Load(name, at, dtype)
                case Call(fn, args, dtype):
                    return Call(fn, tuple(change(a) for a in args), dtype)
            return expr

        body: list[Stmt] = []
        for stmt in loop.body:
            if isinstance(stmt, Let):
                self.learn(stmt)
            body.append(map_exprs(stmt, change))
        return replace(loop, body=tuple(body))

    def row(self, load: Load, loop: Loop, lanes: int) -> Local | None:
        """The row of which every lane loads its element."""
        if load.buffer not in self.sizes or has_load(load.index):
            return None
        full = spelled_out(load.index, self.names, load.index)
        start = ix.isub(full, loop.var)
        if not self.is_row(load, start, lanes):
            return None
        made = Local(
            f"fetched{len(self.rows)}", load.dtype, lanes,
            source=Origin(load.buffer, start, self.stages),
        )  # fmt: skip
        return self.rows.setdefault((load.buffer, start, lanes), made)

    def is_row(self, load: Load, start: Expr, lanes: int) -> bool:
        """It differs between iterations, is inside its buffer and in whole copies."""
        own, extent = self.segment.var.name, self.segment.extent
        assert isinstance(extent, Lit)
        known = value_range(start, {own: (0, int(extent.value) - 1)})
        each = max(1, COPY_BYTES // load.dtype.itemsize)
        if known is None or not mentions(start, {own}):
            return False
        inside = known[0] >= 0 and known[1] + lanes <= self.sizes[load.buffer]
        return inside and lanes % each == 0 and is_multiple(start, each)
