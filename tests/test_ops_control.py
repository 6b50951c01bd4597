"""The loop row: types are checked against the body, which it uses by shape only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from autofuse.ops.dtypes import DType
from autofuse.ops.spec import infer, spec_of
from autofuse.ops.types import GraphError, OpCall, TensorType, make_attrs

COUNTER = TensorType((), DType.I32)
STATE = TensorType((4,), DType.F32)
FIXED = TensorType((2, 3), DType.F64)


@dataclass(frozen=True)
class _Node:
    op: str

    @property
    def spec(self) -> Any:
        return spec_of(self.op)


@dataclass(frozen=True)
class _Body:
    """Stands in for a graph."""

    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]
    nodes: tuple[_Node, ...] = ()
    calls: tuple[OpCall, ...] = field(default=())

    def call(self, node: int) -> OpCall:
        return self.calls[node]


def _infer(body: object, *ins: TensorType, trip: object = 5, carries: object = 1) -> Any:
    return infer("loop", ins, make_attrs({"body": body, "trip": trip, "carries": carries}))


def test_states_then_stacks() -> None:
    body = _Body((COUNTER, STATE, FIXED), (STATE, FIXED, COUNTER))
    stacked = (TensorType((5, 2, 3), DType.F64), TensorType((5,), DType.I32))
    assert _infer(body, STATE, FIXED) == (STATE, *stacked)


def test_a_loop_may_carry_nothing() -> None:
    assert _infer(_Body((COUNTER,), (COUNTER,)), carries=0) == (TensorType((5,), DType.I32),)


GOOD = _Body((COUNTER, STATE, FIXED), (STATE,))


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        (GOOD, {"trip": 0}, "'trip' is 0"),
        (GOOD, {"trip": 2.0}, "'trip' must be an integer"),
        (GOOD, {"carries": 3}, "'carries' is 3"),
        (GOOD, {"carries": -1}, "'carries' is -1"),
        ("text", {}, "must be a graph"),
        (_Body((COUNTER, STATE), (STATE,)), {}, "has 2 inputs, but needs 3"),
        (_Body((STATE, STATE, FIXED), (STATE,)), {}, "the iteration counter is i32"),
        (_Body((COUNTER, FIXED, FIXED), (STATE,)), {}, "state 0 is f32"),
        (_Body((COUNTER, STATE, STATE), (STATE,)), {}, "invariant 0 is f64"),
        (_Body((COUNTER, STATE, FIXED), ()), {}, "has 0 outputs"),
        (_Body((COUNTER, STATE, FIXED), (FIXED,)), {}, "leaves as f64"),
    ],
)
def test_bad_loops_are_refused(body: object, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        _infer(body, STATE, FIXED, **options)


def test_flops_count_every_trip() -> None:
    axes = make_attrs({"axes": (0,)})
    inner = OpCall(axes, (STATE,), infer("reduce_sum", (STATE,), axes))
    body = _Body((COUNTER, STATE), (STATE,), (_Node("reduce_sum"),), (inner,))
    attrs = make_attrs({"body": body, "trip": 10, "carries": 1})
    assert spec_of("loop").flops(OpCall(attrs, (STATE,), (STATE,))) == 40


def test_the_interpreter_runs_loops() -> None:
    with pytest.raises(NotImplementedError, match="reference interpreter"):
        spec_of("loop").reference((), OpCall((), ()))
