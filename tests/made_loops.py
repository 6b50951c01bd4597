"""Loops written by hand, for tests of passes."""

from __future__ import annotations

from autofuse.kernel.ir.types import Fold, Loop, LoopKind, Stmt
from autofuse.ops import index as ix
from autofuse.ops.scalar import Sym


def loop(kind: str, var: Sym, *body: Stmt, folds: tuple[Fold, ...] = ()) -> Loop:
    """A loop as long as its variable says."""
    assert var.extent is not None
    return Loop(LoopKind(kind), var, ix.lit(var.extent), body, folds)
