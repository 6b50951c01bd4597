"""Loops: a body graph applied to carried states, a fixed number of times (`loop`) or for as long
as a flag among the states says so (`while`).

A `while` is a rotated loop (LLVM's LoopRotate): its first state `go` (bool) says whether there is
an iteration to come, and the body leaves the next one, so that the test is computed where the
states are. With a `go` of shape S every state's shape begins with S, and each place of S has a loop
of its own, which ends when its flag is first false: what `jax.vmap` makes of a `while_loop`, and
what `any(c)` with selects by `c` means. A branch that may not be taken is a `while` of at most one
iteration. Graphs live above ops, so a body is used only through `input_types`, `output_types`,
`nodes` and `call(i)`.
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
MAX_TRIP = 2**31 - 1


def is_counted(name: str) -> bool:
    """Whether a loop runs a number of times that its node tells."""
    return name == "loop"


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


def _has_constant_input(body: Any) -> bool:
    return any(dict(node.attrs).get("constant") and not node.inputs for node in body.nodes)


def _outputs(call: OpCall, carries: int) -> tuple[TensorType, ...]:
    """The types of the body's outputs, checked against what the loop hands to it."""
    body = call["body"]
    if not all(hasattr(body, part) for part in ("input_types", "output_types", "nodes")):
        raise GraphError("attribute 'body' of a loop must be a graph")
    if not 0 <= carries <= len(call.ins):
        raise GraphError(f"attribute 'carries' is {carries} of {len(call.ins)} operands")
    _check_inputs((COUNTER, *call.ins), body.input_types, carries)
    if _has_constant_input(body):
        raise GraphError("an input of a loop body cannot be declared constant")
    outs: tuple[TensorType, ...] = tuple(body.output_types)
    if not outs or len(outs) < carries:
        raise GraphError(f"the loop body has {len(outs)} outputs, but carries {carries} states")
    for position, (state, new) in enumerate(zip(call.ins[:carries], outs, strict=False)):
        if state != new:
            raise GraphError(f"state {position} enters the loop body as {state}, leaves as {new}")
    return outs


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    trip, carries = checks.int_attr(call, "trip"), checks.int_attr(call, "carries")
    if not 1 <= trip <= MAX_TRIP:
        raise GraphError(f"attribute 'trip' is {trip}: a loop runs 1 to {MAX_TRIP} times")
    outs = _outputs(call, carries)
    stacks = tuple(TensorType((trip, *t.shape), t.dtype) for t in outs[carries:])
    return outs[:carries] + stacks


def _infer_while(call: OpCall) -> tuple[TensorType, ...]:
    most, carries = checks.int_attr(call, "max_trips"), checks.int_attr(call, "carries")
    if not 1 <= most <= MAX_TRIP:
        raise GraphError(f"attribute 'max_trips' is {most}: it is 1 to {MAX_TRIP}")
    outs = _outputs(call, carries)
    if not carries or outs[0].dtype is not DType.BOOL:
        raise GraphError("the first state of a while says whether it goes on: it must be a bool")
    if len(outs) != carries:
        raise GraphError(f"the body of a while has {len(outs)} outputs for {carries} states")
    places = outs[0].shape
    for position, state in enumerate(outs):
        if state.shape[: len(places)] != places:
            raise GraphError(f"state {position} is {state}, but each of {list(places)} ends alone")
    return outs


def _reference(arrays: tuple[np.ndarray, ...], call: OpCall) -> tuple[np.ndarray, ...]:
    """Never called: the graph's reference interpreter runs the body itself."""
    raise NotImplementedError("a loop is evaluated by the graph's reference interpreter")


def _once(call: OpCall) -> float:
    """Operations of one iteration; a `while` may run any number of them."""
    body: Any = call["body"]
    return float(sum(node.spec.flops(body.call(i)) for i, node in enumerate(body.nodes)))


def _flops(call: OpCall) -> float:
    return float(call["trip"] * _once(call))


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
    ),
    OpSpec(
        name="while",
        family=Family.CONTROL,
        infer=_infer_while,
        reference=_reference,
        flops=_once,
        samples=_samples,
    ),
)
