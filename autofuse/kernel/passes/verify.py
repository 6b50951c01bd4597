"""verify: every name is defined before it is read, and once."""

from __future__ import annotations

from collections.abc import Iterable, Set

from autofuse.kernel.ir.roles import names_in, plan_of
from autofuse.kernel.ir.types import (
    Ahead,
    Join,
    Kernel,
    Loop,
    LoopKind,
    Stmt,
    TileProduct,
    Transpose,
)


def verify(kernel: Kernel) -> Kernel:
    """The kernel itself; raises AssertionError on a malformed one (an internal error)."""
    scope = {p.name for p in kernel.params}
    outs = {p.name for p in kernel.params if p.role != "in"}
    outer = (LoopKind.GRID, LoopKind.SERIAL)
    assert all(not isinstance(s, Loop) or s.kind in outer for s in kernel.body)
    _block(kernel.body, scope, outs)
    return kernel


def _block(
    body: tuple[Stmt, ...], outer: Set[str], writable: Set[str], in_lane: bool = False
) -> None:
    """`outer` names are known, and what may be `writable` is written."""
    scope, writable = {"", *outer}, {"", *writable}
    for stmt in body:
        plan = plan_of(stmt)
        own = scope.union(plan.own(stmt))
        for expr in plan.expressions(stmt):
            _known(names_in(expr), own)
        _known(plan.read(stmt), scope)
        _known(plan.mentioned(stmt), scope)
        for name in plan.written(stmt):
            assert name in writable, f"{name} is not writable here"
        for name in plan.defined(stmt):
            assert name not in scope, f"{name} is defined twice"
            scope.add(name)
        writable.update(plan.declared(stmt))
        _check_rules(stmt, writable, in_lane)
        if isinstance(stmt, Loop):
            inside = in_lane or stmt.kind is LoopKind.LANE
            _block(stmt.body, scope.union(plan.bound(stmt)), writable, inside)


def _known(names: Iterable[str], scope: Set[str]) -> None:
    for name in names:
        assert name in scope, f"{name} is read before it is defined"


def _check_rules(stmt: Stmt, writable: Set[str], in_lane: bool) -> None:
    """What is asked of some statements alone."""
    match stmt:
        case Ahead(buffer=name, written=True):
            assert name in writable, f"{name} is not writable here"
        case TileProduct(target=target, left=left, right=right):
            along = left.inner == right.outer == 1 if stmt.is_dot else right.inner == 1
            plain = bool(stmt.lanes) or (target.inner == 1 and (along or bool(stmt.mma)))
            assert plain, "columns of a tile are neighbours"
        case Transpose(target=target, source=source):
            assert target.inner == source.inner, "rows become columns"
            assert not target.outer % target.inner and not source.outer % source.inner
    if isinstance(stmt, TileProduct | Join | Transpose):
        assert not in_lane, "all lanes do it together"
