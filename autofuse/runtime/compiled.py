"""A candidate made callable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.backends.library import Library, load
from autofuse.backends.registry import Backend
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate


class CompiledPlan:
    """A plan that runs: call it with NumPy arrays in the graph's input order.

    `origin` says where the plan came from ("best ..." or a baseline's name). Results are tuples of
    arrays whose memory is used again once the caller has let go of them."""

    def __init__(self, backend: Backend, graph: Graph, candidate: Candidate, origin: str) -> None:
        built = backend.build(backend.program(graph, candidate))
        self.graph, self.candidate, self.origin = graph, candidate, origin
        self.compile_s = built.compile_s
        self._library: Library = load(built.artifact)

    def __call__(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """The graph's outputs; raises AutofuseError for arrays that do not fit."""
        if len(inputs) != len(self.graph.inputs):
            names = ", ".join(self.graph.input_names)
            raise AutofuseError(f"the plan takes {len(self.graph.inputs)} arrays ({names})")
        return self._library.run(inputs)

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Like calling, but writes into given arrays."""
        self._library.run(inputs, outputs)

    def __repr__(self) -> str:
        return f"<CompiledPlan {self.origin}: {len(self.candidate.plan.groups)} kernels>"
