"""Graphs from jax compute what jax computes: one small function per rule, loops, random numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.interp import CONTROL_RULES, RULES, _scan_parts
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.graph.reference import evaluate
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from tests.support.jax_check import check
from tests.support.real_inputs import gymnax_cartpole, veros_gsw_dhdt

X = jnp.linspace(-1.4, 1.9, 12, dtype=jnp.float32).reshape(4, 3)
P = jnp.linspace(0.1, 0.9, 12, dtype=jnp.float32).reshape(4, 3)
I = jnp.arange(-6, 6, dtype=jnp.int32).reshape(4, 3)  # noqa: E741 - beside X, P, U, B and V
U = jnp.arange(12, dtype=jnp.uint32).reshape(4, 3) * 400_000_007
B = I % 3 == 0
V = jnp.array([2, 0, 1], jnp.int32)
N = jnp.int32(2)
KEY = jax.random.PRNGKey(7)


def _list(text: str) -> list[str]:
    return text.split()


UNARY: dict[str, tuple[Callable[..., Any], Any]] = {
    **{
        name: (getattr(lax, name), X)
        for name in _list(
            "abs neg sign floor ceil exp exp2 expm1 sin cos tan tanh sinh cosh asinh atan "
            "logistic erf erfc square is_finite cbrt round"
        )
    },
    **{
        name: (getattr(lax, name), P)
        for name in _list("log log1p sqrt rsqrt asin acos atanh erf_inv reciprocal")
    },
    "acosh": (lambda x: lax.acosh(x + 1), P),
    "erf_inv_edge": (lax.erf_inv, jnp.array([-1, -0.99999, 0, 0.9999, 1], jnp.float32)),
    "bitwise_not": (jnp.bitwise_not, I),
    "logical_not": (jnp.logical_not, B),
    "neg_int": (lax.neg, I),
    "round_even": (jnp.round, X * 2.5),
    "pow_3": (lambda x: x**3, X),
    "pow_-2": (lambda x: x**-2, X),
    "pow_7": (lambda x: lax.integer_pow(x, 7), X),
    "pow_float": (lambda x: x**1.7, P),
    "pow_int_operand": (lambda x: lax.pow(x, jnp.full((4, 3), 3)), X),
    "int_pow": (lambda x: x**2, I),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    check(*UNARY[name])


BINARY: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    **{f"{n}_f32": (getattr(lax, n), X, P) for n in _list("add sub mul div max min atan2 rem")},
    **{f"{n}_i32": (getattr(lax, n), I, I.T.reshape(4, 3)) for n in _list("add sub mul max min")},
    **{n: (getattr(lax, n), I, I[::-1]) for n in _list("eq ne lt le gt ge")},
    **{n: (getattr(lax, n), U, U[::-1]) for n in _list("bitwise_and bitwise_or bitwise_xor")},
    "and_bool": (jnp.logical_and, B, ~B),
    "xor_bool": (jnp.logical_xor, B, B[::-1]),
    "max_bool": (lax.max, B, B[::-1]),
    "floor_divide": (jnp.floor_divide, I, I * 0 + 4),
    "remainder": (jnp.remainder, I, I * 0 + 4),
    "shift_left": (lax.shift_left, U, U % 40),
    "shift_right_logical": (lax.shift_right_logical, U, U % 40),
    "shift_right_arithmetic": (lax.shift_right_arithmetic, I, abs(I) % 5),
    "broadcast_rows": (jnp.add, X, P[0]),
    "broadcast_columns": (jnp.multiply, X, P[:, :1]),
    "logaddexp": (jnp.logaddexp, X, P),
    "where": (lambda x, y: jnp.where(x > 0.5, x, y), X, P),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    check(*BINARY[name])


OTHER: dict[str, tuple[Any, ...]] = {
    "clamp": (lambda x: jnp.clip(x, -0.5, 0.7), X),
    "select_n_int": (lambda i, x: lax.select_n(jnp.clip(i, 0, 2), x, -x, x * 2), I, X),
    "cast_f32_i32": (lambda x: (x * 3).astype(jnp.int32), X),
    "cast_bool_f32": (lambda b: b.astype(jnp.float32), B),
    "cast_f32_bf16": (lambda x: x.astype(jnp.bfloat16), X),
    "cast_i32_u8": (lambda x: x.astype(jnp.uint8), I),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.uint32), X),
    "half_precision": (lambda x: x * x + 1, X.astype(jnp.float16)),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 7), X),
    "reduce_precision_same": (lambda x: lax.reduce_precision(x, 8, 23), X),
    "sum": (lambda x: jnp.sum(x, 1), X),
    "sum_all": (jnp.sum, X),
    "prod": (lambda x: jnp.prod(x, 0), P),
    "max": (lambda x: jnp.max(x, 0), X),
    "min": (lambda x: jnp.min(x, 1, keepdims=True), X),
    "any": (lambda b: jnp.any(b, 1), B),
    "all": (lambda b: jnp.all(b | ~b, 0), B),
    "argmax": (lambda x: jnp.argmax(jnp.sin(9 * x), 1), X),
    "argmin": (lambda x: jnp.argmin(x, 0), X),
    "cumsum": (lambda x: jnp.cumsum(x, 1), X),
    "cumsum_reverse": (lambda x: lax.cumsum(x, 0, reverse=True), X),
    "var": (lambda x: jnp.var(x, 0), X),
    "softmax": (lambda x: jax.nn.softmax(x), X),
    "gelu": (jax.nn.gelu, X),
    "gelu_exact": (lambda x: jax.nn.gelu(x, approximate=False), X),
    "dot": (lambda x, y: x @ y.T, X, P),
    "dot_batched": (lambda x, y: jnp.einsum("bij,bkj->bik", x, y), X[:, None], P[:, None]),
    "dot_preferred": (
        lambda x: lax.dot(x, x.T, preferred_element_type=jnp.float32),
        X.astype(jnp.bfloat16),
    ),
    "broadcast_to": (lambda x: jnp.broadcast_to(x[:, None], (4, 2, 3)), X),
    "expand_dims": (lambda x: lax.expand_dims(x, (0, 2)), X),
    "reshape": (lambda x: x.reshape(2, 6).T, X),
    "reshape_in_order": (lambda x: lax.reshape(x, (6, 2), (1, 0)), X),
    "transpose": (lambda x: jnp.transpose(x[None], (2, 0, 1)), X),
    "slice": (lambda x: x[1::2, :2], X),
    "rev": (lambda x: x[::-1], X),
    "concatenate": (lambda x, y: jnp.concatenate([x, y[:1]], 0), X, P),
    "stack": (lambda x, y: jnp.stack([x, y], 1), X, P),
    "split": (lambda x: jnp.split(x, [1, 3]), X),
    "tile": (lambda x: jnp.tile(x, (2, 3)), X),
    "roll": (lambda x: jnp.roll(x, 1, 0), X),
    "pad": (lambda x: jnp.pad(x, ((1, 0), (0, 2)), constant_values=3.0), X),
    "pad_edge": (lambda x: jnp.pad(x, ((1, 0), (0, 2)), mode="edge"), X),
    "pad_negative": (lambda x: lax.pad(x, 0.5, ((-1, 2, 0), (1, -2, 0))), X),
    "pad_interior": (lambda x: lax.pad(x, 0.5, ((1, -1, 2), (0, 0, 1))), X),
    "iota": (lambda x: x + lax.broadcasted_iota(jnp.float32, (4, 3), 1), X),
    "one_hot": (lambda v: jax.nn.one_hot(v, 4), V),
    "linspace": (lambda x: x[0, 0] + jnp.linspace(0, 1, 5), X),
    "closed_over": (lambda x: x + np.arange(3, dtype=np.float32), X),
    "stop_gradient": (lambda x: lax.stop_gradient(x) + 1, X),
    "barrier": (lambda x: lax.optimization_barrier((x, x * 2)), X),
    "jit_inside": (lambda x: jax.jit(jnp.sin)(x) + jax.nn.relu(x), X),
    "index_number": (lambda x: x[-1], X),
    "index_traced": (lambda x, i: x[i], X, N),
    "index_negative": (lambda x, i: x[-i], X, N),
    "index_array": (lambda x, v: x[v], X, V),
    "index_column": (lambda x, v: x[:, v], X, V),
    "index_pairs": (lambda x, v: x[v, v], X, V),
    "index_batch": (lambda x, v: jax.vmap(lambda r, i: r[i])(x[:3], v), X, V),
    "take_outside": (lambda x: jnp.take(x, jnp.array([0, 9, -1]), axis=0), X),
    "take_clip": (lambda x: jnp.take(x, jnp.array([0, 9]), axis=1, mode="clip"), X),
    "take_along_axis": (lambda x, v: jnp.take_along_axis(x, v[:, None], 1), X[:3], V),
    "take_fill_int": (lambda i, v: jnp.take(i, v + 3, axis=0), I, V),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 2)), X, N),
    "dynamic_slice_clamped": (lambda x, i: lax.dynamic_slice(x, (i * 9, -i), (2, 2)), X, N),
    "update_known": (lambda x, y: lax.dynamic_update_slice(x, y[:2], (1, 0)), X, P),
    "update": (lambda x, y, i: lax.dynamic_update_slice(x, y[:2, :2], (i, i)), X, P, N),
    "at_set": (lambda x, i: x.at[i].set(5.0), X, N),
    "at_set_known": (lambda x: x.at[1, 2].set(5.0), X),
    "at_set_outside": (lambda x, i: x.at[i + 7].set(5.0), X, N),
    "at_add": (lambda x, i: x.at[i, 1].add(5.0), X, N),
    "at_add_slice": (lambda x: x.at[1:3].add(2.0), X),
    "at_add_twice": (lambda x: x.at[jnp.array([1, 1, 3])].add(1.5), X),
    "at_subtract": (lambda x, i: x.at[i].subtract(x[1]), X, N),
    "at_subtract_twice": (lambda x: x.at[jnp.array([1, 1, 3])].subtract(1.5), X),
    "at_min": (lambda x, i: x.at[i].min(0.1), X, N),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: y + 1, x), X),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), N, X),
    "switch_known": (lambda x: lax.switch(1, [jnp.sin, jnp.fft.fft, jnp.tanh][::2], x), X),
    "unstack": (lambda x: jnp.unstack(x, axis=1), X),
    "unstack_keys": (lambda k: [jax.random.bits(each) for each in jax.random.split(k)], KEY),
    "log2": (jnp.log2, P),
    "grad_asin": (jax.grad(lambda x: jnp.sum(jnp.arcsin(x))), P),
    "grad": (jax.grad(lambda x: jnp.sum(jnp.tanh(x) * x[0] / (1 + x**2))), X),
    "grad_softmax": (jax.grad(lambda x: jnp.sum(jax.nn.log_softmax(x)[:, 0])), X),
    "grad_remat": (jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda y: jnp.sin(y) ** 2)(x))), X),
    "jacobian": (lambda x: jax.jacfwd(lambda v: v * v.sum())(x[0]), X),
    "tree": (lambda t: {"b": t["x"] + t["y"][0], "a": t["y"][1]}, {"x": X, "y": (P, V)}),
    "number": (lambda x, y: x * y, X, 2.5),
}


@pytest.mark.parametrize("name", OTHER)
def test_other(name: str) -> None:
    check(*OTHER[name])


def _custom_vjp(x: jax.Array) -> jax.Array:
    @jax.custom_vjp
    def f(x: jax.Array) -> jax.Array:
        return jnp.sin(x) * 2

    f.defvjp(lambda x: (f(x), x), lambda x, g: (jnp.cos(x) * g,))
    return f(x)


def test_custom_derivatives() -> None:
    check(_custom_vjp, X)
    check(jax.grad(lambda x: _custom_vjp(x).sum()), X)


def test_typed_keys_are_words_outside() -> None:
    graph = check(lambda k: (jax.random.split(k, 3), jax.random.bits(k, (2,))), jax.random.key(1))
    assert [str(t) for t in graph.input_types] == ["u32[2]"]
    assert [str(t) for t in graph.output_types] == ["u32[3,2]", "u32[2]"]


def test_names_and_ranges_come_from_the_arguments() -> None:
    def energy(state: dict[str, Any], scale: float) -> Any:
        return {"total": (state["x"] * scale).sum(), "parts": [state["x"]]}

    graph = from_jax(energy, {"x": X}, 2.0)
    assert graph.input_names == ("state_x", "scale")
    assert graph.output_names == ("out_parts_0", "out_total")
    attrs = dict(graph[graph.inputs[0]].attrs)
    assert (attrs["low"], attrs["high"]) == (pytest.approx(-1.4), pytest.approx(1.9))


def test_abstract_arguments() -> None:
    graph = from_jax(jnp.sin, jax.ShapeDtypeStruct((2, 3), jnp.float32))
    assert [str(t) for t in graph.output_types] == ["f32[2,3]"]


def test_dead_and_repeated_work_is_dropped() -> None:
    graph = from_jax(lambda x: (jnp.fft.rfft(x).real, jnp.sin(x) + jnp.sin(x))[1], X)
    assert [node.op for node in graph.nodes] == ["input", "sin", "add"]


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "inside_scan": (
        lambda x: lax.scan(lambda c, r: (c, lax.linalg.schur(r[:, None] * r)[0]), 0, x)[1], X,
        "'schur' is not",
    ),
    "complex": (lambda x: jnp.real(jnp.arcsinh(x + 1j)), X, "is not supported for complex numbers"),
    "convolution": (
        lambda x: lax.conv(jnp.ones((1,) * 6), jnp.ones((1,) * 6), (1,) * 4, "SAME"),
        X, "same 1 to 3 spatial axes",
    ),
    "callback": (lambda x: jax.pure_callback(np.sin, x, x), X, "'pure_callback'"),
    "int4": (lambda x: x.astype(jnp.int4), X, "dtype int4 is not supported"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_primitive_and_line(name: str) -> None:
    fn, argument, message = REFUSED[name]
    with pytest.raises(FrontendError, match=r"test_frontend_jax.py:\d+") as caught:
        from_jax(fn, argument)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_line_is_that_of_the_use() -> None:
    def program(x: jax.Array) -> jax.Array:
        y = x + 1
        return lax.linalg.schur(y[:3])[0]

    line = program.__code__.co_firstlineno + 2
    with pytest.raises(FrontendError, match=rf"test_frontend_jax.py:{line}\)"):
        from_jax(program, X)


def test_missing_jax_is_one_sentence() -> None:
    code = (
        "import sys\nsys.modules['jax'] = None\n"
        "from autofuse.frontends.jax.jaxpr import from_jax\n"
        "from autofuse.ops.types import AutofuseError\n"
        "try:\n    from_jax(abs, 1.0)\nexcept AutofuseError as e:\n    print(e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "the jax front end needs jax: pip install autofuse[jax]"


def test_importing_the_front_end_does_not_import_jax() -> None:
    code = "import sys, autofuse.frontends.jax.jaxpr; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_new_primitive_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "lgamma", lambda e, eqn, x: e.map("neg", x))
    graph = from_jax(lambda x: lax.lgamma(x), X)
    assert [node.op for node in graph.nodes] == ["input", "neg"]
    assert not set(RULES) & set(CONTROL_RULES)


def test_what_jax_0_11_makes_equations_of() -> None:
    """Whatever release is here."""
    w = GraphWriter()
    x = w.input("x", (4, 3), DType.F32)
    column = SimpleNamespace(aval=SimpleNamespace(shape=(4,)))
    parts = SimpleNamespace(params={"axis": 1}, outvars=[column] * 3)
    columns = RULES["unstack"](w, parts, x)
    results = [RULES["one_minus_square"](w, None, x), RULES["log2"](w, None, x), *columns]
    data = np.asarray(P, np.float64)
    found = evaluate(w.build(results), [np.asarray(P)])
    for value, wanted in zip(found, [1 - data**2, np.log2(data), *data.T], strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)
    halves = SimpleNamespace(unpack=lambda: ((None,), (None, None), ()))
    assert _scan_parts({"ft_in": halves}) == _scan_parts({"num_consts": 1, "num_carry": 2})


def test_gymnax_cartpole() -> None:
    step, args = gymnax_cartpole(64)
    graph = check(step, *args)
    computed = [n for n in graph.nodes if n.op not in ("input", "constant", "broadcast")]
    assert 50 <= len(computed) <= 110


def test_veros_equation_of_state() -> None:
    """Single precision loses digits to cancellation, so errors count relative to the largest."""
    dhdt, args = veros_gsw_dhdt(500)
    graph = from_jax(dhdt, *args)
    (found,) = evaluate(graph, [np.asarray(a) for a in args])
    want = np.asarray(jax.jit(dhdt)(*args), np.float64)
    assert np.abs(found - want).max() < 5e-3 * np.abs(want).max()
    computed = [n for n in graph.nodes if n.op not in ("input", "constant", "broadcast")]
    assert 330 <= len(computed) <= 380
    assert not jax.config.jax_enable_x64
