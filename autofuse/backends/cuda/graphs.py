"""CUDA graphs by the driver's own functions: CuPy has none that changes a graph once it is made.

Kernels are nodes that we add, with edges of our choice. Whatever else is called (cuBLAS, a copy) is
captured into a graph of its own, which becomes one node. Numbers are those of cuda.h.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.maps import Given, packed

LaunchCall = Callable[[], None]
_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_ADD = (_POINTER, _POINTER, _POINTER, _SIZE)
_SIGNATURES = {
    "cuGraphCreate": (_POINTER, ctypes.c_uint),
    "cuGraphDestroy": (_POINTER,),
    "cuGraphAddKernelNode_v2": (*_ADD, _POINTER),
    "cuGraphAddChildGraphNode": (*_ADD, _POINTER),
    "cuGraphAddEmptyNode": _ADD,
    "cuGraphAddDependencies_v2": (_POINTER, _POINTER, _POINTER, _POINTER, _SIZE),
    "cuGraphKernelNodeSetAttribute": (_POINTER, _INT, _POINTER),
    "cuGraphInstantiateWithFlags": (_POINTER, _POINTER, ctypes.c_ulonglong),
    "cuGraphExecKernelNodeSetParams_v2": (_POINTER, _POINTER, _POINTER),
    "cuGraphExecChildGraphNodeSetParams": (_POINTER, _POINTER, _POINTER),
    "cuGraphExecDestroy": (_POINTER,),
    "cuGraphLaunch": (_POINTER, _POINTER),
    "cuStreamBeginCapture_v2": (_POINTER, _INT),
    "cuStreamEndCapture": (_POINTER, _POINTER),
}
_RELAXED_CAPTURE, _COOPERATIVE = 2, 2
# CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED and CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE.
_REFUSALS = (1, 801, 910)


class DriverGraphError(RuntimeError):
    """What the driver says to a graph."""


class UpdateRefused(DriverGraphError):  # noqa: N818 - the caller makes another graph
    """An instantiated graph that cannot take other arguments; it is not to be launched again."""


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A method of the driver with its arguments; equal calls do the same."""

    method: Callable[..., None]
    arguments: tuple[Any, ...]

    def __call__(self) -> None:
        self.method(*self.arguments)


@dataclass(frozen=True, slots=True)
class GraphKernel:
    """A kernel node: the driver's handle of the function, and what it is given."""

    function: int
    shape: Geometry
    arguments: tuple[Given, ...]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """`call` after the nodes of these numbers, which come before it in the list. `early`: it may
    start when all blocks of the one kernel before it have said so."""

    call: LaunchCall
    after: tuple[int, ...] = ()
    early: bool = False


def join() -> None:
    """Nothing: a node that others meet at."""


def in_turn(nodes: Sequence[GraphNode], count: int, gate: LaunchCall = join) -> list[GraphNode]:
    """`nodes` so many times over, each time after `gate`, which comes after all of the time
    before."""
    inner = set[int]().union(*(node.after for node in nodes))
    found: list[GraphNode] = []
    ends: tuple[int, ...] = ()
    for _ in range(count):
        start = len(found)
        found.append(GraphNode(gate, ends))
        moved = ((node, tuple(start + 1 + m for m in node.after)) for node in nodes)
        found += [replace(node, after=after or (start,)) for node, after in moved]
        ends = tuple(start + 1 + n for n in range(len(nodes)) if n not in inner) or (start,)
    return found


class _KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", _POINTER),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("arguments", _POINTER),
        ("extra", _POINTER),
        ("kernel", _POINTER),
        ("context", _POINTER),
    )


class _Edge(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("kind", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


# CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC and CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.
_EARLY = _Edge(from_port=1, to_port=0, kind=1)


@lru_cache(maxsize=1)
def graph_library() -> Any:
    """The driver with its functions for graphs declared; OSError without a driver,
    DriverGraphError for one that is too old."""
    library = ctypes.CDLL("libcuda.so.1")
    try:
        for name, arguments in _SIGNATURES.items():
            getattr(library, name).argtypes = arguments
    except AttributeError as error:
        raise DriverGraphError(f"the driver is older than CUDA 12.3: {error}") from error
    return library


class GraphApi:
    """The driver's functions for graphs; each raises DriverGraphError when the driver refuses."""

    def __init__(self, library: Any = None) -> None:
        self._library = library or graph_library()

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise DriverGraphError(f"{name} failed (CUDA error {code})")

    def change(self, name: str, *arguments: Any) -> None:
        """As `call`, for changes that the driver may refuse: UpdateRefused."""
        code = getattr(self._library, name)(*arguments)
        if code:
            kind = UpdateRefused if code in _REFUSALS else DriverGraphError
            raise kind(f"{name} failed (CUDA error {code})")

    def made(self, name: str, *arguments: Any) -> int:
        """The handle that a function leaves at its first argument."""
        handle = _POINTER()
        self.call(name, ctypes.byref(handle), *arguments)
        return int(handle.value or 0)

    def release(self, owned: Sequence[tuple[str, int]]) -> None:
        """Call each on its handle. A device that has failed has nothing left to free."""
        for name, handle in owned:
            getattr(self._library, name)(handle)

    def begin(self, stream: int) -> None:
        self.call("cuStreamBeginCapture_v2", stream, _RELAXED_CAPTURE)

    def end(self, stream: int) -> int:
        """The graph of what was captured; its owner destroys it."""
        handle = _POINTER()
        self.call("cuStreamEndCapture", stream, ctypes.byref(handle))
        return int(handle.value or 0)


class DeviceGraph:
    """An instantiated graph. `read` says which kernel a call is, if it is one, and `capture` makes
    a graph of any other call; the caller keeps what is called for as long as the graph."""

    def __init__(
        self,
        api: GraphApi,
        nodes: Sequence[GraphNode],
        read: Callable[[LaunchCall], GraphKernel | None],
        capture: Callable[[LaunchCall], int],
    ) -> None:
        self._api, self._read, self._capture = api, read, capture
        self._calls = [node.call for node in nodes]
        self._graph = api.made("cuGraphCreate", 0)
        owned = [("cuGraphDestroy", self._graph)]
        weakref.finalize(self, api.release, owned).atexit = False
        self._nodes: list[int] = []
        for node in nodes:
            self._nodes.append(self._add(node))
        self._instance = api.made("cuGraphInstantiateWithFlags", self._graph, 0)
        owned.insert(0, ("cuGraphExecDestroy", self._instance))

    def launch(self, stream: Any) -> None:
        self._api.call("cuGraphLaunch", self._instance, stream.ptr)

    def update(self, calls: Sequence[LaunchCall]) -> None:
        """Other arguments for the nodes, from the next launch on. Raises UpdateRefused."""
        for n, (old, new) in enumerate(zip(self._calls, calls, strict=True)):
            if old != new:
                self._change(self._nodes[n], new)
                self._calls[n] = new

    def _add(self, node: GraphNode) -> int:
        api, after = self._api, [self._nodes[m] for m in node.after]
        # An early edge says more than that one node comes after another.
        plain = [] if node.early else after
        place = (self._graph, (_POINTER * len(plain))(*plain), len(plain))
        if node.call is join:
            return api.made("cuGraphAddEmptyNode", *place)
        kernel = self._read(node.call)
        if kernel is None:
            child = self._capture(node.call)
            try:
                return api.made("cuGraphAddChildGraphNode", *place, child)
            finally:
                api.call("cuGraphDestroy", child)
        params, _kept = _params(kernel)
        added = api.made("cuGraphAddKernelNode_v2", *place, ctypes.byref(params))
        if kernel.shape.cooperative:
            value = (ctypes.c_int * 16)(1)
            api.call("cuGraphKernelNodeSetAttribute", added, _COOPERATIVE, ctypes.byref(value))
        if node.early:
            ends = ((_POINTER * 1)(end) for end in (*after, added))
            api.call("cuGraphAddDependencies_v2", self._graph, *ends, ctypes.byref(_EARLY), 1)
        return added

    def _change(self, node: int, call: LaunchCall) -> None:
        api, kernel = self._api, self._read(call)
        if kernel is not None:
            params, _kept = _params(kernel)
            name = "cuGraphExecKernelNodeSetParams_v2"
            return api.change(name, self._instance, node, ctypes.byref(params))
        child = self._capture(call)
        try:
            api.change("cuGraphExecChildGraphNodeSetParams", self._instance, node, child)
        finally:
            api.call("cuGraphDestroy", child)


def _params(kernel: GraphKernel) -> tuple[_KernelParams, Any]:
    """The parameters of a node, and what they point at, to be kept until they have been read."""
    places, values = packed(kernel.arguments)
    shape = kernel.shape
    return _KernelParams(
        function=kernel.function,
        grid=(shape.grid, 1, 1),
        block=(shape.block, 1, 1),
        shared=shape.shared,
        arguments=ctypes.addressof(places),
    ), (values, places)
