"""lanes_inward: lanes move inside serial loops, so that the innermost loop is the vector one.

Before: lane l {var s; serial t {s = f(s)}; out[l] = s}
After:  lane l {s_l[l] = ..}; serial t {lane l {s_l[l] = f(s_l[l])}}; lane l {out[l] = s_l[l]}
Names that live across the new lane loops become arrays with one element per lane; what does not
depend on the lane is computed once, outside. A `while` then goes on as long as any lane does: it
changes nothing in the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autofuse.kernel.ir.types import (
    Assign,
    Fold,
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    Var,
    names_read,
    names_written,
    statements,
    substitute,
    substitute_stmt,
    walk,
)
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym


def lanes_inward(kernel: Kernel) -> Kernel:
    """Rewrite every lane loop that contains a `while`, or a serial loop with a uniform extent."""
    return replace(kernel, body=_block(kernel.body))


def _block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    for stmt in body:
        if not isinstance(stmt, Loop):
            done.append(stmt)
        elif stmt.kind is not LoopKind.LANE:
            done.append(replace(stmt, body=_block(stmt.body)))
        elif _can_move(stmt):
            done.extend(_Mover(stmt).run())
        else:
            done.append(stmt)
    return tuple(done)


def _can_move(lane: Loop) -> bool:
    loops = [s for s in statements(lane.body) if isinstance(s, Loop)]
    if not loops:
        return False
    varying = varying_names(lane)
    uniform = all(s.kind is LoopKind.WHILE or not (_names(s.extent) & varying) for s in loops)
    return uniform and not lane.folds and lane.var.extent is not None


def _names(expr: Expr) -> set[str]:
    return names_read(Let(Sym("", DType.I64), expr))


def varying_names(lane: Loop) -> set[str]:
    """Names whose value differs between lanes."""
    defined = [
        (stmt.sym.name, names_read(stmt))
        for stmt in statements(lane.body)
        if isinstance(stmt, Let | Var | Assign)
    ]
    varying, before = {lane.var.name}, 0
    while len(varying) > before:  # once more for what a serial loop carries round
        before = len(varying)
        for name, read in defined:
            if read & varying:
                varying.add(name)
    return varying


@dataclass
class _Run:
    """Straight-line statements that will be one lane loop."""

    stmts: list[Stmt]


class _Mover:
    def __init__(self, lane: Loop) -> None:
        self.lane = lane
        self.varying = varying_names(lane)
        self.tree = self._runs(lane.body)
        self.cheap = self._cheap_lets()
        self.crossing = self._crossing()
        assert lane.var.extent is not None
        self.size = lane.var.extent
        # GCC makes no vectors of the bools that choose between states, but of numbers.
        ended = any(isinstance(s, Loop) and s.kind is LoopKind.WHILE for s in statements(lane.body))
        self.flags = DType.I32 if ended else DType.BOOL

    def run(self) -> list[Stmt]:
        arrays = [
            Local(f"{n}_l", self._stored(d), self.size) for n, d in sorted(self.crossing.items())
        ]
        return [*arrays, *self._emit(self.tree)]

    def _runs(self, body: tuple[Stmt, ...]) -> list[_Run | tuple[Loop, list]]:  # type: ignore[type-arg]  # recursive
        """The body as runs of varying statements, uniform statements, and loops with their runs."""
        parts: list = []  # type: ignore[type-arg]  # recursive
        for stmt in body:
            if isinstance(stmt, Loop):
                parts.append((stmt, self._runs(stmt.body)))
            elif self._is_uniform(stmt):
                parts.append(stmt)
            elif parts and isinstance(parts[-1], _Run):
                parts[-1].stmts.append(stmt)
            else:
                parts.append(_Run([stmt]))
        return _gather(parts)

    def _is_uniform(self, stmt: Stmt) -> bool:
        return (
            not isinstance(stmt, Store)
            and not (names_written(stmt) | names_read(stmt)) & self.varying
        )

    def _all_runs(self, tree: list) -> list[_Run]:  # type: ignore[type-arg]  # recursive
        found: list[_Run] = []
        for part in tree:
            if isinstance(part, _Run):
                found.append(part)
            elif isinstance(part, tuple):
                found.extend(self._all_runs(part[1]))
        return found

    def _cheap_lets(self) -> dict[str, Let]:
        """Positions computed from the lane number: every run computes its own, so that the
        compiler sees consecutive addresses rather than indices loaded from memory."""
        found: dict[str, Let] = {}
        for run in self._all_runs(self.tree):
            for stmt in run.stmts:
                if not isinstance(stmt, Let) or stmt.sym.dtype is not DType.I64:
                    continue
                loads = any(isinstance(e, Load) for e in walk(stmt.value))
                inputs = _names(stmt.value) & self.varying
                if not loads and inputs <= {self.lane.var.name, *found}:
                    found[stmt.sym.name] = stmt
        return found

    def _crossing(self) -> dict[str, DType]:
        """Varying names defined in one run and used in another."""
        homes: dict[str, int] = {}
        dtypes: dict[str, DType] = {}
        crossing: dict[str, DType] = {}
        runs = self._all_runs(self.tree)
        for i, run in enumerate(runs):
            for stmt in run.stmts:
                if isinstance(stmt, Let | Var):
                    homes[stmt.sym.name], dtypes[stmt.sym.name] = i, stmt.sym.dtype
        for i, run in enumerate(runs):
            for stmt in run.stmts:
                for name in names_read(stmt) | names_written(stmt):
                    if name in homes and homes[name] != i and name not in self.cheap:
                        crossing[name] = dtypes[name]
        return crossing

    def _emit(self, tree: list) -> list[Stmt]:  # type: ignore[type-arg]  # recursive
        done: list[Stmt] = []
        for part in tree:
            if isinstance(part, _Run):
                done.append(self._lane(part))
            elif isinstance(part, tuple):
                done.extend(self._loop(part[0], self._emit(part[1])))
            else:
                done.append(part)
        return done

    def _loop(self, loop: Loop, body: list[Stmt]) -> list[Stmt]:
        on = loop.extent
        if (
            loop.kind is not LoopKind.WHILE
            or not isinstance(on, Sym)
            or on.name not in self.crossing
        ):
            return [replace(loop, body=tuple(body))]
        # OpenMP folds no bools.
        some, none = Sym(f"{on.name}_some", DType.I32), Lit(0, DType.I32)
        flag = Load(f"{on.name}_l", self.lane.var, self.flags)
        met = Assign(some, Call("max", (some, flag), DType.I32))
        ask = replace(self.lane, body=(met,), folds=(Fold(some, "max"),))
        again = Call("ne", (some, none), DType.BOOL)
        inner = (*body, Assign(some, none), ask)
        return [Var(some, none), ask, replace(loop, extent=again, body=inner)]

    def _stored(self, dtype: DType) -> DType:
        """What an array over lanes holds of a value."""
        return self.flags if dtype is DType.BOOL else dtype

    def _load(self, name: str, dtype: DType) -> Expr:
        found = Load(f"{name}_l", self.lane.var, self._stored(dtype))
        same = found.dtype is dtype
        return found if same else Call("ne", (found, Lit(0, found.dtype)), DType.BOOL)

    def _store(self, sym: Sym, value: Expr) -> Store:
        kind = self._stored(sym.dtype)
        kept = value if kind is sym.dtype else Call("cast", (value,), kind)
        return Store(f"{sym.name}_l", self.lane.var, kept)

    def _lane(self, run: _Run) -> Loop:
        own = {s.sym.name for s in run.stmts if isinstance(s, Let)}
        reads: dict[str, Expr] = {
            name: self._load(name, dtype)
            for name, dtype in self.crossing.items()
            if name not in own
        }
        body: list[Stmt] = list(self._copies(run, own))
        for stmt in run.stmts:
            match stmt:
                case Var(sym, value) | Assign(sym, value) if sym.name in self.crossing:
                    body.append(self._store(sym, substitute(value, reads)))
                case Let(sym, value) if sym.name in self.crossing:
                    body.append(Let(sym, substitute(value, reads)))
                    body.append(self._store(sym, sym))
                case _:
                    body.append(substitute_stmt(stmt, reads))
        return replace(self.lane, body=tuple(body), folds=())

    def _copies(self, run: _Run, own: set[str]) -> list[Let]:
        """The cheap values that this run reads and does not define, in order."""
        wanted = set().union(*(names_read(s) for s in run.stmts)) - own
        chosen: list[Let] = []
        for name in reversed(list(self.cheap)):
            if name in wanted and name not in own:
                chosen.append(self.cheap[name])
                wanted |= _names(self.cheap[name].value)
        return chosen[::-1]


def _gather(parts: list) -> list:  # type: ignore[type-arg]  # recursive
    """Join runs that only uniform definitions separate: those move ahead of the joined run."""
    done: list = []  # type: ignore[type-arg]  # recursive
    for part in parts:
        last = next((i for i in range(len(done) - 1, -1, -1) if not _is_uniform_let(done[i])), None)
        if isinstance(part, _Run) and last is not None and isinstance(done[last], _Run):
            run = done.pop(last)
            done.append(_Run([*run.stmts, *part.stmts]))
        else:
            done.append(part)
    return done


def _is_uniform_let(part: object) -> bool:
    return isinstance(part, Let | Var | Local)
