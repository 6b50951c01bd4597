"""ONNX models of a few bytes that ask for hours or gigabytes: refused in a sentence, at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")  # an extra of its own
from onnx import helper

from autofuse.errors import AutofuseError
from autofuse.frontends.onnx.read import load_onnx
from tests.support.onnx_models import FLOAT, INT64, model, node

LOCAL = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
MOST_BYTES = 1 << 28


def functions(deep: int, wide: int) -> Any:
    """Functions that call the next one several times: wide ** deep calls."""
    made = []
    for k in range(deep):
        names = ["a", *(f"t{i}" for i in range(wide - 1)), "b"]
        pairs = pairwise(names)
        inner = [("local", f"f{k + 1}") if k + 1 < deep else ("", "Relu")] * wide
        calls = [
            helper.make_node(op, [x], [y], domain=domain)
            for (domain, op), (x, y) in zip(inner, pairs, strict=True)
        ]
        made.append(helper.make_function("local", f"f{k}", ["a"], ["b"], calls, LOCAL))
    first = helper.make_node("f0", ["x"], ["y"], domain="local")
    return model([first], [("x", FLOAT, [2])], [("y", FLOAT, [2])], functions=made)


def padded_convolution() -> Any:
    """One known element, and padding around it of billions that the strides leave out."""
    held = {"x": np.ones((1, 1, 1, 1), np.float32), "w": np.ones((1, 1, 1, 1), np.float32)}
    wide = node("Conv", ["x", "w"], ["y"], pads=[30000] * 4, strides=[60001] * 2)
    return model([wide], [], [("y", FLOAT, [1, 1, 1, 1])], held)


def many_rows() -> Any:
    """A loop whose body is written out again and again, within itself."""
    body_in = [helper.make_tensor_value_info("i", INT64, []),
               helper.make_tensor_value_info("c", 9, []),
               helper.make_tensor_value_info("s", FLOAT, [None])]  # fmt: skip
    inner: Any = None
    for level in range(6):
        nodes = [node("Concat", ["s", "s"], ["t"], axis=0)] if inner is None else [inner]
        nodes = [*nodes, node("Slice", ["t", "zero", "one"], ["u"]), node("Identity", ["c"], ["d"])]
        outs = [helper.make_tensor_value_info("d", 9, []),
                helper.make_tensor_value_info("u", FLOAT, [None])]  # fmt: skip
        graph = helper.make_graph(nodes, f"b{level}", body_in, outs)
        inner = helper.make_node("Loop", ["n", "", "s"], ["t"], body=graph)
    inner.input[2] = "x"
    inner.output[0] = "y"
    held = {
        "n": np.asarray(100, np.int64),
        "zero": np.zeros(1, np.int64),
        "one": np.ones(1, np.int64),
    }
    return model([inner], [("x", FLOAT, [4])], [("y", FLOAT, ["n"])], held)


def resized() -> Any:
    held = {"s": np.asarray([1, 1, 2**31 - 1], np.int64)}
    wide = node("Resize", ["x", "", "", "s"], ["y"], mode="cubic")
    return model([wide], [("x", FLOAT, [1, 1, 3])], [("y", FLOAT, [1, 1, 2**31 - 1])], held)


def waves() -> Any:
    held = {"n": np.asarray(2**30, np.int64)}
    made = node("DFT", ["x", "n"], ["y"], axis=1)
    return model([made], [("x", FLOAT, [1, 4, 1])], [("y", FLOAT, [1, 2**30, 2])], held)


def mels() -> Any:
    held: dict[str, np.ndarray] = {
        "b": np.asarray(2**20, np.int64), "n": np.asarray(2**40, np.int64),
        "r": np.asarray(8000, np.int64), "l": np.asarray(0, np.float32),
        "h": np.asarray(4000, np.float32),
    }  # fmt: skip
    made = node("MelWeightMatrix", list("bnrlh"), ["y"])
    return model([made], [("x", FLOAT, [1])], [("y", FLOAT, [2, 2])], held)


def framed() -> Any:
    held = {"s": np.asarray(1, np.int64), "n": np.asarray(2**16, np.int64)}
    made = node("STFT", ["x", "s", "", "n"], ["y"])
    return model([made], [("x", FLOAT, [1, 2**28, 1])], [("y", FLOAT, [1, 1, 1, 2])], held)


def weighed() -> Any:
    """An LSTM of known operands whose hidden size is a number alone."""
    held = {"x": np.ones((1, 1, 1), np.float32), "w": np.ones((1, 4, 1), np.float32)}
    made = node("LSTM", ["x", "w", "w"], ["y"], hidden_size=2**40)
    return model([made], [], [("y", FLOAT, [1, 1, 1, 1])], held)


MADE: list[Callable[[], Any]] = [
    lambda: functions(30, 2), lambda: functions(3, 60), padded_convolution, many_rows, resized,
    waves, mels, framed, weighed,
]  # fmt: skip


# The second is the first in other proportions, and takes the longest.
@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.slow) if n == 1 else n for n in range(len(MADE))],
)
def test_bombs_are_refused_within_their_budget(number: int, tmp_path: Path) -> None:
    """In this process, without any limit but those of the reader."""
    path = tmp_path / "m.onnx"
    path.write_bytes(MADE[number]().SerializeToString())
    tracemalloc.start()
    try:
        load_onnx(str(path), {})
    except AutofuseError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < MOST_BYTES
