"""Whether one plan computes the gradients of another."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.errors import AutofuseError
from autofuse.ops.types import TensorType
from autofuse.runtime.compiled import CompiledPlan


def check_backward(plan: CompiledPlan, backward: CompiledPlan | None) -> None:
    """Raises AutofuseError unless `backward` takes what `plan` takes and a gradient for each result
    that is a float, and gives one for each argument that is."""
    if backward is None:
        return
    given = tuple(plan.takes.values())
    taken = (*given, *floats(plan.graph.output_types))
    if tuple(backward.takes.values()) != taken or backward.graph.output_types != floats(given):
        raise AutofuseError(
            f"a plan of gradients takes {_listed(taken)} and gives {_listed(floats(given))} here, "
            f"but this one takes {_listed(tuple(backward.takes.values()))} and gives "
            f"{_listed(backward.graph.output_types)}"
        )


def floats(types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """Those that have gradients."""
    return tuple(type_ for type_ in types if type_.dtype.is_float)


def _listed(types: Sequence[TensorType]) -> str:
    return f"({', '.join(map(str, types))})"
