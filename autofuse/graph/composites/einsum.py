"""Sums of products over named axes (Einstein's notation, as NumPy's einsum has it)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from autofuse.graph.composites.layers import dot
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.types import GraphError


@dataclass(frozen=True, slots=True)
class _Named:
    """A value and the names of its axes, no two of them the same."""

    value: Value
    names: tuple[str, ...]


def einsum(w: GraphWriter, equation: str, values: Sequence[Value]) -> Value:
    """The sum over all names that the result does not have of the product of `values`, two of which
    meet at a time, from the left. Raises GraphError for an equation that does not fit them."""
    terms, result = _parsed(equation, [len(w.shape(v)) for v in values])
    sizes = _sizes(w, terms, values)
    left = [_plain(w, v, names, sizes) for v, names in zip(values, terms, strict=True)]
    while len(left) > 1:
        first, second, *rest = left
        needed = set(result).union(*(each.names for each in rest))
        left = [_met(w, _summed(w, first, needed | set(second.names)),
                     _summed(w, second, needed | set(first.names)), needed), *rest]  # fmt: skip
    (found,) = left
    found = _summed(w, found, set(result))
    own = [name for name in result if name in found.names]
    moved = w.transpose(found.value, list(map(found.names.index, own)))
    kept = [sizes[name] if name in own else 1 for name in result]
    return w.spread(w.reshape(moved, kept), [sizes[name] for name in result])


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The names of each operand's axes, and of the result's. Axes of an ellipsis are named by how
    far they are from its end."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise GraphError(f"equation '{equation}' has {len(parts)} terms, not {len(ranks)}")
    terms = [_term(part, rank) for part, rank in zip(parts, ranks, strict=True)]
    flat = [*chain(*terms)]
    dots = _dots(flat)
    if arrow:
        result = _spelled(right, dots)
    else:
        result = (*dots, *sorted({n for n in flat if flat.count(n) == 1 and n not in dots}))
    if len(set(result)) != len(result) or not set(result) <= set(flat):
        raise GraphError(f"equation '{equation}' has no such result")
    return terms, result


def _term(part: str, rank: int) -> tuple[str, ...]:
    count = rank - len(part.replace("...", ""))
    if count < 0 or (count and "..." not in part):
        raise GraphError(f"term '{part}' does not name {rank} axes")
    return _spelled(part, [f".{k}" for k in range(count - 1, -1, -1)])


def _spelled(part: str, dots: Sequence[str]) -> tuple[str, ...]:
    before, found, after = part.partition("...")
    return (*before, *(dots if found else ()), *after)


def _sizes(
    w: GraphWriter, terms: Sequence[tuple[str, ...]], values: Sequence[Value]
) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for names, value in zip(terms, values, strict=True):
        for name, n in zip(names, w.shape(value), strict=True):
            known = sizes.get(name, 1)
            if 1 not in (known, n) and known != n:
                raise GraphError(f"axis '{name}' has extents {known} and {n}")
            sizes[name] = n if known == 1 else known
    return sizes


def _dots(names: Sequence[str]) -> list[str]:
    """The axes of the widest ellipsis."""
    widest = max((int(n[1:]) for n in names if n.startswith(".")), default=-1)
    return [f".{k}" for k in range(widest, -1, -1)]


def _plain(w: GraphWriter, v: Value, names: tuple[str, ...], sizes: dict[str, int]) -> _Named:
    """Without axes of extent 1 that are longer elsewhere, and with diagonals for repeated names."""
    kept = [k for k, n in enumerate(w.shape(v)) if n == sizes[names[k]]]
    v = w.reshape(v, [w.shape(v)[k] for k in kept])
    names = tuple(names[k] for k in kept)
    while len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        first = names.index(twice)
        second = names.index(twice, first + 1)
        v = _diagonal(w, v, first, second)
        names = (twice, *(name for k, name in enumerate(names) if k not in (first, second)))
    return _Named(v, names)


def _diagonal(w: GraphWriter, v: Value, first: int, second: int) -> Value:
    """Of two axes of one extent, as the first axis."""
    rest = [k for k in range(len(w.shape(v))) if k not in (first, second)]
    moved = w.transpose(v, [first, second, *rest])
    n, *shape = w.shape(moved)[1:]
    flat, zeros, ones = w.reshape(moved, (n * n, *shape)), [0] * len(shape), [1] * len(shape)
    return w.slice(flat, [0, *zeros], [n * n, *shape], [n + 1, *ones])


def _summed(w: GraphWriter, x: _Named, needed: set[str]) -> _Named:
    """Over the axes that nothing needs any more."""
    gone = [k for k, name in enumerate(x.names) if name not in needed]
    if not gone:
        return x
    wide = w.cast(x.value, w.dtype(x.value).compute)
    total = w.cast(w.reduce("reduce_sum", wide, gone), w.dtype(x.value))
    return _Named(total, tuple(name for name in x.names if name in needed))


def _met(w: GraphWriter, x: _Named, y: _Named, needed: set[str]) -> _Named:
    """Two values multiplied: over the names that both have and nothing else needs, summed."""
    shared = [name for name in x.names if name in y.names]
    batch = [name for name in shared if name in needed]
    contract = [name for name in shared if name not in needed]
    free = [[n for n in each.names if n not in shared] for each in (x, y)]
    if not contract and not any(free):
        back = [y.names.index(name) for name in x.names]
        return _Named(w.mul(x.value, w.transpose(y.value, back)), x.names)
    axes = [tuple(tuple(each.names.index(n) for n in names) for each in (x, y))
            for names in (contract, batch)]  # fmt: skip
    found = dot(w, x.value, y.value, (axes[0][0], axes[0][1]), (axes[1][0], axes[1][1]))
    return _Named(found, (*batch, *free[0], *free[1]))
