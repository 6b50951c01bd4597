"""A candidate made callable."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

from autofuse.backends.base import Runnable
from autofuse.backends.registry import Backend
from autofuse.graph.keys import input_keys
from autofuse.graph.settled import constant_inputs
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError, TensorType
from autofuse.plan.types import Candidate


class CompiledPlan:
    """A plan that runs: call it with arrays in the graph's input order, without the constants.

    On the CPU these are NumPy arrays, or others in host memory that share it by DLPack (PyTorch's,
    JAX's), and results are NumPy arrays, which all of them take by DLPack. On CUDA they may be
    CuPy's, PyTorch's or JAX's, which are used in place on the current stream (the results are then
    CuPy arrays, which all of them take by DLPack), or NumPy's. `origin` says where the plan came
    from ("best ..." or a baseline's name), `device` where it runs. Results are tuples of arrays
    whose memory is used again once the caller has let go of them. `mode` is "graph" (the default)
    or "eager" on CUDA. `notes` are sentences about better plans that cannot be built here.

    Constants are copied and prepared when it is made, which took `prepare_s` seconds and keeps
    `prepared_bytes`; what becomes of the caller's arrays afterwards changes nothing."""

    def __init__(
        self, backend: Backend, graph: Graph, candidate: Candidate, origin: str, mode: str = "",
        notes: tuple[str, ...] = (), constants: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        fixed = chosen_constants(graph, constants)
        built = backend.build(backend.program(graph, candidate))
        self.graph, self.candidate, self.origin, self.notes = graph, candidate, origin, notes
        self.device, self.compile_s, self.artifact = backend.name, built.compile_s, built.artifact
        self._loaded: Runnable = backend.load(built.artifact, mode)
        begun = time.perf_counter()
        if fixed:
            self._loaded.prepare(fixed)
        self.prepare_s = time.perf_counter() - begun if fixed else 0.0
        self.prepared_bytes = self._loaded.prepared_bytes

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The graph's outputs; raises AutofuseError for arrays that do not fit."""
        if len(inputs) != len(self.takes):
            bound = " besides its constants" if constant_inputs(self.graph) else ""
            names = ", ".join(self.takes)
            raise AutofuseError(f"the plan takes {len(self.takes)} arrays ({names}){bound}")
        return self._loaded.run(inputs)

    @cached_property
    def takes(self) -> Mapping[str, TensorType]:
        """The arrays of a call: the type of each by its name, in order."""
        fixed = constant_inputs(self.graph)
        pairs = zip(input_keys(self.graph), self.graph.input_types, strict=True)
        return {name: type_ for k, (name, type_) in enumerate(pairs) if k not in fixed}

    def torch_op(self, name: str, backward: CompiledPlan | None = None) -> Callable[..., Any]:
        """The plan as the operator `autofuse::NAME` of PyTorch: see
        `autofuse.interop.torch_op.torch_op`."""
        made: Callable[..., Any] = _handed("torch_op")(self, name, backward)
        return made

    def jax(self, backward: CompiledPlan | None = None) -> Callable[..., Any]:
        """The plan as a function in JAX programs: see `autofuse.interop.jax_function`."""
        made: Callable[..., Any] = _handed("jax_function")(self, backward)
        return made

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Like calling, but writes into given arrays."""
        self._loaded.run(inputs, outputs)

    @property
    def loaded(self) -> Runnable:
        """What runs it, for callers with arrays of another kind."""
        return self._loaded

    def __repr__(self) -> str:
        groups = len(self.candidate.plan.groups)
        return f"<CompiledPlan {self.origin}: {groups} kernels on {self.device}>"


def _handed(name: str) -> Callable[..., Any]:
    """What hands plans to another system, imported when it is asked for: those systems are extras,
    and their rooms know this one."""
    found: Callable[..., Any] = getattr(import_module(f"autofuse.interop.{name}"), name)
    return found


def chosen_constants(graph: Graph, given: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """The arrays for the constants of a graph, in the order of its inputs.

    Raises AutofuseError naming a constant that is missing, unknown, or of another type."""
    found = dict(given or {})
    names = input_keys(graph)
    wanted = {names[p]: graph.input_types[p] for p in constant_inputs(graph)}
    missing = [name for name in wanted if name not in found]
    if missing:
        raise AutofuseError(
            f"the graph declares constants that were not given: {', '.join(missing)} "
            "(give them as constants={name: array})"
        )
    for name in found:
        if name not in wanted:
            known = f"its constants: {', '.join(wanted)}" if wanted else "it declares none"
            what = "given to each call" if name in names else "no input of the graph"
            raise AutofuseError(f"'{name}' is no constant, it is {what} ({known})")
    for name, type_ in wanted.items():
        array = found[name]
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise AutofuseError(f"constant '{name}' is a {type(array).__name__}, not an array")
        kind = str(array.dtype).removeprefix("torch.")
        if tuple(array.shape) != type_.shape or kind != str(type_.dtype.numpy):
            text = f"{kind}[{','.join(map(str, array.shape))}]"
            raise AutofuseError(f"constant '{name}' must be {type_}, not {text}")
    return tuple(found[name] for name in wanted)
