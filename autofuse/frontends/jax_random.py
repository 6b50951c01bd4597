"""Rules for jax.random: threefry keys and bits, bit-equal to jax, as elementwise ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autofuse.frontends.jax_emit import (
    Emitter,
    FrontendError,
    Key,
    Shape,
    jax_module,
    logical_shape,
)
from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType

U32 = DType.U32
_WORDS = {8: DType.U8, 32: U32}


def partitionable() -> bool:
    """Which of jax's two threefry layouts is in force."""
    return bool(jax_module().config.jax_threefry_partitionable)


def threefry(e: Emitter, k0: Value, k1: Value, x0: Value, x1: Value) -> tuple[Value, Value]:
    """The hash, operands broadcast to one shape."""
    shape = np.broadcast_shapes(*map(e.shape, (k0, k1, x0, x1)))
    words = (e.spread(v, shape) for v in (k0, k1, x0, x1))
    first, second = e.op_many("threefry2x32", *words)
    return first, second


def _over(e: Emitter, key: Key, rank: int) -> Key:
    """The key array with `rank` axes of extent 1 behind its own."""
    shape = e.shape(key.k0) + (1,) * rank
    return Key(e.reshape(key.k0, shape), e.reshape(key.k1, shape))


def _counts(e: Emitter, shape: Shape) -> tuple[Value, Value]:
    """Element numbers of `shape` as a high and a low word."""
    size = math.prod(shape)
    if size >= 2**32:
        raise FrontendError(f"{size} random numbers at once are too many")
    zero = e.full(0, shape, U32)
    if size <= 1:
        return zero, zero
    return zero, e.reshape(e.iota((size,), U32, 0), shape)


def _hash_flat(e: Emitter, key: Key, count: int) -> Value:
    """jax's threefry_2x32(key, iota(count)) for each key: the key array's shape + (count,)."""
    half = -(-count // 2)
    numbers = e.iota((2 * half,), U32, 0)
    # An odd count is padded with a zero.
    if count % 2:
        last = e.map("eq", numbers, e.constant(np.uint32(count)))
        numbers = e.select(last, e.full(0, (2 * half,), U32), numbers)
    wide = _over(e, key, 1)
    x0, x1 = e.part(numbers, 0, 0, half), e.part(numbers, 0, half, 2 * half)
    axis = len(e.shape(key.k0))
    joined = e.concat(threefry(e, wide.k0, wide.k1, x0, x1), axis)
    return e.part(joined, axis, 0, count)


def random_bits(e: Emitter, eqn: Any, key: Key) -> Value:
    shape, width = tuple(map(int, eqn.params["shape"])), eqn.params["bit_width"]
    if width not in _WORDS:
        raise FrontendError(f"random numbers of {width} bits are not supported, only 8 or 32")
    if partitionable():
        wide = _over(e, key, len(shape))
        first, second = threefry(e, wide.k0, wide.k1, *_counts(e, shape))
        out = e.map("xor", first, second)
        if width == 32:
            return out
        return e.cast(e.map("and", out, e.constant(np.uint32(255))), DType.U8)
    if width != 32:
        raise FrontendError("8-bit random numbers need jax_threefry_partitionable")
    return e.reshape(_hash_flat(e, key, math.prod(shape)), e.shape(key.k0) + shape)


def random_split(e: Emitter, eqn: Any, key: Key) -> Key:
    shape = tuple(map(int, eqn.params["shape"]))
    if partitionable():
        wide = _over(e, key, len(shape))
        return Key(*threefry(e, wide.k0, wide.k1, *_counts(e, shape)))
    flat = _hash_flat(e, key, 2 * math.prod(shape))
    return _split_words(e, e.reshape(flat, (*e.shape(key.k0), *shape, 2)))


def random_fold_in(e: Emitter, eqn: Any, key: Key, data: Value) -> Key:
    seed = random_seed(e, eqn, e.cast(data, U32))
    return Key(*threefry(e, key.k0, key.k1, seed.k0, seed.k1))


def random_seed(e: Emitter, eqn: Any, seed: Value) -> Key:
    """A 32-bit seed is the low word; the high word is that of a 64-bit one."""
    if e.dtype(seed) is DType.I64:
        high = e.map("shr_logical", seed, e.scalar(32, seed))
        mask = e.scalar(0xFFFFFFFF, seed)
        return Key(*(e.cast(e.map("and", w, mask), U32) for w in (high, seed)))
    return Key(e.full(0, e.shape(seed), U32), e.cast(seed, U32))


def _split_words(e: Emitter, words: Value) -> Key:
    shape = e.shape(words)
    axis = len(shape) - 1
    return Key(*(e.reshape(e.part(words, axis, i, i + 1), shape[:-1]) for i in (0, 1)))


def wrap(e: Emitter, eqn: Any, words: Value) -> Key:
    """u32[..., 2] as keys."""
    return _split_words(e, words)


def unwrap(e: Emitter, key: Key) -> Value:
    """Keys as u32[..., 2]."""
    wide = _over(e, key, 1)
    return e.concat((wide.k0, wide.k1), len(e.shape(wide.k0)) - 1)


def random_unwrap(e: Emitter, eqn: Any, key: Key) -> Value:
    return unwrap(e, key)


def threefry2x32(e: Emitter, eqn: Any, *words: Value) -> tuple[Value, Value]:
    return threefry(e, *words)


def iota_2x32_shape(e: Emitter, eqn: Any) -> tuple[Value, Value]:
    return _counts(e, logical_shape(eqn.outvars[0].aval))


RANDOM_RULES: dict[str, Any] = {
    "iota_2x32_shape": iota_2x32_shape,
    "random_bits": random_bits,
    "random_fold_in": random_fold_in,
    "random_seed": random_seed,
    "random_split": random_split,
    "random_unwrap": random_unwrap,
    "random_wrap": wrap,
    "threefry2x32": threefry2x32,
}
