"""Layouts of PyTorch's tensors at the border of graphs, and where graphs are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.graph.reference import evaluate
from autofuse.graph.surgery.embed import embedded
from autofuse.graph.writer import GraphWriter
from autofuse.interop.torch.layout import agrees, bordered, dense, layout_of
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError

SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=4).map(tuple)


def strided(shape: tuple[int, ...], strides: tuple[int, ...], memory: np.ndarray) -> np.ndarray:
    """The array with these strides, in elements."""
    nbytes = tuple(s * memory.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(memory, shape, nbytes)


@given(SHAPES, st.randoms(use_true_random=False))
def test_a_permuted_tensor_is_a_row_major_array(shape: tuple[int, ...], random) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    memory = np.arange(int(np.prod(shape)), dtype=np.float32)
    tensor = memory.reshape([shape[a] for a in order]).transpose(np.argsort(order).astype(int))
    strides = tuple(s // 4 for s in tensor.strides)
    layout = layout_of(tensor.shape, strides)
    assert layout is not None
    assert agrees(tensor.shape, layout.strides, strides)
    stored = memory.reshape(layout.stored)
    w = GraphWriter()
    array = w.input("x", layout.stored, DType.F32)
    (read,) = evaluate(w.build([layout.read(w, array)]), [stored])
    np.testing.assert_array_equal(read, tensor)


def test_a_repeated_axis_is_one_element() -> None:
    memory = np.arange(3, dtype=np.float32)
    layout = layout_of((2, 3, 4), (0, 1, 0))
    assert layout is not None
    assert layout.stored == (3, 1, 1)
    w = GraphWriter()
    x = w.input("x", layout.stored, DType.F32)
    (read,) = evaluate(w.build([layout.read(w, x)]), [memory.reshape(layout.stored)])
    np.testing.assert_array_equal(read, strided((2, 3, 4), (0, 1, 0), memory))


@pytest.mark.parametrize(
    ("shape", "strides"), [((3, 4), (5, 1)), ((3, 3), (1, 1)), ((4,), (2,)), ((2, 2), (1, 3))]
)
def test_gaps_and_overlaps_are_no_layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert layout_of(shape, strides) is None


def test_axes_of_one_element_have_any_stride() -> None:
    layout = layout_of((1, 3, 1), (77, 1, 0))
    assert layout is not None
    assert layout.stored == (1, 3, 1)
    assert agrees((1, 3, 1), (77, 1, 0), (3, 1, 1))
    assert not agrees((2, 3, 1), (77, 1, 0), (3, 1, 1))


def test_a_bordered_graph_takes_and_gives_arrays_as_they_are_stored() -> None:
    w = GraphWriter()
    x, y = w.input("x", (2, 3), DType.F32), w.input("y", (2, 3), DType.F32, low=1, high=2)
    graph = w.build([w.sub(x, y)], ["z"])
    columns = layout_of((2, 3), (1, 2))
    assert columns is not None
    whole = bordered(graph, [columns, dense((2, 3))], [columns], frozenset({1}))
    assert whole.output_names == ("z",)
    assert dict(whole[whole.inputs[1]].attrs)["constant"] is True
    assert dict(whole[whole.inputs[1]].attrs)["low"] == 1
    a, b = (np.random.default_rng(k).random((2, 3), np.float32) for k in (1, 2))
    (found,) = evaluate(whole, [np.ascontiguousarray(a.T), b])
    np.testing.assert_allclose(found, (a - b).T)


def test_an_embedded_graph_wants_its_types() -> None:
    w, other = GraphWriter(), GraphWriter()
    graph = other.build([other.map("neg", other.input("x", (2,), DType.F32))])
    with pytest.raises(GraphError, match="takes f32"):
        embedded(w, graph, [w.input("x", (3,), DType.F32)])
