"""verify: every name is defined before it is read, and once."""

from __future__ import annotations

from autofuse.kernel.ir.fragment import Collective, Exchange, Vote
from autofuse.kernel.ir.types import (
    Ahead,
    Assign,
    Join,
    Kernel,
    Let,
    LoadVector,
    Local,
    Loop,
    Stmt,
    Store,
    StoreVector,
    Stream,
    TileProduct,
    Transpose,
    Var,
    expressions,
    walk,
)
from autofuse.ops.scalar import Expr, Load, Sym


def verify(kernel: Kernel) -> Kernel:
    """The kernel itself; raises AssertionError on a malformed one (an internal error)."""
    scope = {p.name for p in kernel.params}
    outs = {p.name for p in kernel.params if p.role != "in"}
    assert all(not isinstance(s, Loop) or s.kind in ("grid", "serial") for s in kernel.body)
    _block(kernel.body, scope, outs)
    return kernel


def _block(
    body: tuple[Stmt, ...], outer: set[str], writable: set[str], in_lane: bool = False
) -> None:
    scope, writable = set(outer), set(writable)
    for stmt in body:
        walked = stmt.walk if isinstance(stmt, TileProduct) else None
        own = walked.variables if walked else frozenset[str]()
        for expr in expressions(stmt):
            _reads(expr, scope | own)
        match stmt:
            case Let(sym, _) | Var(sym, _):
                assert sym.name not in scope, f"{sym.name} is defined twice"
                scope.add(sym.name)
            case LoadVector(syms, name):
                assert name in scope, f"{name} is read before it is defined"
                assert not scope & {s.name for s in syms}, f"{syms[0].name} is defined twice"
                scope |= {s.name for s in syms}
            case Ahead(buffer=name, written=written):
                assert name in (writable if written else scope), f"{name} is not there"
            case Assign(sym, _):
                assert sym.name in scope, f"{sym.name} is assigned before it exists"
            case Local(name=name):
                assert name not in scope, f"{name} is defined twice"
                scope.add(name)
                writable.add(name)
            case Store(buffer=name) | StoreVector(buffer=name) | Stream(buffer=name):
                assert name in writable, f"{name} is not writable here"
            case TileProduct(target=target, left=left, right=right):
                assert {left.buffer, right.buffer} <= scope, "an operand is read before it exists"
                assert walked is None or not walked.zeros or walked.zeros in scope
                assert target.buffer in writable, f"{target.buffer} is not writable here"
                along = left.inner == right.outer == 1 if stmt.is_dot else right.inner == 1
                plain = bool(stmt.lanes) or (target.inner == 1 and (along or bool(stmt.mma)))
                assert plain, "columns of a tile are neighbours"
                assert not in_lane, "all lanes compute a tile together"
            case Join(target=target, last=last):
                assert target.buffer in writable, f"{target.buffer} is not writable here"
                assert last.name not in scope, f"{last.name} is defined twice"
                scope.add(last.name)
                assert not in_lane, "all lanes join parts together"
            case Transpose(target=target, source=source):
                assert source.buffer in scope, f"{source.buffer} is read before it is defined"
                assert target.buffer in writable, f"{target.buffer} is not writable here"
                assert target.inner == source.inner, "rows become columns"
                assert not target.outer % target.inner and not source.outer % source.inner
                assert not in_lane, "a transpose is made of lanes itself"
            case Exchange(sym=sym) | Vote(sym=sym):
                assert sym.name not in scope, f"{sym.name} is defined twice"
                scope.add(sym.name)
            case Collective():
                assert stmt.reads() <= scope, "an operand is read before it exists"
                assert stmt.writes() <= writable, f"{stmt.writes()} is not writable here"
            case Loop(kind=kind, var=var, body=inner, folds=folds, counter=counter):
                assert all(f.target.name in scope for f in folds)
                names = {var.name} if counter is None else {var.name, counter.name}
                _block(inner, scope | names, writable, in_lane or kind == "lane")


def _reads(expr: Expr, scope: set[str]) -> None:
    for e in walk(expr):
        name = e.name if isinstance(e, Sym) else e.buffer if isinstance(e, Load) else None
        assert name is None or name in scope, f"{name} is read before it is defined"
