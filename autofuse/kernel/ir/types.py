"""The kernel IR, on one page: typed loops over scalar expressions.

A kernel is a list of `grid` loops (`LoopKind` says what kinds of loops mean). Statements outside
lane loops are uniform: every lane sees the same value. Expressions are those of
`autofuse.ops.scalar`; index expressions are I64. What a field of a statement means to names and
expressions its type says (`kernel/ir/roles.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from autofuse.kernel.ir.fragment import Collective
from autofuse.kernel.ir.roles import (
    Assigns,
    Binds,
    Declares,
    Defines,
    FieldRole,
    Mentions,
    Reads,
    Register,
    Writes,
    names_in,
    plan_of,
)
from autofuse.kernel.ir.tensor_map import TensorMap
from autofuse.kernel.ir.tile import Join as Join
from autofuse.kernel.ir.tile import Panel as Panel
from autofuse.kernel.ir.tile import TileProduct as TileProduct
from autofuse.kernel.ir.tile import Transpose as Transpose
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Load, Sym, show
from autofuse.ops.scalar import walk as walk


class LoopKind(StrEnum):
    """Who runs the iterations of a loop, and when."""

    # Independent of each other: threads of a CPU or blocks of a GPU share them out.
    GRID = "grid"
    # The data-parallel inner dimension: SIMD on a CPU, the threads of a block on a GPU.
    LANE = "lane"
    # As LANE, where there are as many as a vector has: written out as one (C).
    VECTOR = "vector"
    # One after another.
    SERIAL = "serial"
    # As SERIAL, and written out by a compiler.
    UNROLLED = "unrolled"
    # One after another as long as the extent, a BOOL that is read again before each, is true; the
    # variable counts them. Nothing changes in a lane where the extent is false.
    WHILE = "while"
    # One, if the extent, a BOOL, is true.
    WHEN = "when"
    # Dealt to the warps of a block: lanes inside are those of the warp.
    WARP = "warp"
    # Dealt to the 32 columns of a two-dimensional block: lanes inside are the threads of a column.
    COLUMN = "column"
    # Run by neighbouring grid iterations together.
    PART = "part"
    # Run by every thread of a block, with registers of its own (`private` Locals, which only
    # UNROLLED loops may index); together they do what `kernel/ir/fragment.py` has.
    THREADS = "threads"


@dataclass(frozen=True, slots=True)
class Param:
    """A global buffer."""

    name: str
    dtype: DType
    # Its elements.
    size: int
    # "in", "out" (written only), "work" (scratch that blocks share, zero when the kernel starts and
    # when it ends as far as it is counted in) or "map".
    role: str
    # Of a map: the buffer it is a map of, and what it says.
    source: str = ""
    map: TensorMap | None = None


@dataclass(frozen=True, slots=True)
class Let:
    """An immutable value."""

    sym: Defines
    value: Expr

    def __str__(self) -> str:
        return f"let {self.sym.name}: {self.sym.dtype} = {show(self.value)}"


@dataclass(frozen=True, slots=True)
class Var:
    """A register that may be assigned."""

    sym: Register
    init: Expr

    def __str__(self) -> str:
        return f"var {self.sym.name}: {self.sym.dtype} = {show(self.init)}"


@dataclass(frozen=True, slots=True)
class Assign:
    """A register gets a new value."""

    sym: Assigns
    value: Expr

    def __str__(self) -> str:
        return f"{self.sym.name} = {show(self.value)}"


@dataclass(frozen=True, slots=True)
class Origin:
    """buffer[start ..], of which rows are copied."""

    buffer: Reads
    start: Expr
    # So many rows are in scratch at once: all but one belong to grid iterations that come later.
    stages: int

    def __str__(self) -> str:
        return f"{self.buffer}[{show(self.start)} ..] in {self.stages} stages"


@dataclass(frozen=True, slots=True)
class Local:
    """Scratch of one grid iteration, shared by its lanes."""

    name: Declares
    dtype: DType
    # Its elements.
    size: int
    # Every lane has its own, in registers.
    private: bool = False
    # What it is a copy of: it is only read.
    source: Origin | None = None

    def __str__(self) -> str:
        text = f"{'private' if self.private else 'local'} {self.name}: {self.dtype}[{self.size}]"
        return text if self.source is None else f"{text} = {self.source}"


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[index] = value, in a Param of role "out" or a Local."""

    buffer: Writes
    index: Expr
    value: Expr

    def __str__(self) -> str:
        return f"{self.buffer}[{show(self.index)}] = {show(self.value)}"


@dataclass(frozen=True, slots=True)
class Stream:
    """buffer[start : start + count] = local[0 : count], written past the cache."""

    buffer: Writes
    start: Expr
    local: Reads
    count: Expr

    def __str__(self) -> str:
        place = f"{self.buffer}[{show(self.start)} ..]"
        return f"stream {place} = {self.local}[.. {show(self.count)}]"


@dataclass(frozen=True, slots=True)
class Ahead:
    """A hint that changes nothing: buffer[start : start + count] is needed soon."""

    buffer: Mentions
    start: Expr
    count: Expr
    # To be written; otherwise to be read.
    written: bool

    def __str__(self) -> str:
        what = "write" if self.written else "read"
        return f"{what} soon {self.buffer}[{show(self.start)} .. {show(self.count)}]"


@dataclass(frozen=True, slots=True)
class LoadVector:
    """syms[j] = buffer[index + j] in one access; `index` is a multiple of the number of them."""

    syms: tuple[Defines, ...]
    buffer: Reads
    index: Expr
    # Told to a cache: "again" of what is read later once more, "once" of what is not.
    keep: str = ""

    def __str__(self) -> str:
        names = " ".join(s.name for s in self.syms)
        return f"let {names} = {self.buffer}[{show(self.index)} ..]{self.keep and f' {self.keep}'}"


@dataclass(frozen=True, slots=True)
class StoreVector:
    """buffer[index + j] = values[j] in one access; `index` is a multiple of their number."""

    buffer: Writes
    index: Expr
    values: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.buffer}[{show(self.index)} ..] = {', '.join(map(show, self.values))}"


@dataclass(frozen=True, slots=True)
class Fold:
    """A register combined over all lanes; afterwards every lane sees the total."""

    # A Var outside the lane loop, which the body assigns.
    target: Annotated[Sym, FieldRole.MENTIONED]
    # With which the body assigns it.
    operator: str


@dataclass(frozen=True, slots=True)
class Loop:
    """for var in 0 .. extent."""

    kind: LoopKind
    var: Binds
    extent: Expr
    body: Annotated[tuple[Stmt, ...], FieldRole.BODY]
    # Of lane loops.
    folds: tuple[Fold, ...] = ()
    # Of a lane loop on a GPU: it numbers the lanes that one thread runs.
    counter: Annotated[Sym | None, FieldRole.BOUND] = None

    def __str__(self) -> str:
        """The first line."""
        heads = {LoopKind.WHEN: "", LoopKind.WHILE: f"{self.var.name} as "}
        head = heads.get(self.kind, f"{self.var.name} < ")
        counted = "" if self.counter is None else f" pass {self.counter.name}"
        folds = "".join(f" {f.operator}->{f.target.name}" for f in self.folds)
        return f"{self.kind} {head}{show(self.extent)}{counted}{folds}"


Stmt = (Let | Var | Assign | Local | Store | Stream | Ahead | LoadVector | StoreVector
        | TileProduct | Join | Transpose | Collective | Loop)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """One kernel, whose loops outside of others are grid loops."""

    name: str
    # Inputs first.
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]
    # Launch settings that only passes and the printer use (threads, blocks, ...).
    facts: tuple[tuple[str, int | str | bool], ...] = field(default=())

    def __str__(self) -> str:
        head = ", ".join(f"{p.role} {p.name}: {p.dtype}[{p.size}]" for p in self.params)
        return "\n".join([f"kernel {self.name}({head})", *_lines(self.body, 1)])


def _lines(body: tuple[Stmt, ...], depth: int) -> Iterator[str]:
    for stmt in body:
        yield f"{'  ' * depth}{stmt}"
        if isinstance(stmt, Loop):
            yield from _lines(stmt.body, depth + 1)


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, depth first, loops before their bodies."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from statements(stmt.body)


def has_loop(body: tuple[Stmt, ...]) -> bool:
    return any(isinstance(s, Loop) for s in body)


def only_lets(body: tuple[Stmt, ...]) -> bool:
    return all(isinstance(s, Let) for s in body)


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions a statement evaluates itself, loop bodies excluded."""
    found: tuple[Expr, ...] = plan_of(stmt).expressions(stmt)
    return found


def names_read(stmt: Stmt) -> set[str]:
    """Names of symbols and buffers that a statement (with its loop body) reads."""
    found: set[str] = set()
    for inner in statements((stmt,)):
        plan = plan_of(inner)
        found.update(plan.read(inner))
        for expr in plan.expressions(inner):
            found.update(names_in(expr))
    found.discard("")
    return found


def names_written(stmt: Stmt) -> set[str]:
    """Names that a statement (with its loop body) defines, assigns or stores to."""
    found: set[str] = set()
    for inner in statements((stmt,)):
        plan = plan_of(inner)
        found.update(plan.written(inner))
        found.update(plan.defined(inner))
    found.discard("")
    return found


def has_product(stmt: Stmt) -> bool:
    """Some register tile is computed in a statement: all lanes of a grid iteration take part."""
    return any(isinstance(s, TileProduct | Collective) for s in statements((stmt,)))


def map_exprs(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """A statement, loop bodies included, with `change` applied to every expression it evaluates."""
    made: Stmt = plan_of(stmt).mapped(stmt, change)
    return made


def substitute(expr: Expr, values: dict[str, Expr]) -> Expr:
    """`expr` with symbols replaced by name."""
    match expr:
        case Sym(name=name):
            return values.get(name, expr)
        case Call(fn, args, dtype):
            return Call(fn, tuple(substitute(a, values) for a in args), dtype)
        case Load(buffer, index, dtype):
            return Load(buffer, substitute(index, values), dtype)
    return expr


def substitute_stmt(stmt: Stmt, values: dict[str, Expr]) -> Stmt:
    """A statement with symbols replaced by name wherever they are read."""
    return map_exprs(stmt, lambda e: substitute(e, values))
