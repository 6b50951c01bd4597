"""early_loads: what straight-line code reads of inputs is asked for before it computes anything.

Before: let a = x[l]; let b = f(a); out[l] = b + y[l]
After:  let a = x[l]; let ld0 = y[l]; let b = f(a); out[l] = b + ld0
A compiler does so itself, but not past a call, and on a GPU an exact quotient is one: the second
load would wait for the first one's data and for the call.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby

from autofuse.kernel.cuda.settings import IN_FLIGHT
from autofuse.kernel.ir.indices import has_load
from autofuse.kernel.ir.types import (
    Kernel,
    Let,
    LoadVector,
    Loop,
    Stmt,
    expressions,
    map_exprs,
    names_written,
    walk,
)
from autofuse.ops.scalar import Call, Expr, Load, Sym


def early_loads(kernel: Kernel) -> Kernel:
    """Move loads of inputs to the front of every run of statements without a loop."""
    inputs = frozenset(p.name for p in kernel.params if p.role == "in")
    return replace(kernel, body=_Names(inputs).block(kernel.body))


@dataclass
class _Names:
    """The inputs of a kernel, and how many loads have got a name here."""

    inputs: frozenset[str]
    fresh: int = 0

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        done: list[Stmt] = []
        for nested, part in groupby(body, lambda s: isinstance(s, Loop)):
            if nested:
                done += [replace(s, body=self.block(s.body)) for s in part if isinstance(s, Loop)]
            else:
                done += self.run(list(part))
        return tuple(done)

    def run(self, stmts: list[Stmt]) -> list[Stmt]:
        """Statements that follow each other; as they are where nothing is to be gained."""
        if sum(bool(self.reads(s)) for s in stmts) < 2:
            return stmts
        own = frozenset().union(*map(names_written, stmts))
        front = _Front(self, own, self.addresses(stmts))
        rest = [left for s in stmts for left in front.take(s)]
        return front.stmts + rest

    def addresses(self, stmts: list[Stmt]) -> set[str]:
        """The names that addresses of loads are made of."""
        found: set[str] = set()
        for stmt in reversed(stmts):
            parts = [load.index for load in self.reads(stmt)]
            if isinstance(stmt, Let) and stmt.sym.name in found:
                parts.append(stmt.value)
            found |= {e.name for part in parts for e in walk(part) if isinstance(e, Sym)}
        return found

    def reads(self, stmt: Stmt) -> list[Load]:
        """The loads of inputs that a statement makes whatever the data are."""
        if isinstance(stmt, LoadVector):
            one = Load(stmt.buffer, stmt.index, stmt.syms[0].dtype)
            return [one] if stmt.buffer in self.inputs else []
        found = (e for expr in expressions(stmt) for e in _certain(expr))
        return [e for e in found if isinstance(e, Load) and e.buffer in self.inputs]


@dataclass
class _Front:
    """What goes to the front of a run that defines or changes `own` names, of which `addresses`
    are made."""

    names: _Names
    own: frozenset[str]
    addresses: set[str]
    stmts: list[Stmt] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    loaded: dict[Expr, Sym] = field(default_factory=dict)
    waiting: int = 0

    def take(self, stmt: Stmt) -> list[Stmt]:
        """What is left of a statement where it was."""
        match stmt:
            case LoadVector(syms, _, index) if self.names.reads(stmt) and self.ready(index):
                if not self.room(syms):
                    return [stmt]
                return self.moved(stmt)
            case Let(sym, Load(index=index) as load) if load in self.names.reads(stmt):
                if not self.ready(index) or not self.room((sym,)):
                    return [stmt]
                self.loaded.setdefault(load, sym)
                return self.moved(stmt)
            case Let(sym, value) if sym.name in self.addresses and self.ready(value):
                return self.moved(stmt)
        for load in self.names.reads(stmt):
            self.name(load)
        return [map_exprs(stmt, self.put)]

    def moved(self, stmt: Stmt) -> list[Stmt]:
        self.stmts.append(stmt)
        self.known |= names_written(stmt)
        return []

    def name(self, load: Load) -> None:
        """A name for a load inside an expression."""
        if load in self.loaded or not self.ready(load.index):
            return
        sym = Sym(f"ld{self.names.fresh}", load.dtype)
        if self.room((sym,)):
            self.names.fresh += 1
            self.loaded[load] = sym
            self.moved(Let(sym, load))

    def ready(self, index: Expr) -> bool:
        """It is made of whole numbers that are known before anything of this run is computed."""
        parts = list(walk(index))
        names = {e.name for e in parts if isinstance(e, Sym)}
        floats = any(e.dtype.is_float for e in parts)
        return not floats and not has_load(index) and not names & self.own - self.known

    def room(self, syms: tuple[Sym, ...]) -> bool:
        """More than memory needs to be busy would take the registers of the arithmetic."""
        self.waiting += sum(s.dtype.itemsize for s in syms)
        return self.waiting <= IN_FLIGHT

    def put(self, expr: Expr) -> Expr:
        match expr:
            case Load(buffer, index, dtype):
                return self.loaded.get(expr) or Load(buffer, self.put(index), dtype)
            case Call(fn, args, dtype):
                return Call(fn, tuple(self.put(a) for a in args), dtype)
        return expr


def _certain(expr: Expr) -> list[Expr]:
    """Parts of an expression that are evaluated whichever sides its choices take."""
    match expr:
        case Call(fn="select", args=(condition, _, _)):
            return [expr, *_certain(condition)]
        case Call(args=args):
            return [expr, *(e for a in args for e in _certain(a))]
        case Load(index=index):
            return [expr, *_certain(index)]
    return [expr]
