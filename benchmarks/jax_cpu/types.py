"""What a program is. Nothing here or in the programs needs more than JAX and their own libraries:
an old JAX runs them too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

VALUES, GRADIENTS = "values", "gradients"
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class LoopCase:
    """A function of JAX on these pytrees of NumPy arrays; gradients are taken in the first of
    them."""

    run: Function
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class LoopProgram:
    """`make` gives the program with floats of a type, f64 if it is `wide` and else f32. `thread` is
    the report that it was written after ("" for none), `needs` are modules that must be there. A
    loop whose end data decide has no backward derivative in JAX: then it has no `gradients`."""

    name: str
    make: Callable[[np.dtype[Any]], LoopCase]
    thread: str = ""
    wide: bool = False
    gradients: bool = True
    needs: tuple[str, ...] = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64 if self.wide else np.float32)

    @property
    def absent(self) -> tuple[str, ...]:
        """The modules that are not here."""
        return tuple(name for name in self.needs if find_spec(name) is None)


def module(name: str) -> Any:
    """A module without types, imported when a program is made."""
    return import_module(name)


def asked_for(case: LoopCase, what: str) -> Function:
    """The function of a row: the program, or its gradient under a smooth number made of all its
    results."""
    jax = module("jax")
    if what == VALUES:
        return case.run

    def number(*arguments: Any) -> Any:
        leaves = jax.tree_util.tree_leaves(case.run(*arguments))
        floats = [x for x in leaves if jax.numpy.issubdtype(x.dtype, jax.numpy.floating)]
        return sum((x * x).mean() for x in floats)

    gradient: Function = jax.value_and_grad(number)
    return gradient


def drawn(dtype: np.dtype[Any], *shape: int, seed: int = 7) -> np.ndarray:
    """Numbers of a normal distribution, the same in each type up to rounding."""
    draws = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return np.asarray(draws.astype(np.float32)).astype(dtype)


def cast(tree: Any, dtype: np.dtype[Any]) -> Any:
    """A pytree with its floats in this type."""
    jax = module("jax")

    def one(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return array.astype(dtype) if array.dtype.kind == "f" else array

    return jax.tree_util.tree_map(one, tree)
