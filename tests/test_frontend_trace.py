"""Traced Python against NumPy: functions, operators, indexing, promotion, loops and errors."""

import numpy as np
import pytest
from scipy import special

import autofuse.frontends.array_api as xp
from autofuse.frontends import Spec, TraceError, spec, trace
from autofuse.graph.canonical import digest
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.ops.dtypes import DType
from autofuse.ops.types import AutofuseError
from autofuse.sources import load_source


def run(fn, *specs, seed=3):
    """All outputs of the traced function, and its inputs as float64 (or exact) arrays."""
    graph = trace(fn, *specs)
    inputs = random_inputs(graph, seed, -2.0, 2.0)
    return evaluate(graph, inputs), tuple(
        a.astype(np.float64) if a.dtype.kind == "f" else a for a in inputs
    )


def check(traced, plain, *specs, rtol=1e-6):
    (out, *_), inputs = run(traced, *specs)
    expected = np.asarray(plain(*inputs))
    assert out.shape == expected.shape
    np.testing.assert_allclose(out, expected, rtol=rtol, atol=1e-6)


X = spec((4, 5))
V = spec(5)
POS = spec((4, 5), low=0.1, high=2.0)
IDX = spec(3, "i32", low=-4, high=3)

UNARY = ["exp", "sin", "cos", "tanh", "floor", "ceil", "abs", "sign", "square",
         "negative", "expm1", "sinh", "cosh", "atan", "trunc", "isnan", "isfinite", "isinf",
         "round"]  # fmt: skip
NUMPY_NAMES = {"atan": "arctan"}


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(name):
    check(getattr(xp, name), getattr(np, NUMPY_NAMES.get(name, name)), X)


@pytest.mark.parametrize("name", ["log", "log2", "log10", "log1p", "sqrt", "reciprocal"])
def test_unary_functions_of_positive_numbers(name):
    check(getattr(xp, name), getattr(np, name), POS)


BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder",
          "floor_divide", "equal", "less", "greater_equal", "logaddexp", "hypot"]  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_broadcast(name):
    check(getattr(xp, name), getattr(np, name), X, V)


@pytest.mark.parametrize("name", ["remainder", "floor_divide"])
def test_integer_division_has_python_signs(name):
    divisor = spec((4, 5), "i32", low=1, high=3)
    check(getattr(xp, name), getattr(np, name), spec((4, 5), "i32", low=-9, high=9), divisor)
    check(
        lambda a, b: getattr(xp, name)(a, -b),
        lambda a, b: getattr(np, name)(a, -b),
        spec((4, 5), "i32", low=-9, high=9),
        divisor,
    )


OPERATORS = [
    lambda x, v: 2.0 - x * v + x / 3,
    lambda x, v: x**2 + x**3 - 1.0 / (x * x + 1.0) + 3**x,
    lambda x, v: abs(x) % 0.7 + (-x) // 0.4,
    lambda x, v: (x > v) & (x < 1.0) | ~(x != x),
    lambda x, v: v @ x.T + x @ v,
    lambda x, v: np.exp(x) + np.maximum(x, v) * np.float32(2.0),
    lambda x, v: np.ones((4, 1)) * v + x,
    lambda x, v: x.reshape(2, -1)[1].reshape(5, 2).sum(axis=1) + v,
    lambda x, v: x.mean() + x.std(axis=1, keepdims=True) + x.var(axis=0, ddof=1),
    lambda x, v: np.where(x > 0, x, v) + np.clip(x, -0.5, 0.5),
    lambda x, v: np.concatenate([x, x[::-1]], axis=1).transpose(1, 0),
    lambda x, v: np.var(x, axis=0, ddof=1) + np.mean(x, axis=0, keepdims=True) * v,
    lambda x, v: np.stack([v, v * 2.0]) - np.sum(x, axis=0),
    lambda x, v: sum(row * 2.0 for row in x) + len(x),
]


@pytest.mark.parametrize("fn", OPERATORS)
def test_operators_and_numpy_functions(fn):
    check(fn, fn, X, V)


INDEXING = [
    lambda x: x[1],
    lambda x: x[-1, 2],
    lambda x: x[:, 1:4:2],
    lambda x: x[::-1, ::-2],
    lambda x: x[3:0:-2],
    lambda x: x[..., None, 0],
    lambda x: x[None, 1:2, None],
    lambda x: x[:, [0, -1, 2]],
    lambda x: x[np.array([[0, 1], [2, -1]])],
    lambda x: x[-100:100],
    lambda x: x[2:2],
]


@pytest.mark.parametrize("fn", INDEXING)
def test_indexing(fn):
    check(fn, fn, spec((4, 5)))


def test_traced_index_arrays_count_from_the_end_too():
    check(lambda x, i: x[:, i], lambda x, i: x[:, i], X, IDX)
    check(lambda x, i: x[i], lambda x, i: x[i], X, IDX)


SHAPING = [
    (lambda x: xp.flip(x, axis=1), lambda x: np.flip(x, axis=1)),
    (lambda x: xp.roll(x, 2, axis=1), lambda x: np.roll(x, 2, axis=1)),
    (lambda x: xp.roll(x, -3), lambda x: np.roll(x, -3)),
    (lambda x: xp.concat([x, x], axis=None), lambda x: np.concatenate([x, x], axis=None)),
    (lambda x: xp.stack([x, x], axis=-1), lambda x: np.stack([x, x], axis=-1)),
    (lambda x: xp.expand_dims(x, -1), lambda x: np.expand_dims(x, -1)),
    (lambda x: xp.squeeze(x[:1]), lambda x: np.squeeze(x[:1])),
    (lambda x: xp.permute_dims(x, (1, 0)), lambda x: x.T),
    (
        lambda x: xp.broadcast_to(x[:, :1], (2, 4, 3)),
        lambda x: np.broadcast_to(x[:, :1], (2, 4, 3)),
    ),
    (lambda x: xp.take(x, [2, 0], axis=1), lambda x: np.take(x, [2, 0], axis=1)),
    (lambda x: xp.tile(x, (2, 3)), lambda x: np.tile(x, (2, 3))),
    (
        lambda x: xp.pad(x, ((1, 0), (0, 2)), 3.0),
        lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=3.0),
    ),
    (lambda x: xp.tril(x, 1), lambda x: np.tril(x, 1)),
    (lambda x: xp.triu(x), lambda x: np.triu(x)),
    (lambda x: xp.moveaxis(x[None], 0, 2), lambda x: np.moveaxis(x[None], 0, 2)),
    (lambda x: x + xp.arange(5) + xp.arange(0.0, 2.5, 0.5), lambda x: x + np.arange(5) * 1.5),
    (lambda x: x @ xp.eye(5) + xp.full(5, 2.0), lambda x: x + 2.0),
    (lambda x: x + xp.zeros((4, 5)) + xp.ones_like(x), lambda x: x + 1.0),
    (lambda x: x + xp.linspace(0, 1, 5), lambda x: x + np.linspace(0, 1, 5)),
    (lambda x: sum(xp.unstack(x, axis=1)), lambda x: x.sum(axis=1)),
]  # fmt: skip


@pytest.mark.parametrize(("traced", "plain"), SHAPING)
def test_shaping(traced, plain):
    check(traced, plain, X)


REDUCING = [
    (lambda x: xp.sum(x, axis=(0, 1)), lambda x: x.sum()),
    (lambda x: xp.sum(x > 0, axis=0), lambda x: (x > 0).sum(axis=0)),
    (lambda x: xp.prod(x, axis=-1), lambda x: x.prod(axis=-1)),
    (lambda x: xp.max(x, axis=0, keepdims=True), lambda x: x.max(axis=0, keepdims=True)),
    (lambda x: xp.min(x), lambda x: x.min()),
    (lambda x: xp.any(x > 1.5, axis=1), lambda x: (x > 1.5).any(axis=1)),
    (lambda x: xp.all(x > -1.5, axis=1), lambda x: (x > -1.5).all(axis=1)),
    (lambda x: xp.argmax(x), lambda x: x.argmax()),
    (lambda x: xp.argmin(x, axis=1, keepdims=True), lambda x: x.argmin(axis=1, keepdims=True)),
    (lambda x: xp.cumulative_sum(x, axis=1), lambda x: x.cumsum(axis=1)),
    (lambda x: xp.std(x, axis=1, correction=1), lambda x: x.std(axis=1, ddof=1)),
    (lambda x: xp.logsumexp(x, axis=1), lambda x: special.logsumexp(x, axis=1)),
    (lambda x: xp.softmax(x, axis=0), lambda x: special.softmax(x, axis=0)),
    (lambda x: xp.log_softmax(x), lambda x: special.log_softmax(x, axis=-1)),
    (lambda x: xp.gelu(x, approximate=False), lambda x: x * special.ndtr(x)),
    (lambda x: xp.silu(x), lambda x: x * special.expit(x)),
    (lambda x: xp.relu(x) + xp.erf(x), lambda x: np.maximum(x, 0) + special.erf(x)),
    (
        lambda x: xp.layer_norm(x, eps=0.0),
        lambda x: (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True),
    ),
    (
        lambda x: xp.rms_norm(x, eps=0.0),
        lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True)),
    ),
]


@pytest.mark.parametrize(("traced", "plain"), REDUCING)
def test_reductions_and_composites(traced, plain):
    check(traced, plain, X)


MATMULS = [
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((3,), (2, 3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)),
]


@pytest.mark.parametrize(("a", "b"), MATMULS)
def test_matmul(a, b):
    check(xp.matmul, np.matmul, spec(a), spec(b))


def test_tensordot():
    axes = ([0, 2], [1, 0])
    a, b = spec((2, 3, 4)), spec((4, 2, 5))
    check(lambda x, y: xp.tensordot(x, y, axes), lambda x, y: np.tensordot(x, y, axes), a, b)


@pytest.mark.parametrize(
    ("fn", "dtypes", "expected"),
    [
        (lambda x: x + 1, ["i32"], "i32"),
        (lambda x: x + 1.5, ["i32"], "f32"),
        (lambda x: x * 2.0, ["f16"], "f16"),
        (lambda x: x / 2, ["i32"], "f32"),
        (lambda x: x & 0xFFFFFFFF, ["u32"], "u32"),
        (lambda x, y: x + y, ["f32", "f64"], "f64"),
        (lambda x, y: x + y, ["i64", "f32"], "f32"),
        (lambda x, y: x + y, ["f16", "bf16"], "f32"),
        (lambda x, y: x + y, ["i8", "u8"], "i16"),
        (lambda x, y: x + y, ["i16", "u16"], "i32"),
        (lambda x: x.sum(), ["u16"], "u32"),
        (lambda x: x + 2**63, ["u64"], "u64"),
        (lambda x, y: x + y, ["i32", "u32"], "i64"),
        (lambda x, y: x * y, ["bool", "f32"], "f32"),
        (lambda x, y: x < y, ["i32", "f32"], "bool"),
        (lambda x: x.sum(), ["bool"], "i32"),
        (lambda x: x.astype("f64"), ["i32"], "f64"),
        (lambda x: np.float32(2.0) * x, ["f16"], "f32"),
        (lambda x: x * np.sqrt(2.0), ["f32"], "f32"),
    ],
)
def test_promotion(fn, dtypes, expected):
    graph = trace(fn, *(spec(3, d) for d in dtypes))
    assert str(graph.output_types[0].dtype) == expected


def test_inputs_and_outputs_are_named():
    def fn(x, weights):
        return {"total": x + weights["w"], "rest": [x * 2.0, weights["b"]]}

    graph = trace(fn, spec(3, low=0, high=1), {"w": spec(3), "b": spec(())})
    assert graph.input_names == ("x", "weights_w", "weights_b")
    assert graph.output_names == ("total", "rest_0", "rest_1")
    assert dict(graph[graph.inputs[0]].attrs)["high"] == 1
    assert trace(fn, spec(3), {"w": spec(3), "b": spec(())}, names=["a", "b", "c"]).input_names == (
        "a", "b", "c",
    )  # fmt: skip


def test_specs_may_be_arrays():
    graph = trace(lambda x: x + 1, np.zeros((2, 3), np.int32))
    assert str(graph.input_types[0]) == "i32[2,3]"
    assert spec(4, "float64") == Spec((4,), DType.F64)


def test_equal_programs_are_equal_graphs():
    first = trace(lambda x: xp.exp(x) * 2.0 + 2.0, X)
    second = trace(lambda other: np.add(np.exp(other) * 2.0, 2.0), X)
    assert digest(first) == digest(second)


def test_kept_axes_leave_no_reshapes():
    graph = trace(lambda x, g: xp.layer_norm(x, g), X, V)
    assert not [n for n in graph.nodes if n.op == "reshape"]


def test_fori_loop_carries_nested_state_and_captures():
    def fn(x, v):
        scale = v * 0.5

        def body(i, state):
            return {"a": state["a"] * scale + i, "n": [state["n"][0] + 1]}

        return xp.fori_loop(4, body, {"a": x, "n": [xp.asarray(0)]})

    def plain(x, v):
        for i in range(4):
            x = x * (v * 0.5) + i
        return x

    (final, count), inputs = run(fn, X, V)
    np.testing.assert_allclose(final, plain(*inputs), rtol=1e-6)
    assert count == 4


def test_nested_loops_capture_through_both():
    def fn(x, v):
        def outer(i, s):
            return xp.fori_loop(2, lambda j, t: t * 0.5 + v * (i + j), s)

        return xp.fori_loop(3, outer, x)

    def plain(x, v):
        for i in range(3):
            for j in range(2):
                x = x * 0.5 + v * (i + j)
        return x

    check(fn, plain, X, V)


def test_scan_stacks_what_each_trip_returns():
    def fn(v):
        return xp.scan(lambda i, s: (s + v, (s.sum(), v * i)), v, 3)

    (last, sums, stacked), (v,) = run(fn, V)
    np.testing.assert_allclose(last, 4 * v, rtol=1e-6)
    np.testing.assert_allclose(sums, [v.sum(), 2 * v.sum(), 3 * v.sum()], rtol=1e-6)
    np.testing.assert_allclose(stacked, np.arange(3)[:, None] * v, rtol=1e-6)


def test_random_numbers_are_reproducible_and_in_range():
    def fn(key):
        return (
            xp.uniform(key, (1000,), stream=3, low=-1.0, high=1.0),
            xp.uniform(key, (1000,), stream=4, low=-1.0, high=1.0),
            xp.normal(key, (1000,)),
        )

    (a, b, gauss), _ = run(fn, spec(2, "u32"))
    (again, *_), _ = run(fn, spec(2, "u32"))
    np.testing.assert_array_equal(a, again)
    assert a.min() >= -1 and a.max() < 1 and abs(a.mean()) < 0.1
    assert not np.array_equal(a, b)
    assert abs(gauss.mean()) < 0.15 and abs(gauss.std() - 1) < 0.1


BAD = [
    (lambda x: x if x.sum() > 0 else -x, "data-dependent"),
    (lambda x: float(x[0, 0]), "data-dependent"),
    (lambda x: np.asarray(x), "data-dependent"),
    (lambda x: x[x > 0], "boolean mask"),
    (lambda x: x + xp.zeros(3), "broadcast"),
    (lambda x: x @ x, "inner extents"),
    (lambda x: x[7], "out of range"),
    (lambda x: x[0, 0, 0], "3 indices"),
    (lambda x: x.sum(axis=2), "axis 2"),
    (lambda x: x.reshape(3, 3), "reshape"),
    (lambda x: np.linalg.inv(x), "no traced counterpart"),
    (lambda x: x.astype("f31"), "unknown dtype"),
    (lambda x: xp.fori_loop(3, lambda i, s: s[0], x), "enters as"),
    (lambda x: xp.fori_loop(3, lambda i, s: (s, s), x), "state"),
    (lambda x: xp.fori_loop(-1, lambda i, s: s, x), "at least once"),
    (lambda x: x.__setitem__(0, 1.0), "assigned"),
    (lambda x: x + "a", "str"),
    (lambda x: x & 1, "bitwise"),
    (lambda x: (), "no array"),
]


@pytest.mark.parametrize(("fn", "message"), BAD)
def test_errors_say_what_is_wrong(fn, message):
    with pytest.raises(TraceError, match=message) as caught:
        trace(fn, X)
    assert "\n" not in str(caught.value)


def test_arrays_may_not_leave_their_loop():
    leaked = []

    def body(i, s):
        leaked.append(s * 2.0)
        return s

    with pytest.raises(TraceError, match="outside"):
        trace(lambda x: xp.fori_loop(2, body, x) + leaked[0], X)


def test_functions_need_a_trace():
    with pytest.raises(TraceError, match=r"inside autofuse\.trace"):
        xp.zeros(3)


def test_load_source(tmp_path):
    name, graph = load_source("zoo:softmax:small")
    assert name == "zoo:softmax:small" and len(graph.inputs) == 1
    for bad, message in [
        ("zoo:nothing", "unknown zoo workload 'nothing' .known: softmax"),
        ("zoo:softmax:huge", "no size 'huge'"),
        (str(tmp_path / "none.json"), "no such file"),
    ]:
        with pytest.raises(AutofuseError, match=message):
            load_source(bad)
