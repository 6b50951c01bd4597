"""The reference behind the interface of a loaded program: what serves where no plan is right."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autofuse.backends.base import BoundEntry, LaunchError
from autofuse.backends.dlpack import host_array
from autofuse.backends.library import ArrayError, check_types
from autofuse.graph.reference import evaluate
from autofuse.graph.settled import constant_inputs
from autofuse.graph.types import Graph
from autofuse.ops.types import TensorType


class ByReference:
    """A `Runnable` that computes a graph with NumPy, every float a float64."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._fixed = constant_inputs(graph)
        self._free = tuple(k for k in range(len(graph.inputs)) if k not in self._fixed)
        self._held: dict[int, np.ndarray] = {}

    @property
    def prepared_bytes(self) -> int:
        return sum(array.nbytes for array in self._held.values())

    def prepare(self, constants: Sequence[Any]) -> None:
        """See `Runnable`."""
        arrays = [np.array(host_array(a)) for a in constants]
        check_types("constant", arrays, [self.graph.input_types[k] for k in self._fixed])
        self._held = dict(zip(self._fixed, arrays, strict=True))

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """See `Runnable`."""
        given = [host_array(a) for a in inputs]
        check_types("input", given, [self.graph.input_types[k] for k in self._free])
        if len(self._held) != len(self._fixed):
            raise LaunchError("the program's constants have not been bound")
        known = self._held | dict(zip(self._free, given, strict=True))
        with np.errstate(all="ignore"):
            found = evaluate(self.graph, [known[k] for k in range(len(self.graph.inputs))])
            pairs = zip(found, self.graph.output_types, strict=True)
            results = tuple(np.ascontiguousarray(a.astype(t.dtype.numpy)).reshape(t.shape)
                            for a, t in pairs)  # fmt: skip
        if outputs is None:
            return results
        own = [host_array(a) for a in outputs]
        check_types("output", own, self.graph.output_types)
        for target, array in zip(own, results, strict=True):
            if not target.flags.writeable:
                raise ArrayError("an output must be writeable")
            target[...] = array
        return tuple(outputs)

    def bound_entry(self, stream: Callable[[], int]) -> BoundEntry:
        """See `Runnable`: arrays are those at the addresses of the table."""
        inputs = [self.graph.input_types[k] for k in self._free]
        types = (*inputs, *self.graph.output_types)
        table = (ctypes.c_void_p * len(types))()

        def issue() -> int:
            arrays = [_array_at(a or 0, t) for a, t in zip(table, types, strict=True)]
            self.run(arrays[: len(inputs)], arrays[len(inputs) :])
            return 0

        places = tuple(range(len(inputs)))
        return BoundEntry(table, places, len(inputs), threading.Lock(), issue, self)

    def close(self) -> None:
        """Nothing is loaded."""


def _array_at(address: int, type_: TensorType) -> np.ndarray:
    if not type_.size:
        return np.empty(type_.shape, type_.dtype.numpy)
    data = (ctypes.c_uint8 * type_.nbytes).from_address(address)
    flat: np.ndarray = np.frombuffer(memoryview(data), np.uint8)
    return flat.view(type_.dtype.numpy).reshape(type_.shape)
