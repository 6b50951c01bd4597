"""What is compared: every zoo workload, and two programs written by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from autofuse.graph.reference import random_inputs
from autofuse.peers.types import BenchError, BenchWorkload
from autofuse.zoo import ZOO, zoo_graph
from benchmarks.real_inputs import gymnax_cartpole, veros_gsw_dhdt

REAL: dict[str, tuple[Callable[[int], Any], int, int]] = {
    # name: (builder, elements by default, elements when small)
    "gymnax_cartpole": (gymnax_cartpole, 2048, 256),
    "veros_gsw_dHdT": (veros_gsw_dhdt, 1_000_000, 4096),
}
NAMES = (*ZOO, *REAL)
# Programs of other libraries draw numbers of their own for these.
DRAWING = ("cartpole_naive", "cartpole_policy")
# The ones that the headline figure is over.
HEADLINE = (
    "softmax", "layer_norm_gelu", "rms_norm_residual", "swiglu", "black_scholes", "adam_16",
    "cartpole_naive", "cartpole_norng", "cartpole_noconcat", "cartpole_unroll10",
)  # fmt: skip


def chosen(
    names: Sequence[str], known: Sequence[str] = NAMES, what: str = "workload"
) -> tuple[str, ...]:
    """`names` of `known` checked (all of them when empty); raises BenchError for an unknown
    one."""
    for name in names:
        if name not in known:
            raise BenchError(f"unknown {what} '{name}' (known: {', '.join(known)})")
    return tuple(dict.fromkeys(names)) or tuple(known)


def bench_workload(name: str, size: str = "default", seed: int = 0) -> BenchWorkload:
    """One workload on inputs drawn from `seed`, or on the program's own example inputs.

    Raises BenchError when a package it comes from is not installed.
    """
    if name in REAL:
        return _real(name, size)
    graph = zoo_graph(name, size)
    sizes = ZOO[name].parameters[size]
    random = name in DRAWING
    return BenchWorkload(name, graph, random_inputs(graph, seed), name, sizes, random=random)


def _real(name: str, size: str) -> BenchWorkload:
    package = name.split("_")[0]
    for needed in ("jax", package):
        if find_spec(needed) is None:
            raise BenchError(f"package {needed} is not installed")
    import jax

    from autofuse.frontends.jax.jaxpr import from_jax

    build, *counts = REAL[name]
    function, arguments = build(counts[size == "small"])
    leaves, tree = jax.tree_util.tree_flatten(arguments)

    def flat(*arrays: Any) -> Sequence[Any]:
        results = function(*jax.tree_util.tree_unflatten(tree, arrays))
        return tuple(jax.tree_util.tree_leaves(results))

    inputs = tuple(np.asarray(leaf) for leaf in leaves)
    return BenchWorkload(name, from_jax(function, *arguments), inputs, "", (), flat)
