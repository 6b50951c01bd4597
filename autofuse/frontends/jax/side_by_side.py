"""A loop whose iterations know nothing of each other (`jax.lax.map`), all of them at once.

Who writes it so saves memory, or a `vmap`. Small ones are done side by side, in vectors, as JAX's
own batching rules say; of large ones the memory is left saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from autofuse.frontends.jax.types import as_graph, jax_module

# Elements that all iterations compute together, at most: what stays in a cache of a core.
_MOST = 1 << 16
# What costs more side by side: all branches are computed, and all go on until the last one ends.
_APART = ("cond", "while")


def all_at_once(eqn: Any, consts: int) -> Any:
    """The closed jaxpr of a scan that carries nothing, whose first operands are `consts` constants
    of its body; None where iterations are better done one by one."""
    body, length = eqn.params["jaxpr"], int(eqn.params["length"])
    equations = list(_equations(body.jaxpr))
    if body.effects or any(one.primitive.name in _APART for one, _ in equations):
        return None
    sizes = (times * _size(v.aval) for one, times in equations for v in one.outvars)
    if length * sum(sizes) > _MOST:
        return None
    jax = jax_module()
    axes = [None] * consts + [0] * (len(eqn.invars) - consts)
    function = import_module("jax.extend.core").jaxpr_as_fun(body)
    types = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    with as_graph():
        return jax.make_jaxpr(jax.vmap(function, axes, axis_size=length))(*types)


def _equations(jaxpr: Any, times: int = 1) -> Iterator[tuple[Any, int]]:
    """All equations, those of inner jaxprs too, with how often each is run."""
    for eqn in jaxpr.eqns:
        yield eqn, times
        inside = times * int(eqn.params.get("length", 1)) if eqn.primitive.name == "scan" else times
        for value in eqn.params.values():
            for each in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(each, "jaxpr", each)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner, inside)


def _size(aval: Any) -> int:
    return math.prod(getattr(aval, "shape", ()))
