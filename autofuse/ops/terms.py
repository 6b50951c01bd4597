"""What windows and contractions fold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Expr
from autofuse.ops.types import OpCall
from autofuse.ops.views import Shape


@dataclass(frozen=True)
class FoldOver:
    """What a WINDOW or a CONTRACTION folds, which is no whole axis of one operand.

    `extents(call)` are the extents of the fold's own loops, outermost first; `term(call, index, at,
    pull)` is what the output element at `index` folds at position `at` of these loops. It asks
    `pull` for operand elements that are in range only.
    """

    extents: Callable[[OpCall], Shape]
    term: Callable[[OpCall, Index, Index, Pull], Expr]


@dataclass(frozen=True, slots=True)
class OutputRoles:
    """The output axes of a CONTRACTION that index both operands, only the first, and only the
    second. Positions along the latter, numbered through, come in so many `groups` of neighbours,
    each of which has a part of the first operand to itself."""

    batch: Shape
    lhs: Shape
    rhs: Shape
    groups: int = 1


@dataclass(frozen=True)
class Factors:
    """A CONTRACTION's terms as products of one factor from each operand.

    `roles(call)` says which output axes a factor depends on (None: axes that both depend on are
    not all whole); `factor(call, operand, index, at, pull)` is the factor from one operand of the
    output element at `index` at position `at` of the fold's loops."""

    roles: Callable[[OpCall], OutputRoles | None]
    factor: Callable[[OpCall, int, Index, Index, Pull], Expr]
