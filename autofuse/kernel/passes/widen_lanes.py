"""widen_lanes: one lane for `vector` neighbouring ones, which share 16-byte accesses.

Before: lane l < 256 {let v = x[l]; out[l] = exp(v)}
After:  lane l < 64 {let v_0 .. v_3 = x[4*l ..]; out[4*l ..] = exp(v_0), .., exp(v_3)}
Accesses whose index is not (a multiple + the lane's number) stay single. Buffers must be aligned
to 16 bytes: those that the allocator makes are; a caller's own array may not be, and the backend
copies one that is not before it launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from autofuse.kernel.cuda.settings import settings
from autofuse.kernel.ir.indices import (
    divided,
    has_load,
    is_multiple,
    mentions,
    rebuild,
    spelled_out,
)
from autofuse.kernel.ir.types import (
    Assign,
    Fold,
    Kernel,
    Let,
    LoadVector,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    StoreVector,
    Var,
    map_exprs,
    names_read,
    names_written,
    statements,
    substitute,
    walk,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym

ACCESS_BYTES = 16
I64 = DType.I64


class Refused(Exception):  # noqa: N818 - it says that a loop stays as it is, never seen outside
    """A loop that this pass has no pattern for."""


def widen_lanes(kernel: Kernel) -> Kernel:
    """Rewrite every lane loop that can be, under the launch setting `vector`."""
    width = settings(kernel).vector
    rows = frozenset(s.name for s in statements(kernel.body) if isinstance(s, Local))
    return kernel if width == 1 else replace(kernel, body=_block(kernel.body, width, rows))


def _block(body: tuple[Stmt, ...], width: int, rows: frozenset[str]) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    for stmt in body:
        if not isinstance(stmt, Loop):
            done.append(stmt)
        elif stmt.kind in (LoopKind.LANE, LoopKind.COLUMN):
            done.extend(_widened(stmt, width, rows))
        else:
            done.append(replace(stmt, body=_block(stmt.body, width, rows)))
    return tuple(done)


def _widened(loop: Loop, width: int, rows: frozenset[str]) -> list[Stmt]:
    # Rows are dealt to threads alike in all loops: those have no narrow rest and no exceptions.
    kept = bool(rows & (names_read(loop) | names_written(loop)))
    try:
        whole, rest = _split(loop, width, kept)
        body = Copies(loop, whole, width).run()
    except Refused:
        return [loop]
    if not kept and not any(isinstance(s, LoadVector | StoreVector) for s in statements(body)):
        return [loop]
    extent = ix.lit(whole.extent or 0) if rest else divided(loop.extent, width)
    parts: list[Stmt] = [replace(loop, var=whole, extent=extent, body=body)]
    if rest:
        assert whole.extent is not None
        start = whole.extent * width
        tail = Sym(f"{loop.var.name}_t", I64, rest)
        values: dict[str, Expr] = {loop.var.name: ix.iadd(ix.lit(start), tail)}
        again = tuple(map_exprs(s, lambda e: rebuild(e, values)) for s in loop.body)
        parts.append(Loop(loop.kind, tail, ix.lit(rest), again))
    return parts


def _split(loop: Loop, width: int, kept: bool) -> tuple[Sym, int]:
    """The variable of the wide loop, and how many lanes are left for a narrow one."""
    most = loop.var.extent
    if isinstance(loop.extent, Lit):
        count, rest = divmod(int(loop.extent.value), width)
        plain = not loop.folds and loop.kind is LoopKind.LANE and not kept
        if count == 0 or (rest and not plain):
            raise Refused
        return Sym(loop.var.name, I64, count), rest
    if not is_multiple(loop.extent, width) or most is None or most % width:
        raise Refused
    return Sym(loop.var.name, I64, most // width), 0


def _stores(buffer: str, places: list[Expr], values: Sequence[Expr]) -> Iterator[Stmt]:
    return (Store(buffer, i, v) for i, v in zip(places, values, strict=True))


@dataclass
class Copies:
    """The body of a loop for `width` lanes at once, statement by statement. What is in a buffer of
    `single` is read and written one by one. Raises Refused."""

    loop: Loop
    wide: Sym
    width: int
    single: frozenset[str] = frozenset()
    # What each copy calls a name, and the index that a name stands for.
    names: list[dict[str, Expr]] = field(default_factory=list)
    full: list[dict[str, Expr]] = field(default_factory=list)
    varying: set[str] = field(default_factory=set)
    fresh: int = 0

    def run(self) -> tuple[Stmt, ...]:
        self.varying = {self.loop.var.name}
        targets = {f.target.name for f in self.loop.folds}
        for stmt in statements(self.loop.body):
            if isinstance(stmt, Let) and mentions(stmt.value, targets):
                raise Refused
        for j in range(self.width):
            at = ix.iadd(ix.imul(self.wide, self.width), ix.lit(j))
            self.names.append({self.loop.var.name: at})
            self.full.append({self.loop.var.name: at})
        return self.block(self.loop.body)

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        done: list[Stmt] = []
        for stmt in body:
            done.extend(self.stmt(stmt))
        return tuple(done)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        match stmt:
            case Let(sym, value):
                return self.let(sym, value)
            case Var(sym, init):
                before, values = self.copies(init)
                return [
                    *before,
                    *(Var(s, v) for s, v in zip(self.rename(sym), values, strict=True)),
                ]
            case Assign(sym, value):
                before, values = self.copies(value)
                targets = [self.target(sym, j) for j in range(self.width)]
                return [*before, *(Assign(s, v) for s, v in zip(targets, values, strict=True))]
            case Store(buffer, index, value):
                return self.store(buffer, index, value)
            case Loop():
                return [self.nested(stmt)]
            case Local():
                return [stmt]
        raise Refused

    def let(self, sym: Sym, value: Expr) -> list[Stmt]:
        if not mentions(value, self.varying):
            return [Let(sym, value)]
        before, values = self.copies(value)
        if isinstance(value, Load) and all(isinstance(v, Sym) for v in values):
            for j, loaded in enumerate(values):
                self.names[j][sym.name] = self.full[j][sym.name] = loaded
            self.varying.add(sym.name)
            return before
        if sym.dtype is I64 and not has_load(value):
            for j in range(self.width):
                own_name = Sym(f"{sym.name}_{j}", sym.dtype, sym.extent)
                self.full[j][sym.name] = spelled_out(value, self.full[j], own_name)
        own = self.rename(sym)
        return [*before, *(Let(s, v) for s, v in zip(own, values, strict=True))]

    def rename(self, sym: Sym) -> list[Sym]:
        own = [Sym(f"{sym.name}_{j}", sym.dtype, sym.extent) for j in range(self.width)]
        for j, new in enumerate(own):
            self.names[j][sym.name] = new
            self.full[j].setdefault(sym.name, new)
        self.varying.add(sym.name)
        return own

    def target(self, sym: Sym, j: int) -> Sym:
        """What copy j calls a variable; those outside the loop all copies share."""
        own = self.names[j].get(sym.name, sym)
        assert isinstance(own, Sym)
        return own

    def nested(self, loop: Loop) -> Loop:
        if mentions(loop.extent, self.varying):
            raise Refused
        folds: list[Fold] = []
        for fold in loop.folds:
            for j in range(self.width):
                target = self.names[j].get(fold.target.name)
                if not isinstance(target, Sym):
                    raise Refused
                folds.append(Fold(target, fold.operator))
        return replace(loop, body=self.block(loop.body), folds=tuple(folds))

    def copies(self, value: Expr) -> tuple[list[Stmt], list[Expr]]:
        """What each lane computes, and the loads to be made before."""
        before: list[Stmt] = []
        found: dict[Load, list[Expr]] = {}
        for e in walk(value):
            if isinstance(e, Load) and e not in found and mentions(e, self.varying):
                loaded = self.load(e)
                if loaded is not None:
                    before.extend(loaded[0])
                    found[e] = loaded[1]
        return before, [self.put(value, j, found) for j in range(self.width)]

    def put(self, value: Expr, j: int, found: dict[Load, list[Expr]]) -> Expr:
        match value:
            case Load(buffer, index, dtype):
                known = found.get(value)
                return Load(buffer, self.put(index, j, found), dtype) if known is None else known[j]
            case Call(fn, args, dtype):
                return Call(fn, tuple(self.put(a, j, found) for a in args), dtype)
        return substitute(value, self.names[j])

    def load(self, load: Load) -> tuple[list[Stmt], list[Expr]] | None:
        """One access for several lanes, or one value for all; None where neither holds."""
        if has_load(load.index):
            return None
        at = [rebuild(load.index, self.full[j]) for j in range(self.width)]
        self.fresh += 1
        prefix = f"{self.loop.var.name}_x{self.fresh}"
        if all(i == at[0] for i in at):
            one = Sym(prefix, load.dtype)
            return [Let(one, Load(load.buffer, at[0], load.dtype))], [one] * self.width
        step = self.step(at, load.dtype)
        if step == 1 or load.buffer in self.single:
            return None
        syms = [Sym(f"{prefix}_{j}", load.dtype) for j in range(self.width)]
        before: list[Stmt] = [
            LoadVector(tuple(syms[j : j + step]), load.buffer, self.index(load.index, j))
            for j in range(0, self.width, step)
        ]
        return before, list(syms)

    def index(self, index: Expr, j: int) -> Expr:
        return rebuild(index, self.names[j])

    def step(self, at: list[Expr], dtype: DType) -> int:
        """Lanes that one access serves: their elements are neighbours, the first one aligned."""
        step = min(self.width, ACCESS_BYTES // dtype.itemsize)
        near = all(ix.isub(i, at[0]) == ix.lit(j) for j, i in enumerate(at))
        return step if near and step > 1 and is_multiple(at[0], step) else 1

    def store(self, buffer: str, index: Expr, value: Expr) -> list[Stmt]:
        if not mentions(index, self.varying):
            raise Refused
        before, values = self.copies(value)
        if has_load(index):
            places = [substitute(index, self.names[j]) for j in range(self.width)]
            return [*before, *_stores(buffer, places, values)]
        at = [rebuild(index, self.full[j]) for j in range(self.width)]
        step = self.step(at, value.dtype)
        if step == 1 or buffer in self.single:
            places = [self.index(index, j) for j in range(self.width)]
            return [*before, *_stores(buffer, places, values)]
        return [
            *before,
            *(
                StoreVector(buffer, self.index(index, j), tuple(values[j : j + step]))
                for j in range(0, self.width, step)
            ),
        ]
