"""At which index a loop reads a value, in a form in which equal accesses are equal.

A loop nest is one flat counter f. An axis is an offset plus terms (lo, size, coef), each meaning
coef * (f // lo % size); so a shape is only a way to cut the counter into digits, and reshapes are
free. Whatever has no such form (gathers, masked reads) is a token that equals only itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from autofuse.graph.types import Graph, Value
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.spec import Family
from autofuse.ops.types import OpCall

Term = tuple[int, int, int]  # lo, size, coef
Axis = tuple[int, tuple[Term, ...]]
AffineIndex = tuple[Axis, ...] | int  # an int is a token


@dataclass(frozen=True, slots=True)
class Dep:
    """One access: the value, its normalised flat index (or token), how far the counter matters,
    and the bytes touched."""

    value: Value
    offset: int
    terms: tuple[Term, ...]
    extent: int
    token: int
    nbytes: int

    @property
    def by_stride(self) -> tuple[object, ...]:
        """What is left when the order of loops does not matter."""
        found: list[tuple[int, int]] = []
        for coef, size in sorted((c, n) for _, n, c in self.terms):
            if found and found[-1][0] * found[-1][1] == coef:
                found[-1] = found[-1][0], found[-1][1] * size
            else:
                found.append((coef, size))
        return self.value, self.offset, tuple(found), self.token


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    found, step = list[int](), 1
    for extent in reversed(shape):
        found.append(step)
        step *= max(1, extent)
    return tuple(reversed(found))


def whole(shape: Sequence[int], inner: int = 1) -> tuple[Axis, ...]:
    """Every axis at its own digit of a counter over `shape`, `inner` steps apart."""
    return tuple(
        (0, ((lo * inner, size, 1),) if size > 1 else ())
        for size, lo in zip(shape, strides(shape), strict=True)
    )


def merged(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Neighbouring digits that together run evenly, joined; outermost first."""
    found: list[Term] = []
    for lo, size, coef in sorted(terms):
        if found:
            low, n, c = found[-1]
            if low * n == lo and c * n == coef:
                found[-1] = (low, n * size, c)
                continue
        found.append((lo, size, coef))
    return tuple(reversed(found))


def flat(index: tuple[Axis, ...], shape: Sequence[int]) -> tuple[int, tuple[Term, ...]]:
    """Offset and terms of the position in a row-major array of `shape`."""
    offset, terms = 0, list[Term]()
    for (start, own), stride in zip(index, strides(shape), strict=True):
        offset += start * stride
        terms += [(lo, size, coef * stride) for lo, size, coef in own]
    return offset, merged(terms)


def reshaped(offset: int, terms: Sequence[Term], shape: Sequence[int]) -> tuple[Axis, ...] | None:
    """A position as an index of `shape`, or None when some digit straddles its axes unevenly."""
    if offset:
        return None
    steps = strides(shape)
    own: list[list[Term]] = [[] for _ in shape]
    for lo, size, coef in terms:
        axis = next((a for a, s in enumerate(steps) if 0 < s <= coef and shape[a] > 1), None)
        while size > 1:
            if axis is None or axis < 0 or coef % steps[axis]:
                return None
            room = shape[axis] * steps[axis] // coef
            if room <= 1:
                axis -= 1
                continue
            part = min(size, room)
            if size % part or shape[axis] * steps[axis] % coef:
                return None
            own[axis].append((lo, part, coef // steps[axis]))
            lo, size, coef, axis = lo * part, size // part, coef * part, axis - 1
    for extent, found in zip(shape, own, strict=True):
        if sum((size - 1) * coef for _, size, coef in found) >= extent:
            return None
    return tuple((0, tuple(found)) for found in own)


class Accesses:
    """Where operands are read, for one graph; tokens are shared by all its loops."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._tokens: dict[Hashable, int] = {}

    def through(self, node: int, index: AffineIndex) -> Iterator[tuple[Value, AffineIndex]]:
        """The operands of `node` and where they are read when it is computed at `index`."""
        found = self.graph[node]
        for position, value in enumerate(found.inputs):
            if found.spec.family in (Family.ELEMENTWISE, Family.SCAN):
                yield value, index
            elif isinstance(index, int):
                yield value, self._token(node, position, index)
            elif found.spec.family is Family.REDUCTION:
                yield from ((value, place) for place in self.unrolled(node, index))
            else:
                below = _moved(self.graph, node, index)
                yield value, self._token(node, position, index) if below is None else below

    def unrolled(self, node: int, index: tuple[Axis, ...]) -> Iterator[tuple[Axis, ...]]:
        """A reduction's operand, at each place along the reduced axes."""
        call = self.graph.call(node)
        axes = reduced_axes(call)
        for place in product(*(range(call.ins[0].shape[a]) for a in axes)):
            kept = iter(index)
            at = dict(zip(axes, place, strict=True))
            rank = range(call.ins[0].rank)
            yield tuple((at[a], ()) if a in at else next(kept) for a in rank)

    def _token(self, node: int, position: int, index: AffineIndex) -> int:
        n = self.graph[node]
        indirect = tuple(n.inputs[1:]) if n.op == "gather" and not position else ()
        key = (n.op, n.attrs, n.types, position, indirect, index)
        return self._tokens.setdefault(key, len(self._tokens) + 1)

    def dep(self, value: Value, index: AffineIndex, domain: int) -> Dep:
        """The access of `value` at `index` in loops of `domain` steps."""
        own = self.graph.type_of(value)
        if isinstance(index, int):
            nbytes = min(own.size, domain) * own.dtype.itemsize
            return Dep(value, 0, (), 0, index, nbytes)
        offset, terms = flat(index, own.shape)
        inner = terms[-1][0] if terms else domain
        kept = tuple((lo // inner, size, coef) for lo, size, coef in terms)
        touched = min(own.size, math.prod(size for _, size, _ in terms))
        return Dep(
            value, offset, kept, max(1, domain // max(1, inner)), 0, touched * own.dtype.itemsize
        )


def _moved(graph: Graph, node: int, index: tuple[Axis, ...]) -> tuple[Axis, ...] | None:
    """Where a movement op reads its operand; None when no axis form says it."""
    moves = _MOVES.get(graph[node].op)
    return None if moves is None else moves(graph.call(node), index)


def _broadcast(call: OpCall, index: tuple[Axis, ...]) -> tuple[Axis, ...]:
    dims = zip(call.ins[0].shape, call["dims"], strict=True)
    return tuple(index[out] if size > 1 else (0, ()) for size, out in dims)


def _transpose(call: OpCall, index: tuple[Axis, ...]) -> tuple[Axis, ...]:
    placed = {axis: index[out] for out, axis in enumerate(call["perm"])}
    return tuple(placed[a] for a in range(len(placed)))


def _slice(call: OpCall, index: tuple[Axis, ...]) -> tuple[Axis, ...]:
    steps = zip(index, call["start"], call["stride"], strict=True)
    return tuple((s + k * o, tuple((lo, m, c * k) for lo, m, c in t)) for (o, t), s, k in steps)


def _reverse(call: OpCall, index: tuple[Axis, ...]) -> tuple[Axis, ...]:
    return tuple(
        (size - 1 - o, tuple((lo, m, -c) for lo, m, c in t)) if a in call["axes"] else (o, t)
        for a, (size, (o, t)) in enumerate(zip(call.ins[0].shape, index, strict=True))
    )


def _reshape(call: OpCall, index: tuple[Axis, ...]) -> tuple[Axis, ...] | None:
    return reshaped(*flat(index, call.out.shape), call.ins[0].shape)


_MOVES: dict[str, Callable[[OpCall, tuple[Axis, ...]], tuple[Axis, ...] | None]] = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "slice": _slice,
    "reverse": _reverse,
    "reshape": _reshape,
}
