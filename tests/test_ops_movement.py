"""Movement ops: index maps stay simple, constants fold, and bad attributes are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.ops import index as ix
from autofuse.ops.dtypes import INDICES, DType
from autofuse.ops.scalar import Expr, Load, Sym
from autofuse.ops.spec import AxisMap, infer, spec_of
from autofuse.ops.types import GraphError, OpCall, TensorType, make_attrs
from autofuse.ops.views import reshape_groups
from tests.support.expr_eval import Loads, eval_body

F32 = DType.F32


def _call(op: str, *shapes: tuple[int, ...], **attrs: Any) -> OpCall:
    ins = tuple(TensorType(s, F32) for s in shapes)
    return _typed(op, ins, attrs)


def _typed(op: str, ins: tuple[TensorType, ...], attrs: dict[str, Any]) -> OpCall:
    frozen = make_attrs(attrs)
    return OpCall(frozen, ins, infer(op, ins, frozen))


def _axes(op: str, call: OpCall) -> AxisMap:
    axes = spec_of(op).axes
    assert axes is not None
    return axes(call)


def _body(op: str, call: OpCall, *index: Expr) -> tuple[Expr, Loads]:
    body, loads = spec_of(op).body, Loads(call)
    assert body is not None
    return body(call, index, loads)[0], loads


def _var(name: str, extent: int) -> Sym:
    return Sym(name, DType.I64, extent)


@pytest.mark.parametrize(
    ("source", "target", "groups"),
    [
        ((2, 3, 5), (6, 5), (((0, 1), (0,)), ((2,), (1,)))),
        ((6,), (2, 3), (((0,), (0, 1)),)),
        ((1, 5), (5,), (((0, 1), (0,)),)),
        ((5,), (5, 1, 1), (((0,), (0,)), ((), (1, 2)))),
        ((), (1,), (((), (0,)),)),
        ((3, 4), (4, 3), (((0, 1), (0, 1)),)),
        ((0, 3), (3, 0), (((0, 1), (0, 1)),)),
    ],
)
def test_reshape_groups(source: tuple[int, ...], target: tuple[int, ...], groups: object) -> None:
    assert reshape_groups(source, target) == groups


def test_axes_that_pass_through() -> None:
    assert _axes("reshape", _call("reshape", (2, 3, 5), shape=(6, 5))) == ((None, 2),)
    assert _axes("reshape", _call("reshape", (4, 1, 5), shape=(4, 5))) == ((0, 2),)
    assert _axes("reshape", _call("reshape", (4, 5), shape=(4, 1, 5))) == ((0, None, 1),)
    assert _axes("broadcast", _call("broadcast", (3,), shape=(2, 3), dims=(1,))) == ((None, 0),)
    assert _axes("transpose", _call("transpose", (2, 3, 5), perm=(2, 0, 1))) == ((2, 0, 1),)
    sliced = _call("slice", (4, 5), start=(0, 1), stop=(4, 5), stride=(1, 1))
    assert _axes("slice", sliced) == ((0, None),)
    assert _axes("pad", _call("pad", (4, 5), (), low=(0, 1), high=(0, 0))) == (
        (0, None),
        (None, None),
    )
    assert _axes("concat", _call("concat", (4, 5), (4, 2), axis=1)) == ((0, None),) * 2
    gathered = _typed(
        "gather", (TensorType((3, 5, 7), F32), TensorType((2, 4), DType.I32)), {"axis": 1}
    )
    assert _axes("gather", gathered) == ((0, None, None, 2), (None, 0, 1, None))


def test_unaligned_reshape_axes_read_at_their_own_index() -> None:
    call = _call("reshape", (2, 3, 5), shape=(6, 5))
    j = _var("j", 5)
    _, loads = _body("reshape", call, _var("i", 6), j)
    assert loads.asked[0][1][2] == j


def test_concat_of_a_known_position_reads_one_operand() -> None:
    call = _call("concat", (4, 1), (4, 3), (4, 2), axis=1)
    i = _var("i", 4)
    for at, operand, inner in ((0, 0, 0), (1, 1, 0), (3, 1, 2), (5, 2, 1)):
        value, loads = _body("concat", call, i, ix.lit(at))
        assert loads.asked == [(operand, (i, ix.lit(inner)))]
        assert isinstance(value, Load)


def test_concat_reads_only_operands_the_bounds_reach() -> None:
    call = _call("concat", (4,), (3,), (2,), axis=0)
    _, loads = _body("concat", call, ix.iadd(_var("i", 4), ix.lit(4)))
    assert {operand for operand, _ in loads.asked} == {1, 2}


def test_concat_skips_empty_operands() -> None:
    call = _call("concat", (0,), (3,), (0,), axis=0)
    i = _var("i", 3)
    assert _body("concat", call, i)[1].asked == [(1, (i,))]


def test_pad_folds_where_the_bounds_decide() -> None:
    call = _call("pad", (4,), (), low=(2,), high=(3,))
    assert _body("pad", call, ix.lit(1))[1].asked == [(1, ())]
    assert _body("pad", call, ix.lit(2))[1].asked == [(0, (ix.lit(0),))]
    inner = ix.iadd(_var("i", 4), ix.lit(2))
    assert _body("pad", call, inner)[1].asked == [(0, (_var("i", 4),))]


@pytest.mark.parametrize("kind", INDICES)
def test_gather_clips_extreme_indices(kind: DType) -> None:
    limits = np.iinfo(kind.numpy)
    indices = np.array([limits.min, limits.max, 0, 1, 4, 5], dtype=kind.numpy)
    x = np.arange(5, dtype=np.float32)
    call = _typed("gather", (TensorType((5,), F32), TensorType((6,), kind)), {"axis": 0})
    found = eval_body(spec_of("gather"), call, (x, indices))[0]
    np.testing.assert_array_equal(found, [0, 4, 0, 1, 4, 4])
    np.testing.assert_array_equal(spec_of("gather").reference((x, indices), call)[0], found)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "message"),
    [
        ("broadcast", [(3,)], {"shape": (2, 4), "dims": (1,)}, "cannot broadcast"),
        ("broadcast", [(3, 2)], {"shape": (2, 3), "dims": (1, 0)}, "increasing"),
        ("broadcast", [(3,)], {"shape": (2, -3), "dims": (1,)}, "negative"),
        ("broadcast", [(3,), (3,)], {"shape": (3,), "dims": (0,)}, "expected 1 operands"),
        ("broadcast", [(3,)], {"shape": (3,)}, "'dims' is missing"),
        ("reshape", [(3,)], {"shape": (2, 2)}, "sizes differ"),
        ("reshape", [(3,)], {"shape": "3"}, "list of integers"),
        ("reshape", [(1,)], {"shape": (True,)}, "list of integers"),
        ("transpose", [(3, 2)], {"perm": (0,)}, "'perm'"),
        ("transpose", [(3, 2)], {"perm": (0, 0)}, "distinct axes"),
        ("reverse", [(3, 2)], {"axes": (2,)}, "distinct axes"),
        ("slice", [(3,)], {"start": (2,), "stop": (1,), "stride": (1,)}, "outside an axis"),
        ("slice", [(3,)], {"start": (0,), "stop": (4,), "stride": (1,)}, "outside an axis"),
        ("slice", [(3,)], {"start": (0,), "stop": (3,), "stride": (0,)}, "outside an axis"),
        ("slice", [(3,)], {"start": (), "stop": (), "stride": ()}, "needs 1 of each"),
        ("pad", [(3,), ()], {"low": (-1,), "high": (0,)}, "non-negative"),
        ("pad", [(3,), (1,)], {"low": (1,), "high": (0,)}, "must be a scalar"),
        ("concat", [], {"axis": 0}, "at least one"),
        ("concat", [(3, 2), (2, 3)], {"axis": 0}, "shapes differ"),
        ("concat", [(3, 2), (3,)], {"axis": 0}, "shapes differ"),
        ("concat", [(3, 2)], {"axis": 2}, "has 2 axes"),
        ("gather", [(3,), (2,)], {"axis": 0}, "dtype f32 is not one of"),
    ],
)
def test_bad_calls_are_refused(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        _call(op, *shapes, **attrs)


def test_operands_of_one_op_share_their_dtype() -> None:
    mixed = (TensorType((2,), F32), TensorType((2,), DType.I32))
    with pytest.raises(GraphError, match="differ in dtype: f32, i32"):
        _typed("concat", mixed, {"axis": 0})
    with pytest.raises(GraphError, match="it is empty"):
        empty = (TensorType((0,), F32), TensorType((2,), DType.I32))
        _typed("gather", empty, {"axis": 0})
