"""What the standard's own cases do not ask of rules: against NumPy and the definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")  # an extra of its own
from onnx import helper, numpy_helper

from autofuse.frontends.errors import FrontendError
from tests.support.onnx_runs import graph_of, imported_model, run_model, run_node

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


# Recurrent layers


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def lstm_of_one(
    x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray, p: np.ndarray, clip: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One sequence [time, input] by the equations of the standard."""
    h = c = np.zeros(r.shape[1])
    pi, po, pf = np.split(p, 3)
    rows = []

    def cut(v: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(v, -clip, clip))

    for row in x:
        i, o, f, g = np.split(w @ row + r @ h + sum(np.split(b, 2)), 4)
        i, f = sigmoid(cut(i + pi * c)), sigmoid(cut(f + pf * c))
        c = f * c + i * np.tanh(cut(g))
        h = sigmoid(cut(o + po * c)) * np.tanh(cut(c))
        rows.append(h)
    return np.array(rows), h, c


def test_lstm_of_sequences_of_different_lengths_both_ways_with_peepholes_and_clip() -> None:
    steps, batch, size, hidden, clip = 4, 3, 2, 5, 0.4
    x, lens = f32(steps, batch, size), np.array([4, 1, 3], np.int32)
    w, r = f32(2, 4 * hidden, size), f32(2, 4 * hidden, hidden)
    b, p = f32(2, 8 * hidden), f32(2, 3 * hidden)
    zero = np.zeros((2, batch, hidden), np.float32)
    given = {"x": x, "w": w, "r": r, "b": b, "lens": lens, "h": zero, "c": zero, "p": p}
    y, y_h, y_c = run_node(
        "LSTM", given, 3, direction="bidirectional", hidden_size=hidden, clip=clip
    )
    for k, n in enumerate(lens):
        for d, own in ((0, x[:n, k]), (1, x[:n, k][::-1])):
            rows, h, c = lstm_of_one(own, w[d], r[d], b[d], p[d], clip)
            np.testing.assert_allclose(y[:n, d, k], rows[:: -1 if d else 1], atol=1e-6)
            np.testing.assert_allclose((y_h[d, k], y_c[d, k]), (h, c), atol=1e-6)
        assert not y[n:, :, k].any()


def test_gru_resets_before_or_after_the_product() -> None:
    x, w, r, b = f32(3, 2, 2), f32(1, 12, 2), f32(1, 12, 4), f32(1, 24)
    own, recurrent = np.split(b[0], 2)
    for after in (0, 1):
        (y,) = run_node("GRU", {"x": x, "w": w, "r": r, "b": b}, hidden_size=4,
                        linear_before_reset=after)  # fmt: skip
        h = np.zeros((2, 4))
        for t in range(3):
            (xz, xr, xn), (rz, rr, rn) = np.split(x[t] @ w[0].T + own, 3, 1), np.split(r[0], 3)
            bz, br, bn = np.split(recurrent, 3)
            z, reset = sigmoid(xz + h @ rz.T + bz), sigmoid(xr + h @ rr.T + br)
            late = reset * (h @ rn.T + bn) if after else (reset * h) @ rn.T + bn
            h = (1 - z) * np.tanh(xn + late) + z * h
            np.testing.assert_allclose(y[t, 0], h, atol=1e-6)


def test_activations_take_their_alphas_and_betas_in_order() -> None:
    x, w, r = f32(1, 2, 2), f32(2, 3, 2), np.zeros((2, 3, 3), np.float32)
    (y,) = run_node("RNN", {"x": x, "w": w, "r": r}, hidden_size=3, direction="bidirectional",
                    activations=["LeakyRelu", "Affine"], activation_alpha=[0.25, 2.0],
                    activation_beta=[0.5])  # fmt: skip
    first, second = (x[0] @ w[d].T for d in (0, 1))
    np.testing.assert_allclose(y[0, 0], np.where(first < 0, 0.25 * first, first), atol=1e-6)
    np.testing.assert_allclose(y[0, 1], 2 * second + 0.5, atol=1e-6)


# Branches and loops


def body_of(nodes: list[Any], inputs: list[str], outputs: list[str], **held: np.ndarray) -> Any:
    info = [helper.make_tensor_value_info(n, 0, None) for n in inputs]
    made = [helper.make_tensor_value_info(n, 0, None) for n in outputs]
    kept = [numpy_helper.from_array(a, n) for n, a in held.items()]
    return helper.make_graph(nodes, "body", info, made, kept)


def ops_of(graph: Any, inputs: dict[str, np.ndarray]) -> list[str]:
    return [node.op for node in imported_model(graph, inputs).graph.nodes]


def loop(body: Any, operands: list[str], outputs: list[str]) -> Any:
    return helper.make_node("Loop", operands, outputs, body=body)


def test_a_branch_that_is_not_known_is_computed_where_it_is_taken() -> None:
    yes = body_of([helper.make_node("Neg", ["x"], ["a"])], [], ["a"])
    no = body_of([helper.make_node("Add", ["x", "one"], ["b"])], [], ["b"],
                 one=np.ones(3, np.float32))  # fmt: skip
    any_above = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["taken"]),
        helper.make_node("If", ["taken"], ["y"], then_branch=yes, else_branch=no),
    ]
    for x in (np.array([-1, 2, -3], np.float32), np.array([-1, -2, -3], np.float32)):
        graph = graph_of(any_above, {"x": x}, ["y"], {"zero": np.zeros((), np.float32)})
        (y,) = run_model(graph, {"x": x})
        np.testing.assert_array_equal(y, -x if x.max() > 0 else x + 1)


def test_a_loop_of_known_length_is_counted() -> None:
    x = f32(3)
    nodes = [
        helper.make_node("Mul", ["state", "half"], ["next"]),
        helper.make_node("Identity", ["next"], ["row"]),
        helper.make_node("Identity", ["go"], ["again"]),
    ]
    body = body_of(nodes, ["i", "go", "state"], ["again", "next", "row"],
                   half=np.array(0.5, np.float32))  # fmt: skip
    held = {"n": np.array(4, np.int64), "go": np.array(True)}
    graph = graph_of([loop(body, ["n", "go", "x"], ["last", "rows"])], {"x": x}, ["last", "rows"],
                     held)  # fmt: skip
    assert "loop" in ops_of(graph, {"x": x})
    last, rows = run_model(graph, {"x": x})
    np.testing.assert_allclose(rows, [x / 2**k for k in range(1, 5)], rtol=1e-6)
    np.testing.assert_allclose(last, x / 16, rtol=1e-6)


def test_iterations_that_decide_shapes_are_written_one_after_another() -> None:
    """Each adds one more row to its state."""
    x = f32(1, 3)
    nodes = [
        helper.make_node("Concat", ["state", "x"], ["next"], axis=0),
        helper.make_node("Less", ["i", "two"], ["again"]),
    ]
    body = body_of(nodes, ["i", "go", "state"], ["again", "next"], two=np.array(2, np.int64))
    held = {"n": np.array(10, np.int64), "go": np.array(True)}
    graph = graph_of([loop(body, ["n", "go", "x"], ["y"])], {"x": x}, ["y"], held)
    np.testing.assert_array_equal(run_model(graph, {"x": x})[0], np.repeat(x, 4, 0))


def test_a_loop_ends_by_a_condition_or_by_a_count_that_are_not_known() -> None:
    nodes = [
        helper.make_node("Add", ["state", "state"], ["next"]),
        helper.make_node("ReduceMax", ["next"], ["top"], keepdims=0),
        helper.make_node("Less", ["top", "limit"], ["again"]),
    ]
    body = body_of(nodes, ["i", "go", "state"], ["again", "next"])
    x, limit = np.array([1, 2], np.float32), np.array(20, np.float32)
    inputs = {"x": x, "limit": limit}
    graph = graph_of([loop(body, ["", "", "x"], ["y"])], inputs, ["y"])
    assert "while" in ops_of(graph, inputs)
    np.testing.assert_array_equal(run_model(graph, inputs)[0], x * 16)
    counted = {**inputs, "n": np.array([[2.7]], np.float32)}
    count = helper.make_node("Cast", ["n"], ["m"], to=7)
    graph = graph_of([count, loop(body, ["m", "", "x"], ["y"])], counted, ["y"])
    np.testing.assert_array_equal(run_model(graph, counted)[0], x * 4)


def test_a_loop_whose_results_have_no_known_length_is_refused() -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Less", ["top", "top"], ["again"]),
        helper.make_node("Neg", ["x"], ["row"]),
    ]
    body = body_of(nodes, ["i", "go"], ["again", "row"])
    held = {"n": np.array(5, np.int64)}
    graph = graph_of([loop(body, ["n", ""], ["y"])], {"x": f32(2)}, ["y"], held)
    with pytest.raises(FrontendError, match=r"node of 'y': Loop: .*how long its results are"):
        run_model(graph, {"x": f32(2)})


def test_scan_backwards_along_another_axis() -> None:
    x = f32(2, 4)
    body = body_of(
        [helper.make_node("Add", ["s", "r"], ["t"]), helper.make_node("Identity", ["t"], ["o"])],
        ["s", "r"], ["t", "o"],
    )  # fmt: skip
    node = helper.make_node("Scan", ["s", "x"], ["last", "rows"], body=body, num_scan_inputs=1,
                            scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1],
                            scan_output_directions=[1])  # fmt: skip
    inputs = {"s": np.zeros(2, np.float32), "x": x}
    last, rows = run_model(graph_of([node], inputs, ["last", "rows"]), inputs)
    np.testing.assert_allclose(rows, np.cumsum(x[:, ::-1], 1)[:, ::-1], atol=1e-6)
    np.testing.assert_allclose(last, x.sum(1), atol=1e-6)


# Numbers in steps


def test_numbers_beyond_the_range_are_kept_at_its_ends_and_halves_go_to_even() -> None:
    x = np.array([-1e9, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9], np.float32)
    operands: dict[str, np.ndarray] = {
        "x": x, "s": np.array(1, np.float32), "z": np.array(3, np.uint8)
    }  # fmt: skip
    (found,) = run_node("QuantizeLinear", operands)
    np.testing.assert_array_equal(found, [0, 1, 3, 3, 5, 5, 255])
    operands["z"] = np.array(3, np.int8)
    (found,) = run_node("QuantizeLinear", operands)
    np.testing.assert_array_equal(found, [-128, 1, 3, 3, 5, 5, 127])


def test_steps_may_have_sixteen_bits() -> None:
    operands = {"x": np.array([0.4, 1.6, 7e4], np.float32), "s": np.array(1, np.float32)}
    (found,) = run_node("QuantizeLinear", operands, output_dtype=4)
    assert found.dtype == np.uint16 and found.tolist() == [0, 2, 65535]


def test_steps_of_four_bits_are_refused_by_name() -> None:
    operands = {"x": f32(2), "s": np.array(1, np.float32)}
    with pytest.raises(FrontendError, match="QuantizeLinear: dtype uint4"):
        run_node("QuantizeLinear", operands, output_dtype=21)


# Windows


def test_rounded_up_pools_count_no_place_beyond_the_padding() -> None:
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    window: dict[str, Any] = {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}
    window |= {"ceil_mode": 1, "count_include_pad": 1}
    (found,) = run_node("AveragePool", {"x": x[..., :4]}, **window)
    np.testing.assert_allclose(found[0, 0], [1 / 3, 2, 1.5], rtol=1e-6)
    (found,) = run_node("MaxPool", {"x": x[..., :4]}, **{**window, "count_include_pad": None})
    np.testing.assert_array_equal(found[0, 0], [1, 3, 3])


def test_the_places_of_maxima_are_those_of_all_elements() -> None:
    x = RNG.permutation(36).reshape(2, 1, 3, 6).astype(np.float32)
    values, rows = run_node("MaxPool", {"x": x}, 2, kernel_shape=[2, 2], strides=[1, 2])
    np.testing.assert_array_equal(x.reshape(-1)[rows], values)
    _, columns = run_node("MaxPool", {"x": x}, 2, kernel_shape=[2, 2], strides=[1, 2],
                          storage_order=1)  # fmt: skip
    np.testing.assert_array_equal(x.transpose(0, 1, 3, 2).reshape(-1)[columns], values)


# Weights at training


def test_a_batch_norm_that_trains_moves_its_statistics() -> None:
    x, row = f32(4, 3, 5), np.abs(f32(3)) + 1
    operands = {"x": x, "s": row, "b": row, "m": row, "v": row}
    y, mean, var = run_node("BatchNormalization", operands, 3, training_mode=1, momentum=0.75)
    own, spread = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(mean, 0.75 * row + 0.25 * own, rtol=1e-5)
    np.testing.assert_allclose(var, 0.75 * row + 0.25 * spread, rtol=1e-5)
    flat = (x - own[:, None]) / np.sqrt(spread + 1e-5)[:, None] * row[:, None] + row[:, None]
    np.testing.assert_allclose(y, flat, rtol=1e-4, atol=1e-5)
