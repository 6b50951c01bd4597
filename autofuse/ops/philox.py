"""Counter-based generators, as scalar expressions and as NumPy: Philox-4x32-10, Threefry-2x32.

The scalar forms bind every round's outputs with `let`: a body's `pull.let` makes each a variable.
With an identity `let` the result is a DAG of shared objects whose tree is exponentially
larger, so whoever walks it must remember what it has seen by identity.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit, call

BindWord = Callable[[Expr], Expr]
Words4 = tuple[Expr, Expr, Expr, Expr]
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_MASK = np.uint64(0xFFFFFFFF)


def u32(value: int) -> Lit:
    """`value` modulo 2**32 as a u32 literal."""
    return Lit(value & 0xFFFFFFFF, DType.U32)


def _xor(a: Expr, b: Expr) -> Expr:
    if a == u32(0):
        return b
    return a if b == u32(0) else call("xor", a, b)


def _add(a: Expr, b: Lit) -> Expr:
    return a if b.value == 0 else call("add", a, b)


def _product(factor: int, x: Expr) -> tuple[Expr, Expr]:
    """(upper, lower) words of factor * x."""
    if isinstance(x, Lit):
        full = factor * int(x.value)
        return u32(full >> 32), u32(full)
    return call("mulhi", u32(factor), x), call("mul", u32(factor), x)


def philox_words(counter: Words4, key: tuple[Expr, Expr], let: BindWord) -> Words4:
    """The four u32 words of Philox-4x32-10 on `counter` and `key`, all u32 expressions."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for i in range(10):
        r0, r1 = let(_add(k0, u32(i * _W0))), let(_add(k1, u32(i * _W1)))
        hi0, lo0 = _product(_M0, c0)
        hi1, lo1 = _product(_M1, c2)
        c0, c1 = let(_xor(_xor(hi1, c1), r0)), let(lo1)
        c2, c3 = let(_xor(_xor(hi0, c3), r1)), let(lo0)
    return c0, c1, c2, c3


def philox_array(counter: tuple[np.ndarray | int, ...], key: tuple[int, int]) -> list[np.ndarray]:
    """The four words as uint32 arrays; `counter` holds four broadcastable uint32 arrays."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c, dtype=np.uint64) for c in counter))
    for i in range(10):
        k0, k1 = (np.uint64((k + i * w) & 0xFFFFFFFF) for k, w in zip(key, (_W0, _W1), strict=True))
        p0, p1 = c0 * np.uint64(_M0), c2 * np.uint64(_M1)
        shift = np.uint64(32)
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ k0, p1 & _MASK, (p0 >> shift) ^ c3 ^ k1, p0 & _MASK
    return [c.astype(np.uint32) for c in (c0, c1, c2, c3)]


def _rotate(x: Expr, by: int) -> Expr:
    return call("or", call("shl", x, u32(by)), call("shr", x, u32(32 - by)))


def threefry_words(
    key: tuple[Expr, Expr], counter: tuple[Expr, Expr], let: BindWord
) -> tuple[Expr, Expr]:
    """The two u32 words of Threefry-2x32 with 20 rounds, bit-equal to jax.random's."""
    keys = (*key, let(call("xor", call("xor", key[0], key[1]), u32(_PARITY))))
    x = let(call("add", counter[0], keys[0]))
    y = let(call("add", counter[1], keys[1]))
    for group in range(5):
        for by in _ROTATIONS[group % 2]:
            x = let(call("add", x, y))
            y = let(call("xor", x, _rotate(y, by)))
        x = let(call("add", x, keys[(group + 1) % 3]))
        y = let(call("add", y, call("add", keys[(group + 2) % 3], u32(group + 1))))
    return x, y


def threefry_array(
    k0: np.ndarray, k1: np.ndarray, x0: np.ndarray, x1: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32 of uint32 arrays, element by element."""
    a, b, x, y = (np.asarray(v, dtype=np.uint64) for v in (k0, k1, x0, x1))
    keys = (a, b, a ^ b ^ np.uint64(_PARITY))
    x, y = (x + keys[0]) & _MASK, (y + keys[1]) & _MASK
    for group in range(5):
        for by in _ROTATIONS[group % 2]:
            x = (x + y) & _MASK
            y = (((y << np.uint64(by)) | (y >> np.uint64(32 - by))) & _MASK) ^ x
        x = (x + keys[(group + 1) % 3]) & _MASK
        y = (y + keys[(group + 2) % 3] + np.uint64(group + 1)) & _MASK
    return x.astype(np.uint32), y.astype(np.uint32)
