"""Rules for aten overloads that read and write at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.names import elementwise
from autofuse.frontends.torch.moves import axis_of
from autofuse.frontends.torch.types import TorchCall, TorchRule, number_as
from autofuse.graph.composites import math as composites_math
from autofuse.graph.composites import order as composites_order
from autofuse.graph.composites.scatter import scatter_along, scattered
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape, broadcast_shapes
from autofuse.ops.dtypes import DType
from autofuse.ops.reduction import highest, lowest

I32 = DType.I32
_LARGEST = 2**31


def _from_front(w: GraphWriter, at: Value, extent: int) -> Value:
    """Places of which negative ones count from the end, as i32."""
    if extent >= _LARGEST:
        raise FrontendError(f"places along {extent} elements are not supported")
    at = w.cast(at, I32)
    return w.select(w.map("lt", at, 0), w.add(at, extent), at)


def _take(w: GraphWriter, x: Value, at: Value, axis: int) -> Value:
    """The slices of `x` at `at`, whose axes take the place of `axis`."""
    shape, places = w.shape(x), w.shape(at)
    made = (*shape[:axis], *places, *shape[axis + 1 :])
    if 0 in made:
        return w.full(0, made, w.dtype(x))
    return w.op("gather", x, at, axis=axis)


def _embedding(c: TorchCall) -> Value:
    return _take(c.w, c.value("weight"), c.w.cast(c.value("indices"), I32), 0)


def _index_select(c: TorchCall) -> Value:
    w, x, at = c.w, c.value("self"), c.w.cast(c.value("index"), I32)
    if not w.shape(x):
        return x
    axis = axis_of(c["dim"], len(w.shape(x)))
    return w.reshape(_take(w, x, w.reshape(at, (-1,)), axis), c.out.shape)


def _gather(c: TorchCall) -> Value:
    """Along the other axes the places may be fewer than the elements."""
    w, x, at = c.w, c.value("self"), c.w.cast(c.value("index"), I32)
    if 0 in c.out.shape:
        return w.full(0, c.out.shape, c.out.dtype)
    if not w.shape(x) or not w.shape(at):
        flat = composites_order.take_along(w, w.reshape(x, (-1,)), w.reshape(at, (-1,)), 0)
        return w.reshape(flat, c.out.shape)
    axis = axis_of(c["dim"], len(w.shape(x)))
    for a, n in enumerate(w.shape(at)):
        x = x if a == axis else w.part(x, a, 0, n)
    return composites_order.take_along(w, x, at, axis)


# Several indices at once


@dataclass(frozen=True, slots=True)
class _Places:
    """Indices of one shape `lead`, i32 and in range, along `axes` of an array."""

    axes: tuple[int, ...]
    at: tuple[Value, ...]
    lead: Shape

    @property
    def first(self) -> int:
        """Where the axes of the indices go in what is read: to the axes that they index where
        these are neighbours, else to the front."""
        neighbours = self.axes == tuple(range(self.axes[0], self.axes[0] + len(self.axes)))
        return self.axes[0] if neighbours else 0


def _places(w: GraphWriter, shape: Shape, indices: Sequence[Value | None]) -> _Places:
    given = [(axis, at) for axis, at in enumerate(indices) if at is not None]
    if any(w.dtype(at) in (DType.BOOL, DType.U8) for _, at in given):
        raise FrontendError("how many elements a mask picks is not known before it is run")
    if not given:
        raise FrontendError("there is no index")
    lead = broadcast_shapes(*(w.shape(at) for _, at in given))
    found = (w.spread(_from_front(w, at, shape[axis]), lead) for axis, at in given)
    return _Places(tuple(axis for axis, _ in given), tuple(found), lead)


def _index(c: TorchCall) -> Value:
    """Elements where all indices agree: one index of the indexed axes laid out as one."""
    w, x = c.w, c.value("self")
    shape = w.shape(x)
    places = _places(w, shape, c["indices"])
    if 0 in c.out.shape:
        return w.full(0, c.out.shape, c.out.dtype)
    if len(places.axes) == 1:
        return _take(w, x, places.at[0], places.axes[0])
    count = math.prod(shape[a] for a in places.axes)
    if count >= _LARGEST:
        raise FrontendError(f"places among {count} elements are not supported")
    rest = [a for a in range(len(shape)) if a not in places.axes]
    first = places.first
    moved = w.transpose(x, (*rest[:first], *places.axes, *rest[first:]))
    wide = w.shape(moved)
    merged = w.reshape(moved, (*wide[:first], count, *wide[first + len(places.axes) :]))
    at = places.at[0]
    for axis, more in zip(places.axes[1:], places.at[1:], strict=True):
        at = w.add(w.mul(at, shape[axis]), more)
    return _take(w, merged, at, first)


def _index_put(c: TorchCall) -> Value:
    w, x = c.w, c.value("self")
    indices, values = list(c["indices"]), c.value("values", c.out.dtype)
    masks = [at for at in indices if at is not None and w.dtype(at) is DType.BOOL]
    if masks:
        return _masked_put(c, x, indices, values)
    places = _places(w, w.shape(x), indices)
    return _written(w, x, places, values, "scatter_add" if c["accumulate"] else "scatter")


def _ones(shape: Shape) -> Shape:
    return (1,) * len(shape)


def _masked_put(c: TorchCall, x: Value, indices: Sequence[Value | None], values: Value) -> Value:
    """Where one mask says so, along its axes; as many values as it picks, or one for all."""
    w, shape = c.w, c.w.shape(x)
    ((axis, mask), *others) = [(k, at) for k, at in enumerate(indices) if at is not None]
    if others:
        raise FrontendError("how many elements a mask picks is not known before it is run")
    picked = w.shape(mask)
    before, after = shape[:axis], shape[axis + len(picked) :]
    rank = len(before) + 1 + len(after)
    given = w.shape(values)
    wide = (*(1 for _ in range(rank - len(given))), *given[max(0, len(given) - rank) :])
    values, count = w.reshape(values, wide), wide[axis]
    if 0 in (count, *shape):
        return x
    values = w.spread(values, (*before, count, *after))
    if count == 1:
        values = w.reshape(values, (*before, *_ones(picked), *after))
    else:
        values = w.reshape(_in_turn(w, values, mask, axis), shape)
    around = w.reshape(mask, (*_ones(before), *picked, *_ones(after)))
    values = w.spread(values, shape)
    written = elementwise("add")(w, x, values) if c["accumulate"] else values
    return w.select(w.spread(around, shape), written, x)


def _in_turn(w: GraphWriter, source: Value, mask: Value, axis: int) -> Value:
    """The slices of `source` along `axis`, the next one for each element of `mask` that holds."""
    flat = w.reshape(w.cast(mask, I32), (-1,))
    return w.op("gather", source, w.sub(w.op("cumsum", flat, axis=0), 1), axis=axis)


def _written(w: GraphWriter, x: Value, places: _Places, values: Value, op: str) -> Value:
    """`values`, laid out as what is read at these places, written there one after another."""
    shape, first, lead = w.shape(x), places.first, places.lead
    rest = [a for a in range(len(shape)) if a not in places.axes]
    read = [shape[a] for a in rest]
    read[first:first] = lead
    if 0 in read:
        return x
    values = w.spread(values, read)
    own = range(first, first + len(lead))
    moved = w.transpose(values, [*own, *(a for a in range(len(read)) if a not in own)])
    count = math.prod(lead)
    window = [1 if a in places.axes else n for a, n in enumerate(shape)]
    updates = w.reshape(moved, (count, *window))
    columns = [w.reshape(at, (count, 1)) for at in places.at]
    at = w.concat(columns, 1)
    return scattered(w, op, x, at, updates, places.axes, 0)


# Along one axis


def _scatter(op: str, source: str) -> TorchRule:
    def rule(c: TorchCall) -> Value:
        w, x, at = c.w, c.value("self"), c.w.cast(c.value("index"), I32)
        shape = w.shape(x) or (1,)
        x, at = w.reshape(x, shape), at if w.shape(at) else w.reshape(at, (1,))
        places = w.shape(at)
        if 0 in (*places, *shape):
            return c.value("self")
        source_value = c.value(source, c.out.dtype)
        rank = len(w.shape(source_value))
        if rank == len(places):
            source_value = w.slice(source_value, [0] * rank, places)
        updates = w.spread(source_value, places)
        found = scatter_along(w, op, x, at, updates, axis_of(c["dim"], len(shape)))
        return w.reshape(found, c.out.shape)

    return rule


_REDUCTIONS = {
    "sum": "scatter_add", "mean": "scatter_add", "prod": "scatter_mul", "amax": "scatter_max",
    "amin": "scatter_min",
}  # fmt: skip


def _neutral(op: str, dtype: DType) -> bool | int | float:
    """What changes nothing when it is combined."""
    if op in ("scatter_max", "scatter_min") and dtype is not DType.BOOL:
        return (lowest if op == "scatter_max" else highest)(dtype).value
    return number_as(op in ("scatter_mul", "scatter_min"), dtype)


def _scatter_reduce(c: TorchCall) -> Value:
    """Without `include_self` the places that are written start anew; a mean divides by how many
    elements came together."""
    op, dtype = _REDUCTIONS[c["reduce"]], c.out.dtype
    if not c["include_self"]:
        emptied = replace(c, given={**c.given, "value": _neutral(op, dtype)})
        c = replace(c, given={**c.given, "self": _scatter("scatter", "value")(emptied)})
    total = _scatter(op, "src")(c)
    assert isinstance(total, Value)
    return _shared(c, total) if c["reduce"] == "mean" else total


def _shared(c: TorchCall, total: Value) -> Value:
    w, own = c.w, 1 if c["include_self"] else 0
    start = w.full(own, c.out.shape, w.dtype(total))
    counted = {**c.given, "self": start, "src": w.full(1, c.shape("src"), w.dtype(total))}
    count = _scatter("scatter_add", "src")(replace(c, given=counted))
    assert isinstance(count, Value)
    count = w.map("max", count, 1)
    if w.dtype(total).is_float:
        return w.div(total, count)
    return composites_math.floor_divide(w, total, count)


def _masked_scatter(c: TorchCall) -> Value:
    """The elements of `source` one after another where the mask holds."""
    w, shape = c.w, c.out.shape
    mask = w.spread(c.value("mask"), shape)
    if 0 in (*shape, *c.shape("source")):
        return c.value("self")
    taken = _in_turn(w, w.reshape(c.value("source"), (-1,)), mask, 0)
    return w.select(mask, w.reshape(taken, shape), c.value("self"))


def _histogram(c: TorchCall) -> Value:
    """How many elements are in each of `bins` intervals of one length from `min` to `max`, which
    are those of the elements where they are equal; the last interval has its end too."""
    w, bins, dtype = c.w, int(c["bins"]), c.out.dtype
    # In the tensor's own dtype: torch rounds each step.
    x = w.reshape(c.value("self"), (-1,))
    empty = w.full(0, (bins,), dtype)
    if 0 in w.shape(x):
        return empty
    low, high = (w.scalar(number_as(c[name], w.dtype(x)), x) for name in ("min", "max"))
    if c["min"] == c["max"]:
        low, high = (w.reduce(op, x, None, True) for op in ("reduce_min", "reduce_max"))
        alone = w.map("eq", low, high)
        low, high = w.select(alone, w.sub(low, 1), low), w.select(alone, w.add(high, 1), high)
    place = w.div(w.mul(w.sub(x, low), bins), w.sub(high, low))
    inside = w.map("and", w.map("ge", x, low), w.map("le", x, high))
    # What is in no interval gets a place behind all of them, where nothing is written.
    at = w.select(inside, w.map("min", w.map("floor", place), bins - 1), bins)
    return scatter_along(
        w, "scatter_add", empty, w.cast(at, I32), w.full(1, w.shape(x), dtype), 0
    )  # fmt: skip


_BY_NAME = {"add": "scatter_add", "multiply": "scatter_mul"}


def _scatter_named(source: str) -> TorchRule:
    return lambda c: _scatter(_BY_NAME[c["reduce"]], source)(c)


TORCH_INDEXING: dict[str, TorchRule] = {
    "aten.embedding.default": _embedding,
    "aten.gather.default": _gather,
    "aten.histc.default": _histogram,
    "aten.index.Tensor": _index,
    "aten.index_put.default": _index_put,
    "aten.index_select.default": _index_select,
    "aten.masked_scatter.default": _masked_scatter,
    "aten.scatter.reduce": _scatter_named("src"),
    "aten.scatter.src": _scatter("scatter", "src"),
    "aten.scatter.value": _scatter("scatter", "value"),
    "aten.scatter.value_reduce": _scatter_named("value"),
    "aten.scatter_add.default": _scatter("scatter_add", "src"),
    "aten.scatter_reduce.two": _scatter_reduce,
}
