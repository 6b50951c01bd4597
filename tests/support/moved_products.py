"""Random products whose operands are moved before they are multiplied."""

from __future__ import annotations

import random

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value

Shape = tuple[int, ...]
# A move: the op, its attributes, and the shape that it moves to the wanted one.
Move = tuple[str, dict[str, Shape], Shape]


def moved_product(seed: int, dtype: str = "f64", moves: int = 3) -> Graph:
    """A dot_general of two inputs, each after up to `moves` random moves."""
    rng = random.Random(seed)
    batch, rows, columns, summed = (
        tuple(rng.randint(1, 4) for _ in range(rng.randint(least, 2))) for least in (0, 0, 0, 1)
    )
    b = GraphBuilder()
    sides = {"lhs": rows, "rhs": columns}
    attrs: dict[str, Shape] = {}
    operands: list[Value] = []
    for side, free in sides.items():
        roles = [*(("batch", n) for n in batch), *(("contract", n) for n in summed)]
        axes = list(range(len(roles) + len(free)))
        if rng.random() < 0.7:
            rng.shuffle(axes)
        extents = [n for _, n in roles] + list(free)
        shape = [0] * len(axes)
        for place, n in zip(axes, extents, strict=True):
            shape[place] = n
        # Free axes are taken in the order in which they lie.
        for place, n in zip(sorted(axes[len(roles) :]), free, strict=True):
            shape[place] = n
        attrs[f"{side}_batch"] = tuple(axes[: len(batch)])
        attrs[f"{side}_contract"] = tuple(axes[len(batch) : len(roles)])
        operands.append(_moved(b, side, tuple(shape), dtype, rng, moves))
    return canonical(b.build([b.add("dot_general", *operands, **attrs)]))


def _moved(
    b: GraphBuilder, name: str, shape: Shape, dtype: str, rng: random.Random, moves: int
) -> Value:
    """A value of `shape` made by moves of an input."""
    chain: list[Move] = []
    for _ in range(rng.randint(0, moves)):
        kind = rng.choice((_transposed, _sliced, _reshaped, _repeated))
        chain.append(kind(shape, rng))
        shape = chain[-1][2]
    value = b.input(name, shape, dtype)
    for op, attrs, _ in reversed(chain):
        value = b.add(op, value, **attrs)
    return value


def _transposed(shape: Shape, rng: random.Random) -> Move:
    perm = rng.sample(range(len(shape)), len(shape))
    source = [0] * len(shape)
    for place, axis in enumerate(perm):
        source[axis] = shape[place]
    return "transpose", {"perm": tuple(perm)}, tuple(source)


def _sliced(shape: Shape, rng: random.Random) -> Move:
    start = tuple(rng.randint(0, 2) for _ in shape)
    steps = tuple(rng.choice((1, 1, 2)) for _ in shape)
    stop = tuple(lo + (n - 1) * step + 1 for lo, n, step in zip(start, shape, steps, strict=True))
    source = tuple(n + rng.randint(0, 2) for n in stop)
    return "slice", {"start": start, "stop": stop, "stride": steps}, source


def _reshaped(shape: Shape, rng: random.Random) -> Move:
    source = list(shape)
    if len(source) > 1 and rng.random() < 0.5:
        at = rng.randrange(len(source) - 1)
        source[at : at + 2] = [source[at] * source[at + 1]]
    elif source:
        at = rng.randrange(len(source))
        factor = rng.choice([f for f in range(1, source[at] + 1) if source[at] % f == 0])
        source[at : at + 1] = [factor, source[at] // factor]
    return "reshape", {"shape": shape}, tuple(source)


def _repeated(shape: Shape, rng: random.Random) -> Move:
    kept = tuple(axis for axis in range(len(shape)) if len(shape) == 1 or rng.random() < 0.7)
    return "broadcast", {"shape": shape, "dims": kept}, tuple(shape[axis] for axis in kept)
