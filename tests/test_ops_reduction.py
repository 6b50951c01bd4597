"""Folds and contractions: NaNs, ties, wrapping, GEMM forms, and refused calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from autofuse.ops.contraction import BatchAxis, GemmForm, Matrix, dot_attrs, gemm_form
from autofuse.ops.dtypes import INTS, DType
from autofuse.ops.spec import infer, spec_of
from autofuse.ops.types import GraphError, OpCall, TensorType, make_attrs
from tests.support.expr_eval import eval_body
from tests.support.gemm_forms import contiguous, multiplied

F32, I32 = DType.F32, DType.I32
NAN, INF = float("nan"), float("inf")


def _call(op: str, *ins: TensorType, **attrs: Any) -> OpCall:
    frozen = make_attrs(attrs)
    return OpCall(frozen, ins, infer(op, ins, frozen))


def _both(op: str, values: ArrayLike, dtype: DType, **attrs: Any) -> np.ndarray:
    """The fold's result, which must equal the reference's."""
    x = np.asarray(values, dtype=dtype.numpy)
    call = _call(op, TensorType(x.shape, dtype), **attrs)
    found = eval_body(spec_of(op), call, (x,))[0]
    wanted = spec_of(op).reference((x.astype(dtype.reference),), call)[0]
    np.testing.assert_array_equal(found, wanted)
    return found


@pytest.mark.parametrize("op", ["reduce_max", "reduce_min"])
def test_extrema_propagate_nan(op: str) -> None:
    rows = [[1, NAN, 3], [NAN, 1, 2], [1, 2, NAN], [1, 2, 3]]
    found = _both(op, rows, F32, axes=(1,))
    assert np.isnan(found).tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("values", "largest", "smallest"),
    [
        ([1, 3, 3, 1, 2], 1, 0),
        ([NAN, 1, NAN], 0, 0),
        ([1, NAN, 2, NAN], 1, 1),
        ([-INF, -INF, -INF], 0, 0),
        ([INF, INF], 0, 0),
        ([0.0, -0.0], 0, 0),
        ([7], 0, 0),
    ],
)
def test_first_occurrence_and_first_nan_win(
    values: list[float], largest: int, smallest: int
) -> None:
    assert _both("argmax", values, F32, axis=0) == largest
    assert _both("argmin", values, F32, axis=0) == smallest


@pytest.mark.parametrize("dtype", INTS)
def test_integer_extremes_are_found(dtype: DType) -> None:
    limits = np.iinfo(dtype.numpy)
    assert _both("argmax", [limits.min, limits.min], dtype, axis=0) == 0
    assert _both("argmin", [limits.max, limits.max, limits.min], dtype, axis=0) == 2
    assert _both("reduce_max", [limits.min], dtype, axes=(0,)) == limits.min
    assert _both("reduce_min", [limits.max], dtype, axes=(0,)) == limits.max


def test_small_integers_wrap() -> None:
    assert _both("reduce_sum", [100, 100], DType.I8, axes=(0,)) == -56
    assert _both("reduce_prod", [100, 3], DType.U8, axes=(0,)) == 44
    assert _both("cumsum", [200, 100], DType.U8, axis=0).tolist() == [200, 44]


def test_empty_axes_give_the_identity() -> None:
    for op, wanted in (("reduce_sum", 0), ("reduce_prod", 1), ("reduce_max", -INF)):
        x = np.zeros((0,), dtype=np.float64)
        call = _call(op, TensorType((0,), F32), axes=(0,))
        assert spec_of(op).reference((x,), call)[0] == wanted


@pytest.mark.parametrize(
    ("op", "dtype", "attrs", "message"),
    [
        ("reduce_sum", F32, {"axes": ()}, "nothing is reduced"),
        ("reduce_sum", F32, {"axes": (1, 0)}, "increasing"),
        ("reduce_sum", F32, {"axes": (2,)}, "distinct axes"),
        ("reduce_sum", DType.BOOL, {"axes": (0,)}, "dtype bool"),
        ("reduce_any", F32, {"axes": (0,)}, "dtype f32"),
        ("argmax", F32, {"axis": 2}, "has 2 axes"),
        ("argmax", F32, {"axis": "0"}, "must be an integer"),
        ("cumsum", DType.BOOL, {"axis": 0}, "dtype bool"),
    ],
)
def test_bad_reductions_are_refused(
    op: str, dtype: DType, attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        _call(op, TensorType((2, 3), dtype), **attrs)


def test_argmax_of_nothing_is_refused() -> None:
    with pytest.raises(GraphError, match="it has no extremum"):
        _call("argmax", TensorType((2, 0), F32), axis=1)


Dims = tuple[int, ...]
BATCHED = dot_attrs((2,), (1,), (0,), (0,))
TWICE = dot_attrs((3,), (3,), (0, 1), (0, 1))


@pytest.mark.parametrize(
    ("lhs", "rhs", "attrs", "form"),
    [
        ((3, 5), (5, 2), dot_attrs((1,), (0,)), contiguous(1, 3, 2, 5)),
        ((5, 3), (5, 2), dot_attrs((0,), (0,)), contiguous(1, 3, 2, 5, True, False)),
        ((3, 5), (2, 5), dot_attrs((1,), (1,)), contiguous(1, 3, 2, 5, False, True)),
        ((5, 3), (2, 5), dot_attrs((0,), (1,)), contiguous(1, 3, 2, 5, True, True)),
        ((4, 7, 5), (5, 2), dot_attrs((2,), (0,)), contiguous(1, 28, 2, 5, False, False)),
        ((3, 5, 7), (5, 7, 2), dot_attrs((1, 2), (0, 1)), contiguous(1, 3, 2, 35, False, False)),
        ((5,), (5,), dot_attrs((0,), (0,)), contiguous(1, 1, 1, 5, False, False)),
        ((3,), (2,), dot_attrs((), ()), contiguous(1, 3, 2, 1, False, False)),
        ((4, 3, 5), (4, 5, 2), BATCHED, contiguous(4, 3, 2, 5, False, False)),
        ((4, 6, 3, 5), (4, 6, 2, 5), TWICE, contiguous(24, 3, 2, 5, False, True)),
        ((3, 4, 5), (4, 5, 2), dot_attrs((2,), (1,), (1,), (0,)),
         GemmForm(3, 2, 5, Matrix(0, 20), Matrix(0, 2), (BatchAxis(4, 5, 10, 6),))),
        ((3, 5, 4), (4, 5, 2), dot_attrs((1,), (1,), (2,), (0,)), None),
        ((3, 5, 7), (7, 5, 2), dot_attrs((1, 2), (1, 0)), None),
        ((3, 5, 4), (5, 2), dot_attrs((1,), (0,)), None),
    ],
)  # fmt: skip
def test_gemm_form(lhs: Dims, rhs: Dims, attrs: dict[str, Dims], form: GemmForm | None) -> None:
    call = _call("dot_general", TensorType(lhs, F32), TensorType(rhs, F32), **attrs)
    found = gemm_form(call)
    assert found == form
    if found is None:
        return
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=lhs), rng.normal(size=rhs)
    product = multiplied(found, a, b)
    wanted = spec_of("dot_general").reference((a, b), call)[0]
    np.testing.assert_allclose(product.reshape(call.out.shape), wanted, rtol=1e-12)


def test_what_blas_cannot_count_is_no_product_of_it() -> None:
    """Its ints have 32 bits: a count of 2^32 was cast to 0, and nothing was computed."""
    for rows, form in (((1 << 31) - 1, True), (1 << 31, False), (1 << 32, False)):
        call = _call(
            "dot_general",
            TensorType((rows, 1), F32),
            TensorType((1, 1), F32),
            **dot_attrs((1,), (0,)),
        )
        assert (gemm_form(call) is not None) == form


def test_dot_reference_is_einsum() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(3, 4, 5, 2)), rng.normal(size=(5, 7, 4, 2))
    attrs = dot_attrs((2, 1), (0, 2), (3,), (3,))
    call = _call("dot_general", TensorType(a.shape, F32), TensorType(b.shape, F32), **attrs)
    found = spec_of("dot_general").reference((a, b), call)[0]
    np.testing.assert_allclose(found, np.einsum("iklb,ljkb->bij", a, b), rtol=1e-12)
    assert spec_of("dot_general").flops(call) == 2 * 2 * 3 * 7 * 20


@pytest.mark.parametrize(
    ("lhs", "rhs", "attrs", "message"),
    [
        ((3, 5), (4, 2), dot_attrs((1,), (0,)), "differ in extent"),
        ((3, 5), (5, 2), dot_attrs((1,), ()), "differ in extent"),
        ((3, 5), (5, 2), dot_attrs((2,), (0,)), "distinct axes"),
        ((3, 5), (5, 3), dot_attrs((0,), (1,), (0,), (1,)), "both batch and contract"),
    ],
)
def test_bad_contractions_are_refused(
    lhs: Dims, rhs: Dims, attrs: dict[str, Dims], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        _call("dot_general", TensorType(lhs, F32), TensorType(rhs, F32), **attrs)


def test_contraction_operands_share_their_dtype() -> None:
    with pytest.raises(GraphError, match="differ in dtype"):
        _call("dot_general", TensorType((3,), F32), TensorType((3,), I32), **dot_attrs((0,), (0,)))
