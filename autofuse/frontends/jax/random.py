"""Rules for jax.random: threefry keys and bits, bit-equal to jax, as elementwise ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.types import KeyArray, jax_module, static_shape
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.dtypes import DType

U32 = DType.U32
_WORDS = {8: DType.U8, 16: DType.U16, 32: U32, 64: DType.U64}


def partitionable() -> bool:
    """Which of jax's two threefry layouts is in force."""
    return bool(jax_module().config.jax_threefry_partitionable)


def threefry(w: GraphWriter, k0: Value, k1: Value, x0: Value, x1: Value) -> tuple[Value, Value]:
    """The hash, operands broadcast to one shape."""
    shape = np.broadcast_shapes(*map(w.shape, (k0, k1, x0, x1)))
    words = (w.spread(v, shape) for v in (k0, k1, x0, x1))
    first, second = w.op_many("threefry2x32", *words)
    return first, second


def _over(w: GraphWriter, key: KeyArray, rank: int) -> KeyArray:
    """The key array with `rank` axes of extent 1 behind its own."""
    shape = w.shape(key.k0) + (1,) * rank
    return KeyArray(w.reshape(key.k0, shape), w.reshape(key.k1, shape))


def _counts(w: GraphWriter, shape: Shape) -> tuple[Value, Value]:
    """Element numbers of `shape` as a high and a low word."""
    size = math.prod(shape)
    if size >= 2**32:
        raise FrontendError(f"{size} random numbers at once are too many")
    zero = w.full(0, shape, U32)
    if size <= 1:
        return zero, zero
    return zero, w.reshape(w.iota((size,), U32, 0), shape)


def _hash_flat(w: GraphWriter, key: KeyArray, count: int) -> Value:
    """jax's threefry_2x32(key, iota(count)) for each key: the key array's shape + (count,)."""
    half = -(-count // 2)
    numbers = w.iota((2 * half,), U32, 0)
    # An odd count is padded with a zero.
    if count % 2:
        last = w.map("eq", numbers, count)
        numbers = w.select(last, w.full(0, (2 * half,), U32), numbers)
    wide = _over(w, key, 1)
    x0, x1 = w.part(numbers, 0, 0, half), w.part(numbers, 0, half, 2 * half)
    axis = len(w.shape(key.k0))
    joined = w.concat(threefry(w, wide.k0, wide.k1, x0, x1), axis)
    return w.part(joined, axis, 0, count)


def random_bits(w: GraphWriter, eqn: Any, key: KeyArray) -> Value:
    shape, width = tuple(map(int, eqn.params["shape"])), int(eqn.params["bit_width"])
    if width not in _WORDS:
        raise FrontendError(f"random numbers of {width} bits are not supported")
    if not partitionable():
        return _bits_flat(w, key, shape, width)
    wide = _over(w, key, len(shape))
    first, second = threefry(w, wide.k0, wide.k1, *_counts(w, shape))
    if width == 64:
        return _joined(w, first, second)
    return _narrowed(w, w.map("xor", first, second), width)


def _bits_flat(w: GraphWriter, key: KeyArray, shape: Shape, width: int) -> Value:
    """Numbers cut from one hash of as many words as they need: halves of it are the high and low
    words of long numbers, short ones lie in each word from its lowest bits up."""
    size, lead = math.prod(shape), w.shape(key.k0)
    bits = _hash_flat(w, key, -(-width * size // 32))
    axis = len(lead)
    if width == 64:
        high, low = (w.part(bits, axis, k * size, (k + 1) * size) for k in (0, 1))
        bits = _joined(w, high, low)
    elif width < 32:
        words, each = w.shape(bits)[-1], 32 // width
        wide = w.broadcast(bits, (*lead, words, each), range(axis + 1))
        shifts = w.map("mul", w.iota(w.shape(wide), U32, axis + 1), width)
        short = _narrowed(w, w.map("shr_logical", wide, shifts), width)
        bits = w.part(w.reshape(short, (*lead, words * each)), axis, 0, size)
    return w.reshape(bits, lead + shape)


def _joined(w: GraphWriter, high: Value, low: Value) -> Value:
    """Two words as one number of 64 bits."""
    high, low = (w.cast(v, DType.U64) for v in (high, low))
    return w.map("or", w.map("shl", high, 32), low)


def _narrowed(w: GraphWriter, bits: Value, width: int) -> Value:
    """The lowest bits of words, as numbers of so many."""
    return bits if width == 32 else w.cast(w.map("and", bits, 2**width - 1), _WORDS[width])


def random_split(w: GraphWriter, eqn: Any, key: KeyArray) -> KeyArray:
    shape = tuple(map(int, eqn.params["shape"]))
    if partitionable():
        wide = _over(w, key, len(shape))
        return KeyArray(*threefry(w, wide.k0, wide.k1, *_counts(w, shape)))
    flat = _hash_flat(w, key, 2 * math.prod(shape))
    return _split_words(w, w.reshape(flat, (*w.shape(key.k0), *shape, 2)))


def random_fold_in(w: GraphWriter, eqn: Any, key: KeyArray, data: Value) -> KeyArray:
    seed = random_seed(w, eqn, w.cast(data, U32))
    return KeyArray(*threefry(w, key.k0, key.k1, seed.k0, seed.k1))


def random_seed(w: GraphWriter, eqn: Any, seed: Value) -> KeyArray:
    """A 32-bit seed is the low word; the high word is that of a 64-bit one."""
    if w.dtype(seed) is DType.I64:
        high = w.map("shr_logical", seed, 32)
        return KeyArray(*(w.cast(w.map("and", v, 0xFFFFFFFF), U32) for v in (high, seed)))
    return KeyArray(w.full(0, w.shape(seed), U32), w.cast(seed, U32))


def _split_words(w: GraphWriter, words: Value) -> KeyArray:
    shape = w.shape(words)
    axis = len(shape) - 1
    return KeyArray(*(w.reshape(w.part(words, axis, i, i + 1), shape[:-1]) for i in (0, 1)))


def wrap(w: GraphWriter, eqn: Any, words: Value) -> KeyArray:
    """u32[..., 2] as keys."""
    return _split_words(w, words)


def unwrap(w: GraphWriter, key: KeyArray) -> Value:
    """Keys as u32[..., 2]."""
    wide = _over(w, key, 1)
    return w.concat((wide.k0, wide.k1), len(w.shape(wide.k0)) - 1)


def random_unwrap(w: GraphWriter, eqn: Any, key: KeyArray) -> Value:
    return unwrap(w, key)


def threefry2x32(w: GraphWriter, eqn: Any, *words: Value) -> tuple[Value, Value]:
    return threefry(w, *words)


def iota_2x32_shape(w: GraphWriter, eqn: Any) -> tuple[Value, Value]:
    return _counts(w, static_shape(eqn.outvars[0].aval))


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
