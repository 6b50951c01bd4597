"""What the rules for jax primitives write with: ops that broadcast, folding, keys as two words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Value
from autofuse.ops import spec_of
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.ops.types import Attrs, AutofuseError, GraphError, OpCall, TensorType, make_attrs

Shape = tuple[int, ...]
# Constants of at most this many elements are computed with while the graph is made.
_FOLD_SIZE = 64


class FrontendError(GraphError):
    """A program that cannot become a graph; `located` once the message names line and primitive."""

    def __init__(self, message: str, located: bool = False) -> None:
        super().__init__(message)
        self.located = located


@dataclass(frozen=True, slots=True)
class Key:
    """An array of typed jax keys: its two u32 words, each of the array's own shape."""

    k0: Value
    k1: Value


Item = Value | Key


class Emitter:
    """Adds ops to one graph. Equal ops are one node; ops of small constants become constants."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.known: dict[Value, np.ndarray] = {}
        # Bounds (both included) of () integers that are not constants, such as step numbers.
        self.spans: dict[Value, tuple[int, int]] = {}
        self._reshaped: dict[Value, Value] = {}
        self._made: dict[tuple[str, tuple[Value, ...], Attrs], tuple[Value, ...]] = {}

    def type_of(self, value: Value) -> TensorType:
        return self.builder.type_of(value)

    def shape(self, value: Value) -> Shape:
        return self.builder.type_of(value).shape

    def dtype(self, value: Value) -> DType:
        return self.builder.type_of(value).dtype

    def constant(self, array: Any, dtype: DType | None = None) -> Value:
        """A literal of `array`'s own shape; an array of one repeated element is a broadcast."""
        data = np.asarray(array)
        kind = dtype or from_numpy(data.dtype)
        data = data.astype(kind.numpy)
        raw = data.tobytes()
        if data.size > 1 and raw == raw[: kind.itemsize] * data.size:
            return self.full(data.reshape(-1)[0], data.shape, kind)
        value = self.builder.constant(data, kind)
        if data.size <= _FOLD_SIZE:
            self.known[value] = data
        return value

    def full(self, number: Any, shape: Shape, dtype: DType) -> Value:
        """`number` everywhere."""
        scalar = self.constant(np.asarray(number), dtype)
        return self.op("broadcast", scalar, shape=shape, dims=()) if shape else scalar

    def op(self, name: str, *values: Value, **attrs: Any) -> Value:
        """An op of one output."""
        (out,) = self.op_many(name, *values, **attrs)
        return out

    def op_many(self, name: str, *values: Value, **attrs: Any) -> tuple[Value, ...]:
        """An op, all its outputs."""
        frozen = make_attrs(attrs)
        key = (name, values, frozen)
        if key not in self._made:
            folded = self._fold(name, values, frozen) or self._compared(name, values)
            self._made[key] = folded or self.builder.add_multi(name, *values, **attrs)
            self._bound(name, values, self._made[key][0])
        return self._made[key]

    def _fold(self, name: str, values: tuple[Value, ...], attrs: Attrs) -> tuple[Value, ...] | None:
        if not values or name == "loop" or any(v not in self.known for v in values):
            return None
        call = OpCall(attrs, tuple(map(self.type_of, values)))
        spec = spec_of(name)
        outs = spec.infer(call)
        if any(t.size > _FOLD_SIZE for t in outs) or (name == "broadcast" and outs[0].size > 1):
            return None
        arrays = tuple(self.known[v].astype(self.dtype(v).reference) for v in values)
        results = spec.reference(arrays, OpCall(attrs, call.ins, outs))
        with np.errstate(all="ignore"):
            rounded = [
                np.asarray(r).astype(t.dtype.numpy) for r, t in zip(results, outs, strict=True)
            ]
        return tuple(self.constant(r, t.dtype) for r, t in zip(rounded, outs, strict=True))

    def span(self, value: Value) -> tuple[int, int] | None:
        """Bounds of a () integer where they are known."""
        known = self.known_int(value)
        return (known, known) if known is not None else self.spans.get(value)

    def _bound(self, name: str, values: tuple[Value, ...], out: Value) -> None:
        """Note the bounds of `out`, a sum, difference or conversion of bounded integers."""
        kind = self.type_of(out)
        found = [self.span(v) for v in values]
        if name not in ("add", "sub", "cast") or kind.shape or not kind.dtype.is_int:
            return
        (low, high), *rest = [f for f in found if f is not None] or [(0, 0)]
        if len(rest) != len(values) - 1 or found[0] is None:
            return
        if rest:
            first, last = rest[0] if name == "add" else (-rest[0][1], -rest[0][0])
            low, high = low + first, high + last
        info = np.iinfo(kind.dtype.numpy)
        if info.min <= low and high <= info.max:
            self.spans[out] = (low, high)

    def _compared(self, name: str, values: tuple[Value, ...]) -> tuple[Value, ...] | None:
        """A comparison that bounds decide, as a constant."""
        if name not in ("lt", "ge") or self.shape(values[0]):
            return None
        left, right = map(self.span, values)
        if left is None or right is None:
            return None
        if left[1] < right[0] or left[0] >= right[1]:
            return (self.constant(np.asarray((left[1] < right[0]) == (name == "lt"))),)
        return None

    # Shapes

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """`value` with another shape; a reshape of a reshape reads the original."""
        wanted = tuple(int(n) for n in shape)
        source = self._reshaped.get(value, value)
        if self.shape(source) == wanted:
            return source
        made = self.op("reshape", source, shape=wanted)
        self._reshaped[made] = source
        return made

    def broadcast(self, value: Value, shape: Shape, dims: Sequence[int]) -> Value:
        """Axis i of `value` becomes axis dims[i]; axes of extent 1 stretch."""
        dims = tuple(int(d) for d in dims)
        own = self.shape(value)
        if own == shape and dims == tuple(range(len(shape))):
            return value
        kept = [i for i, d in enumerate(dims) if own[i] == shape[d]]
        value = self.reshape(value, [own[i] for i in kept])
        dims = tuple(dims[i] for i in kept)
        if [n for n in self.shape(value) if n != 1] == [n for n in shape if n != 1]:
            return self.reshape(value, shape)
        return self.op("broadcast", value, shape=shape, dims=dims)

    def spread(self, value: Value, shape: Shape) -> Value:
        """`value` broadcast to `shape` by NumPy's rule."""
        rank = len(self.shape(value))
        return self.broadcast(value, shape, range(len(shape) - rank, len(shape)))

    def map(self, name: str, *values: Value) -> Value:
        """An elementwise op, its operands broadcast to one shape."""
        shape = np.broadcast_shapes(*map(self.shape, values))
        return self.op(name, *(self.spread(v, shape) for v in values))

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        perm = tuple(int(p) for p in perm)
        same = perm == tuple(range(len(perm)))
        return value if same else self.op("transpose", value, perm=perm)

    def slice(
        self,
        value: Value,
        start: Sequence[int],
        stop: Sequence[int],
        stride: Sequence[int] | None = None,
    ) -> Value:
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

    def iota(self, shape: Shape, dtype: DType, axis: int) -> Value:
        return self.op("iota", shape=shape, dtype=str(dtype), axis=int(axis))

    # Numbers

    def cast(self, value: Value, dtype: DType) -> Value:
        same = self.dtype(value) is dtype
        return value if same else self.op("cast", value, dtype=str(dtype))

    def bitcast(self, value: Value, dtype: DType) -> Value:
        same = self.dtype(value) is dtype
        return value if same else self.op("bitcast", value, dtype=str(dtype))

    def scalar(self, number: Any, like: Value) -> Value:
        """`number` as a () constant of `like`'s dtype."""
        return self.constant(np.asarray(number), self.dtype(like))

    def add(self, x: Value, y: Value) -> Value:
        return self.map("add", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return self.map("mul", x, y)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Where `condition` holds `yes`, else `no`; a known condition chooses now."""
        if yes == no:
            return yes
        known = self.known.get(condition)
        if known is not None and known.size == 1 and self.shape(yes) == self.shape(no):
            return yes if bool(known.reshape(())) else no
        return self.map("select", condition, yes, no)

    def clip(self, value: Value, low: int, high: int) -> Value:
        """An integer value brought into low..high."""
        return self.map("clamp", value, self.scalar(low, value), self.scalar(high, value))

    def known_int(self, value: Value) -> int | None:
        """A scalar that is an integer constant, as such."""
        data = self.known.get(value)
        if data is None or data.size != 1 or not self.dtype(value).is_int:
            return None
        return int(data.reshape(()))


def logical_shape(aval: Any) -> Shape:
    """The shape jax gives a value; raises FrontendError where it is not static."""
    if not all(isinstance(n, int | np.integer) for n in aval.shape):
        raise FrontendError(f"shape {aval.shape} is not static")
    return tuple(int(n) for n in aval.shape)


def jax_module() -> Any:
    """jax, which is imported when it is first needed; raises AutofuseError without it."""
    try:
        return import_module("jax")
    except ImportError as error:
        raise AutofuseError("the jax front end needs jax: pip install autofuse[jax]") from error


def is_key(aval: Any) -> bool:
    """Whether a jax value is an array of typed keys."""
    jax = jax_module()
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))
