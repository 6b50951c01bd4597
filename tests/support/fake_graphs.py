"""The driver's functions for graphs, with the rules of cuda.h that they enforce.

Handles are numbers of our own. What is launched is written down; what a stream captures is what
`captured` was called with meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.graphs import GraphKernel

_INVALID, _UPDATE_FAILURE = 1, 910


@dataclass
class Node:
    """A kernel, the list of what a child graph holds, or None: empty."""

    work: GraphKernel | tuple[Any, ...] | None
    after: list[int] = field(default_factory=list)
    early: list[int] = field(default_factory=list)


@dataclass
class Instance:
    graph: int
    nodes: dict[int, GraphKernel | tuple[Any, ...] | None]


class FakeGraphs:
    """The library. `graphs` and `instances` are what lives; `launched` holds, for each launch, what
    its nodes did, in the order in which they were added. `codes` are answers by function."""

    def __init__(self) -> None:
        self.numbers = count(1000)
        self.graphs: dict[int, dict[int, Node]] = {}
        self.instances: dict[int, Instance] = {}
        self.capturing: list[Any] | None = None
        self.launched: list[tuple[Any, ...]] = []
        self.codes: dict[str, int] = {}
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        """A function by its name, which answers what `codes` says or does what it should."""

        def function(*arguments: Any) -> int:
            self.called.append(name)
            found = self.codes.get(name, 0)
            return found or int(self._functions[name](self, *arguments) or 0)

        if name not in self._functions:
            raise AttributeError(name)
        return function

    def captured(self, what: Any) -> None:
        """Work for a stream: it must be capturing."""
        assert self.capturing is not None, "this would run now"
        self.capturing.append(what)

    # --- what the functions do ------------------------------------------------------------------

    def _create(self, out: Any, flags: int) -> int:
        out._obj.value = next(self.numbers)
        self.graphs[out._obj.value] = {}
        return int(bool(flags))

    def _destroy(self, graph: int) -> int:
        return 0 if self.graphs.pop(graph, None) is not None else _INVALID

    def _add(self, out: Any, graph: int, after: Sequence[int], n: int, work: Any) -> int:
        nodes, given = self.graphs.get(graph), list(after[:n])
        if nodes is None or len(set(given)) != n or not set(given) <= nodes.keys():
            return _INVALID
        out._obj.value = next(self.numbers)
        nodes[out._obj.value] = Node(work, given)
        return 0

    def _add_kernel(self, out: Any, graph: int, after: Sequence[int], n: int, params: Any) -> int:
        return self._add(out, graph, after, n, _kernel(params._obj))

    def _add_child(self, out: Any, graph: int, after: Sequence[int], n: int, child: int) -> int:
        if child not in self.graphs:
            return _INVALID
        return self._add(out, graph, after, n, self._work(child))

    def _add_empty(self, out: Any, graph: int, after: Sequence[int], n: int) -> int:
        return self._add(out, graph, after, n, None)

    def _work(self, graph: int) -> tuple[Any, ...]:
        return tuple(node.work for node in self.graphs[graph].values())

    def _add_edge(
        self, graph: int, sources: Sequence[int], ends: Sequence[int], data: Any, n: int
    ) -> int:
        nodes, edge = self.graphs[graph], data._obj
        assert n == 1 and not any(edge.reserved) and edge.to_port == 0
        source, end = nodes[sources[0]], nodes[ends[0]]
        kernels = isinstance(source.work, GraphKernel) and isinstance(end.work, GraphKernel)
        known = sources[0] in (*end.after, *end.early)
        if (edge.from_port, edge.kind) != (1, 1) or not kernels or known:
            return _INVALID
        end.early.append(sources[0])
        return 0

    def _set_attribute(self, node: int, attribute: int, value: Any) -> int:
        assert attribute == 2 and ctypes.sizeof(value._obj) == 64 and value._obj[0] == 1
        (own,) = (nodes[node] for nodes in self.graphs.values() if node in nodes)
        assert isinstance(own.work, GraphKernel)
        shape = own.work.shape
        own.work = GraphKernel(
            own.work.function, Geometry(shape.grid, shape.block, shape.shared, cooperative=True),
            own.work.arguments,
        )  # fmt: skip
        return 0

    def _instantiate(self, out: Any, graph: int, flags: int) -> int:
        if graph not in self.graphs or flags:
            return _INVALID
        out._obj.value = next(self.numbers)
        works = {number: node.work for number, node in self.graphs[graph].items()}
        self.instances[out._obj.value] = Instance(graph, works)
        return 0

    def _destroy_instance(self, instance: int) -> int:
        return 0 if self.instances.pop(instance, None) is not None else _INVALID

    def _set_kernel(self, instance: int, node: int, params: Any) -> int:
        own = self.instances[instance]
        old, new = own.nodes.get(node), _kernel(params._obj)
        if own.graph not in self.graphs or not isinstance(old, GraphKernel):
            return _INVALID
        # Whether it is cooperative is the node's, and stays.
        shape = new.shape
        kept = Geometry(shape.grid, shape.block, shape.shared, old.shape.cooperative)
        own.nodes[node] = GraphKernel(new.function, kept, new.arguments)
        return 0

    def _set_child(self, instance: int, node: int, child: int) -> int:
        own = self.instances[instance]
        old, new = own.nodes.get(node), self._work(child)
        if own.graph not in self.graphs or not isinstance(old, tuple):
            return _INVALID
        if [what[0] for what in old] != [what[0] for what in new]:
            return _UPDATE_FAILURE
        own.nodes[node] = new
        return 0

    def _launch(self, instance: int, stream: int) -> int:
        if instance not in self.instances:
            return _INVALID
        self.launched.append(tuple(self.instances[instance].nodes.values()))
        return 0

    def _begin(self, stream: int, mode: int) -> int:
        if self.capturing is not None or mode != 2:
            return _INVALID
        self.capturing = []
        return 0

    def _end(self, stream: int, out: Any) -> int:
        if self.capturing is None:
            return _INVALID
        work, self.capturing = self.capturing, None
        self._create(out, 0)
        self.graphs[out._obj.value] = {next(self.numbers): Node(what) for what in work}
        return 0

    _functions: dict[str, Callable[..., int | None]] = {  # noqa: RUF012 - nobody changes it
        "cuGraphCreate": _create,
        "cuGraphDestroy": _destroy,
        "cuGraphAddKernelNode_v2": _add_kernel,
        "cuGraphAddChildGraphNode": _add_child,
        "cuGraphAddEmptyNode": _add_empty,
        "cuGraphAddDependencies_v2": _add_edge,
        "cuGraphKernelNodeSetAttribute": _set_attribute,
        "cuGraphInstantiateWithFlags": _instantiate,
        "cuGraphExecKernelNodeSetParams_v2": _set_kernel,
        "cuGraphExecChildGraphNodeSetParams": _set_child,
        "cuGraphExecDestroy": _destroy_instance,
        "cuGraphLaunch": _launch,
        "cuStreamBeginCapture_v2": _begin,
        "cuStreamEndCapture": _end,
    }


def _kernel(params: Any) -> GraphKernel:
    """What CUDA_KERNEL_NODE_PARAMS_v2 says, read as the driver reads it: by place."""
    raw = bytes(params)
    function = int.from_bytes(raw[:8], "little")
    grid, _, _, block, *_, shared = (ctypes.c_uint * 7).from_buffer_copy(raw, 8)
    start = int.from_bytes(raw[40:48], "little")
    assert len(raw) == 72 and not any(raw[48:]), "no extra, no CUkernel, the current context"
    # The function itself knows how many arguments it has: here its handle says so.
    places = (ctypes.c_void_p * (function % 16)).from_address(start) if function % 16 else ()
    values = tuple(ctypes.c_int64.from_address(place).value for place in places)
    return GraphKernel(function, Geometry(grid, block, shared), values)
