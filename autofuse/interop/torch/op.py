"""`plan.torch_op(name)`: a plan that is there already, as an operator of PyTorch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from autofuse.errors import AutofuseError
from autofuse.frontends.torch.types import dtype_in_torch, torch_module
from autofuse.interop.gradients import check_backward
from autofuse.interop.torch.call import Port, TensorCall, tensor_call
from autofuse.interop.torch.device import IslandDevice, IslandPlace, island_device
from autofuse.interop.torch.layout import dense, row_major
from autofuse.ops.types import TensorType
from autofuse.runtime.compiled import CompiledPlan

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any

NAMESPACE = "autofuse"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# PyTorch forgets what a library defined once the library is gone.
_libraries: dict[str, Any] = {}


def torch_op(
    plan: CompiledPlan, name: str, backward: CompiledPlan | None = None
) -> Callable[..., Any]:
    """The operator `torch.ops.autofuse.NAME` for tensors on the plan's device: one for each input
    of the plan that is no constant, in order, to one tensor, or a tuple of them. `torch.compile`
    and `torch.export` see one operator whose results they know.

    `backward` is a plan of the gradients: it takes the same tensors and one gradient for each float
    result, and gives one for each float argument; it becomes `NAME_backward`. Without it, backward
    through the operator is an AutofuseError that says so. Raises AutofuseError without PyTorch, for
    a name that is taken or is none, for a plan of a device that PyTorch has no tensors on or
    without inputs, and for a `backward` that does not fit."""
    torch = torch_module()
    check_backward(plan, backward)
    if not _NAME.fullmatch(name):
        raise AutofuseError(f"{name!r} is no name for an operator of PyTorch")
    if name in _libraries:
        raise AutofuseError(f"there is an operator {NAMESPACE}::{name} already")
    if not plan.takes:
        raise AutofuseError("a plan without inputs cannot be an operator of PyTorch")
    device = island_device(plan.device)
    call, result = _checked_call(plan, device), _result(len(plan.graph.output_types))
    taken = ", ".join(f"Tensor in{k}" for k in range(len(plan.takes)))
    given = ", ".join(["Tensor"] * len(plan.graph.output_types))
    given = given if len(plan.graph.output_types) == 1 else f"({given})"

    def fake(*tensors: Tensor) -> Any:
        return result(tuple(_empty(tensors[0], t) for t in plan.graph.output_types))

    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define(f"{name}({taken}) -> {given}")
    library.impl(name, lambda *tensors: result(call(*tensors)), device.serves.upper())
    qualified = f"{NAMESPACE}::{name}"
    torch.library.register_fake(qualified, fake, lib=library)
    if backward is None:
        gradients = _refused(qualified)
    else:
        gradients = _gradients(plan, torch_op(backward, f"{name}_backward"))
    torch.library.register_autograd(qualified, gradients, setup_context=_keep, lib=library)
    _libraries[name] = library
    operator: Callable[..., Any] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return operator


def _result(count: int) -> Callable[[tuple[Tensor, ...]], Any]:
    return (lambda found: found[0]) if count == 1 else (lambda found: found)


def _port(type_: TensorType, place: IslandPlace) -> Port:
    shape = type_.shape
    return Port(shape, row_major(shape), dtype_in_torch(type_.dtype), dense(shape), place.torch)


def _checked_call(plan: CompiledPlan, device: IslandDevice) -> TensorCall:
    # It was loaded on the unit that was the current one.
    place = IslandPlace(device, device.current())
    ports = [_port(type_, place) for type_ in plan.takes.values()]
    made = [_port(type_, place) for type_ in plan.graph.output_types]
    call = tensor_call(plan.loaded, place, ports, made)
    wanted = [(port.shape, port.dtype) for port in ports]

    def checked(*tensors: Tensor) -> tuple[Tensor, ...]:
        if [(tensor.shape, tensor.dtype) for tensor in tensors] != wanted:
            raise AutofuseError(_misfit(plan, tensors))
        return call(*tensors)

    return checked


def _misfit(plan: CompiledPlan, tensors: Sequence[Tensor]) -> str:
    texts = [f"{str(t.dtype)[6:]}{list(t.shape)}" for t in tensors]
    wanted = ", ".join(f"{name}: {type_}" for name, type_ in plan.takes.items())
    return f"the plan takes {wanted}, not {', '.join(texts)}"


def _empty(like: Tensor, type_: TensorType) -> Tensor:
    made: Tensor = like.new_empty(type_.shape, dtype=dtype_in_torch(type_.dtype))
    return made


def _keep(ctx: Any, inputs: Sequence[Tensor], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _refused(name: str) -> Callable[..., Any]:
    def gradients(ctx: Any, *_: Any) -> Any:
        raise AutofuseError(
            f"the gradient of {name} is not known: give torch_op a plan of it, as backward=plan"
        )

    return gradients


def _gradients(plan: CompiledPlan, operator: Callable[..., Any]) -> Callable[..., Any]:
    have = [type_.dtype.is_float for type_ in plan.takes.values()]
    types = plan.graph.output_types

    def gradients(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        wanted = [
            _empty(saved[0], type_).zero_() if tensor is None else tensor
            for tensor, type_ in zip(given, types, strict=True)
            if type_.dtype.is_float
        ]
        made = operator(*saved, *wanted)
        found = iter(made if isinstance(made, tuple) else (made,))
        return tuple(next(found) if each else None for each in have)

    return gradients
