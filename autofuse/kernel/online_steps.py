"""What is done with a block of columns of the one-pass tile form (`tile_online.py`), and which
values of it are kept in scratch on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autofuse.graph.types import Value
from autofuse.kernel.tile_block import TileBlock
from autofuse.ops.dtypes import DType
from autofuse.plan.online import Online, OnlineFold

# Elementwise ops from which a value that is read again is kept in scratch.
DEAR = 2


@dataclass(frozen=True, slots=True)
class OnlineStep:
    """A fold, or None where a value is only computed, and the buffer that the value is kept in
    ("": it is not)."""

    fold: OnlineFold | None
    value: Value
    kept: str


def steps_of(
    b: TileBlock, online: Online, room: Callable[[DType], str], dear: int = DEAR
) -> tuple[dict[Value, str], list[OnlineStep]]:
    """Buffers for blocks of the sources, which `room` makes, and what is done with them: operands
    of products are kept, and what is read again and takes as many ops as are `dear`. A value takes
    the place of one that nobody reads any more."""
    made = {Value(p.node): room(b.dtype(p)) for p in online.sources}
    products = {p.node for p in b.tiles.products}
    where, steps = dict(made), list[OnlineStep]()
    order = _with_operands(online, products)
    for turn, (fold, value) in enumerate(order):
        later = [v for _, v in order[turn + 1 :]]
        wanted = _reached(b, online, later, {*where, value})
        kept = ""
        if value in wanted and value not in where and _is_worth(b, online, value, where, dear):
            free = [n for v, n in where.items() if v not in wanted]
            dtype = b.graph.type_of(value).dtype.compute
            fits = free and dtype is b.dtype(online.sources[0])
            kept = free[0] if fits else room(dtype)
            where = {v: n for v, n in where.items() if n != kept}
            where[value] = kept
        steps.append(OnlineStep(fold, value, kept))
    return made, steps


def _with_operands(online: Online, products: set[int]) -> list[tuple[OnlineFold | None, Value]]:
    """Folds in order; before a product what it multiplies, unless it was folded before."""
    order: list[tuple[OnlineFold | None, Value]] = []
    seen = {Value(p.node) for p in online.sources}
    for fold in online.folds:
        if fold.node in products and fold.operand not in seen:
            order.append((None, fold.operand))
        seen.add(fold.operand)
        order.append((fold, fold.operand))
    return order


def _reached(
    b: TileBlock, online: Online, values: Iterable[Value], stops: set[Value]
) -> set[Value]:
    """Those of `stops` that some values are computed from."""
    found, stack, seen = set[Value](), list(values), set[Value]()
    while stack:
        value = stack.pop()
        if value in stops:
            found.add(value)
        elif value in online.block and value not in seen:
            seen.add(value)
            stack += b.graph[value.node].inputs
    return found


def _is_worth(
    b: TileBlock, online: Online, value: Value, where: Mapping[Value, str], dear: int
) -> bool:
    """Whether to keep a value: a product multiplies it, or it takes several ops."""
    products = {p.node for p in b.tiles.products}
    if any(f.operand == value for f in online.folds if f.node in products):
        return True
    count, stack, seen = 0, [value], set[Value]()
    while stack:
        at = stack.pop()
        if at in online.block and at not in where and at not in seen:
            seen.add(at)
            count += 1
            stack += b.graph[at.node].inputs
    return count >= dear
