"""Random bits from counters: the same stream on every backend, whatever computes it."""

from __future__ import annotations

import numpy as np

from autofuse.ops import checks, needs
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.philox import philox_array, philox_words, threefry_array, threefry_words, u32
from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Expr, call, cast
from autofuse.ops.spec import AxisMap, Family, OpSpec, Sample, register
from autofuse.ops.types import GraphError, OpCall, TensorType

U32 = DType.U32
KEY = TensorType((2,), U32)
STREAM = TensorType((), U32)
_MAX_WORDS = 2**31 - 1
# Integer operations of ten Philox rounds (2 mulhi, 2 mul, 4 xor, 2 add), shared by four words.
_PHILOX_FLOPS = 100 / 4
# Twenty Threefry rounds of (add, shl, shr, or, xor) and six key injections.
_THREEFRY_FLOPS = 20 * 5 + 6 * 2 + 2


def quarter(size: int) -> int:
    """Elements per quarter of the stream: how many Philox calls `size` words take."""
    return -(-size // 4)


def _bits_infer(c: OpCall) -> tuple[TensorType, ...]:
    checks.operands(c, 2)
    if c.ins != (KEY, STREAM):
        got = f"{c.ins[0]} and {c.ins[1]}"
        raise GraphError(f"random_bits needs operands {KEY} and {STREAM}, got {got}")
    if c.get("generator", "philox") != "philox":
        raise GraphError(f"unknown random generator {c['generator']!r} (known: philox)")
    out = TensorType(checks.shape_attr(c), U32)
    if out.size > _MAX_WORDS:
        raise GraphError(f"random_bits of {out} is too large: at most {_MAX_WORDS} words")
    return (out,)


def _bits_reference(arrays: tuple[np.ndarray, ...], c: OpCall) -> tuple[np.ndarray, ...]:
    key, stream = arrays
    lanes = np.arange(quarter(c.out.size), dtype=np.uint64)
    words = philox_array((lanes, int(stream), 0, 0), (int(key[0]), int(key[1])))
    return (np.concatenate(words)[: c.out.size].reshape(c.out.shape),)


def _bits_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    """All four words come from the same sub-expressions, so a kernel may share one call."""
    q = quarter(c.out.size)
    at = ix.linearize(index, c.out.shape)
    word, lane = ix.idiv(at, q), ix.imod(at, q)
    counter = (pull.let(cast(lane, U32)), pull(1, ()), u32(0), u32(0))
    key = (pull(0, (ix.lit(0),)), pull(0, (ix.lit(1),)))
    words = philox_words(counter, key, pull.let)
    low, high = ix.bounds(word) or (0, 3)
    low, high = max(low, 0), min(high, 3)
    result = words[high]
    for w in reversed(range(low, high)):
        result = call("select", ix.ilt(word, ix.lit(w + 1)), words[w], result)
    return (result,)


def _bits_samples() -> list[Sample]:
    shapes: list[tuple[int, ...]] = [(), (1,), (3,), (4,), (5,), (13,), (3, 5), (2, 1, 3, 3)]
    return [
        Sample((KEY, STREAM), {"shape": s, "generator": "philox"}, 0.0, 2.0**32 - 1) for s in shapes
    ]


def _threefry_infer(c: OpCall) -> tuple[TensorType, ...]:
    checks.operands(c, 4)
    shape = c.ins[0].shape
    if any(t != TensorType(shape, U32) for t in c.ins):
        got = ", ".join(map(str, c.ins))
        raise GraphError(f"threefry2x32 needs four u32 operands of one shape, got {got}")
    return (c.ins[0], c.ins[0])


def _threefry_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    k0, k1, x0, x1 = (pull(k, index) for k in range(4))
    return threefry_words((k0, k1), (x0, x1), pull.let)


def _threefry_axes(c: OpCall) -> AxisMap:
    return (tuple(range(c.ins[0].rank)),) * 4


def _threefry_samples() -> list[Sample]:
    shapes: list[tuple[int, ...]] = [(), (1,), (3, 5), (2, 1, 3)]
    return [Sample((TensorType(s, U32),) * 4, {}, 0.0, 2.0**32 - 1) for s in shapes]


register(
    OpSpec(
        name="random_bits",
        family=Family.RANDOM,
        infer=_bits_infer,
        reference=_bits_reference,
        flops=lambda c: _PHILOX_FLOPS * c.out.size,
        samples=_bits_samples,
        body=_bits_body,
        axes=lambda c: ((None,) * c.out.rank,) * 2,
        needed=needs.everything,
        unrolls=True,
    ),
    OpSpec(
        name="threefry2x32",
        family=Family.ELEMENTWISE,
        infer=_threefry_infer,
        reference=lambda arrays, c: threefry_array(*arrays),
        flops=lambda c: float(_THREEFRY_FLOPS * c.out.size),
        samples=_threefry_samples,
        body=_threefry_body,
        axes=_threefry_axes,
    ),
)
