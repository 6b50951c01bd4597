"""Random bits: known answers of Philox, bit-equality of Threefry with jax.random."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.philox import philox_array, philox_words, threefry_array, u32
from autofuse.ops.random import KEY, STREAM
from autofuse.ops.scalar import Call, Expr, Lit, Sym
from autofuse.ops.spec import infer, spec_of
from autofuse.ops.types import GraphError, OpCall, TensorType, make_attrs
from tests.support.expr_eval import Evaluator, Loads, eval_body

U32 = DType.U32
# Known answers of the Random123 library (counter, key, words).
PHILOX = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
Words = tuple[int, ...]


def _bits(shape: tuple[int, ...], generator: str = "philox") -> OpCall:
    attrs = make_attrs({"shape": shape, "generator": generator})
    return OpCall(attrs, (KEY, STREAM), infer("random_bits", (KEY, STREAM), attrs))


@pytest.mark.parametrize(("counter", "key", "words"), PHILOX)
def test_philox_known_answers(counter: Words, key: tuple[int, int], words: Words) -> None:
    assert [int(w) for w in philox_array(counter, key)] == list(words)
    syms = tuple(Sym(f"v{k}", U32) for k in range(6))
    env = {s.name: np.array([v], np.uint32) for s, v in zip(syms, (*counter, *key), strict=True)}
    exprs = philox_words((syms[0], syms[1], syms[2], syms[3]), (syms[4], syms[5]), lambda e: e)
    evaluate = Evaluator(env)
    assert [int(evaluate(e)[0]) for e in exprs] == list(words)


def test_philox_folds_literal_counter_words() -> None:
    key = (Sym("k0", U32), Sym("k1", U32))
    exprs = philox_words((Sym("lane", U32), Sym("stream", U32), u32(0), u32(0)), key, lambda e: e)
    values = {"k0": 7, "k1": 9, "lane": 5, "stream": 3}
    env = {name: np.array([value], np.uint32) for name, value in values.items()}
    evaluate = Evaluator(env)
    wanted = philox_array((5, 3, 0, 0), (7, 9))
    assert [int(evaluate(e)[0]) for e in exprs] == [int(w) for w in wanted]


def test_stream_is_laid_out_in_quarters() -> None:
    call = _bits((2, 5))
    key, stream = np.array([11, 13], np.uint32), np.array(17, np.uint32)
    found = spec_of("random_bits").reference((key, stream), call)[0].reshape(-1)
    for i in range(10):
        words = philox_array((i % 3, 17, 0, 0), (11, 13))
        assert found[i] == words[i // 3]


def test_a_known_quarter_emits_one_word() -> None:
    """A kernel over q lanes asks for the elements lane + w*q; none of them needs a select."""
    call = _bits((12,))
    body = spec_of("random_bits").body
    assert body is not None
    lane = Sym("lane", DType.I64, 3)
    bound: list[list[tuple[str, Expr]]] = []
    for w in range(4):
        loads = Loads(call)
        (result,) = body(call, (ix.iadd(lane, ix.lit(3 * w)),), loads)
        assert not (isinstance(result, Call) and result.fn == "select")
        bound.append(loads.bound)
    # The four words come from identical bindings, so a memo makes them one Philox call.
    assert bound[0] == bound[1] == bound[2] == bound[3]
    (spread,) = body(call, (Sym("i", DType.I64, 12),), Loads(call))
    assert isinstance(spread, Call) and spread.fn == "select"


def test_streams_and_keys_differ() -> None:
    reference, call = spec_of("random_bits").reference, _bits((1000,))
    key = np.array([1, 2], np.uint32)
    first = reference((key, np.array(0, np.uint32)), call)[0]
    assert (first != reference((key, np.array(1, np.uint32)), call)[0]).mean() > 0.99
    assert (first != reference((key + np.uint32(1), np.array(0, np.uint32)), call)[0]).mean() > 0.99
    assert len(np.unique(first)) > 990
    assert abs(first.mean() / 2**32 - 0.5) < 0.05


def _threefry(shape: tuple[int, ...], seed: int) -> tuple[OpCall, tuple[np.ndarray, ...]]:
    ins = (TensorType(shape, U32),) * 4
    rng = np.random.default_rng(seed)
    arrays = tuple(rng.integers(0, 2**32, shape, dtype=np.uint32) for _ in ins)
    return OpCall((), ins, infer("threefry2x32", ins, ())), arrays


def test_threefry_body_and_reference_agree() -> None:
    call, arrays = _threefry((5, 3), 0)
    wanted = spec_of("threefry2x32").reference(arrays, call)
    for found, want in zip(eval_body(spec_of("threefry2x32"), call, arrays), wanted, strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("seed", range(3))
def test_threefry_is_bit_equal_to_jax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    key = rng.integers(0, 2**32, 2, dtype=np.uint32)
    counts = rng.integers(0, 2**32, 64, dtype=np.uint32)
    wanted = np.asarray(threefry_2x32(jnp.asarray(key), jnp.asarray(counts)))
    x0, x1 = counts[:32], counts[32:]  # jax pairs the first half with the second
    found = threefry_array(key[0], key[1], x0, x1)
    np.testing.assert_array_equal(np.concatenate(found), wanted)


def test_threefry_known_answers() -> None:
    """The Random123 vectors that JAX's own tests use."""
    zero, ones = np.uint32(0), np.uint32(0xFFFFFFFF)
    assert [int(v) for v in threefry_array(zero, zero, zero, zero)] == [0x6B200159, 0x99BA4EFE]
    assert [int(v) for v in threefry_array(ones, ones, ones, ones)] == [0x1CB996FC, 0xBB002BE7]


@pytest.mark.parametrize(
    ("ins", "attrs", "message"),
    [
        ((KEY,), {"shape": (3,)}, "expected 2 operands"),
        ((STREAM, KEY), {"shape": (3,)}, "random_bits needs"),
        ((KEY, STREAM), {"shape": (3,), "generator": "mt"}, "unknown random generator 'mt'"),
        ((KEY, STREAM), {"shape": (2**31,)}, "too large"),
        ((KEY, STREAM), {}, "'shape' is missing"),
    ],
)
def test_bad_random_bits_are_refused(
    ins: tuple[TensorType, ...], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        infer("random_bits", ins, make_attrs(attrs))


def test_threefry_operands_have_one_shape() -> None:
    with pytest.raises(GraphError, match="of one shape"):
        infer("threefry2x32", (KEY, KEY, STREAM, KEY), ())


def test_literals_wrap_to_32_bits() -> None:
    assert u32(2**32 + 5) == Lit(5, U32)
