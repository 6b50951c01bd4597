"""A candidate made callable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.backends.base import Runnable
from autofuse.backends.registry import Backend
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate


class CompiledPlan:
    """A plan that runs: call it with arrays in the graph's input order.

    On the CPU these are NumPy arrays. On CUDA they may be CuPy's, PyTorch's or JAX's, which are
    used in place on the current stream (the results are then CuPy arrays, which all of them take
    by DLPack), or NumPy's. `origin` says where the plan came from ("best ..." or a baseline's
    name), `device` where it runs. Results are tuples of arrays whose memory is used again once the
    caller has let go of them. `mode` is "graph" (the default) or "eager" on CUDA. `notes` are
    sentences about better plans that cannot be built here."""

    def __init__(
        self, backend: Backend, graph: Graph, candidate: Candidate, origin: str, mode: str = "",
        notes: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        built = backend.build(backend.program(graph, candidate))
        self.graph, self.candidate, self.origin, self.notes = graph, candidate, origin, notes
        self.device, self.compile_s, self.artifact = backend.name, built.compile_s, built.artifact
        self._loaded: Runnable = backend.load(built.artifact, mode)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The graph's outputs; raises AutofuseError for arrays that do not fit."""
        if len(inputs) != len(self.graph.inputs):
            names = ", ".join(self.graph.input_names)
            raise AutofuseError(f"the plan takes {len(self.graph.inputs)} arrays ({names})")
        return self._loaded.run(inputs)

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Like calling, but writes into given arrays."""
        self._loaded.run(inputs, outputs)

    def __repr__(self) -> str:
        groups = len(self.candidate.plan.groups)
        return f"<CompiledPlan {self.origin}: {groups} kernels on {self.device}>"
