"""A candidate made callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from autofuse.backends.base import Runnable
from autofuse.graph.keys import input_keys
from autofuse.graph.settled import constant_inputs
from autofuse.graph.types import Graph
from autofuse.ops.types import TensorType
from autofuse.records import Trust
from autofuse.runtime.loaded import LoadedPlan, Signature

# A plan that comes with its binary is loaded without what builds plans.
if TYPE_CHECKING:
    from autofuse.plan.types import Candidate


class CompiledPlan(LoadedPlan):
    """A plan of a graph that runs (see `LoadedPlan`): `candidate` is the plan, `artifact` the
    program, whose compilation from nothing takes `compile_s` seconds (0 where it came built).
    A `candidate` that takes long to read may be a function, and so may a `graph` that takes long to
    work out, if its `signature` is told."""

    def __init__(
        self, graph: Graph | Callable[[], Graph], candidate: Candidate | Callable[[], Candidate],
        loaded: Runnable, artifact: Any, device: str, origin: str, notes: tuple[str, ...] = (),
        constants: Mapping[str, Any] | None = None, compile_s: float = 0.0,
        signature: Signature | None = None, trust: Trust | None = None,
    ) -> None:  # fmt: skip
        self._graph, self._candidate = graph, candidate
        own = signature_of(self.graph) if signature is None else signature
        super().__init__(loaded, own, device, origin, notes, constants, trust)
        self.artifact, self.compile_s = artifact, compile_s

    @cached_property
    def graph(self) -> Graph:
        """The normal form of the graph that it is a plan of."""
        return self._graph() if callable(self._graph) else self._graph

    @cached_property
    def candidate(self) -> Candidate:
        """The plan and its launch configurations; raises AutofuseError where it is damaged."""
        return self._candidate() if callable(self._candidate) else self._candidate

    @property
    def takes(self) -> dict[str, TensorType]:
        """The arrays of a call: the type of each by its name, in order."""
        pairs = zip(self.signature.names, self.graph.input_types, strict=True)
        return {n: t for k, (n, t) in enumerate(pairs) if k not in self.signature.fixed}

    def torch_op(self, name: str, backward: CompiledPlan | None = None) -> Callable[..., Any]:
        """The plan as the operator `autofuse::NAME` of PyTorch: see
        `autofuse.interop.torch.op.torch_op`."""
        made: Callable[..., Any] = _handed("torch.op", "torch_op")(self, name, backward)
        return made

    def jax(self, backward: CompiledPlan | None = None) -> Callable[..., Any]:
        """The plan as a function in JAX programs: see `autofuse.interop.jax.function`."""
        made: Callable[..., Any] = _handed("jax.function", "jax_function")(self, backward)
        return made

    def __repr__(self) -> str:
        groups = len(self.candidate.plan.groups)
        checked = self.trust.state
        return f"<CompiledPlan {self.origin}, {checked}: {groups} kernels on {self.device}>"


def _handed(module: str, name: str) -> Callable[..., Any]:
    """What hands plans to another system, imported when it is asked for: those systems are extras,
    and their rooms know this one."""
    found: Callable[..., Any] = getattr(import_module(f"autofuse.interop.{module}"), name)
    return found


def signature_of(graph: Graph) -> Signature:
    """The inputs and outputs of a graph."""
    fixed = constant_inputs(graph)
    return Signature(input_keys(graph), graph.input_types, fixed, graph.output_types)
