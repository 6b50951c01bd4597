"""The columns of the case study: plans of ours and programs of others, ready to be timed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from autofuse.cost.traffic import plan_traffic
from autofuse.graph.types import Graph
from autofuse.peers.counts import Counts, hlo_counts, inductor_counts
from autofuse.peers.systems import first_call, require
from autofuse.peers.types import Arrays, PeerProgram
from autofuse.plan.program.schedule import launches_per_call, schedule
from autofuse.plan.types import Candidate
from autofuse.runtime.compiled import CompiledPlan
from autofuse.tuning import compile as compile_plan

STRATEGIES = ("unfused", "xla-2022", "xla-2026", "inductor")
EXACT = "exact"
NUMPY, JAX, TORCH, SCRIPT = "numpy", "jax.jit", "torch.compile", "torchscript"
PEERS = (JAX, TORCH, SCRIPT, NUMPY)
NEEDS = {NUMPY: "numpy", JAX: "jax", TORCH: "torch", SCRIPT: "torch"}


@dataclass(frozen=True)
class Column:
    """A program on its inputs: `call` runs it to the end, `fetch` makes arrays of what it gave.
    `feed` runs it on what another program gave in place of its last inputs.

    `kernels` and `nbytes` are of one call: launches, and bytes moved by the traffic model; None
    where nobody knows."""

    call: Callable[[], Any]
    feed: Callable[[Sequence[Any]], Any]
    fetch: Callable[[Any], Arrays]
    compile_s: float
    kernels: float | None = None
    nbytes: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Peers:
    """One workload as other libraries have it: `programs` by peer (torch programs take how they
    are compiled), and how often a program's loop runs what is compiled."""

    numpy: PeerProgram | None = None
    jax: PeerProgram | None = None
    torch: Callable[[Callable[..., Any]], PeerProgram] | None = None
    trips: int = 1
    loop: bool = False


def ours(graph: Graph, inputs: Arrays, plan: str | Candidate, db: str | None) -> Column:
    """A plan of a canonical graph, as it is written, on the CPU."""
    compiled: CompiledPlan = compile_plan(graph, device="cpu", db=db, plan=plan, simplify=False)
    candidate = compiled.candidate
    return Column(
        call=lambda: compiled(*inputs),
        feed=lambda given: compiled(*inputs[: len(inputs) - len(given)], *given),
        fetch=tuple,
        compile_s=compiled.compile_s,
        kernels=launches_per_call(schedule(graph, candidate).steps),
        nbytes=plan_traffic(graph, candidate.plan).bytes,
        note="" if isinstance(plan, str) else candidate.origin,
    )


def peer(name: str, peers: Peers, inputs: Arrays) -> Column | None:
    """A program of another library; None when the workload has none. Raises BenchError when the
    library is not installed, and whatever it raises."""
    require(NEEDS[name])
    if name == NUMPY:
        return None if peers.numpy is None else _numpy(peers.numpy, inputs)
    if name == JAX:
        return None if peers.jax is None else _jax(peers.jax, peers.trips, inputs)
    if peers.torch is None:
        return None
    return (_torch if name == TORCH else _script)(peers.torch, peers, inputs)


def _numpy(program: PeerProgram, inputs: Arrays) -> Column:
    def feed(given: Sequence[Any]) -> Any:
        with np.errstate(all="ignore"):
            return program(*inputs[: len(inputs) - len(given)], *given)

    feed(())
    return Column(partial(feed, ()), feed, _as_numpy, 0.0)


def _as_numpy(found: Sequence[Any]) -> Arrays:
    return tuple(np.asarray(a) for a in found)


def _jax(program: PeerProgram, trips: int, inputs: Arrays) -> Column:
    jax: Any = import_module("jax")
    placed = [jax.device_put(a) for a in inputs]
    begun = time.perf_counter()
    compiled = jax.jit(program).lower(*placed).compile()
    compile_s = time.perf_counter() - begun

    def feed(given: Sequence[Any]) -> Any:
        return jax.block_until_ready(compiled(*placed[: len(placed) - len(given)], *given))

    feed(())
    counts = hlo_counts(compiled.as_text() or "")
    return Column(partial(feed, ()), feed, _as_numpy, compile_s, _total(counts, trips))


def _total(counts: Counts, trips: int) -> float:
    return counts.outside + (counts.per_trip or 0) * trips


def _torch(
    make: Callable[[Callable[..., Any]], PeerProgram], peers: Peers, inputs: Arrays
) -> Column:
    import torch
    from torch._inductor import config
    from torch._inductor.utils import run_and_get_code

    # It says that caches are off, which is what was asked for.
    warnings.filterwarnings("ignore", module="torch._dynamo.pgo")
    torch._dynamo.reset()
    program = make(lambda function: torch.compile(function, dynamic=False))
    feed = _inference(program, inputs)
    call = partial(feed, ())
    with config.patch(force_disable_caches=True):
        begun = time.perf_counter()
        _, codes = run_and_get_code(call)
        compile_s = time.perf_counter() - begun
    counts = inductor_counts(codes, peers.loop)
    return Column(call, feed, _from_torch, compile_s, _total(counts, peers.trips))


def _script(
    make: Callable[[Callable[..., Any]], PeerProgram], peers: Peers, inputs: Arrays
) -> Column:
    """TorchScript by tracing: what it is given first is what it specialises on."""
    traced = Traced()
    program = make(traced)
    feed = _inference(program, inputs)
    call = partial(feed, ())
    compile_s = first_call(call)
    return Column(
        call, feed, _from_torch, compile_s, traced.operations * peers.trips, note="traced"
    )


def _inference(program: PeerProgram, inputs: Arrays) -> Callable[[Sequence[Any]], Any]:
    import torch

    tensors = [torch.tensor(a) for a in inputs]

    def feed(given: Sequence[Any]) -> Any:
        with torch.inference_mode():
            return program(*tensors[: len(tensors) - len(given)], *given)

    return feed


def _from_torch(results: Sequence[Any]) -> Arrays:
    return tuple(r.numpy() for r in results)


@dataclass
class Traced:
    """How torch.jit compiles a function: traced on the first arguments it is called with."""

    made: list[Any] = field(default_factory=list)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def first_then_traced(*arguments: Any) -> Any:
            import torch

            if not self.made:
                with warnings.catch_warnings():  # on constants of the program, which are meant
                    warnings.simplefilter("ignore")
                    self.made.append(
                        # A plain function: the tracer asks what it is given for its name.
                        torch.jit.trace(
                            lambda *given: function(*given),
                            arguments,
                            check_trace=False,
                            strict=False,
                        )
                    )
            return self.made[0](*arguments)

        return first_then_traced

    @property
    def operations(self) -> int:
        """Operations and fused groups of the optimised graph, views not counted."""
        import torch

        if not self.made:
            return 0
        graph = torch.jit.last_executed_optimized_graph()
        views = ("aten::select", "aten::slice", "aten::unbind", "aten::size", "aten::unsqueeze")
        kinds = [node.kind() for node in graph.nodes()]
        groups = ("prim::TensorExprGroup", "prim::CudaFusionGroup")
        return sum(
            (kind.startswith("aten::") and kind not in views) or kind in groups for kind in kinds
        )
