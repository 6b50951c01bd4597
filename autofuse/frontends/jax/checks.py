"""Branches that raise: how JAX's libraries check data in a program.

Such a branch calls a function of Python that does nothing but raise. A plan cannot raise: what
would have been an exception is NaN (as in the library that does this most, on request), and that is
told."""

from __future__ import annotations

import dis
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.frontends.jax.types import dtype_of, static_shape
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter

_CALLBACK = "pure_callback"
_RETURNS = ("RETURN_VALUE", "RETURN_CONST", "RETURN_GENERATOR")


def only_raises(branch: Any) -> bool:
    """Whether a jaxpr asks a function of Python that never returns."""
    eqns = getattr(branch, "jaxpr", branch).eqns
    called = (e.params["callback"] for e in eqns if e.primitive.name == _CALLBACK)
    return any(_never_returns(getattr(c, "callback_func", c)) for c in called)


def _never_returns(function: Any) -> bool:
    """Whether no end of its code gives a result; what is no plain function may do so."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    return all(step.opname not in _RETURNS for step in dis.get_instructions(code))


def poisoned(w: GraphWriter, avals: Sequence[Any]) -> list[Value]:
    """What comes of an exception: NaN, or for what has none the least number."""
    return [w.full(_poison(dtype_of(a.dtype).numpy), static_shape(a), dtype_of(a.dtype))
            for a in avals]  # fmt: skip


def _poison(dtype: np.dtype[Any]) -> float | int | bool:
    if dtype.kind == "b":
        return False
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else float("nan")
