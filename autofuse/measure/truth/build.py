"""The kernels and loops of a reference as one library, and calls into it."""

from __future__ import annotations

import _ctypes
import ctypes
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autofuse.backends.base import building
from autofuse.backends.cache import BuildCache, content_key
from autofuse.backends.ccompiler import UNIT_LIMIT_S, make_file, recall
from autofuse.backends.cpu.pool import pool_pointer
from autofuse.backends.machine import isa_digest
from autofuse.backends.toolchain import find_compiler
from autofuse.errors import AutofuseError
from autofuse.graph.noise import Noise, splitter
from autofuse.graph.types import Graph, Node
from autofuse.kernel.ir.emit import LoweringError
from autofuse.limits import usable_cores
from autofuse.measure.truth.cost import is_brief
from autofuse.measure.truth.loops import LoopUnit
from autofuse.measure.truth.plan import ByNumPy, TruthItem, TruthKernel, TruthLoop, items
from autofuse.measure.truth.text import (
    FLAGS,
    OPTIMIZED,
    PLAIN,
    QUIET,
    ROUNDED,
    TABLE,
    KernelText,
    kernel_text,
)
from autofuse.ops.spec import Family

Arrays = tuple[np.ndarray, ...]
# From so many elements on a kernel is shared out among threads.
_SHARED = 1 << 16
_ROUTINE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class _State(ctypes.Structure):
    """`truth` in C."""

    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("noise", ctypes.c_void_p),
        ("parallel", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
        ("constants", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class TruthPlan:
    """How one graph is computed: its items, and what is compiled of them, by name."""

    items: tuple[TruthItem, ...]
    kernels: dict[int, tuple[str, KernelText]]  # by position among the items
    loops: dict[Node, tuple[str, int]]


class LateTruthError(AutofuseError):
    """The reference was not computed within the time that it was given."""


class TruthLibrary:
    """All that is compiled of a graph and of the bodies of its loops, before `end` (of
    `time.perf_counter`). Raises CompileError, CompilerMissing, LoweringError, CacheError, and
    LateTruthError where writing it takes longer."""

    def __init__(self, graph: Graph, end: float) -> None:
        self._unit = LoopUnit()
        self.plans: dict[Graph, TruthPlan] = {}
        self._add(graph, end)
        text = self._unit.text()
        self.empty = not (self._unit.kernels or self._unit.functions)
        started = time.perf_counter()
        if not self.empty:
            self._code = ctypes.CDLL(
                _built(text, max(0.0, end - started), PLAIN if is_brief(graph) else OPTIMIZED)
            )
            # Nobody else has it, and a process may compute many references.
            weakref.finalize(self, _ctypes.dlclose, self._code._handle)
        self.compile_s = time.perf_counter() - started
        self._constants = self._unit.constants
        self._places = (ctypes.c_void_p * max(1, len(self._constants)))(
            *(a.ctypes.data for a in self._constants)
        )
        self._quiet = np.array([0.0] * QUIET + [np.inf] + [0.0] * len(ROUNDED))
        self._parallel = ctypes.cast(pool_pointer(), ctypes.c_void_p) if not self.empty else None
        self._threads = usable_cores()

    def _add(self, graph: Graph, end: float) -> None:
        """A plan for `graph` and for the bodies that NumPy runs or that are checked alone."""
        if graph in self.plans:
            return
        found, kernels, loops = items(graph, False), {}, {}
        for at, item in enumerate(found):
            if time.perf_counter() > end:
                raise LateTruthError("the reference was not written in time")
            if isinstance(item, TruthKernel):
                try:
                    text = kernel_text(graph, item)
                except LoweringError:
                    continue
                kernels[at] = (self._unit.kernel(text, export=True), text)
            elif isinstance(item, TruthLoop):
                node = graph[item.node]
                try:
                    loops[node] = self._unit.loop(node)
                except LoweringError:
                    continue
        self.plans[graph] = TruthPlan(found, kernels, loops)
        for body in _run_bodies(graph, found):
            self._add(body, end)

    def state(self, noise: Noise | None) -> _State:
        """What compiled code is given for one run."""
        table = self._quiet
        if noise is not None:
            splits = [splitter(dtype) if noise.rounds else 0.0 for dtype in ROUNDED]
            table = np.concatenate([np.tile(noise.table, 3), [0.0], splits])
        self._table = table  # kept as long as the state may be used
        return _State(
            0 if noise is None else noise.seed(),
            table.ctypes.data,
            self._parallel,
            self._threads,
            ctypes.addressof(self._places),
        )

    def kernel(
        self, name: str, text: KernelText, arrays: Sequence[np.ndarray], state: _State
    ) -> None:
        """Run a kernel on what it reads and what it stores."""
        starts = np.zeros(max(1, text.rounded), np.int64)
        for k in range(text.rounded):
            state.seed = (state.seed * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
            starts[k] = (state.seed >> 33) % TABLE
        pointers = [a.ctypes.data for a in arrays]
        pointers += [state.noise, starts.ctypes.data]
        given = (ctypes.c_void_p * len(pointers))(*pointers)
        function = self._code[name]
        if text.size > _SHARED and text.rows > 1:
            run = _parallel_type()(state.parallel)
            address = ctypes.cast(function, ctypes.c_void_p)
            run(address, given, text.rows, min(self._threads, text.rows))
        else:
            function(given, ctypes.c_int64(0), ctypes.c_int64(text.rows))

    def loop(
        self,
        name: str,
        arena: np.ndarray,
        buffers: LoopBuffers,
        state: _State,
        first: int,
        last: int,
    ) -> int:
        """Run iterations `first` to `last` of a loop; returns the one that it came to."""
        function = self._code[name]
        function.restype = ctypes.c_int64
        reached = function(
            ctypes.byref(state), buffers.current, buffers.other, buffers.invariants,
            buffers.stacks, ctypes.c_void_p(arena.ctypes.data), ctypes.c_int64(first),
            ctypes.c_int64(last),
        )  # fmt: skip
        return int(reached)


def _run_bodies(graph: Graph, found: Sequence[TruthItem]) -> Iterator[Graph]:
    """The bodies that NumPy runs."""
    for item in found:
        if isinstance(item, ByNumPy) and graph[item.node].spec.family is Family.CONTROL:
            yield dict(graph[item.node].attrs)["body"]


@lru_cache(maxsize=1)
def _parallel_type() -> type[ctypes._CFuncPtr]:  # type: ignore[name-defined]  # not in the stubs
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    return ctypes.CFUNCTYPE(None, pointer, pointer, count, count)


class LoopBuffers:
    """The states of a loop, twice each, what does not change in it, and what it stacks."""

    def __init__(self, graph: Graph, i: int, operands: Arrays) -> None:
        node = graph[i]
        carries = int(dict(node.attrs)["carries"])
        self._types = node.types[:carries]
        wide = [t.dtype.reference for t in self._types]
        self._first = [
            np.array(a, d, order="C") for a, d in zip(operands[:carries], wide, strict=True)
        ]
        self._second = [np.empty_like(a) for a in self._first]
        self._invariants = [np.ascontiguousarray(a) for a in operands[carries:]]
        self.stacked = tuple(np.empty(t.shape, t.dtype.reference) for t in node.types[carries:])
        self.current, self.other = _addresses(self._first), _addresses(self._second)
        self.invariants, self.stacks = _addresses(self._invariants), _addresses(self.stacked)

    @property
    def states(self) -> Arrays:
        """The states as they are now: the compiled code has exchanged some."""
        pairs = zip(self._first, self._second, self.current, strict=False)
        return tuple(a if a.ctypes.data == place else b for a, b, place in pairs)


def _addresses(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))


def _built(text: str, limit_s: float, effort: tuple[str, ...]) -> str:
    compiler, cache = find_compiler(), BuildCache()
    key = content_key(["truth", compiler.identity, isa_digest(), *FLAGS, *effort, text])
    known = recall(cache, key, ".so")
    if known is None:
        source = cache.temporary(".c")
        try:
            with building("the reference"):
                source.write_text(text, encoding="utf-8")
                most = min(limit_s, UNIT_LIMIT_S)
                command = [*compiler.command, *FLAGS, *effort, "-shared", str(source), "-lm"]
                known = make_file(command, cache, key, ".so", "the reference", most)
        finally:
            source.unlink(missing_ok=True)
    return str(known.path)
