"""`plan.jax()`: a plan that is there already, as a function in JAX programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autofuse.errors import AutofuseError
from autofuse.frontends.jax.types import jax_module
from autofuse.interop.gradients import check_backward
from autofuse.interop.jax.ffi import plan_call
from autofuse.ops.types import TensorType
from autofuse.runtime.compiled import CompiledPlan


def jax_function(
    plan: CompiledPlan, backward: CompiledPlan | None = None
) -> Callable[..., tuple[Any, ...]]:
    """A function of arrays, in the order of the plan's inputs without its constants, to a tuple of
    jax arrays; on its own or inside `jax.jit`, by `jax.ffi` (see `jax_ffi`).

    `backward` is a plan of the gradients: it takes the same arrays and one gradient for each float
    result, and gives one for each float argument. Without it the function has no derivatives, which
    JAX says; `vmap` is refused. Raises AutofuseError without jax, where JAX does not run on the
    CPU, has not the dtypes (`jax_enable_x64`), for a `backward` that does not fit, and, when it is
    called, for arrays of another type."""
    jax = jax_module()
    check_backward(plan, backward)
    wide = [str(t) for t in plan.graph.output_types if _narrowed(t)]
    if wide:
        raise AutofuseError(f"JAX has no {wide[0]} here: set jax_enable_x64")
    results = [jax.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in plan.graph.output_types]
    call = plan_call(plan, results)

    def apply(*arrays: Any) -> tuple[Any, ...]:
        _check(plan, arrays)
        return tuple(call(*arrays))

    return apply if backward is None else _with_gradients(apply, plan, jax_function(backward))


def _with_gradients(
    apply: Callable[..., tuple[Any, ...]], plan: CompiledPlan, backward: Callable[..., Any]
) -> Callable[..., tuple[Any, ...]]:
    have = [type_.dtype.is_float for type_ in plan.takes.values()]
    wanted = [k for k, type_ in enumerate(plan.graph.output_types) if type_.dtype.is_float]
    function: Callable[..., tuple[Any, ...]] = jax_module().custom_vjp(apply)

    def gradients(arrays: tuple[Any, ...], given: Sequence[Any]) -> tuple[Any, ...]:
        found = iter(backward(*arrays, *(given[k] for k in wanted)))
        return tuple(next(found) if each else None for each in have)

    function.defvjp(lambda *arrays: (apply(*arrays), arrays), gradients)  # type: ignore[attr-defined]  # jax has no types here
    return function


def _narrowed(type_: TensorType) -> bool:
    """Whether JAX would make another type of it."""
    jax = jax_module()
    found: bool = jax.dtypes.canonicalize_dtype(type_.dtype.numpy) != type_.dtype.numpy
    return found


def _check(plan: CompiledPlan, arrays: Sequence[Any]) -> None:
    """The handler reads as many bytes as the plan has."""
    if len(arrays) != len(plan.takes):
        names = ", ".join(plan.takes)
        raise AutofuseError(f"the plan takes {len(plan.takes)} arrays ({names})")
    for array, (name, type_) in zip(arrays, plan.takes.items(), strict=True):
        if tuple(array.shape) != type_.shape or array.dtype != type_.dtype.numpy:
            text = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            raise AutofuseError(f"argument '{name}' must be {type_}, not {text}")
