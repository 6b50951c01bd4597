"""What is measured: a graph and the inputs it is measured on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autofuse.backends.aligned import aligned_copy
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import MeasureError


@dataclass(frozen=True)
class Workload:
    """A graph with inputs drawn from `seed` (never zeros: see `random_inputs`), or with the given
    `arrays` of the graph's input types. `written` is the program as its author wrote it, where
    `graph` was made of it: what is right, and what inputs fit, follows from it alone."""

    graph: Graph
    seed: int = 0
    arrays: tuple[np.ndarray, ...] | None = None
    written: Graph | None = None

    @property
    def truth(self) -> Graph:
        """The program whose results are right."""
        return self.graph if self.written is None else self.written

    def __post_init__(self) -> None:
        ends = (self.graph.input_types, self.graph.output_types)
        if ends != (self.truth.input_types, self.truth.output_types):
            raise MeasureError("the graph has other inputs or outputs than the program as written")
        if self.arrays is None:
            return
        types = self.graph.input_types
        if len(self.arrays) != len(types):
            raise MeasureError(f"the graph takes {len(types)} inputs, not {len(self.arrays)}")
        for name, array, type_ in zip(self.graph.input_names, self.arrays, types, strict=True):
            if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
                given = f"{array.dtype}{list(array.shape)}"
                raise MeasureError(f"input '{name}' must be {type_}, not {given}")


def needed_bytes(graph: Graph) -> int:
    """What checking a program takes at least: its inputs, its outputs, and these in float64."""
    inputs = sum(t.nbytes for t in graph.input_types)
    return inputs + sum(t.nbytes + 8 * t.size for t in graph.output_types)


def check_room(workload: Workload, usable: int | None) -> None:
    """Raises MeasureError where a workload cannot fit the memory that may be used."""
    needed = needed_bytes(workload.graph)
    if usable is not None and needed > usable:
        raise MeasureError(
            f"checking this graph takes {needed / 2**30:.3g} GiB or more, and this process may use "
            f"{usable / 2**30:.3g} GiB"
        )


def draw_inputs(workload: Workload) -> tuple[np.ndarray, ...]:
    """The workload's inputs, 64-byte aligned copies; equal for equal seeds."""
    arrays = workload.arrays
    if arrays is None:
        arrays = random_inputs(workload.truth, workload.seed)
    return tuple(
        aligned_copy(a, t) for a, t in zip(arrays, workload.graph.input_types, strict=True)
    )
