"""What is measured: a graph and the inputs it is measured on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autofuse.backends.aligned import aligned_copy
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.timing import MeasureError


@dataclass(frozen=True)
class Workload:
    """A graph with inputs drawn from `seed` (never zeros: see `random_inputs`), or with the given
    `arrays` of the graph's input types."""

    graph: Graph
    seed: int = 0
    arrays: tuple[np.ndarray, ...] | None = None

    def __post_init__(self) -> None:
        if self.arrays is None:
            return
        types = self.graph.input_types
        if len(self.arrays) != len(types):
            raise MeasureError(f"the graph takes {len(types)} inputs, not {len(self.arrays)}")
        for name, array, type_ in zip(self.graph.input_names, self.arrays, types, strict=True):
            if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
                given = f"{array.dtype}{list(array.shape)}"
                raise MeasureError(f"input '{name}' must be {type_}, not {given}")


def draw_inputs(workload: Workload) -> tuple[np.ndarray, ...]:
    """The workload's inputs, 64-byte aligned copies; equal for equal seeds."""
    arrays = workload.arrays
    if arrays is None:
        arrays = random_inputs(workload.graph, workload.seed)
    return tuple(
        aligned_copy(a, t) for a, t in zip(arrays, workload.graph.input_types, strict=True)
    )
