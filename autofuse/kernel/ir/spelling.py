"""What names of positions and conditions stand for, as passes go through statements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from autofuse.kernel.ir.indices import LARGEST_INDEX, has_load, mentions
from autofuse.kernel.ir.types import Let, Stmt, Store, expressions, map_exprs, walk
from autofuse.ops.dtypes import DType
from autofuse.ops.positions import rejoined, resolved
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym


@dataclass
class Spelling:
    """What names of positions and of conditions stand for, registers excepted, whose value changes;
    `facts` are comparisons that are known."""

    registers: Collection[str] = ()
    values: dict[str, Expr] = field(default_factory=dict)
    facts: Mapping[Expr, Lit] = field(default_factory=dict)

    def inner(self, facts: Mapping[Expr, Lit] | None = None) -> Spelling:
        """As this one, of a body in which more may be known."""
        return replace(self, values=dict(self.values), facts={**self.facts, **(facts or {})})

    def note(self, stmt: Stmt) -> None:
        """Know what a Let defines, if it is a position or a condition."""
        if not isinstance(stmt, Let) or stmt.sym.dtype.is_float or has_load(stmt.value):
            return
        full = self.settled(stmt.value)
        parts = list(islice(walk(full), LARGEST_INDEX + 1))
        short = len(parts) <= LARGEST_INDEX
        # What is computed from data is no position, even if it is a whole number.
        data = any(isinstance(e, Sym) and e.dtype is not DType.I64 for e in parts)
        if short and not data and not mentions(full, frozenset(self.registers)):
            self.values[stmt.sym.name] = full

    def note_around(self, stmt: Stmt) -> None:
        """As `note`, outside of lanes: a position with known bounds is as good as spelled out, and
        computed once."""
        if not isinstance(stmt, Let) or stmt.sym.extent is None:
            self.note(stmt)

    def settled(self, expr: Expr) -> Expr:
        """`expr` with names spelled out, simplified, and decided where bounds or facts decide."""
        return resolved(expr, self.values, self.facts)

    def used(self, expr: Expr) -> Expr:
        """`expr` as it is computed: positions spelled out, decided conditions gone, other values
        under their names."""
        if not expr.dtype.is_float and not has_load(expr):
            full = self.settled(expr)
            if isinstance(full, Lit) or expr.dtype is DType.I64:
                return full
        match expr:
            case Load(buffer, index, dtype):
                return Load(buffer, self.used(index), dtype)
            case Call(fn, args, dtype):
                return rejoined(Call(fn, tuple(map(self.used, args)), dtype), self.facts)
        return expr

    def rewritten(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Statements without inner loops, in order, in terms of what is known."""
        scope = self.inner()
        done: list[Stmt] = []
        for stmt in body:
            done.append(map_exprs(stmt, scope.used))
            scope.note(stmt)
        return tuple(done)


def indices_of(stmt: Stmt) -> Iterator[Expr]:
    """Where a statement loads and stores."""
    if isinstance(stmt, Store):
        yield stmt.index
    yield from (e.index for whole in expressions(stmt) for e in walk(whole) if isinstance(e, Load))
