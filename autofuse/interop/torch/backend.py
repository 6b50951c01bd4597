"""`torch.compile(model, backend="autofuse")`: the entry point of the group `torch_dynamo_backends`.

AOTAutograd makes PyTorch's graph functional, decomposes it and takes gradients; what then comes is
cut into islands that become plans. Nothing that is not supported is an error: PyTorch runs it, and
one line of the log "autofuse.torch" says what and why.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from autofuse.errors import AutofuseError
from autofuse.frontends.torch.fx import decompositions, fx_graph, op_name, refusal
from autofuse.interop.torch.call import TensorCall, port_of
from autofuse.interop.torch.choice import faster_island, faster_program
from autofuse.interop.torch.device import IslandPlace, Places
from autofuse.interop.torch.islands import Cut, Island, cut, joined
from autofuse.interop.torch.options import TorchOptions, options_of
from autofuse.interop.torch.partition import partition
from autofuse.interop.torch.plans import (
    LOG,
    IslandGraph,
    call_of,
    piece_of,
    plan_for,
    planned,
    tune_for,
)
from autofuse.interop.torch.report import GraphReport, IslandReport, left_reports

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from autofuse.plan.types import Candidate
else:
    GraphModule = Node = Any

# A program that is compiled for ever new sizes gets so many libraries, as many as PyTorch compiles
# a function again; then PyTorch runs it.
MOST_SIZES = 8
_FEW = "fewer than two computing ops beside each other"
_INFERENCE = "inference"
reports: ContextVar[list[GraphReport] | None] = ContextVar("reports", default=None)
# Plans are chosen and nothing is built: PyTorch runs everything, on tensors without memory.
only_planned: ContextVar[bool] = ContextVar("only_planned", default=False)


def backend(
    gm: GraphModule, inputs: Sequence[Any], *,
    mode: str | None = None, options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """What `torch.compile` calls with a graph of PyTorch and its example inputs.

    `mode` is None, "default" or "max-autotune", `options` as in `TorchOptions`. Raises
    AutofuseError for others."""
    chosen = options_of(mode, options)
    return compiled_with(partition(chosen), chosen, gm, inputs)


def compiled_with(
    partition_fn: Callable[..., Any], options: TorchOptions, gm: GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    """As `backend`, with a function of AOTAutograd's that cuts joint graphs into forward and
    backward."""
    from torch._dynamo.backends.common import aot_autograd

    compiler = TorchCompiler(options, tuple(inputs))
    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=compiler.named("forward"),
        bw_compiler=compiler.named("backward"),
        inference_compiler=compiler.inference,
        partition_fn=partition_fn,
        decompositions=decompositions(),
    )(gm, inputs)
    for report in compiler.inferred:
        rival = _rival(compiler, gm, compiled) if options.max_autotune else None
        if rival is not None:
            compiled, report = rival[0], replace(report, instead=rival[1])
        _tell(report)
    return compiled


def _rival(
    compiler: TorchCompiler, gm: GraphModule, ours: Callable[..., Any]
) -> tuple[Callable[..., Any], str] | None:
    """What of PyTorch's own runs the whole program clearly faster than ours, and why it serves."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    place = compiler.place
    if place is None:
        return None
    rivals = {"torch's own program": lambda: gm.forward}
    if compiler.options.inductor:
        rivals["TorchInductor's program"] = cache(lambda: _by_inductor(gm, compiler.given))
    with unset_fake_temporarily():
        found = faster_program(gm, ours, rivals, compiler.given, compiler.plans, place)
    return None if found is None else (rivals[found.name](), str(found))


def _by_inductor(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """The program as `torch.compile` makes it by itself, which may change the graph it gets."""
    import torch
    from torch._inductor.compile_fx import compile_fx

    copied = torch.fx.GraphModule(gm, deepcopy(gm.graph))
    compiled: Callable[..., Any] = compile_fx(copied, list(inputs))
    return compiled


@dataclass(frozen=True)
class TorchCompiler:
    """Compiles the graphs of one program; `given` are its inputs, parameters among them. `plans`
    gets the digests of plans that are called, `inferred` reports on graphs that no gradients are
    taken of, for who says last what serves them."""

    options: TorchOptions
    given: tuple[Any, ...]
    plans: list[str] = field(default_factory=list)
    inferred: list[GraphReport] = field(default_factory=list)

    @property
    def place(self) -> IslandPlace | None:
        """Where the program is timed: on a GPU if any of its inputs is there."""
        places, tensors = Places(), [t for t in self.given if hasattr(t, "device")]
        found = [
            p for p in map(places.of, {t.device for t in tensors}) if isinstance(p, IslandPlace)
        ]
        return max(found, key=lambda place: place.rank, default=None)

    def named(self, name: str) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
        """The compiler of graphs that reports call so."""
        return lambda gm, inputs: self._compiled(gm, inputs, name, {})

    def inference(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The compiler of graphs that no gradients are taken of."""
        fixed = _parameters(gm, self.given) if self.options.freeze else {}
        return self._compiled(gm, inputs, _INFERENCE, fixed)

    def _compiled(
        self, gm: GraphModule, inputs: Sequence[Any], name: str, fixed: Mapping[str, Any]
    ) -> Callable[..., Any]:
        import torch
        from torch._functorch.aot_autograd import make_boxed_func
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        if any(isinstance(given, torch.SymInt) for given in inputs):
            function: Callable[..., Any] = Sized(self, gm, name)
        else:
            # Constants, and what is timed, are no fake tensors.
            with unset_fake_temporarily():
                function, report = self.static(gm, name, fixed)
            self.inferred.append(report) if name == _INFERENCE else _tell(report)
        # AOTAutograd's convention, in which a call lets go of its arguments.
        boxed: Callable[..., Any] = make_boxed_func(function)
        return boxed

    def static(
        self, gm: GraphModule, name: str, fixed: Mapping[str, Any], sized: bool = False
    ) -> tuple[Callable[..., Any], GraphReport]:
        """The function of a graph of static sizes, and what became of it; `fixed` are constants by
        placeholder. `sized`: it is one of several sizes."""
        places = Places(self.options.device, only_planned.get())
        found = islands_of(gm, places)
        left = [(one.op, one.reason) for one in found.left]
        pieces: dict[Island, IslandGraph] = {}
        for island in found.islands:
            piece = piece_of_island(gm, island, fixed, places)
            if isinstance(piece, str):
                left += _left(island, piece)
            else:
                pieces[island] = piece
        if self.options.max_autotune:
            tune_for(list(pieces.values()), self.options.budget_s, self.options.source, sized)
        calls: dict[Island, TensorCall] = {}
        told: list[IslandReport] = []
        plan = self._planned if only_planned.get() else self._plan
        for island, piece in pieces.items():
            report = plan(island, piece, calls)
            if isinstance(report, str):
                left += _left(island, report)
            else:
                told.append(report)
        nodes = [node.op for node in gm.graph.nodes].count("call_function")
        made: Callable[..., Any] = joined(gm, found, calls, fixed).forward
        return made, GraphReport(name, nodes, tuple(told), left_reports(left))

    def _plan(
        self, island: Island, piece: IslandGraph, calls: dict[Island, TensorCall]
    ) -> IslandReport | str:
        """Adds the call of an island; a reason where there is none."""
        try:
            plan = plan_for(piece, self.options.source)
            call = call_of(piece, plan)
        except AutofuseError as error:
            return f"no plan: {error}"
        faster = faster_island(piece, plan, call) if self.options.max_autotune else None
        if faster is not None:
            return str(faster)
        calls[island] = call
        self.plans.append(plan.candidate.digest)
        seconds = f" in {plan.check_s:.2f} s" if plan.check_s else ""
        told = f"{plan.trust}{seconds}"
        return _told(island, piece, plan.candidate, plan.origin, told)

    def _planned(
        self, island: Island, piece: IslandGraph, _: dict[Island, TensorCall]
    ) -> IslandReport | str:
        """As `_plan` where nothing is built: PyTorch runs the island."""
        try:
            candidate = planned(piece, self.options.db)
        except AutofuseError as error:
            return f"no plan: {error}"
        return _told(island, piece, candidate, candidate.origin)


def _told(
    island: Island, piece: IslandGraph, candidate: Candidate, origin: str, checked: str = ""
) -> IslandReport:
    kernels, place = len(candidate.plan.groups), piece.place
    return IslandReport(
        len(island.nodes), piece.ops, kernels, origin, piece.digest, place.device.name, place.torch,
        checked,
    )  # fmt: skip


class Sized:
    """A graph with symbolic sizes: compiled anew for each tuple of sizes that it is called with,
    by the plan of the nearest size that was tuned, never padded. Beyond `MOST_SIZES` PyTorch runs
    it, and the log says so once."""

    def __init__(self, compiler: TorchCompiler, gm: GraphModule, name: str) -> None:
        self._compiler, self._gm, self._name = compiler, gm, name
        self._made: OrderedDict[tuple[Any, ...], Callable[..., Any]] = OrderedDict()
        self._is_full = False

    def __call__(self, *args: Any) -> Any:
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        key = tuple((a.shape, a.stride()) if isinstance(a, torch.Tensor) else a for a in args)
        found = self._made.get(key)
        if found is None:
            if len(self._made) == MOST_SIZES:
                if not self._is_full:
                    LOG.warning("%s: torch runs what comes after %d sizes", self._name, MOST_SIZES)
                self._is_full = True
                return self._gm.forward(*args)
            with torch.no_grad():
                fixed = make_fx(self._gm, tracing_mode="fake")(*args)
            _attach(fixed)
            found, report = self._compiler.static(fixed, self._name, {}, sized=True)
            self._made[key] = found
            _tell(report)
        return found(*args)


def _left(island: Island, why: str) -> list[tuple[str, str]]:
    """The ops of an island that stays with PyTorch, each with the reason."""
    return [(op_name(node), why) for node in island.nodes]


def _attach(gm: GraphModule) -> None:
    """Takes out what stands between a tensor and autograd: no gradients are taken of what is traced
    here, and each would be a call."""
    for node in gm.graph.nodes:
        if str(node.target) == "aten.detach.default":
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.recompile()


def piece_of_island(
    gm: GraphModule, island: Island, fixed: Mapping[str, Any], places: Places
) -> IslandGraph | str:
    """The island as a graph; a reason where it is not worth a plan."""
    place = places.of_node(island.outputs[0])
    assert isinstance(place, IslandPlace), "an island has a place"
    try:
        graph = fx_graph(island.nodes, island.inputs, island.outputs, "island")
    except AutofuseError as error:
        return str(error)
    inputs = [port_of(node.meta["val"]) for node in island.inputs]
    outputs = [port_of(node.meta["val"]) for node in island.outputs]
    constants = {k: fixed[n.name] for k, n in enumerate(island.inputs) if n.name in fixed}
    piece = piece_of(graph, place, inputs, outputs, constants, _eager(gm, island, fixed))
    return piece if piece.ops > 1 else _FEW


def _eager(gm: GraphModule, island: Island, fixed: Mapping[str, Any]) -> TensorCall:
    """The island's nodes as PyTorch runs them, of its inputs that are no constants; written down
    when it is first called, which is rare."""
    names = [node.name for node in island.inputs]

    @cache
    def whole() -> TensorCall:
        import torch

        new = torch.fx.Graph()
        made = {node: new.placeholder(node.name) for node in island.inputs}
        for node in island.nodes:
            made[node] = new.node_copy(node, made.__getitem__)
        new.output(tuple(made[node] for node in island.outputs))
        forward: TensorCall = torch.fx.GraphModule(gm, new).forward
        return forward

    def eager(*tensors: Any) -> tuple[Any, ...]:
        rest = iter(tensors)
        return whole()(*(fixed[n] if n in fixed else next(rest) for n in names))

    return eager


def _parameters(gm: GraphModule, given: Sequence[Any]) -> dict[str, Any]:
    """The tensors of placeholders that are parameters or buffers, and that the graph leaves as
    they are."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    facts = context.fw_metadata if context else None
    placeholders = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    if facts is None or len(placeholders) != len(given):
        return {}
    still = set(facts.static_input_indices) - set(facts.mutated_inp_runtime_indices)
    return {placeholders[k]: given[k] for k in still}


def islands_of(gm: GraphModule, places: Places) -> Cut:
    """The islands of a graph, each on one device."""

    def refused(node: Node) -> str | None:
        place = places.of_node(node)
        return place if isinstance(place, str) else refusal(node)

    def rank(node: Node) -> int:
        place = places.of_node(node)
        assert isinstance(place, IslandPlace), "what is nowhere is refused"
        return place.rank

    return cut(gm.graph, refused, rank)


def _tell(report: GraphReport) -> None:
    """One line of the log, and the report for whoever asked to have it explained."""
    asked = reports.get()
    if asked is not None:
        asked.append(report)
    (LOG.warning if report.left else LOG.info)("%s", report)
