"""Weights of few bits: how they are packed, and the programs that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.package import onnx_package
from autofuse.frontends.onnx.read import Imported, OnnxFile, import_for
from autofuse.graph.composites.narrow import packed, unpacked
from autofuse.graph.reference import evaluate
from autofuse.graph.settled import constant_inputs
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from tests.support.onnx_runs import graph_of, run_node

MICROSOFT = "com.microsoft"
Arrays = Mapping[str, np.ndarray]


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("signed", [False, True])
def test_every_byte_is_read_as_it_was_packed(bits: int, signed: bool) -> None:
    w = GraphWriter()
    given = w.input("bytes", (2, 128), DType.U8)
    graph = w.build([unpacked(w, given, bits, signed)])
    every = np.arange(256, dtype=np.uint8).reshape(2, 128)
    (found,) = evaluate(graph, [every])
    wanted = np.unpackbits(every, axis=-1, bitorder="little").reshape(2, -1, bits)
    numbers = (wanted.astype(int) << np.arange(bits)).sum(-1)
    numbers -= (numbers >= 2 ** (bits - 1)) * signed * 2**bits
    np.testing.assert_array_equal(found, numbers)
    np.testing.assert_array_equal(packed(found, bits), every)


def nbits_model(
    attrs: Mapping[str, int], given: Arrays, held: Arrays, names: list[str]
) -> Imported:
    node = onnx_package("helper").make_node("MatMulNBits", names, ["y"], domain=MICROSOFT, **attrs)
    helper = onnx_package("helper")
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph_of([node], given, ["y"], held), opset_imports=opsets)
    return import_for(OnnxFile(model), given)


def run(found: Imported, given: Arrays) -> np.ndarray:
    weights, rest = iter(found.weights.values()), iter(given[n] for n in found.inputs)
    fixed = constant_inputs(found.graph)
    operands = [next(weights if k in fixed else rest) for k in range(len(found.graph.inputs))]
    return evaluate(found.graph, operands)[0]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero", ["none", "packed", "numbers"])
@pytest.mark.parametrize(("terms", "block"), [(64, 16), (80, 32), (64, 64)])
def test_products_by_weights_of_some_bits(bits: int, zero: str, terms: int, block: int) -> None:
    rng, rows, columns = np.random.default_rng(bits), 3, 5
    blocks = -(-terms // block)
    numbers = rng.integers(0, 2**bits, (columns, blocks, block))
    stored = packed(numbers, bits) if bits < 8 else numbers.astype(np.uint8)
    scales = rng.uniform(0.5, 2, (columns, blocks)).astype(np.float32)
    given = {"a": rng.standard_normal((2, rows, terms)).astype(np.float32)}
    held: dict[str, np.ndarray] = {"b": stored, "s": scales.reshape(-1)}
    points = np.full((columns, blocks), 2 ** (bits - 1))
    if zero == "packed":
        whole = -(-blocks * bits // 8) * 8 // bits
        points = rng.integers(0, 2**bits, (columns, whole))
        held["z"] = (packed(points, bits) if bits < 8 else points.astype(np.uint8)).reshape(-1)
        points = points[:, :blocks]
    elif zero == "numbers":
        points = rng.integers(0, 2**bits, (columns, blocks))
        held["z"] = points.astype(np.float32).reshape(-1)
    held["bias"] = rng.standard_normal(columns).astype(np.float32)
    names = ["a", "b", "s", "z" if "z" in held else "", "", "bias"]
    attrs = {"K": terms, "N": columns, "bits": bits, "block_size": block}
    found = run(nbits_model(attrs, given, held, names), given)
    wide = ((numbers - points[:, :, None]) * scales[:, :, None]).reshape(columns, -1)[:, :terms]
    np.testing.assert_allclose(found, given["a"] @ wide.T + held["bias"], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"bits": 3}, "weights of 3 bits"), ({"block_size": 1}, "blocks of 1 numbers of 4 bits")],
)
def test_other_widths_are_refused_by_name(change: dict[str, int], said: str) -> None:
    attrs = {"K": 16, "N": 2, "bits": 4, "block_size": 16, **change}
    given = {"a": np.zeros((1, 16), np.float32)}
    held = {"b": np.zeros((2, 1, 8), np.uint8), "s": np.ones(2, np.float32)}
    with pytest.raises(FrontendError, match=f"MatMulNBits: {said}"):
        nbits_model(attrs, given, held, ["a", "b", "s"])


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize("columns", [8, 7])
def test_held_numbers_of_four_bits_are_read_from_bytes(dtype: Any, columns: int) -> None:
    """Rows of an odd number are kept a byte each."""
    low, high = int(ml_dtypes.iinfo(dtype).min), int(ml_dtypes.iinfo(dtype).max)
    numbers = np.random.default_rng(1).integers(low, high + 1, (6, columns))
    held = {"x": numbers.astype(dtype), "s": np.array([0.5, 2.0, 3.0], np.float32)[:, None]}
    held["s"] = np.repeat(held["s"], columns, 1)
    held["z"] = np.ones((3, columns), dtype)
    (found,) = run_node("DequantizeLinear", {}, held=held, axis=0, block_size=2)
    np.testing.assert_allclose(found, (numbers - 1) * np.repeat(held["s"], 2, 0))


def test_bytes_of_weights_are_what_the_graph_reads() -> None:
    numbers = np.zeros((4, 6), ml_dtypes.int4)
    node = onnx_package("helper").make_node("DequantizeLinear", ["x", "s"], ["y"])
    graph = graph_of([node], {}, ["y"], {"x": numbers, "s": np.float32(2)})
    helper = onnx_package("helper")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    found = import_for(OnnxFile(model), {})
    assert [(a.dtype, a.shape) for a in found.weights.values()] == [(np.uint8, (4, 3))]
