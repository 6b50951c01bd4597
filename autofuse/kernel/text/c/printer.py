"""print_c: a kernel as C text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from autofuse.kernel.ir.types import (
    Fold,
    Kernel,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Stream,
    TileProduct,
    Transpose,
    statements,
)
from autofuse.kernel.text.c.amx import AMX_TEXT, STATE, amx_text
from autofuse.kernel.text.c.dot import dot_text
from autofuse.kernel.text.c.lanes import lanes_text
from autofuse.kernel.text.c.pairs import pairs_text
from autofuse.kernel.text.c.tile import tile_text
from autofuse.kernel.text.c.vectors import vector_lines
from autofuse.kernel.text.dialects import LANES, C, Dialect
from autofuse.kernel.text.printer import Printer, signature
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit
from autofuse.plan.parameters import AMX_MMA, VECTOR_BITS
from autofuse.plan.types import LaunchConfig

# A thread's stack usually has 8 MiB. Where a kernel's scratch is more than this, what is long of it
# is asked of the heap, once a call.
STACK_BYTES, LONG_BYTES, ALIGNED = 2 << 20, 64 << 10, 64
_OMP_FOLD = {"add": "+", "mul": "*", "or": "|", "and": "&", "max": "max", "min": "min"}


def print_c(kernel: Kernel) -> str:
    """One C function of a kernel that is `shaped_c`."""
    head = signature(kernel, C)[:-1] + ", int64_t first, int64_t last)"
    return "\n".join([head, "{", *_CPrinter(kernel).lines(), "}", ""])


def on_heap(kernel: Kernel) -> dict[str, int]:
    """Bytes of scratch, in whole lines of the cache, that is not on the stack, by name."""
    found = [s for s in statements(kernel.body) if isinstance(s, Local)]
    sizes = {s.name: -(-s.size * s.dtype.itemsize // ALIGNED) * ALIGNED for s in found}
    if sum(sizes.values()) <= STACK_BYTES:
        return {}
    return {name: size for name, size in sizes.items() if size >= LONG_BYTES}


def c_iterations(kernel: Kernel) -> int:
    """Grid iterations of all segments of a kernel that is `shaped_c`: the range that `first` and
    `last` of its C text cut."""
    return sum(int(e.value) for e in _grid_extents(kernel) if isinstance(e, Lit))


def _grid_extents(kernel: Kernel) -> list[Expr]:
    return [s.extent for s in kernel.body if isinstance(s, Loop) and s.kind is LoopKind.GRID]


class _CPrinter(Printer):
    """Grid iterations `first` to `last` of all segments, numbered through; lanes are SIMD loops."""

    dialect: Dialect = C

    def lines(self) -> Iterator[str]:
        self.offset = 0
        self.heap = on_heap(self.kernel)
        tiles = any(isinstance(s, TileProduct) and s.mma for s in statements(self.kernel.body))
        if tiles:
            yield AMX_TEXT
            yield f"  {STATE}.shape = 0;"
        yield from self._kept_lines()
        if tiles:
            yield f"  af_amx_end(&{STATE});"

    def _kept_lines(self) -> Iterator[str]:
        """The statements, and memory for what is large."""
        if not self.heap:
            yield from super().lines()
            yield from self._past()
            return
        # Nobody here can be told that memory, once asked for, is not there.
        yield f"  char *const heap = aligned_alloc({ALIGNED}, {sum(self.heap.values())});"
        yield "  if (!heap) abort();"
        yield from super().lines()
        yield from self._past()
        yield "  free(heap);"

    def _past(self) -> Iterator[str]:
        """What makes others see what was written past the cache."""
        if any(_streams(s) for s in statements(self.kernel.body)):
            yield "  af_streamed();"

    def stmt(self, stmt: Stmt, depth: int, in_lane: bool) -> Iterator[str]:
        if isinstance(stmt, TileProduct):
            width = VECTOR_BITS.of(LaunchConfig(self.kernel.facts)) // 8
            if stmt.lanes:
                lines = lanes_text(stmt, self.operand)
            elif stmt.mma == AMX_MMA:
                lines = amx_text(stmt, self.operand)
            elif stmt.dtype is DType.BF16:
                lines = pairs_text(stmt, self.operand, width)
            else:
                lines = (dot_text if stmt.is_dot else tile_text)(stmt, self.operand, width)
            yield from ("  " * depth + line for line in lines)
        elif isinstance(stmt, Transpose):
            places = (f"{p.buffer} + {self.operand(p.start)}, {p.outer // p.inner}"
                      for p in (stmt.target, stmt.source))  # fmt: skip
            counts = f"{self.text(stmt.rows)}, {self.text(stmt.extent)}"
            arguments = f"{', '.join(places)}, {counts}, {int(stmt.stream)}"
            nbytes = stmt.dtype.itemsize * stmt.target.inner
            yield f"{'  ' * depth}af_transpose_{nbytes}({arguments});"
        else:
            yield from super().stmt(stmt, depth, in_lane)

    def local(self, type_name: str, name: str, size: int) -> str:
        if name in self.heap:
            before = sum(islice(self.heap.values(), list(self.heap).index(name)))
            return f"{type_name} *const restrict {name} = ({type_name} *)(heap + {before});"
        return f"{type_name} {name}[{size}] __attribute__((aligned(64)));"

    def loop(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        pad = "  " * depth
        if loop.kind is LoopKind.WHEN:
            yield f"{pad}if ({self.text(loop.extent)}) {{"
            yield from self.block(loop.body, depth + 1, in_lane)
            yield f"{pad}}}"
            return
        if loop.kind is LoopKind.VECTOR:
            lines = vector_lines(loop, self.operand)
            if lines is not None:
                yield f"{pad}{{"
                yield from (f"{pad}  {line}" for line in lines)
                yield f"{pad}}}"
                return
        around, lanes = self.dialect, loop.kind in (LoopKind.LANE, LoopKind.VECTOR)
        if lanes and _vectorises(loop):
            yield f"{pad}#pragma omp simd{self._reductions(loop.folds)}"
            self.dialect = LANES
        yield f"{pad}{self.grid_head(loop) if loop.kind is LoopKind.GRID else self.head(loop)}"
        yield from self.block(loop.body, depth + 1, in_lane or lanes)
        self.dialect = around
        yield f"{pad}}}"

    def grid_head(self, loop: Loop) -> str:
        """The part of this segment that lies between `first` and `last`."""
        assert isinstance(loop.extent, Lit)
        v, extent, before = loop.var.name, int(loop.extent.value), self.offset
        self.offset += extent
        start = f"first > {before} ? first - {before} : 0" if before else "first"
        end = f"last - {before}" if before else "last"
        stop = f"{v}_end = {end} < {extent} ? {end} : {extent}"
        return f"for (int64_t {v} = {start}, {stop}; {v} < {v}_end; {v}++) {{"

    def _reductions(self, folds: tuple[Fold, ...]) -> str:
        return "".join(f" reduction({_OMP_FOLD[f.operator]}:{f.target.name})" for f in folds)


def _streams(stmt: Stmt) -> bool:
    return isinstance(stmt, Stream) or (isinstance(stmt, Transpose) and stmt.stream)


def _vectorises(loop: Loop) -> bool:
    # OpenMP knows no reduction over bool, and its extrema of floats lose NaNs.
    return not any(
        f.target.dtype is DType.BOOL or (f.target.dtype.is_float and f.operator in ("max", "min"))
        for f in loop.folds
    )
