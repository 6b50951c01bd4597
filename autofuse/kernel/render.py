"""render: a kernel as C or CUDA text. Same IR, one statement printer, two spellings of loops."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.kernel.dialects import CUDA, C, Dialect
from autofuse.kernel.expressions import expression
from autofuse.kernel.ir import (
    Assign,
    Fold,
    Kernel,
    Let,
    Local,
    Loop,
    Stmt,
    Store,
    Stream,
    Var,
    statements,
)
from autofuse.kernel.passes import C_PASSES, run_passes
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit

_OMP_FOLD = {"add": "+", "mul": "*", "or": "|", "and": "&", "max": "max", "min": "min"}


def signature(kernel: Kernel, d: Dialect) -> str:
    """The function head: inputs const, every pointer restrict."""
    parts = [
        f"{'const ' if p.role == 'in' else ''}{d.types[p.dtype]} *{d.restrict} {p.name}"
        for p in kernel.params
    ]
    return f"{d.function} {kernel.name}({', '.join(parts)})"


def render_c(kernel: Kernel) -> str:
    """One C function; the text starts after the prelude."""
    kernel = run_passes(kernel, C_PASSES)
    head = signature(kernel, C)[:-1] + ", int64_t first, int64_t last)"
    return "\n".join([head, "{", *_CPrinter(kernel).lines(), "}", ""])


def c_iterations(kernel: Kernel) -> int:
    """Grid iterations of all segments: the range that `first` and `last` of its C text cut."""
    return sum(int(e.value) for e in _grid_extents(kernel) if isinstance(e, Lit))


def _grid_extents(kernel: Kernel) -> list[Expr]:
    return [s.extent for s in kernel.body if isinstance(s, Loop) and s.kind == "grid"]


def render_cuda(kernel: Kernel) -> str:
    """One CUDA kernel; block size and grid size are free, block size a multiple of 32."""
    return "\n".join([signature(kernel, CUDA), "{", *_CudaPrinter(kernel).lines(), "}", ""])


class _Printer:
    """Statements that both languages spell alike."""

    dialect: Dialect

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.facts = dict(kernel.facts)
        self.outs = {p.name for p in kernel.params if p.role == "out"}

    def lines(self) -> Iterator[str]:
        yield from self.block(self.kernel.body, 1, False)

    def text(self, expr: Expr) -> str:
        return expression(expr, self.dialect)

    def block(self, body: tuple[Stmt, ...], depth: int, in_lane: bool) -> Iterator[str]:
        for stmt in body:
            yield from self.stmt(stmt, depth, in_lane)

    def stmt(self, stmt: Stmt, depth: int, in_lane: bool) -> Iterator[str]:
        pad, types = "  " * depth, self.dialect.types
        match stmt:
            case Let(sym, value):
                yield f"{pad}const {types[sym.dtype]} {sym.name} = {self.text(value)};"
            case Var(sym, init):
                yield f"{pad}{types[sym.dtype]} {sym.name} = {self.text(init)};"
            case Assign(sym, value):
                yield f"{pad}{sym.name} = {self.text(value)};"
            case Store(buffer, index, value):
                place = f"{buffer}[{self.text(index)}]"
                yield f"{pad}{self.guard(buffer, in_lane)}{place} = {self.text(value)};"
            case Stream(buffer, start, local, count):
                place = f"{buffer} + {self.text(start)}"
                yield f"{pad}af_stream({place}, {local}, ({self.text(count)}) * sizeof *{local});"
            case Local(name, dtype, size):
                yield f"{pad}{self.local(types[dtype], name, size)}"
            case Loop():
                yield from self.loop(stmt, depth, in_lane)

    def head(self, loop: Loop, start: str = "0", step: str = "1") -> str:
        v = loop.var.name
        advance = f"{v}++" if step == "1" else f"{v} += {step}"
        return f"for (int64_t {v} = {start}; {v} < {self.text(loop.extent)}; {advance}) {{"

    def guard(self, buffer: str, in_lane: bool) -> str:
        return ""

    def local(self, type_name: str, name: str, size: int) -> str:
        raise NotImplementedError

    def loop(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        raise NotImplementedError


class _CPrinter(_Printer):
    """Grid iterations `first` to `last` of all segments, numbered through; lanes are SIMD loops."""

    dialect = C

    def lines(self) -> Iterator[str]:
        self.offset = 0
        yield from super().lines()

    def local(self, type_name: str, name: str, size: int) -> str:
        return f"{type_name} {name}[{size}] __attribute__((aligned(64)));"

    def loop(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        pad = "  " * depth
        if loop.kind == "lane" and _vectorises(loop):
            yield f"{pad}#pragma omp simd{self._reductions(loop.folds)}"
        yield f"{pad}{self.grid_head(loop) if loop.kind == 'grid' else self.head(loop)}"
        yield from self.block(loop.body, depth + 1, in_lane or loop.kind == "lane")
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


def _vectorises(loop: Loop) -> bool:
    # OpenMP knows no reduction over bool, and its extrema of floats lose NaNs.
    return not any(
        f.target.dtype is DType.BOOL or (f.target.dtype.is_float and f.operator in ("max", "min"))
        for f in loop.folds
    )


class _CudaPrinter(_Printer):
    """Grid loops stride over blocks, lane loops over the threads of a block."""

    dialect = CUDA

    def guard(self, buffer: str, in_lane: bool) -> str:
        return "" if in_lane else "if (threadIdx.x == 0) "

    def local(self, type_name: str, name: str, size: int) -> str:
        return f"__shared__ {type_name} {name}[{size}];"

    def loop(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        pad = "  " * depth
        if loop.kind == "grid":
            yield f"{pad}{self.head(loop, 'blockIdx.x', 'gridDim.x')}"
            yield from self.block(loop.body, depth + 1, in_lane)
            if _has_local(loop):
                yield f"{pad}  __syncthreads();"
            yield f"{pad}}}"
            return
        if loop.kind == "lane":
            yield from self._lane(loop, depth)
            return
        yield f"{pad}{self.head(loop)}"
        yield from self.block(loop.body, depth + 1, in_lane)
        yield f"{pad}}}"
        # One thread has stored what all are going to read.
        if not in_lane and any(self._is_shared(s) for s in loop.body):
            yield f"{pad}__syncthreads();"

    def _is_shared(self, stmt: Stmt) -> bool:
        return isinstance(stmt, Store) and stmt.buffer not in self.outs

    def _lane(self, loop: Loop, depth: int) -> Iterator[str]:
        pad = "  " * depth
        for fold in loop.folds:
            # Lanes start from the identity and the running value joins once, afterwards.
            name = fold.target.name
            kind = self.dialect.types[fold.target.dtype]
            yield f"{pad}const {kind} {name}_before = {name};"
            yield f"{pad}{name} = af_identity_{fold.operator}_{fold.target.dtype}();"
        yield f"{pad}{self.head(loop, 'threadIdx.x', 'blockDim.x')}"
        yield from self.block(loop.body, depth + 1, True)
        yield f"{pad}}}"
        for fold in loop.folds:
            name, kind = fold.target.name, f"{fold.operator}_{fold.target.dtype}"
            yield f"{pad}{name} = af_join_{kind}({name}_before, af_block_{kind}({name}));"
        if not loop.folds and any(self._is_shared(s) for s in statements(loop.body)):
            yield f"{pad}__syncthreads();"


def _has_local(loop: Loop) -> bool:
    return any(isinstance(s, Local) for s in statements(loop.body))
