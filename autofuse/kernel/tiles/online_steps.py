"""What is done with a block of columns of the one-pass tile form (`tiles/online.py`), and which
values of it are kept in scratch on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from autofuse.graph.types import Value
from autofuse.kernel.tiles.block import TileBlock
from autofuse.ops.dtypes import DType
from autofuse.plan.schedules.masks import Reach, reach_of
from autofuse.plan.schedules.online import Online, OnlineFold
from autofuse.plan.schedules.scalings import converts

# Elementwise ops from which a value that is read again is kept in scratch.
DEAR = 2
_NONE: Mapping[Value, Value] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OnlineStep:
    """A fold, or None where a value is only computed, and the buffer that the value is kept in
    ("": it is not)."""

    fold: OnlineFold | None
    value: Value
    kept: str


def online_reach(b: TileBlock, online: Online) -> Reach | None:
    """How far the rows of a block reach into its columns; None where all may be needed."""
    if len(online.sources) > 1:
        return None
    return reach_of(b.graph, b.form, b.tiles, online.sources[0])


def steps_of(
    b: TileBlock, online: Online, room: Callable[[DType], str], same: Mapping[Value, Value] = _NONE
) -> tuple[dict[Value, str], list[OnlineStep]]:
    """Buffers for blocks of the sources, which `room` makes, and what is done with them: operands
    of products are kept, and what is read again and takes as many ops as are `DEAR`. A value takes
    the place of one that nobody reads any more. `same` are values that are others as they are."""
    made = {Value(p.node): room(b.dtype(p)) for p in online.sources}
    products = {p.node for p in b.tiles.products}
    where, steps = dict(made), list[OnlineStep]()
    order = _with_operands(online, products)
    for turn, (fold, value) in enumerate(order):
        later = [v for _, v in order[turn + 1 :]]
        wanted = _reached(b, online, later, {*where, value}, same)
        kept = ""
        if value in wanted and value not in where and _is_worth(b, online, value, where, same):
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
    b: TileBlock, online: Online, values: Iterable[Value], stops: set[Value],
    same: Mapping[Value, Value],
) -> set[Value]:  # fmt: skip
    """Those of `stops` that some values are computed from."""
    found, stack, seen = set[Value](), list(values), set[Value]()
    while stack:
        value = stack.pop()
        if value in stops:
            found.add(value)
        elif value in online.block and value not in seen:
            seen.add(value)
            stack += _operands(b, value, same)
    return found


def _cost(b: TileBlock, value: Value) -> int:
    """Ops that a value takes; one that is computed in the type that it is computed from is none."""
    if converts(b.graph, value):
        (before,) = b.graph[value.node].inputs
        kinds = (b.graph.type_of(v).dtype.compute for v in (before, value))
        return int(len(set(kinds)) > 1)
    return DEAR if b.graph[value.node].spec.special else 1


def _operands(b: TileBlock, value: Value, same: Mapping[Value, Value]) -> tuple[Value, ...]:
    return (same[value],) if value in same else b.graph[value.node].inputs


def _is_worth(
    b: TileBlock, online: Online, value: Value, where: Mapping[Value, str],
    same: Mapping[Value, Value],
) -> bool:  # fmt: skip
    """Whether to keep a value: a product multiplies it, or it takes several ops."""
    products = {p.node for p in b.tiles.products}
    if any(f.operand == value for f in online.folds if f.node in products):
        return True
    count, stack, seen = 0, [value], set[Value]()
    while stack:
        at = stack.pop()
        if at in online.block and at not in where and at not in seen:
            seen.add(at)
            count += 0 if at in same else _cost(b, at)
            stack += _operands(b, at, same)
    return count >= DEAR
