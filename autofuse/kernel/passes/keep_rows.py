"""keep_rows: what several passes over a row compute alike is computed once and kept.

Before: lane l < 512 {m = max(m, x[l])} max->m; lane k < 512 {s += exp(x[k] - m)} add->s
After:  local kept0[512]; lane l {v = x[l]; kept0[l] = v; m = max(m, v)}; lane k {.. kept0[k] - m}
Asked for by keep="registers" or keep="shared"; lowering has kept what is heavy to compute already.
Only values that depend on global memory are worth it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from autofuse.kernel.cuda.settings import MOST_CLUSTER, WARP, Settings, settings
from autofuse.kernel.ir.indices import mentions
from autofuse.kernel.ir.types import (
    Assign,
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    Var,
    expressions,
    has_loop,
    has_product,
    statements,
    substitute,
    walk,
)
from autofuse.kernel.passes.private_rows import MOST_PRIVATE
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym

# Elements of all rows kept in shared memory.
MOST_SHARED = 48 << 10
_LANE = Sym("#lane", DType.I64)


def keep_rows(kernel: Kernel) -> Kernel:
    """Rewrite every segment with several lane loops of one length."""
    own = settings(kernel)
    if own.keep == "reread" or not any(name == "keep" for name, _ in kernel.facts):
        return kernel
    inputs = frozenset(p.name for p in kernel.params if p.role == "in")
    if own.keep == "registers":  # else a fetched row is where it would be kept already
        fetched = (s for s in statements(kernel.body) if isinstance(s, Local) and s.source)
        inputs |= {row.name for row in fetched}
    body: list[Stmt] = []
    count = 0
    for stmt in kernel.body:
        # What a tile product writes between two loops is not the same in both.
        if isinstance(stmt, Loop) and stmt.kind is LoopKind.GRID and not has_product(stmt):
            keeper = _Keeper(inputs, own, count, _mutable(stmt))
            stmt = replace(stmt, body=keeper.run(stmt.body))
            count = keeper.count
        body.append(stmt)
    return replace(kernel, body=tuple(body))


def _mutable(loop: Loop) -> frozenset[str]:
    return frozenset(s.sym.name for s in statements(loop.body) if isinstance(s, Var | Assign))


@dataclass
class _Keeper:
    inputs: frozenset[str]
    own: Settings
    count: int
    mutable: frozenset[str]
    # (length, value of one lane) -> position of its loop in the body, and its name there.
    known: dict[tuple[Expr, Expr], tuple[int, Sym]] = field(default_factory=dict)
    rows: dict[tuple[int, str], Local] = field(default_factory=dict)
    # Values by what they are made of; those that differ between lanes; those read from inputs.
    numbers: dict[Expr, Sym] = field(default_factory=dict)
    varying: set[str] = field(default_factory=lambda: {_LANE.name})
    loaded: set[str] = field(default_factory=set)

    def run(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        loops = list(body)
        for at, stmt in enumerate(body):
            if isinstance(stmt, Loop) and stmt.kind is LoopKind.LANE and self.plain(stmt):
                loops[at] = self.reuse(stmt)
                self.learn(at, stmt)
        return tuple(s for at, stmt in enumerate(loops) for s in self.with_rows(at, stmt))

    def plain(self, loop: Loop) -> bool:
        lanes = int(loop.extent.value) if isinstance(loop.extent, Lit) else None
        if lanes is None or has_loop(loop.body):
            return False
        if self.own.keep == "shared":
            held = sum(row.size for row in self.rows.values())
            return held + lanes <= MOST_SHARED // max(self.teams(), 1)
        return lanes <= MOST_PRIVATE * self.threads()

    def teams(self) -> int:
        return self.own.warps if self.own.reduce == "warp" else 1

    def threads(self) -> int:
        """Threads that share a row; of split rows any number may."""
        if self.own.reduce == "warp":
            return WARP
        blocks = {"barrier": 1 << 16, "cluster": MOST_CLUSTER}
        return self.own.threads * blocks.get(self.own.reduce, 1)

    def values(self, loop: Loop) -> dict[str, Expr]:
        """A number for what each immutable name of the loop stands for; equal ones have one."""
        found: dict[str, Expr] = {loop.var.name: _LANE}
        own = {s.sym.name for s in loop.body if isinstance(s, Let)}
        for stmt in loop.body:
            if isinstance(stmt, Let) and not mentions(stmt.value, self.mutable):
                inner = {e.name for e in walk(stmt.value) if isinstance(e, Sym)}
                if all(name in found for name in inner & own):
                    found[stmt.sym.name] = self.number(substitute(stmt.value, found))
        return found

    def number(self, value: Expr) -> Sym:
        """The name of a value, whose operands are named already."""
        known = self.numbers.get(value)
        if known is not None:
            return known
        made = Sym(f"#{len(self.numbers)}", value.dtype)
        self.numbers[value] = made
        if mentions(value, self.varying):
            self.varying.add(made.name)
        if mentions(value, self.loaded) or self.reads_input(value):
            self.loaded.add(made.name)
        return made

    def reads_input(self, value: Expr) -> bool:
        return any(
            isinstance(e, Load) and e.buffer in self.inputs and mentions(e.index, self.varying)
            for e in walk(value)
        )

    def learn(self, at: int, loop: Loop) -> None:
        values = self.values(loop)
        for stmt in loop.body:
            value = values.get(stmt.sym.name) if isinstance(stmt, Let) else None
            if isinstance(stmt, Let) and value is not None and mentions(value, self.loaded):
                self.known.setdefault((loop.extent, value), (at, stmt.sym))

    def reuse(self, loop: Loop) -> Loop:
        """The loop with its shared values read from rows."""
        values = self.values(loop)
        shared = {
            s.sym.name: self.known[loop.extent, values[s.sym.name]]
            for s in loop.body
            if isinstance(s, Let) and (loop.extent, values.get(s.sym.name)) in self.known
        }
        wanted = self.frontier(loop, shared)
        reads: dict[str, Expr] = {}
        for name in wanted:
            at, sym = shared[name]
            row = self.rows.get((at, sym.name))
            if row is None:
                row = Local(f"kept{self.count}", sym.dtype, int(loop.extent.value))  # type: ignore[union-attr]  # plain()
                self.rows[at, sym.name] = row
                self.count += 1
            reads[name] = Load(row.name, loop.var, sym.dtype)
        body = tuple(
            Let(s.sym, reads[s.sym.name]) if isinstance(s, Let) and s.sym.name in reads else s
            for s in loop.body
        )
        return replace(loop, body=body)

    def frontier(self, loop: Loop, shared: dict[str, tuple[int, Sym]]) -> list[str]:
        """Shared values that others read: or what they load, where that is less."""
        used: set[str] = set()
        for stmt in loop.body:
            if not (isinstance(stmt, Let) and stmt.sym.name in shared):
                for expr in expressions(stmt):
                    used |= {e.name for e in walk(expr) if isinstance(e, Sym)}
        outer = [name for name in shared if name in used]
        loaded = [
            s.sym.name
            for s in loop.body
            if isinstance(s, Let) and s.sym.name in shared and self.is_load(s.value)
        ]
        return outer if not loaded or len(outer) <= len(loaded) else loaded

    def is_load(self, value: Expr) -> bool:
        if isinstance(value, Call) and value.fn == "cast":
            value = value.args[0]
        return isinstance(value, Load) and value.buffer in self.inputs

    def with_rows(self, at: int, stmt: Stmt) -> list[Stmt]:
        """A loop that fills rows, behind their declarations."""
        rows = {name: row for (where, name), row in self.rows.items() if where == at}
        if not rows or not isinstance(stmt, Loop):
            return [stmt]
        body: list[Stmt] = []
        for inner in stmt.body:
            body.append(inner)
            if isinstance(inner, Let) and inner.sym.name in rows:
                body.append(Store(rows[inner.sym.name].name, stmt.var, inner.sym))
        return [*rows.values(), replace(stmt, body=tuple(body))]
