"""The kernel IR, on one page: typed loops over scalar expressions.

A kernel is a list of `grid` loops whose iterations are independent. Inside one, `lane` loops are
the data-parallel inner dimension (SIMD on a CPU, the threads of a block on a GPU) and `serial`
loops are ordinary ones. Statements outside lane loops are uniform: every lane sees the same value.
A `while` body runs as long as its extent, a BOOL that is read again before each iteration, is true,
and counts in its variable; it changes nothing in a lane where the extent is false.
Expressions are those of `autofuse.ops.scalar`; index expressions are I64.

Passes for CUDA say more about who runs what with further kinds of loops: `warp` loops deal their
iterations to the warps of a block, whose lanes are then those of the warp; `column` loops deal
theirs to the 32 columns of a two-dimensional block, whose lanes are then the threads of a column;
iterations of a `part` loop are run by neighbouring grid iterations together; a `when` body runs
once if its extent, a BOOL, is true. A `threads` body is run by every thread of a block, with
registers of its own (`private` Locals, which only `unrolled` loops may index), and what they do
together are statements of `kernel/ir/fragment.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from autofuse.kernel.ir.fragment import Collective
from autofuse.kernel.ir.tensor_map import TensorMap
from autofuse.kernel.ir.tile import Join as Join
from autofuse.kernel.ir.tile import Panel as Panel
from autofuse.kernel.ir.tile import TileProduct as TileProduct
from autofuse.kernel.ir.tile import Transpose as Transpose
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Load, Sym, show
from autofuse.ops.scalar import walk as walk


@dataclass(frozen=True, slots=True)
class Param:
    """A global buffer of `size` elements; `role` is "in", "out" (written only) or "work" (scratch
    that blocks share, zero when the kernel starts and when it ends as far as it is counted in). One
    of role "map" is a `map` of the buffer `source`."""

    name: str
    dtype: DType
    size: int
    role: str
    source: str = ""
    map: TensorMap | None = None


@dataclass(frozen=True, slots=True)
class Let:
    """An immutable value."""

    sym: Sym
    value: Expr


@dataclass(frozen=True, slots=True)
class Var:
    """A register that may be assigned."""

    sym: Sym
    init: Expr


@dataclass(frozen=True, slots=True)
class Assign:
    sym: Sym
    value: Expr


@dataclass(frozen=True, slots=True)
class Origin:
    """buffer[start ..], of which rows are copied: `stages` of them are in scratch at once, of which
    all but one belong to grid iterations that come later."""

    buffer: str
    start: Expr
    stages: int

    def __str__(self) -> str:
        return f"{self.buffer}[{show(self.start)} ..] in {self.stages} stages"


@dataclass(frozen=True, slots=True)
class Local:
    """Scratch of one grid iteration, shared by its lanes: `size` elements of `dtype`. Of a
    `private` one every lane has its own, in registers; one with a `source` is only read."""

    name: str
    dtype: DType
    size: int
    private: bool = False
    source: Origin | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[index] = value, in a Param of role "out" or a Local."""

    buffer: str
    index: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Stream:
    """buffer[start : start + count] = local[0 : count], written past the cache."""

    buffer: str
    start: Expr
    local: str
    count: Expr


@dataclass(frozen=True, slots=True)
class Ahead:
    """A hint that changes nothing: buffer[start : start + count] is needed soon, or `written`."""

    buffer: str
    start: Expr
    count: Expr
    written: bool


@dataclass(frozen=True, slots=True)
class LoadVector:
    """syms[j] = buffer[index + j] in one access; `index` is a multiple of the number of them.
    `keep` tells a cache: "again" of what is read later once more, "once" of what is not."""

    syms: tuple[Sym, ...]
    buffer: str
    index: Expr
    keep: str = ""


@dataclass(frozen=True, slots=True)
class StoreVector:
    """buffer[index + j] = values[j] in one access; `index` is a multiple of their number."""

    buffer: str
    index: Expr
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """`target` (a Var outside the lane loop) combined over all lanes by `operator`, with which the
    body assigns it inside the loop; afterwards every lane sees the total."""

    target: Sym
    operator: str


@dataclass(frozen=True, slots=True)
class Loop:
    """for var in 0 .. extent; `kind` is one of the module text; folds belong to lane loops.

    `counter`, of a lane loop on a GPU, numbers the lanes that one thread runs."""

    kind: str
    var: Sym
    extent: Expr
    body: tuple[Stmt, ...]
    folds: tuple[Fold, ...] = ()
    counter: Sym | None = None


Stmt = (Let | Var | Assign | Local | Store | Stream | Ahead | LoadVector | StoreVector
        | TileProduct | Join | Transpose | Collective | Loop)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """One kernel: parameters (inputs first) and a body whose loops are grid loops.

    `facts` are launch settings that only the printer uses (threads, blocks, ...)."""

    name: str
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]
    facts: tuple[tuple[str, int | str | bool], ...] = field(default=())

    def __str__(self) -> str:
        head = ", ".join(f"{p.role} {p.name}: {p.dtype}[{p.size}]" for p in self.params)
        return "\n".join([f"kernel {self.name}({head})", *_lines(self.body, 1)])


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions a statement evaluates itself, loop bodies excluded."""
    match stmt:
        case Let(_, value) | Var(_, value) | Assign(_, value):
            return (value,)
        case Store(_, index, value):
            return (index, value)
        case LoadVector(index=index):
            return (index,)
        case StoreVector(_, index, values):
            return (index, *values)
        case Stream(start=start, count=count) | Ahead(start=start, count=count):
            return (start, count)
        case TileProduct(target=target, left=left, right=right, walk=ways, there=there):
            own: tuple[Expr, ...] = (stmt.extent, target.start, left.start, right.start)
            own = own if there is None else (*own, there)
            own = (*own, *(e for box in stmt.boxes if box for e in box.at))
            return own if ways is None else (*own, *ways.expressions)
        case Join(target=target, cut=cut, slot=slot, part=part):
            return (target.start, cut, slot, part)
        case Transpose(target, source, rows, extent):
            return (target.start, source.start, rows, extent)
        case Collective():
            return stmt.expressions()
        case Local(source=Origin(start=start)):
            return (start,)
        case Loop(extent=extent):
            return (extent,)
    return ()


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, depth first, loops before their bodies."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from statements(stmt.body)


def has_product(stmt: Stmt) -> bool:
    """Some register tile is computed in a statement: all lanes of a grid iteration take part."""
    return any(isinstance(s, TileProduct | Collective) for s in statements((stmt,)))


def names_read(stmt: Stmt) -> set[str]:
    """Names of symbols and buffers that a statement (with its loop body) reads."""
    found: set[str] = set()
    for inner in statements((stmt,)):
        if isinstance(inner, Stream):
            found.add(inner.local)
        if isinstance(inner, LoadVector):
            found.add(inner.buffer)
        if isinstance(inner, TileProduct):
            found |= {inner.left.buffer, inner.right.buffer, inner.target.buffer}
            found |= {inner.stage, inner.walk.zeros if inner.walk else ""} - {""}
        if isinstance(inner, Transpose):
            found.add(inner.source.buffer)
        if isinstance(inner, Join):
            found.add(inner.target.buffer)
        if isinstance(inner, Collective):
            found |= inner.reads()
        for expr in expressions(inner):
            for e in walk(expr):
                if isinstance(e, Sym):
                    found.add(e.name)
                elif isinstance(e, Load):
                    found.add(e.buffer)
    return found


def names_written(stmt: Stmt) -> set[str]:
    """Names that a statement (with its loop body) defines, assigns or stores to."""
    found: set[str] = set()
    for inner in statements((stmt,)):
        match inner:
            case Let(sym, _) | Var(sym, _) | Assign(sym, _):
                found.add(sym.name)
            case Local(name) | Store(name) | Stream(name) | StoreVector(name):
                found.add(name)
            case TileProduct(target=target, stage=stage):
                found |= {target.buffer, stage} - {""}
            case Transpose(target=target):
                found.add(target.buffer)
            case Join(target=target, last=last):
                found |= {target.buffer, last.name}
            case LoadVector(syms):
                found |= {sym.name for sym in syms}
            case Collective():
                found |= inner.writes()
    return found


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


def map_exprs(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """A statement, loop bodies included, with `change` applied to every expression it evaluates."""
    match stmt:
        case Let(sym, value):
            return Let(sym, change(value))
        case Var(sym, init):
            return Var(sym, change(init))
        case Assign(sym, value):
            return Assign(sym, change(value))
        case Store(buffer, index, value):
            return Store(buffer, change(index), change(value))
        case LoadVector(index=index):
            return replace(stmt, index=change(index))
        case StoreVector(buffer, index, values):
            return StoreVector(buffer, change(index), tuple(change(v) for v in values))
        case Stream(buffer, start, local, count):
            return Stream(buffer, change(start), local, change(count))
        case Ahead(start=start, count=count):
            return replace(stmt, start=change(start), count=change(count))
        case TileProduct(extent=extent, target=target, left=left, right=right):
            target, left, right = (panel.mapped(change) for panel in (target, left, right))
            extent = change(extent)
            walked = None if stmt.walk is None else stmt.walk.mapped(change)
            made = replace(stmt, extent=extent, target=target, left=left, right=right, walk=walked)
            first, second = (box and box.mapped(change) for box in stmt.boxes)
            made = replace(made, boxes=(first, second))
            return made if stmt.there is None else replace(made, there=change(stmt.there))
        case Join(target=target, cut=cut, slot=slot, part=part):
            target = replace(target, start=change(target.start))
            cut, slot, part = map(change, (cut, slot, part))
            return replace(stmt, target=target, cut=cut, slot=slot, part=part)
        case Transpose(target, source, rows, extent):
            target, source = (replace(p, start=change(p.start)) for p in (target, source))
            sizes = change(rows), change(extent)
            return Transpose(target, source, *sizes, stmt.dtype, stmt.stream)
        case Collective():
            return stmt.mapped(change)
        case Local(source=Origin() as source):
            return replace(stmt, source=replace(source, start=change(source.start)))
        case Loop():
            body = tuple(map_exprs(s, change) for s in stmt.body)
            return replace(stmt, extent=change(stmt.extent), body=body)
    return stmt


def _lines(body: tuple[Stmt, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for stmt in body:
        match stmt:
            case Let(sym, value):
                yield f"{pad}let {sym.name}: {sym.dtype} = {show(value)}"
            case Var(sym, init):
                yield f"{pad}var {sym.name}: {sym.dtype} = {show(init)}"
            case Assign(sym, value):
                yield f"{pad}{sym.name} = {show(value)}"
            case Local(name, dtype, size, private, source):
                text = f"{pad}{'private' if private else 'local'} {name}: {dtype}[{size}]"
                yield text if source is None else f"{text} = {source}"
            case Store(buffer, index, value):
                yield f"{pad}{buffer}[{show(index)}] = {show(value)}"
            case LoadVector(syms, buffer, index, keep):
                names = " ".join(s.name for s in syms)
                yield f"{pad}let {names} = {buffer}[{show(index)} ..]{keep and f' {keep}'}"
            case StoreVector(buffer, index, values):
                yield f"{pad}{buffer}[{show(index)} ..] = {', '.join(map(show, values))}"
            case TileProduct():
                yield pad + _product(stmt)
            case Collective():
                yield f"{pad}{stmt}"
            case Transpose(target, source, rows, extent, dtype):
                shape = f"{show(rows)}x{show(extent)} {dtype}{' streamed' * stmt.stream}"
                yield f"{pad}transpose {shape}: {target} = {source}"
            case Join():
                parts = f"part {show(stmt.part)} of {stmt.parts} in slot {show(stmt.slot)}"
                yield f"{pad}join {stmt.target} {parts} if {show(stmt.cut)}"
            case Ahead(buffer, start, count, written):
                what = "write" if written else "read"
                yield f"{pad}{what} soon {buffer}[{show(start)} .. {show(count)}]"
            case Stream(buffer, start, local, count):
                yield f"{pad}stream {buffer}[{show(start)} ..] = {local}[.. {show(count)}]"
            case Loop(kind, var, extent, inner, folds, counter):
                tail = "".join(f" {f.operator}->{f.target.name}" for f in folds)
                heads = {"when": "", "while": f"{var.name} as "}
                head = heads.get(kind, f"{var.name} < ")
                tail = ("" if counter is None else f" pass {counter.name}") + tail
                yield f"{pad}{kind} {head}{show(extent)}{tail}"
                yield from _lines(inner, depth + 1)


def _product(stmt: TileProduct) -> str:
    """The line of a register tile."""
    sign = "=" if stmt.fresh else "+="
    target, left, right = stmt.target, stmt.left, stmt.right
    high = f"{stmt.rows}" if stmt.there is None else f"{show(stmt.there)} of {stmt.rows}"
    size = f"{high}x{stmt.columns}x{show(stmt.extent)}" + f"x{stmt.lanes}" * bool(stmt.lanes)
    through, by = stmt.stage and f" through {stmt.stage}", stmt.mma and f" by {stmt.mma}"
    walked = f" {stmt.walk.text(show)}" if stmt.walk else ""
    return f"tile {size} {stmt.dtype}{by}: {target} {sign} {left}{walked} * {right}{through}"
