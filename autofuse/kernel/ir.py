"""The kernel IR, on one page: typed loops over scalar expressions.

A kernel is a list of `grid` loops whose iterations are independent. Inside one, `lane` loops are
the data-parallel inner dimension (SIMD on a CPU, the threads of a block on a GPU) and `serial`
loops are ordinary ones. Statements outside lane loops are uniform: every lane sees the same value.
Expressions are those of `autofuse.ops.scalar`; index expressions are I64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym


@dataclass(frozen=True, slots=True)
class Param:
    """A global buffer of `size` elements; `role` is "in" or "out" (outputs are written only)."""

    name: str
    dtype: DType
    size: int
    role: str


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
class Local:
    """Scratch of one grid iteration, shared by its lanes: `size` elements of `dtype`."""

    name: str
    dtype: DType
    size: int


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
class Fold:
    """`target` (a Var outside the lane loop) combined over all lanes by `operator`.

    Inside the loop the body assigns `target` with that operator; afterwards every lane sees the
    total."""

    target: Sym
    operator: str


@dataclass(frozen=True, slots=True)
class Loop:
    """for var in 0 .. extent; `kind` is "grid", "lane" or "serial"; folds belong to lane loops."""

    kind: str
    var: Sym
    extent: Expr
    body: tuple[Stmt, ...]
    folds: tuple[Fold, ...] = ()


Stmt = Let | Var | Assign | Local | Store | Stream | Loop


@dataclass(frozen=True)
class Kernel:
    """One kernel: parameters (inputs first) and a body whose loops are grid loops.

    `lanes` is the largest extent of the item-form lane loops (0 for row form) and `facts` are
    launch settings that only the printer uses (threads, unroll, ...)."""

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
        case Let(_, value) | Assign(_, value):
            return (value,)
        case Var(_, init):
            return (init,)
        case Store(_, index, value):
            return (index, value)
        case Stream(start=start, count=count):
            return (start, count)
        case Loop(extent=extent):
            return (extent,)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Every sub-expression, the expression itself first."""
    stack = [expr]
    while stack:
        e = stack.pop()
        yield e
        if isinstance(e, Call):
            stack.extend(e.args)
        elif isinstance(e, Load):
            stack.append(e.index)


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, depth first, loops before their bodies."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from statements(stmt.body)


def names_read(stmt: Stmt) -> set[str]:
    """Names of symbols and buffers that a statement (with its loop body) reads."""
    found: set[str] = set()
    for inner in statements((stmt,)):
        if isinstance(inner, Stream):
            found.add(inner.local)
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
            case Local(name=name) | Store(buffer=name) | Stream(buffer=name):
                found.add(name)
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
    match stmt:
        case Let(sym, value):
            return Let(sym, substitute(value, values))
        case Var(sym, init):
            return Var(sym, substitute(init, values))
        case Assign(sym, value):
            return Assign(sym, substitute(value, values))
        case Store(buffer, index, value):
            return Store(buffer, substitute(index, values), substitute(value, values))
        case Stream(buffer, start, local, count):
            return Stream(buffer, substitute(start, values), local, substitute(count, values))
        case Loop(kind, var, extent, body, folds):
            inner = tuple(substitute_stmt(s, values) for s in body)
            return Loop(kind, var, substitute(extent, values), inner, folds)
    return stmt


def show(expr: Expr) -> str:
    """Canonical text of an expression."""
    match expr:
        case Lit(value, dtype):
            return f"{value!r}:{dtype}"
        case Sym(name=name):
            return name
        case Load(buffer, index, _):
            return f"{buffer}[{show(index)}]"
        case Call(fn, args, dtype):
            suffix = f":{dtype}" if fn in ("cast", "bitcast") else ""
            return f"{fn}{suffix}({', '.join(map(show, args))})"


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
            case Local(name, dtype, size):
                yield f"{pad}local {name}: {dtype}[{size}]"
            case Store(buffer, index, value):
                yield f"{pad}{buffer}[{show(index)}] = {show(value)}"
            case Stream(buffer, start, local, count):
                yield f"{pad}stream {buffer}[{show(start)} ..] = {local}[.. {show(count)}]"
            case Loop(kind, var, extent, inner, folds):
                tail = "".join(f" {f.operator}->{f.target.name}" for f in folds)
                yield f"{pad}{kind} {var.name} < {show(extent)}{tail}"
                yield from _lines(inner, depth + 1)
