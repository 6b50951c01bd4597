"""oneDNN through ctypes. It is an optional extra: where it is not installed, only what is said then
is tested."""

import itertools

import numpy as np
import pytest

from autofuse.backends.cpu.onednn import OneDnnError, Role, onednn
from autofuse.graph.reference import random_inputs
from autofuse.peers.types import BenchWorkload
from benchmarks.contraction_cases import Convolution, Product
from benchmarks.contraction_graphs import graph_of
from benchmarks.contraction_peers import Libraries, libraries, peers_of
from benchmarks.contractions import every_element
from benchmarks.onednn import Binary, Combine, Eltwise, Function, convolution, matmul


def installed():
    try:
        return onednn() is not None
    except OneDnnError:
        return False


needs_onednn = pytest.mark.skipif(not installed(), reason="optional: autofuse[onednn]")


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def convolved(image, kernel, stride, padding, groups=1):
    """[n, o, y, x] of image [n, c, y, x] and kernel [o, c / groups, y, x] in float64."""
    image = np.pad(np.float64(image), ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    size = kernel.shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(image, size, (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, 1), np.split(np.float64(kernel), groups), strict=True)
    return np.concatenate([np.einsum("ncyxij,ocij->noyx", a, b) for a, b in parts], 1)


def test_a_missing_library_is_one_sentence(no_onednn):
    said = "oneDNN is not installed (pip install 'autofuse[onednn]')"
    with pytest.raises(OneDnnError) as error:
        onednn()
    assert str(error.value) == said
    found, missing = libraries(1)
    assert found.onednn is None and missing["onednn"] == said
    names = [peer.name for peer in peers_of(Product(1, 2, 3, 4, False, False), found)]
    assert names == ["openblas"]


@needs_onednn
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_products_as_operands_lie(batch, packed):
    for turned_a, turned_b, m in itertools.product((False, True), (False, True), (1, 7)):
        a = drawn(*batch, 33, m).swapaxes(-1, -2) if turned_a else drawn(*batch, m, 33)
        b = drawn(*batch, 19, 33).swapaxes(-1, -2) if turned_b else drawn(*batch, 33, 19)
        out = np.full((*batch, m, 19), np.nan, np.float32)
        product = matmul(onednn(), a, b, out, packed=packed)
        product()
        assert every_element((product.result(),), (np.float64(a) @ np.float64(b),), False) < 1e-5


@needs_onednn
def test_packed_operands_are_copied_and_others_are_not():
    a, b, out = drawn(4, 8), drawn(8, 6), np.empty((4, 6), np.float32)
    plain, packed = (matmul(onednn(), a, b, out, packed=p) for p in (False, True))
    wanted = [a @ (2 * b), a @ b]
    b *= 2
    for product, right in zip((plain, packed), wanted, strict=True):
        product()
        assert product.result() == pytest.approx(right, abs=1e-5)


@needs_onednn
def test_post_ops_follow_in_order():
    a, b, added = drawn(5, 8), drawn(8, 6), drawn(1, 6, seed=2)
    out = np.empty((5, 6), np.float32)
    post = (Binary(Combine.ADD, added), Eltwise(Function.SWISH, 1.0), Eltwise(Function.RELU))
    product = matmul(onednn(), a, b, out, post=post)
    product()
    t = np.float64(a) @ b + added
    assert product.result() == pytest.approx(np.maximum(t / (1 + np.exp(-t)), 0), abs=1e-5)


@needs_onednn
@pytest.mark.parametrize("chosen", [(Role.WEIGHTS,), (Role.SRC, Role.WEIGHTS, Role.DST)])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("stride", "groups", "kernel"), [(1, 1, 3), (2, 1, 3), (1, 16, 3), (1, 1, 1)]
)
def test_convolutions_in_every_layout(last, chosen, stride, groups, kernel):
    image, bias = drawn(2, 16, 9, 9), drawn(16, seed=3)
    weights, padding = drawn(16, 16 // groups, kernel, kernel, seed=1), kernel // 2
    wanted = convolved(image, weights, stride, padding, groups) + bias[:, None, None]
    out, residual = np.empty(wanted.shape, np.float32), drawn(*wanted.shape, seed=2)
    if last:
        image, out, residual = (
            np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
            for a in (image, out, residual)
        )
    convolve = convolution(
        onednn(), image, weights, out, bias=bias, stride=stride, padding=padding, groups=groups,
        chosen=chosen, post=(Binary(Combine.ADD, residual, laid_out=Role.DST in chosen),),
    )  # fmt: skip
    convolve()
    assert every_element((convolve.result(),), (wanted + residual,), False) < 1e-5


@needs_onednn
def test_only_float32_is_taken():
    a = np.zeros((2, 2))
    with pytest.raises(OneDnnError, match="only float32 arrays are given to oneDNN, not float64"):
        matmul(onednn(), a, a, a)


@needs_onednn
def test_what_is_refused_names_the_function():
    a, b, out = drawn(2, 3), drawn(4, 5), np.empty((2, 5), np.float32)
    with pytest.raises(OneDnnError, match="refuses matmul_primitive_desc_create: invalid"):
        matmul(onednn(), a, b, out)


@needs_onednn
@pytest.mark.parametrize("groups", [1, 16])
def test_peers_compute_the_convolution_with_what_follows(groups):
    case = Convolution("toy", 16, 8, 16, 3, 2, groups)
    shapes = (1, 8, 8, 16), (3, 3, 16 // groups, 16), (16,), (4, 4, 1), (4, 4, 16)
    image, kernel, bias, scale, residual = inputs = tuple(
        drawn(*shape, seed=n) for n, shape in enumerate(shapes)
    )
    made = convolved(image.transpose(0, 3, 1, 2), kernel.transpose(3, 2, 0, 1), 2, 1, groups)
    t = (made[0].transpose(1, 2, 0) + bias) * scale + residual
    wanted = t / (1 + np.exp(-t))
    peers = peers_of(case, Libraries(onednn(), None))
    names = [f"onednn_{layout}_packed" for layout in ("nchw", "nhwc", "any")]
    assert [peer.name for peer in peers] == names
    for peer in peers:
        ready = peer.make(inputs)
        assert every_element(ready.fetch(ready.call()), (wanted,), False) < 1e-5
        # An axis that oneDNN does not understand would leave it its slow reference code.
        assert groups > 1 or "ref" not in ready.note


@needs_onednn
def test_peers_compute_products():
    for turned in (False, True):
        case = Product(2, 5, 6, 7, turned, not turned)
        graph = graph_of(case)
        a, b = inputs = random_inputs(graph, 0)
        wanted = (a.swapaxes(-1, -2) if turned else a) @ (b if turned else b.swapaxes(-1, -2))
        for peer in peers_of(case, Libraries(onednn(), None)):
            ready = peer.prepare(BenchWorkload(case.name, graph, inputs))
            assert every_element(ready.fetch(ready.call()), (wanted,), False) < 1e-5
