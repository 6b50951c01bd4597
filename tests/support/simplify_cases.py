"""Programs before and after a simplification: what each rule is for, rule by rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

Operand = Value | float | int | bool
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.1, -2.5, 3.0, 1e-30, 1e30]


class Writer:
    """Ops by name; numbers are spread to the shape of the first value beside them. Where a dtype is
    said, `meant` is written in its place, with the ends of the dtype for infinities."""

    def __init__(self, said: DType | None = None, meant: DType | None = None) -> None:
        self.builder = GraphBuilder()
        self._said, self._meant = said, meant

    def dtype(self, dtype: str | DType) -> DType:
        found = DType(dtype)
        return self._meant if found is self._said and self._meant is not None else found

    def _number(self, number: float | int | bool, dtype: DType) -> float | int | bool:
        if self._meant is None or dtype is not self._meant or isinstance(number, bool):
            return number
        if dtype.is_int and isinstance(number, float):
            low, high = dtype.limits
            ends = {np.inf: high, -np.inf: low}
            return ends.get(number, number)
        if dtype.is_int and dtype.is_signed is False and number == -1:
            return dtype.limits[1]
        return number

    def __getattr__(self, op: str) -> Callable[..., Value]:
        def add(*operands: Operand, **attrs: Any) -> Value:
            like = next((v for v in operands if isinstance(v, Value)), None)
            values = [
                v if isinstance(v, Value) else self.full(v, self.kind(like)) for v in operands
            ]
            if "dtype" in attrs:
                attrs["dtype"] = str(self.dtype(attrs["dtype"]))
            return self.builder.add(op.strip("_"), *values, **attrs)

        return add

    def kind(self, value: Value | None) -> TensorType:
        assert value is not None
        return self.builder.type_of(value)

    def full(self, number: float | int | bool, kind: TensorType) -> Value:
        return self.builder.constant(self._number(number, kind.dtype), kind.dtype, kind.shape)

    def number(self, number: float | int | bool, dtype: str = "f32") -> Value:
        kind = self.dtype(dtype)
        return self.builder.constant(self._number(number, kind), kind)

    def fill(self, number: float | int | bool, *shape: int, dtype: str = "f32") -> Value:
        return self.full(number, TensorType(shape, self.dtype(dtype)))

    def array(self, values: Any, dtype: str = "f32") -> Value:
        return self.builder.constant(np.asarray(values), self.dtype(dtype))

    def at(self, *shape: int, axis: int = 0, dtype: str = "i32") -> Value:
        return self.builder.add("iota", shape=shape, dtype=str(self.dtype(dtype)), axis=axis)

    def cut(self, value: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        shape = self.kind(value).shape
        return self.builder.add(
            "slice",
            value,
            start=[start if a == axis else 0 for a in range(len(shape))],
            stop=[stop if a == axis else n for a, n in enumerate(shape)],
            stride=[step if a == axis else 1 for a in range(len(shape))],
        )

    def many(self, op: str, *values: Value, **attrs: Any) -> tuple[Value, ...]:
        return self.builder.add_multi(op, *values, **attrs)


Write = Callable[..., Value | tuple[Value, ...]]


@dataclass(frozen=True)
class Case:
    """`before` becomes `after`, by `rule` among others; both take a Writer and the inputs, of types
    such as "f32[3,4]". Equal to the last bit, unless `close`."""

    rule: str
    inputs: str
    before: Write
    after: Write
    close: bool = False
    low: float = -2.0


def special_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    """Numbers that rules must not trip over, and others."""
    rng, made = np.random.default_rng(seed), []
    for kind in graph.input_types:
        if kind.dtype.is_float:
            numbers = rng.choice(np.array(SPECIAL), kind.shape)
        elif kind.dtype is DType.BOOL:
            numbers = rng.integers(0, 2, kind.shape)
        else:
            info = np.iinfo(kind.dtype.numpy)
            numbers = rng.choice(np.array([0, 1, 3, 8, info.max, info.min]), kind.shape)
        made.append(np.asarray(numbers).astype(kind.dtype.numpy))
    return made


def check_on_special_numbers(before: Graph, after: Graph, close: bool) -> None:
    """Two graphs compute the same of any number, NaN and infinities included."""
    for seed in range(8):
        inputs = special_inputs(before, seed)
        for wanted, found in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
            if close:
                np.testing.assert_allclose(found, wanted, rtol=1e-12)
            else:
                np.testing.assert_array_equal(found, wanted)
                if wanted.dtype.kind == "f":
                    known = ~np.isnan(wanted)
                    signs = np.signbit(found) == np.signbit(wanted)
                    assert signs[known].all()


def types_of(text: str) -> list[TensorType]:
    found = []
    for part in text.split():
        dtype, _, shape = part.rstrip("]").partition("[")
        found.append(TensorType(tuple(map(int, filter(None, shape.split(",")))), DType(dtype)))
    return found


def graph_of(
    inputs: str, write: Write, low: float = -2.0, said: DType | None = None,
    meant: DType | None = None,
) -> Graph:  # fmt: skip
    w = Writer(said, meant)
    values = [
        w.builder.input(f"x{k}", t.shape, w.dtype(t.dtype), **({"low": low, "high": 2.0} if
                        w.dtype(t.dtype).is_float else {}))
        for k, t in enumerate(types_of(inputs))
    ]  # fmt: skip
    made = write(w, *values)
    return w.builder.build([made] if isinstance(made, Value) else made)


F, I32, B = "f32[3,4]", "i32[3,4]", "bool[3,4]"
CASES = [
    Case("neutral-operand", F, lambda w, x: w.mul(1.0, x), lambda w, x: x),
    Case("neutral-operand", F, lambda w, x: w.add(x, -0.0), lambda w, x: x),
    Case("neutral-operand", F, lambda w, x: w.sub(x, 0.0), lambda w, x: x),
    Case("neutral-operand", F, lambda w, x: w.max(x, -np.inf), lambda w, x: x),
    Case("neutral-operand", I32, lambda w, x: w.add(x, 0), lambda w, x: x),
    Case("neutral-operand", B, lambda w, x: w.and_(True, x), lambda w, x: x),
    Case("neutral-operand", "u32[3]", lambda w, x: w.and_(x, 2**32 - 1), lambda w, x: x),
    Case("absorbing-operand", I32, lambda w, x: w.mul(x, 0),
         lambda w, x: w.fill(0, 3, 4, dtype="i32")),
    Case("absorbing-operand", B, lambda w, x: w.or_(x, True),
         lambda w, x: w.fill(True, 3, 4, dtype="bool")),
    Case("undone", F, lambda w, x: w.neg(w.neg(x)), lambda w, x: x),
    Case("undone", B, lambda w, x: w.not_(w.not_(x)), lambda w, x: x),
    Case("idempotent", F, lambda w, x: w.max(x, x), lambda w, x: x),
    Case("idempotent", F, lambda w, x: w.floor(w.floor(x)), lambda w, x: w.floor(x)),
    Case("cancelled", I32, lambda w, x: w.sub(x, x), lambda w, x: w.fill(0, 3, 4, dtype="i32")),
    Case("constant-right", F, lambda w, x: w.mul(2.0, x), lambda w, x: w.mul(x, 2.0)),
    Case("commuted", f"{F} {F}", lambda w, x, y: (w.add(x, y), w.add(y, x)),
         lambda w, x, y: (w.add(x, y),) * 2),
    Case("reassociated", I32, lambda w, x: w.add(w.add(x, 3), 4), lambda w, x: w.add(x, 7)),
    Case("reassociated", F, lambda w, x: w.max(w.max(x, -1.0), 0.5), lambda w, x: w.max(x, 0.5)),
    Case("zero-added", F, lambda w, x: w.add(w.exp(x), 0.0), lambda w, x: w.exp(x)),
    Case("negation-absorbed", f"{F} {F}", lambda w, x, y: w.add(x, w.neg(y)),
         lambda w, x, y: w.sub(x, y)),
    Case("negation-absorbed", f"{F} {F}", lambda w, x, y: w.sub(x, w.neg(y)),
         lambda w, x, y: w.add(x, y)),
    Case("negation-absorbed", f"{F} {F}", lambda w, x, y: w.mul(w.neg(x), w.neg(y)),
         lambda w, x, y: w.mul(x, y)),
    Case("negation-absorbed", F, lambda w, x: w.mul(x, -1.0), lambda w, x: w.neg(x)),
    Case("negation-absorbed", F, lambda w, x: w.sub(-0.0, x), lambda w, x: w.neg(x)),
    Case("power-of-two-divisor", F, lambda w, x: w.div(x, 8.0), lambda w, x: w.mul(x, 0.125)),
    Case("sign-dropped", F, lambda w, x: w.abs(w.neg(x)), lambda w, x: w.abs(x)),
    Case("sign-dropped", F, lambda w, x: w.abs(w.exp(x)), lambda w, x: w.exp(x)),
    Case("compared-with-itself", F, lambda w, x: w.ne(x, x), lambda w, x: w.isnan(x)),
    Case("compared-with-itself", F, lambda w, x: w.le(x, x), lambda w, x: w.not_(w.isnan(x))),
    Case("compared-with-itself", I32, lambda w, x: w.ge(x, x),
         lambda w, x: w.fill(True, 3, 4, dtype="bool")),
    Case("opposite-comparison", f"{I32} {I32}", lambda w, x, y: w.not_(w.lt(x, y)),
         lambda w, x, y: w.ge(x, y)),
    Case("opposite-comparison", f"{F} {F}", lambda w, x, y: w.not_(w.eq(x, y)),
         lambda w, x, y: w.ne(x, y)),
    Case("decided-comparison", I32, lambda w, x: w.lt(w.clamp(x, 0, 9), 10),
         lambda w, x: w.fill(True, 3, 4, dtype="bool")),
    Case("idle-limit", I32, lambda w, x: w.max(w.clamp(x, 0, 9), -3),
         lambda w, x: w.clamp(x, 0, 9)),
    Case("idle-limit", I32, lambda w, x: w.rem(w.clamp(x, 0, 9), 10),
         lambda w, x: w.clamp(x, 0, 9)),
    Case("bool-regained", B, lambda w, x: w.ne(w.cast(x, dtype="i32"), 0), lambda w, x: x),
    Case("shifted-comparison", "i32[4]", lambda w, x: w.lt(w.sub(w.at(4), w.clamp(x, 0, 9)), 1),
         lambda w, x: w.le(w.at(4), w.clamp(x, 0, 9))),
    Case("both-limits", "i32[4]", lambda w, x: w.and_(w.ge(w.at(4), x), w.le(w.at(4), x)),
         lambda w, x: w.eq(x, w.at(4))),
    Case("cast-of-cast", F, lambda w, x: w.cast(w.cast(x, dtype="f64"), dtype="f32"),
         lambda w, x: x),
    Case("cast-of-cast", "bf16[5]", lambda w, x: w.cast(w.cast(x, dtype="f32"), dtype="i32"),
         lambda w, x: w.cast(x, dtype="i32")),
    Case("cast-of-cast", F, lambda w, x: w.cast(x, dtype="f32"), lambda w, x: x),
    Case("bitcast-of-bitcast", F, lambda w, x: w.bitcast(w.bitcast(x, dtype="i32"), dtype="f32"),
         lambda w, x: x),
    Case("known-exponent", F, lambda w, x: w.pow(x, 2.0), lambda w, x: w.mul(x, x)),
    Case("known-exponent", F, lambda w, x: w.pow(x, 0.0), lambda w, x: w.fill(1.0, 3, 4)),
    Case("known-exponent", F, lambda w, x: w.pow(x, -1.0), lambda w, x: w.reciprocal(x)),
    Case("known-exponent", F, lambda w, x: w.pow(w.exp(x), 0.5), lambda w, x: w.sqrt(w.exp(x)),
         close=True),
    Case("inverse-root", F, lambda w, x: w.div(w.fill(1.0, 3, 4), w.sqrt(x)),
         lambda w, x: w.rsqrt(x), close=True),
    Case("inverse-root", F, lambda w, x: w.reciprocal(w.rsqrt(x)), lambda w, x: w.sqrt(x),
         close=True),
    Case("root-divided-by", f"{F} {F}", lambda w, x, y: w.div(x, w.rsqrt(y)),
         lambda w, x, y: w.mul(x, w.sqrt(y)), close=True),
    Case("exp-of-log", F, lambda w, x: w.exp(w.log(w.abs(x))), lambda w, x: w.abs(x), close=True),
    # Constants.
    Case("constant-folding", "f32[4]", lambda w, x: w.mul(x, w.sub(w.fill(3.0, 4), 1.0)),
         lambda w, x: w.mul(x, 2.0)),
    Case("constant-folding", "f32[4]", lambda w, x: w.mul(x, w.array([2.0] * 4)),
         lambda w, x: w.mul(x, 2.0)),
    Case("constant-folding", "i32[6]", lambda w, x: w.add(x, w.array(range(6), "i32")),
         lambda w, x: w.add(x, w.at(6))),
    Case("constant-folding", "i32[500]", lambda w, x: w.add(x, w.reverse(w.at(500), axes=(0,))),
         lambda w, x: w.add(x, w.add(w.mul(w.at(500), -1), 499))),
    Case("constant-folding", "bool[500]", lambda w, x: w.and_(x, w.lt(w.add(w.at(500), 3), 10)),
         lambda w, x: w.and_(x, w.lt(w.at(500), 7))),
    Case("constant-folding", "bool[7]",
         lambda w, x: w.and_(x, w.gather(w.array([0, 1, 1, 0], "bool"), w.at(7), axis=0)),
         lambda w, x: w.and_(x, w.and_(w.ge(w.at(7), 1), w.lt(w.at(7), 3)))),
    Case("constant-folding", "bool[6,9]",
         lambda w, x: w.and_(x, w.and_(w.lt(w.at(6, 9), 3), w.ge(w.at(6, 9, axis=1), 0))),
         lambda w, x: w.and_(x, w.lt(w.at(6, 9), 3))),
]  # fmt: skip
