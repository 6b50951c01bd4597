"""One random op after another: every row of the op table has a way to be drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from autofuse.ops.dtypes import FLOATS, INDICES, DType
from autofuse.ops.spec import Family, all_specs
from autofuse.ops.types import TensorType
from benchmarks.fuzz.elementwise import (
    ALL,
    NUMBERS,
    Move,
    draw_bitcast,
    draw_bits,
    draw_cast,
    draw_clamp,
    draw_constant,
    draw_iota,
    draw_select,
    draw_threefry,
    elementwise,
)
from benchmarks.fuzz.maker import Made, Maker
from benchmarks.fuzz.matrices import solver

# --- moves of elements


def _moved(m: Maker, op: str, x: Made, *more: Made, **attrs: object) -> None:
    m.keep(m.add(op, [x, *more], x.low, x.high, x.exact, **attrs))


def _broadcast(m: Maker) -> None:
    x = m.any(ALL)
    rank = len(x.shape) + m.choice((0, 1, 1, 2))
    dims = sorted(m.rng.sample(range(rank), len(x.shape)))
    shape = [m.extent() for _ in range(rank)]
    for d, n in zip(dims, x.shape, strict=True):
        shape[d] = n if n != 1 or m.chance(0.5) else shape[d]
    if math.prod(shape) <= 2 * 1536:
        _moved(m, "broadcast", x, shape=shape, dims=dims)


def _reshape(m: Maker) -> None:
    x = m.any(ALL)
    size, shape = x.type.size, list[int]()
    if size == 0:
        shape = [m.extent() for _ in range(m.choice((1, 2)))]
        shape.insert(m.rng.randrange(len(shape) + 1), 0)
    rest = size
    while rest > 1:
        n = m.choice([d for d in range(2, min(rest, 64) + 1) if rest % d == 0] or [rest])
        shape.append(n)
        rest //= n
    while m.chance(0.3):
        shape.insert(m.rng.randrange(len(shape) + 1), 1)
    if len(shape) <= 5 and tuple(shape) != x.shape:
        _moved(m, "reshape", x, shape=shape)


def _transpose(m: Maker) -> None:
    x = m.any(ALL, least_rank=2)
    _moved(m, "transpose", x, perm=m.rng.sample(range(len(x.shape)), len(x.shape)))


def _reverse(m: Maker) -> None:
    x = m.any(ALL, least_rank=1)
    _moved(m, "reverse", x, axes=_axes(m, len(x.shape)))


def _axes(m: Maker, rank: int) -> list[int]:
    return sorted(m.rng.sample(range(rank), m.rng.randint(0 if m.chance(0.05) else 1, rank)))


def _slice(m: Maker) -> None:
    x = m.any(ALL, least_rank=1)
    start = [m.rng.randint(0, n // 2) for n in x.shape]
    stop = [m.rng.randint(s if m.chance(0.05) else min(s + 1, n), n)
            for s, n in zip(start, x.shape, strict=True)]  # fmt: skip
    _moved(m, "slice", x, start=start, stop=stop, stride=[m.choice((1, 1, 2, 3)) for _ in start])


def _pad(m: Maker) -> None:
    x = m.any(ALL)
    fill = m.of_type(TensorType((), x.dtype))
    low = [m.choice((0, 0, 1, 2)) for _ in x.shape]
    high = [m.choice((0, 0, 1, 3)) for _ in x.shape]
    m.keep(m.add("pad", [x, fill], min(x.low, fill.low), max(x.high, fill.high),
                 x.exact and fill.exact, low=low, high=high))  # fmt: skip


def _concat(m: Maker) -> None:
    x = m.any(ALL, least_rank=1)
    axis = m.rng.randrange(len(x.shape))
    parts = [x]
    for _ in range(m.rng.randint(0 if m.chance(0.1) else 1, 3)):
        shape = list(x.shape)
        if m.chance(0.6):
            shape[axis] = m.choice((0, 1, 2, 3, 5))
        parts.insert(m.rng.randrange(len(parts) + 1), m.of_type(TensorType(tuple(shape), x.dtype)))
    m.keep(m.add("concat", parts, min(p.low for p in parts), max(p.high for p in parts),
                 all(p.exact for p in parts), axis=axis))  # fmt: skip


def _places(m: Maker, shape: tuple[int, ...]) -> Made:
    return m.of_type(TensorType(shape, m.dtype(INDICES)))


def _gather(m: Maker) -> None:
    x = m.any(ALL, least_rank=1)
    at = m.any(INDICES) if m.chance(0.5) else _places(m, m.shape(most=64))
    if at.type.size * x.type.size <= 200_000:
        _moved(m, "gather", x, at, axis=m.rng.randrange(len(x.shape)))


def _take_along(m: Maker) -> None:
    x = m.any(ALL, least_rank=1)
    axis = m.rng.randrange(len(x.shape))
    shape = (*x.shape[:axis], m.extent(), *x.shape[axis + 1 :])
    _moved(m, "take_along", x, _places(m, shape), axis=axis)


def _dynamic_slice(m: Maker) -> None:
    x = m.any(ALL, least_rank=1)
    axes = _axes(m, len(x.shape))
    starts = [_places(m, ()) for _ in axes]
    sizes = [m.rng.randint(min(1, x.shape[a]), x.shape[a]) for a in axes]
    _moved(m, "dynamic_slice", x, *starts, axes=axes, sizes=sizes)


def _dynamic_update(m: Maker) -> None:
    x = m.any(ALL, least_rank=1)
    axes = _axes(m, len(x.shape))
    shape = tuple(m.rng.randint(min(1, n), n) if a in axes else n for a, n in enumerate(x.shape))
    new = m.of_type(TensorType(shape, x.dtype))
    starts = [_places(m, ()) for _ in axes]
    m.keep(m.add("dynamic_update_slice", [x, new, *starts], min(x.low, new.low),
                 max(x.high, new.high), x.exact and new.exact, axes=axes))  # fmt: skip


def _scatter(op: str) -> Move:
    def move(m: Maker) -> None:
        x = m.any(ALL if op == "scatter" else NUMBERS, least_rank=1)
        if x.dtype.is_float and op == "scatter_mul":
            x = m.within(x, -1, 1)
        rank = len(x.shape)
        batch = m.rng.randint(0, rank - 1) if m.chance(0.3) else 0
        axes = m.rng.sample(range(batch, rank), m.rng.randint(1, rank - batch))
        count = m.choice((0, 1, 2, 3, 5, 8))
        window = [m.rng.randint(min(1, n), n) for n in x.shape[batch:]]
        if m.chance(0.5):
            window = [1 if a + batch in axes else n for a, n in enumerate(x.shape[batch:])]
        lead = x.shape[:batch]
        at = _places(m, (*lead, count, len(axes)))
        new = m.of_type(TensorType((*lead, count, *window), x.dtype))
        if x.dtype.is_float and op in ("scatter_mul", "scatter_add"):
            new = m.within(new, -1, 1)
        most = max(x.most, new.most) + (8 if op == "scatter_add" else 0)
        exact = op in ("scatter", "scatter_max", "scatter_min") and x.exact and new.exact
        m.keep(m.add(op, [x, at, new], -most, most, exact, axes=axes, batch=batch,
                     drop=m.chance(0.5)))  # fmt: skip

    return move


# --- folds


def _reduce(op: str) -> Move:
    def move(m: Maker) -> None:
        x = m.any((DType.BOOL,) if op in ("reduce_any", "reduce_all") else NUMBERS)
        axes = _axes(m, len(x.shape)) if x.shape else []
        if op == "reduce_prod" and x.dtype.is_float:
            x = _factors(m, x, math.prod(x.shape[a] for a in axes))
        out = m.add(op, [x], -x.most, x.most,
                    op in ("reduce_max", "reduce_min") and x.exact, axes=axes)  # fmt: skip
        if op == "reduce_sum" and x.dtype.is_float:
            out = _mean(m, out, x.most, math.prod(x.shape[a] for a in axes))
        m.keep(out)
        if m.chance(0.4):
            dims = [a for a in range(len(x.shape)) if a not in axes]
            _moved(m, "broadcast", out, shape=x.shape, dims=dims)

    return move


def _factors(m: Maker, x: Made, count: int) -> Made:
    """Floats whose products neither vanish nor grow without end."""
    if count <= 16:
        return m.within(x, -1, 1)
    small = m.within(x, -1, 1)
    near = m.add("mul", [small, m.full(1.0 / 1024, x.type)], -0.001, 0.001)
    return m.add("sub", [m.full(1.0, x.type), m.add("abs", [near], 0, 0.001)], 0.998, 1.0)


def _mean(m: Maker, total: Made, most: float, count: int) -> Made:
    """A sum of many divided by how many there were."""
    share = m.full(1.0 / max(count, 1), total.type)
    return m.add("mul", [total, share], -most, most)


def _position(op: str) -> Move:
    def move(m: Maker) -> None:
        x = m.any(NUMBERS, exact=True, least_rank=1)
        m.keep(m.add(op, [x], axis=m.rng.randrange(len(x.shape))))

    return move


def _argsort(m: Maker) -> None:
    x = m.any(NUMBERS, exact=True, least_rank=1)
    axis = m.rng.randrange(len(x.shape))
    at = m.add("argsort", [x], axis=axis, descending=m.chance(0.5))
    m.keep(at)
    if m.chance(0.5):
        _moved(m, "take_along", x, at, axis=axis)


def _scan(op: str) -> Move:
    def move(m: Maker) -> None:
        x = m.any(FLOATS if op == "cumlogsumexp" else NUMBERS, least_rank=1)
        axis = m.rng.randrange(len(x.shape))
        most = x.most
        if x.dtype.is_float:
            n = max(x.shape[axis], 1)
            if op == "cumprod":
                x, most = _factors(m, x, n), 1.0
            elif op == "cumsum":
                x = m.within(x, -1, 1)
                most = float(n)
            elif op == "cumlogsumexp":
                most = x.most + math.log(n)
        made = m.add(op, [x], -most, most, op in ("cummax", "cummin") and x.exact, axis=axis)
        m.keep(made)

    return move


# What is drawn for each axis.
_WINDOWS = {
    "window": (1, 1, 2, 3), "stride": (1, 1, 2, 3), "low": (0, 0, 1, 2), "high": (0, 0, 1, 2),
    "base_dilation": (1, 1, 1, 2), "window_dilation": (1, 1, 1, 2),
}  # fmt: skip


def _window(op: str) -> Move:
    def move(m: Maker) -> None:
        x = m.any(NUMBERS)
        rank = len(x.shape)
        if x.dtype.is_float:
            x = m.within(x, -2, 2) if op == "reduce_window_sum" else m.within(x, -1, 1)
        attrs = {name: [m.choice(of) for _ in range(rank)] for name, of in _WINDOWS.items()}
        count = math.prod(attrs["window"])
        most = x.most * count
        made = m.add(op, [x], -most, most, False, **attrs)
        if x.dtype.is_float and op in ("reduce_window_max", "reduce_window_min"):
            # Where a window lies in padding alone it is infinite.
            bound = [m.full(v, made.type) for v in (-2.0, 2.0)]
            made = m.add("clamp", [made, *bound], -2, 2, x.exact)
        m.keep(made)

    return move


def _dot(m: Maker) -> None:
    """A product of two operands with some batch and contracted axes, in any order."""
    dtype = m.dtype(NUMBERS)
    batch, contract = m.choice((0, 0, 0, 1, 2)), m.choice((0, 1, 1, 1, 2))
    both = [m.extent() for _ in range(batch + contract)]
    free = [[m.extent() for _ in range(m.choice((0, 1, 1, 2)))] for _ in range(2)]
    sides, roles = [], []
    for own in free:
        extents = [*both, *own]
        order = (
            m.rng.sample(range(len(extents)), len(extents))
            if m.chance(0.4)
            else [
                *range(batch),
                *range(batch + contract, len(extents)),
                *range(batch, batch + contract),
            ]
        )
        sides.append(tuple(extents[k] for k in order))
        roles.append(([order.index(k) for k in range(batch)],
                      [order.index(batch + k) for k in range(contract)]))  # fmt: skip
    sizes = [math.prod(s) for s in sides]
    out = math.prod(both[:batch]) * math.prod(free[0]) * math.prod(free[1])
    if max(*sizes, out) > 4 * 1536:
        return
    x, y = (m.of_type(TensorType(s, dtype)) for s in sides)
    count = math.prod(both[batch:])
    if dtype.is_float:
        x, y = m.within(x, -2, 2), m.within(y, -2, 2)
    made = m.add("dot_general", [x, y], -4.0 * count, 4.0 * count,
                 lhs_batch=roles[0][0], rhs_batch=roles[1][0],
                 lhs_contract=roles[0][1], rhs_contract=roles[1][1])  # fmt: skip
    m.keep(_mean(m, made, 4, count) if dtype.is_float else made)


def _conv(m: Maker) -> None:
    dtype, spatial = m.dtype(NUMBERS), m.choice((0, 1, 1, 2, 2, 3))
    groups = m.choice((1, 1, 1, 2, 3))
    batch_groups = m.choice((1, 1, 1, 1, 2)) if groups == 1 else 1
    features = m.choice((1, 2, 3, 4, 8))
    lhs = [m.choice((1, 1, 2, 4)) * batch_groups, features * groups,
           *(m.choice((1, 2, 4, 5, 7, 9)) for _ in range(spatial))]  # fmt: skip
    rhs = [m.choice((1, 2, 4)) * groups * batch_groups, features,
           *(m.choice((1, 1, 2, 3)) for _ in range(spatial))]  # fmt: skip
    if m.chance(0.05):
        lhs[m.rng.randrange(len(lhs))] = 0
    rank = spatial + 2

    def order() -> list[int]:
        usual = list(range(rank)), [0, rank - 1, *range(1, rank - 1)]
        return m.choice(usual) if m.chance(0.8) else m.rng.sample(range(rank), rank)

    axes = [order() for _ in range(3)]
    shapes = [tuple(ext[a.index(k)] for k in range(rank))
              for ext, a in zip((lhs, rhs), axes, strict=False)]  # fmt: skip
    if max(map(math.prod, shapes)) > 4096:
        return
    x, y = (m.of_type(TensorType(s, dtype)) for s in shapes)
    count = features * math.prod(rhs[2:])
    if dtype.is_float:
        x, y = m.within(x, -2, 2), m.within(y, -2, 2)
    made = m.add(
        "conv", [x, y], -4.0 * count, 4.0 * count, lhs_axes=axes[0], rhs_axes=axes[1],
        out_axes=axes[2], stride=[m.choice((1, 1, 2)) for _ in range(spatial)],
        low=[m.choice((0, 1, 1, -1, 2)) for _ in range(spatial)],
        high=[m.choice((0, 1, 1, 2)) for _ in range(spatial)],
        lhs_dilation=[m.choice((1, 1, 1, 2)) for _ in range(spatial)],
        rhs_dilation=[m.choice((1, 1, 1, 2)) for _ in range(spatial)],
        groups=groups, batch_groups=batch_groups,
    )  # fmt: skip
    m.keep(_mean(m, made, 4, count) if dtype.is_float else made)


def _transform(op: str) -> Move:
    def move(m: Maker) -> None:
        dtype = m.dtype((DType.F32, DType.F64))
        shape = list(m.shape(m.choice((1, 1, 2, 3)), 512))
        axis = m.rng.randrange(len(shape))
        n = shape[axis] = m.choice((1, 2, 3, 5, 8, 16, 31, 40))
        attrs: dict[str, Any] = {"axis": axis}
        if op == "irfft":
            attrs["n"], shape[axis] = n, n // 2 + 1
        if op != "rfft":
            shape.append(2)
        x = m.within(m.of_type(TensorType(tuple(shape), dtype)), -2, 2)
        made = _mean(m, m.add(op, [x], -4.0 * n, 4.0 * n, **attrs), 4, n)
        # Elements that are zero but for rounding say nothing by themselves.
        m.keep(m.add("add", [made, m.full(0.5, made.type)], -3.5, 4.5))

    return move


def moves() -> dict[str, Move]:
    """A way to draw each op of the table but inputs and loops."""
    found: dict[str, Move] = {
        "clamp": draw_clamp, "select": draw_select, "cast": draw_cast, "bitcast": draw_bitcast,
        "threefry2x32": draw_threefry, "random_bits": draw_bits, "iota": draw_iota,
        "constant": draw_constant,
        "broadcast": _broadcast, "reshape": _reshape, "transpose": _transpose,
        "reverse": _reverse, "slice": _slice, "pad": _pad, "concat": _concat, "gather": _gather,
        "take_along": _take_along, "dynamic_slice": _dynamic_slice,
        "dynamic_update_slice": _dynamic_update, "argsort": _argsort, "dot_general": _dot,
        "conv": _conv,
    }  # fmt: skip
    for spec in all_specs():
        if spec.name not in found:
            made = _of_family(spec.name, spec.family)
            if made is not None:
                found[spec.name] = made
    return found


def _of_family(op: str, family: Family) -> Move | None:
    if family is Family.ELEMENTWISE:
        return elementwise(op)
    if op in ("argmax", "argmin"):
        return _position(op)
    if op in ("fft", "ifft", "rfft", "irfft"):
        return _transform(op)
    of: dict[Family, Callable[[str], Move]] = {
        Family.REDUCTION: _reduce, Family.SCAN: _scan, Family.WINDOW: _window,
        Family.SCATTER: _scatter, Family.SOLVER: solver,
    }  # fmt: skip
    return of[family](op) if family in of else None


# Of these programs have more than of others.
FREQUENT: Sequence[str] = (
    "add", "sub", "mul", "max", "min", "select", "broadcast", "broadcast", "reshape", "transpose",
    "slice", "pad", "concat", "concat", "gather", "reduce_sum", "reduce_max", "dot_general", "conv",
    "dynamic_slice", "dynamic_update_slice", "scatter_add", "scatter", "cast", "lt", "iota", "div",
)  # fmt: skip
