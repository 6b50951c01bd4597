"""GraphWriter: what every front end writes graphs with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.graph.builder import GraphBuilder, Number
from autofuse.graph.known import Known, Span
from autofuse.graph.surgery.prune import prune
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.ops.types import Attrs, GraphError, TensorType, make_attrs

Shape = tuple[int, ...]
Axes = int | Sequence[int] | None
# A number takes the dtype of the values that it meets.
Operand = Value | Number


def normal_axes(axes: Axes, rank: int) -> tuple[int, ...]:
    """Axes ascending in 0..rank-1 (None: all); raises GraphError when one is out of range."""
    wanted = range(rank) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    for axis in wanted:
        if not -rank <= axis < rank:
            raise GraphError(f"axis {axis} is out of range for an array of rank {rank}")
    found = sorted(axis % rank for axis in wanted)
    if len(set(found)) != len(found):
        raise GraphError(f"axes {list(wanted)} repeat")
    return tuple(found)


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """NumPy's common shape; raises GraphError when there is none."""
    try:
        return tuple(np.broadcast_shapes(*map(tuple, shapes)))
    except ValueError:
        text = " and ".join(str(list(s)) for s in shapes)
        raise GraphError(f"shapes {text} do not broadcast") from None


class GraphWriter:
    """Writes one graph.

    Equal ops are one node, ops of small constants are computed at once, elementwise ops broadcast
    by NumPy's rule, and moves that change nothing are not written. Axes may be negative only where
    it is said. Every method raises GraphError for operands that do not fit.
    """

    def __init__(self) -> None:
        self._builder = GraphBuilder()
        self._known = Known(self._builder.type_of)
        self._reshaped: dict[Value, Value] = {}
        # The one element of values that hold nothing else.
        self._filled: dict[Value, Value] = {}
        self._made: dict[tuple[str, tuple[Value, ...], Attrs], tuple[Value, ...]] = {}

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType,
        *,
        low: float | None = None,
        high: float | None = None,
        constant: bool = False,
    ) -> Value:
        """The next graph input; `low` and `high` bound the random values drawn for it in tests
        and tuning, and mean nothing else. A `constant` one (a weight) is bound once, when a
        compiled function is made."""
        return self._builder.input(name, shape, dtype, low=low, high=high, constant=constant)

    def build(self, outputs: Sequence[Value], names: Sequence[str] = ()) -> Graph:
        """The finished graph, without nodes that no output needs."""
        return prune(self._builder.build(outputs, names))

    def type_of(self, value: Value) -> TensorType:
        return self._builder.type_of(value)

    def shape(self, value: Value) -> Shape:
        return self._builder.type_of(value).shape

    def dtype(self, value: Value) -> DType:
        return self._builder.type_of(value).dtype

    # What is known already

    def known(self, value: Value) -> np.ndarray | None:
        """The elements of a small constant; None for anything else."""
        return self._known.array(value)

    def known_int(self, value: Value) -> int | None:
        """A constant of one integer, as such; None for anything else."""
        return self._known.integer(value)

    def span(self, value: Value) -> Span | None:
        """Bounds (both included) of a () integer, where they are known."""
        return self._known.span(value)

    def bound(self, value: Value, low: int, high: int) -> None:
        """Promise that `value`, a () integer, lies in low..high."""
        self._known.bound(value, low, high)

    # Constants

    def constant(self, array: Any, dtype: DType | None = None) -> Value:
        """A literal of `array`'s own shape; an array of one repeated element is a broadcast.

        Array elements are converted to `dtype`; a Python number must fit into it.
        """
        if isinstance(array, bool | int | float) and dtype is not None:
            value = self._builder.constant(array, dtype)
            self._known.note(value, np.asarray(array).astype(dtype.numpy))
            return value
        data = np.asarray(array)
        kind = dtype or from_numpy(data.dtype)
        data = data.astype(kind.numpy)
        raw = data.tobytes()
        if data.size > 1 and raw == raw[: kind.itemsize] * data.size:
            return self.spread(self.constant(data.reshape(-1)[0], kind), data.shape)
        value = self._builder.constant(data, kind)
        self._known.note(value, data)
        return value

    def full(self, number: Any, shape: Sequence[int], dtype: DType) -> Value:
        """`number` everywhere."""
        return self.spread(self.constant(number, dtype), tuple(shape))

    def scalar(self, number: Any, like: Value) -> Value:
        """`number` as a () constant of `like`'s dtype."""
        return self.constant(number, self.dtype(like))

    # Ops

    def op(self, name: str, *values: Value, **attrs: Any) -> Value:
        """An op of one output, operands and attributes as the op table has them."""
        found = self.op_many(name, *values, **attrs)
        if len(found) != 1:
            raise GraphError(f"op '{name}' has {len(found)} outputs, not one")
        return found[0]

    def op_many(self, name: str, *values: Value, **attrs: Any) -> tuple[Value, ...]:
        """An op, all its outputs."""
        frozen = make_attrs(attrs)
        key = (name, values, frozen)
        if key not in self._made:
            self._made[key] = self._decided(name, values, frozen) or self._builder.add_multi(
                name, *values, **attrs
            )
            self._known.derive(name, values, self._made[key][0])
        return self._made[key]

    def _decided(
        self, name: str, values: tuple[Value, ...], attrs: Attrs
    ) -> tuple[Value, ...] | None:
        """The results of an op that can be computed now, as constants."""
        folded = self._known.fold(name, values, attrs)
        if folded is not None:
            return tuple(self.constant(array, dtype) for array, dtype in folded)
        verdict = self._known.compare(name, values)
        return None if verdict is None else (self.constant(verdict, DType.BOOL),)

    def map(self, name: str, *operands: Operand) -> Value:
        """An elementwise op of operands broadcast to one shape.

        Where they only have axes of extent 1 inserted (the kept axes of reductions), it is computed
        without those axes, so that graphs are not littered with reshapes.
        """
        values = self._values(operands)
        shape = broadcast_shapes(*map(self.shape, values))
        inner = tuple(n for n in shape if n != 1)
        if inner != shape:
            plain = [self._reshaped.get(v, v) for v in values]
            shapes = {self.shape(v) for v in plain}
            if inner in shapes and shapes <= {(), inner}:
                return self.reshape(self.op(name, *(self.spread(v, inner) for v in plain)), shape)
        return self.op(name, *self.aligned(*values))

    def aligned(self, *operands: Operand) -> tuple[Value, ...]:
        """Operands broadcast to one shape."""
        values = self._values(operands)
        shape = broadcast_shapes(*map(self.shape, values))
        return tuple(self.spread(v, shape) for v in values)

    def _values(self, operands: Sequence[Operand]) -> list[Value]:
        """Numbers as constants of the first value's dtype."""
        like = next((v for v in operands if isinstance(v, Value)), None)
        if like is None:
            raise GraphError("an op of numbers only has no dtype")
        return [v if isinstance(v, Value) else self.scalar(v, like) for v in operands]

    def add(self, x: Operand, y: Operand) -> Value:
        return self.map("add", x, y)

    def sub(self, x: Operand, y: Operand) -> Value:
        return self.map("sub", x, y)

    def mul(self, x: Operand, y: Operand) -> Value:
        return self.map("mul", x, y)

    def div(self, x: Operand, y: Operand) -> Value:
        return self.map("div", x, y)

    def select(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """Where `condition` holds `yes`, else `no`; a known condition chooses now."""
        yes, no = self._values((yes, no))
        if yes == no and broadcast_shapes(*map(self.shape, (condition, yes))) == self.shape(yes):
            return yes
        known = self.known(condition)
        if known is not None and known.size == 1 and self.shape(yes) == self.shape(no):
            return yes if bool(known.reshape(())) else no
        return self.map("select", condition, yes, no)

    def reduce(self, name: str, value: Value, axes: Axes = None, keepdims: bool = False) -> Value:
        """A reduction (such as "reduce_sum") over `axes`, which may be negative (None: all);
        `keepdims` leaves axes of extent 1."""
        shape = self.shape(value)
        gone = normal_axes(axes, len(shape))
        result = self.op(name, value, axes=gone) if gone else value
        kept = [1 if a in gone else n for a, n in enumerate(shape)]
        return self.reshape(result, kept) if keepdims else result

    def cast(self, value: Value, dtype: DType) -> Value:
        """`value` converted; floats to integers truncate."""
        same = self.dtype(value) is dtype
        return value if same else self.op("cast", value, dtype=str(dtype))

    def bitcast(self, value: Value, dtype: DType) -> Value:
        """The same bits read as another dtype of the same size."""
        same = self.dtype(value) is dtype
        return value if same else self.op("bitcast", value, dtype=str(dtype))

    # Moving elements

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """`value` with another shape, one extent of which may be -1; a reshape of a reshape reads
        the original."""
        wanted = [int(n) for n in shape]
        if wanted.count(-1) == 1:
            rest = math.prod(n for n in wanted if n != -1)
            wanted[wanted.index(-1)] = self.type_of(value).size // rest if rest else 0
        source = self._reshaped.get(value, value)
        if self.shape(source) == tuple(wanted):
            return source
        if value in self._filled and math.prod(wanted) == self.type_of(value).size:
            return self.broadcast(self._filled[value], wanted, ())
        made = self.op("reshape", source, shape=tuple(wanted))
        self._reshaped[made] = source
        return made

    def broadcast(self, value: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """Axis i of `value` becomes axis dims[i]; axes of extent 1 stretch."""
        shape, dims = tuple(int(n) for n in shape), tuple(int(d) for d in dims)
        own = self.shape(value)
        if own == shape and dims == tuple(range(len(shape))):
            return value
        kept = [i for i, d in enumerate(dims) if own[i] == shape[d]]
        value = self.reshape(value, [own[i] for i in kept])
        dims = tuple(dims[i] for i in kept)
        if value in self._filled:
            value, dims = self._filled[value], ()
        if [n for n in self.shape(value) if n != 1] == [n for n in shape if n != 1]:
            return self.reshape(value, shape)
        made = self.op("broadcast", value, shape=shape, dims=dims)
        if not dims:
            self._filled[made] = value
        return made

    def spread(self, value: Value, shape: Sequence[int]) -> Value:
        """`value` broadcast to `shape` by NumPy's rule."""
        own, target = self.shape(value), tuple(int(n) for n in shape)
        lead = len(target) - len(own)
        if lead < 0 or any(n not in (1, m) for n, m in zip(own, target[lead:], strict=True)):
            raise GraphError(f"shape {list(own)} does not broadcast to {list(target)}")
        return self.broadcast(value, target, range(lead, len(target)))

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """Axis i of the result is axis perm[i] of `value`."""
        perm = tuple(int(p) for p in perm)
        same = perm == tuple(range(len(perm)))
        return value if same else self.op("transpose", value, perm=perm)

    def reverse(self, value: Value, axes: Axes) -> Value:
        """The order along `axes`, which may be negative (None: all), turned round."""
        turned = normal_axes(axes, len(self.shape(value)))
        return self.op("reverse", value, axes=turned) if turned else value

    def slice(
        self,
        value: Value,
        start: Sequence[int],
        stop: Sequence[int],
        stride: Sequence[int] | None = None,
    ) -> Value:
        """Elements start, start + stride, ... below stop, one of each per axis."""
        steps = tuple(map(int, stride)) if stride is not None else (1,) * len(start)
        start, stop = tuple(map(int, start)), tuple(map(int, stop))
        whole = not any(start) and stop == self.shape(value) and set(steps) <= {1}
        return value if whole else self.op("slice", value, start=start, stop=stop, stride=steps)

    def part(self, value: Value, axis: int, start: int, stop: int) -> Value:
        """`value` from `start` to `stop` along one axis."""
        shape = self.shape(value)
        low = [start if a == axis else 0 for a in range(len(shape))]
        high = [stop if a == axis else n for a, n in enumerate(shape)]
        return self.slice(value, low, high)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """The non-empty ones of `values`, end to end."""
        found = [v for v in values if self.shape(v)[axis]] or list(values[:1])
        return found[0] if len(found) == 1 else self.op("concat", *found, axis=int(axis))

    def iota(self, shape: Sequence[int], dtype: DType, axis: int) -> Value:
        """The position along `axis` at every element."""
        return self.op("iota", shape=tuple(shape), dtype=str(dtype), axis=int(axis))
