"""The counted loop: a body graph applied a fixed number of times to carried states.

Graphs live above ops, so a body is used only through `input_types`, `output_types`, `nodes` and
`call(i)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.ops import checks
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family, OpSpec, Sample, register
from autofuse.ops.types import GraphError, OpCall, TensorType

COUNTER = TensorType((), DType.I32)
_MAX_TRIP = 2**31 - 1


def _check_inputs(wanted: Sequence[TensorType], found: Sequence[TensorType], carries: int) -> None:
    if len(wanted) != len(found):
        raise GraphError(
            f"the loop body has {len(found)} inputs, but needs {len(wanted)}: "
            "the iteration counter, the states, the invariants"
        )
    for position, (want, got) in enumerate(zip(wanted, found, strict=True)):
        if want != got:
            what = "the iteration counter"
            if position:
                state = position <= carries
                what = f"state {position - 1}" if state else f"invariant {position - 1 - carries}"
            raise GraphError(f"the loop body takes {got} as input {position}, but {what} is {want}")


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    trip, carries = checks.int_attr(call, "trip"), checks.int_attr(call, "carries")
    body = call["body"]
    if not all(hasattr(body, part) for part in ("input_types", "output_types", "nodes")):
        raise GraphError("attribute 'body' of a loop must be a graph")
    if not 1 <= trip <= _MAX_TRIP:
        raise GraphError(f"attribute 'trip' is {trip}: a loop runs 1 to {_MAX_TRIP} times")
    if not 0 <= carries <= len(call.ins):
        raise GraphError(f"attribute 'carries' is {carries} of {len(call.ins)} operands")
    _check_inputs((COUNTER, *call.ins), body.input_types, carries)
    if any(dict(node.attrs).get("constant") and not node.inputs for node in body.nodes):
        raise GraphError("an input of a loop body cannot be declared constant")
    outs: tuple[TensorType, ...] = tuple(body.output_types)
    if not outs or len(outs) < carries:
        raise GraphError(f"the loop body has {len(outs)} outputs, but carries {carries} states")
    for position, (state, new) in enumerate(zip(call.ins[:carries], outs, strict=False)):
        if state != new:
            raise GraphError(f"state {position} enters the loop body as {state}, leaves as {new}")
    stacks = tuple(TensorType((trip, *t.shape), t.dtype) for t in outs[carries:])
    return outs[:carries] + stacks


def _reference(arrays: tuple[np.ndarray, ...], call: OpCall) -> tuple[np.ndarray, ...]:
    """Never called: the graph's reference interpreter runs the body itself."""
    raise NotImplementedError("a loop is evaluated by the graph's reference interpreter")


def _flops(call: OpCall) -> float:
    body: Any = call["body"]
    each = (node.spec.flops(body.call(i)) for i, node in enumerate(body.nodes))
    return float(call["trip"] * sum(each))


def _samples() -> list[Sample]:
    """None: samples would need graphs, which are tested with the interpreter."""
    return []


register(
    OpSpec(
        name="loop",
        family=Family.CONTROL,
        infer=_infer,
        reference=_reference,
        flops=_flops,
        samples=_samples,
    )
)
