"""Traced Python: call a function on stand-ins for arrays and record what it does as a Graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse.frontends import array_api
from autofuse.frontends.array_api.promotion import as_array, as_dtype
from autofuse.frontends.array_api.recorder import Tracer, recording
from autofuse.frontends.array_api.trees import Tree, flatten, unflatten
from autofuse.frontends.errors import TraceError
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.ops.types import TensorType

# What operators and methods of traced arrays, and NumPy's functions on them, are bound to.
_FUNCTIONS = {name: getattr(array_api, name) for name in array_api.__all__}


@dataclass(frozen=True, slots=True)
class Spec:
    """Shape, element type and (for random test inputs) value range of one graph input; whether it
    is a constant, bound once."""

    shape: tuple[int, ...]
    dtype: DType
    low: float | None = None
    high: float | None = None
    constant: bool = False


def spec(
    shape: int | Sequence[int],
    dtype: str | DType | np.dtype = "f32",
    low: float | None = None,
    high: float | None = None,
    constant: bool = False,
) -> Spec:
    """A Spec: `dtype` is "f32", a DType or a NumPy dtype; `low`/`high` bound random inputs.

    A `constant` input (a weight) is not given to each call, but once: to `compile`."""
    extents = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    for extent in extents:
        if not isinstance(extent, int | np.integer) or isinstance(extent, bool) or extent < 0:
            raise TraceError(f"shape {shape!r} is not made of non-negative integers")
    kind = as_dtype(dtype)
    # One spelling per range, so that low=0 and low=0.0 give equal graphs.
    low, high = (b if b is None or not kind.is_float else float(b) for b in (low, high))
    return Spec(tuple(int(n) for n in extents), kind, low, high, bool(constant))


def trace(fn: Callable[..., Any], *specs: Any, names: Sequence[str] | None = None) -> Graph:
    """Record `fn` called on arrays described by `specs`.

    A spec is a `Spec`, anything with `shape` and `dtype` (a NumPy array), or a tuple, list or
    dict of such, which `fn` receives as the same structure. `fn` returns an array or a tuple,
    list or dict of arrays: the graph outputs, dict keys becoming output names. `names` renames
    the inputs, in flattened order. Raises TraceError when `fn` does what no graph can hold.
    """
    tree = tuple(specs)
    leaves = [_as_spec(leaf) for leaf in flatten(tree)]
    labels = list(names) if names is not None else _input_names(fn, tree)
    if len(labels) != len(leaves):
        raise TraceError(f"{len(labels)} names given for {len(leaves)} inputs")
    with recording(Tracer(_FUNCTIONS)) as tracer:
        arrays = [
            tracer.input(n, TensorType(s.shape, s.dtype), s.low, s.high, s.constant)
            for n, s in zip(labels, leaves, strict=True)
        ]
        result = fn(*unflatten(tree, arrays))
        outputs = [as_array(leaf) for leaf in flatten(result)]
    if not outputs:
        raise TraceError("the traced function returned no array")
    return tracer.finish(outputs, _output_names(result))


def _as_spec(leaf: Any) -> Spec:
    if isinstance(leaf, Spec):
        return leaf
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        dtype = leaf.dtype
        return Spec(tuple(leaf.shape), dtype if isinstance(dtype, DType) else from_numpy(dtype))
    raise TraceError(f"cannot trace on {type(leaf).__name__}: give autofuse.spec(shape, dtype)")


def _input_names(fn: Callable[..., Any], tree: tuple[Any, ...]) -> list[str]:
    """Parameter names, numbered where one parameter holds several arrays."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    plain = [p.name for p in parameters if p.kind in kinds]
    found: list[str] = []
    for i, part in enumerate(tree):
        base = plain[i] if i < len(plain) else f"in{i}"
        paths = _paths(part)
        found += [f"{base}_{path}" if path else base for path in paths]
    return found


def _paths(tree: Tree) -> list[str]:
    """One label per leaf: the keys and positions that lead to it."""
    if isinstance(tree, Mapping):
        pairs = [(str(k), v) for k, v in tree.items()]
    elif isinstance(tree, list | tuple):
        pairs = [(str(i), v) for i, v in enumerate(tree)]
    else:
        return [""]
    return [f"{key}_{rest}" if rest else key for key, v in pairs for rest in _paths(v)]


def _output_names(result: Tree) -> tuple[str, ...]:
    if not isinstance(result, Mapping | list | tuple):
        return ("out",)
    labels = _paths(result)
    return tuple(p if not p[:1].isdigit() else f"out{p}" for p in labels)
