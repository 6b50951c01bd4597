"""A candidate made callable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autofuse.backends.base import Runnable
from autofuse.graph.keys import input_keys
from autofuse.graph.settled import constant_inputs
from autofuse.graph.types import Graph
from autofuse.plan.types import Candidate
from autofuse.runtime.loaded import LoadedPlan, Signature

# A plan that comes with its binary is loaded without what builds plans.
if TYPE_CHECKING:
    from autofuse.backends.registry import Backend


class CompiledPlan(LoadedPlan):
    """A plan of a graph that runs (see `LoadedPlan`): `candidate` is the plan, `artifact` the
    program, whose compilation from nothing takes `compile_s` seconds (0 where it came built)."""

    def __init__(
        self, graph: Graph, candidate: Candidate, loaded: Runnable, artifact: Any, device: str,
        origin: str, notes: tuple[str, ...] = (), constants: Mapping[str, Any] | None = None,
        compile_s: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(loaded, signature_of(graph), device, origin, notes, constants)
        self.graph, self.candidate = graph, candidate
        self.artifact, self.compile_s = artifact, compile_s

    def __repr__(self) -> str:
        groups = len(self.candidate.plan.groups)
        return f"<CompiledPlan {self.origin}: {groups} kernels on {self.device}>"


def compiled_plan(
    backend: Backend, graph: Graph, candidate: Candidate, origin: str, mode: str = "",
    notes: tuple[str, ...] = (), constants: Mapping[str, Any] | None = None,
) -> CompiledPlan:  # fmt: skip
    """A candidate built and loaded; `mode` is "graph" (the default) or "eager" on CUDA.

    Raises AutofuseError."""
    signature_of(graph).chosen(constants)  # before anything is built
    built = backend.build(backend.program(graph, candidate))
    return CompiledPlan(
        graph, candidate, backend.load(built.artifact, mode), built.artifact, backend.name, origin,
        notes, constants, built.compile_s,
    )  # fmt: skip


def signature_of(graph: Graph) -> Signature:
    """The inputs and outputs of a graph."""
    fixed = constant_inputs(graph)
    return Signature(input_keys(graph), graph.input_types, fixed, graph.output_types)
