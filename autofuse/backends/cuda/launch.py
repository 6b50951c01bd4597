"""A built CUDA program on the device: its buffers, its calls, and its graphs.

In "graph" mode a call is one launch of a graph, in which launches that share no bytes are in no
order. A graph is bound to the addresses of a call: for other arrays it is given theirs, and a
caller who comes back with the same arrays gets one that he finds again. In "eager" mode every
kernel is launched by itself, one after another.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np

from autofuse.backends.base import BoundEntry, LaunchError
from autofuse.backends.cuda.arrays import Arguments
from autofuse.backends.cuda.bound import BoundLaunches, Spaces
from autofuse.backends.cuda.build import CudaArtifact
from autofuse.backends.cuda.driver import CupyDriver
from autofuse.backends.cuda.graphs import (
    GraphNode,
    HeldCall,
    LaunchCall,
    UpdateRefused,
    in_turn,
    join,
)
from autofuse.backends.cuda.loading import allocated, given_for, loaded_functions
from autofuse.backends.cuda.ordering import Hosted, OneLaunch, Place, every, places, singles
from autofuse.backends.cuda.prepared import library_call, library_plans
from autofuse.backends.cuda.program import (
    Action,
    Fft,
    Gemm,
    KernelLaunch,
    Matmul,
    WhileAction,
    moved,
)
from autofuse.ops.types import AutofuseError
from autofuse.plan.program.schedule import Copy, Ref

MODES = ("graph", "eager")
# Graphs of one program, and calls' addresses that are remembered.
KEPT_GRAPHS, KNOWN_CALLS = 8, 64
# No library chooses a kernel by more of an address than where it is in so many bytes.
_ALIGNMENT = 256
NOT_CAPTURED = "a loop that ends by what it computes cannot be captured"


class CudaPlan:
    """A loaded program. Calls are serialised, across streams too: the workspace is shared."""

    def __init__(
        self, artifact: CudaArtifact, driver: CupyDriver | None = None, mode: str = "graph"
    ) -> None:
        """Loads the modules and allocates all buffers.

        Raises LaunchError, CudaMissing, CublasMissing."""
        if mode not in MODES:
            raise AutofuseError(f"unknown mode '{mode}' (known: {', '.join(MODES)})")
        self.artifact, self.mode = artifact, mode
        self.driver = driver or CupyDriver()
        self._lock = threading.Lock()
        self._graphs: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self._known: deque[tuple[int, ...]] = deque(maxlen=KNOWN_CALLS)
        self._loaded: set[tuple[int, ...]] = set()
        self._last_stream: Any = None
        self._entered = threading.local()
        self._held: list[tuple[Any, tuple[Any, ...]]] = []
        self._bound: tuple[Any, ...] = ()
        self.has_gemm = any(isinstance(a, Gemm | Matmul) for a in every(self._everything))
        # The host reads flags on the way, which no graph can wait for.
        self.hosted = any(isinstance(a, WhileAction) for a in every(self._everything))
        try:
            self._functions = loaded_functions(self.driver, artifact)
            self.side = self.driver.new_stream()
            # What calls of libraries need that is made once.
            self._plans = library_plans(self.driver, every(self._everything))
            with self.side:
                self._buffers = allocated(self.driver, artifact, self.has_gemm)
            # Nothing orders the stream of a first call after the one that fills the buffers.
            self.side.synchronize()
        except self.driver.errors as error:
            raise LaunchError(f"the program cannot be loaded: {error}") from error
        free = artifact.binding.free(artifact.inputs)
        self._arguments = Arguments(self.driver, free, artifact.outputs)

    @property
    def _everything(self) -> tuple[Action, ...]:
        """What is done once, and what each call does."""
        return (*self.artifact.prepare, *self.artifact.actions)

    @cached_property
    def _places(self) -> tuple[Place, ...]:
        """Where each launch of a call stands; the same for all addresses."""
        return places(tuple(singles(self.artifact.actions)))

    def __enter__(self) -> CudaPlan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of graphs, modules and buffers; results stay valid."""
        with self._lock:
            # A device that has failed has nothing left to wait for.
            with suppress(*self.driver.errors):
                for event, _ in self._held:
                    event.synchronize()
            self._held.clear()
            self._graphs.clear()
            self._functions, self._buffers, self._plans = {}, {}, {}

    # --- binding ------------------------------------------------------------------------------

    def segments(
        self, inputs: Sequence[int], outputs: Sequence[int]
    ) -> list[tuple[int, tuple[LaunchCall, ...]]]:
        """The launches on these addresses, in an order that is right: (group of the plan or -1, its
        calls)."""
        if not self._functions and self.artifact.cubins:
            raise LaunchError("the program has been unloaded")
        base = self._base(inputs, outputs)
        pairs = zip(self.artifact.owners, self.artifact.actions, strict=True)
        return [
            (owner, tuple(self._call(single, base) for single in singles((action,))))
            for owner, action in pairs
        ]

    def _base(self, inputs: Sequence[int], outputs: Sequence[int]) -> dict[str, list[int]]:
        """Addresses by space; `inputs` are those that are no constants."""
        binding = self.artifact.binding
        if len(self._bound) < len(binding.bound):
            raise LaunchError("the program's constants have not been bound")
        bound = tuple(0 if a is None else self.driver.pointer(a) for a in self._bound)
        base = {
            space: [self.driver.pointer(array) for array in arrays]
            for space, arrays in self._buffers.items()
        }
        return base | {"in": list(binding.together(bound, inputs)), "out": list(outputs)}

    def prepare(self, constants: Sequence[Any]) -> None:
        """See `Runnable`. What calls read of constants is kept on the device; the rest goes."""
        binding = self.artifact.binding
        own = Arguments(self.driver, binding.chosen(self.artifact.inputs), ())
        with self.side:
            copies = own.copies(constants)
        self.side.synchronize()
        self.bind_constants(copies)

    def bind_constants(self, constants: Sequence[Any]) -> None:
        """As `prepare`, of arrays on the device that nobody changes from now on."""
        binding = self.artifact.binding
        with self._lock:
            try:
                self.driver.enter()
                self._bound = tuple(constants)
                base = self._base((0,) * len(binding.free(self.artifact.inputs)), ())
                self._run_now([self._call(one, base) for one in singles(self.artifact.prepare)])
            except self.driver.errors as error:
                raise LaunchError(f"constants cannot be prepared: {error}") from error
            pairs = zip(binding.bound, self._bound, strict=True)
            self._bound = tuple(own if k in binding.read else None for k, own in pairs)
            self._graphs.clear()

    @property
    def prepared_bytes(self) -> int:
        read = (self.artifact.inputs[k].nbytes for k in self.artifact.binding.read)
        return self.artifact.binding.held + sum(read)

    def calls(self, inputs: Sequence[int], outputs: Sequence[int]) -> tuple[LaunchCall, ...]:
        """Every launch of one call on these addresses."""
        return tuple(call for _, calls in self.segments(inputs, outputs) for call in calls)

    def _call(self, single: OneLaunch, base: Mapping[str, Sequence[int]]) -> LaunchCall:
        def at(ref: Ref) -> int:
            return base[ref.space][ref.index] + ref.offset

        driver = self.driver
        match single:
            case KernelLaunch(symbol, shape, arguments):
                given = tuple(given_for(driver, a, at(a.ref)) for a in arguments)
                return HeldCall(driver.launch, (self._functions[symbol], shape, given))
            case Gemm(a=a, b=b, c=c):
                return HeldCall(driver.gemm, (single, (at(a), at(b), at(c)), base["blas"][0]))
            case Matmul() | Fft():
                return library_call(driver, self._plans, single, at, base["blas"])
            case Copy(source, target, nbytes):
                return HeldCall(driver.copy, (at(target), at(source), nbytes))
            case Hosted():
                return HeldCall(self._while, (single, base))

    def _while(self, hosted: Hosted, base: Mapping[str, Sequence[int]]) -> None:
        """Iterations until the flags that the last one left are all false."""
        loop, trips, t = hosted.loop, dict(hosted.trips), 0
        count = len(loop.turns)

        def at(ref: Ref) -> int:
            own = moved(ref, trips)
            return base[own.space][own.index] + own.offset

        while t < loop.trip and self.driver.fetch(at(loop.go[t % count]), loop.flags).any():
            self.driver.put(at(loop.counter), np.asarray(t, np.int32))
            for single in singles(loop.turns[t % count], {**trips, loop.level: t}):
                self._call(single, base)()
            t += 1
        for single in singles(loop.ends[t % len(loop.ends)], trips):
            self._call(single, base)()

    # --- graphs -------------------------------------------------------------------------------

    def graph(self, inputs: Sequence[int], outputs: Sequence[int]) -> Any:
        """The graph of a call on these addresses, until the next time that one is asked for.

        Addresses that are met for the first time are given to the graph that was not used for
        longest; those that come back get one that stays theirs, as far as KEPT_GRAPHS go."""
        key = (*inputs, *outputs)
        if key not in self._graphs:
            calls = self.calls(inputs, outputs)
            self._load_library(key, calls)
            room = KEPT_GRAPHS if key in self._known else 1
            old = self._graphs.popitem(last=False)[1] if len(self._graphs) >= room else None
            self._graphs[key] = self._built(calls) if old is None else self._rebound(old, calls)
            self._known.append(key)
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def _rebound(self, graph: Any, calls: Sequence[LaunchCall]) -> Any:
        try:
            graph.update(calls)
        except UpdateRefused as refused:
            warnings.warn(f"{refused}: a new graph is made", RuntimeWarning, stacklevel=2)
            return self._built(calls)
        return graph

    def _built(self, calls: Sequence[LaunchCall]) -> Any:
        return self.driver.graph(self.side, self._nodes(calls))

    def _nodes(self, calls: Sequence[LaunchCall]) -> list[GraphNode]:
        pairs = zip(calls, self._places, strict=True)
        return [GraphNode(call, place.after, place.early) for call, place in pairs]

    def repeated(
        self, inputs: Sequence[int], outputs: Sequence[int], count: int, gate: LaunchCall = join
    ) -> Any:
        """`count` calls as one graph; each comes after `gate`, and that after the call before."""
        calls = self.calls(inputs, outputs)
        self._load_library((*inputs, *outputs), calls)
        return self.driver.graph(self.side, in_turn(self._nodes(calls), count, gate))

    def captured(self, calls: Sequence[LaunchCall]) -> Any:
        """Some of a call's launches as a graph, one after another."""
        if self.has_gemm or self._plans:
            self._run_now(calls)
        return self.driver.capture(self.side, calls)

    def _load_library(self, addresses: Sequence[int], calls: Sequence[LaunchCall]) -> None:
        """A library loads its kernels when they first run, which must not be in a capture."""
        aligned = tuple(address % _ALIGNMENT for address in addresses)
        if (self.has_gemm or self._plans) and aligned not in self._loaded:
            self._run_now(calls)
            self._loaded.add(aligned)

    def _run_now(self, calls: Sequence[LaunchCall]) -> None:
        # Whatever still uses the buffers, on any stream, comes first.
        self.driver.synchronize()
        with self.side:
            for call in calls:
                call()
        self.side.synchronize()

    # --- calling ------------------------------------------------------------------------------

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """The outputs for these inputs, on the caller's current stream.

        Arrays of CuPy, PyTorch and JAX are used in place, NumPy's are copied. Given `outputs` are
        written; else results are CuPy arrays, or NumPy's if all inputs are. A caller who captures
        the stream keeps his arrays for as long as his graph. Raises ArrayError for arguments that
        do not fit, LaunchError when the device refuses."""
        with self._lock:
            try:
                self.driver.enter()
                stream = self.driver.current_stream()
                capturing = bool(stream.ptr and stream.is_capturing())
                if not capturing:
                    # First of all: `take` fills buffers that an earlier call may still read.
                    self._follow(stream)
                taken = self._arguments.take(inputs, outputs, stream)
                self._issue(taken.inputs, taken.outputs, stream, capturing)
                found = taken.results()
                if not capturing:
                    self._hold(taken.adopted, stream)
                return found
            except self.driver.errors as error:
                raise LaunchError(f"the device failed: {error}") from error

    def _issue(
        self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: Any, capturing: bool
    ) -> None:
        # A caller who captures takes our launches into a graph of his own.
        if capturing and self.hosted:
            raise LaunchError(NOT_CAPTURED)
        if self.mode == "graph" and not capturing and not self.hosted:
            self.graph(inputs, outputs).launch(stream)
            return
        for call in self.calls(inputs, outputs):
            call()

    def _hold(self, adopted: tuple[Any, ...], stream: Any) -> None:
        """Keep views of others' arrays until the device is done with them: a caller may let go of
        his at once, and the library that he has them from knows nothing of our stream."""
        self._held = [(event, arrays) for event, arrays in self._held if not event.done]
        if adopted:
            event = self.driver.event()
            event.record(stream)
            self._held.append((event, adopted))

    def bound_entry(self, stream: Callable[[], int]) -> BoundEntry:
        """See `Runnable`: launches go one by one to the stream, whatever the mode, so that other
        addresses cost nothing and a caller who captures the stream gets them in his graph."""
        free = (0,) * len(self.artifact.binding.free(self.artifact.inputs))
        spaces = Spaces.of(self._base(free, (0,) * len(self.artifact.outputs)))
        launches = tuple(singles(self.artifact.actions))
        bound = BoundLaunches(self.driver, self._functions, launches, spaces, self._call)

        def issue() -> int:
            ptr = stream()
            self._come_to(ptr)
            return bound.issue(ptr)

        own = range(spaces.starts["in"], spaces.starts["out"])
        places = self.artifact.binding.free(own)
        return BoundEntry(bound.table, places, own.stop, self._lock, issue, self)

    def _come_to(self, ptr: int) -> None:
        """As `run` does before it launches, for a stream by its handle."""
        if not self._functions and self.artifact.cubins:
            raise LaunchError("the program has been unloaded")
        if not hasattr(self._entered, "thread"):
            self.driver.enter()
            self._entered.thread = True
        if self._last_stream is not None and self._last_stream.ptr == ptr and not self.hosted:
            return
        stream = self.driver.stream(ptr)
        if not (ptr and stream.is_capturing()):
            self._follow(stream)
        elif self.hosted:
            raise LaunchError(NOT_CAPTURED)

    def _follow(self, stream: Any) -> None:
        """What an earlier call started on another stream comes first."""
        last, self._last_stream = self._last_stream, stream
        if last is not None and last.ptr != stream.ptr:
            event = self.driver.event()
            event.record(last)
            stream.wait_event(event)


def load_cuda(artifact: CudaArtifact, mode: str = "") -> CudaPlan:
    """`artifact` on the current device, in mode "graph" unless another is asked for.

    Raises LaunchError, CudaMissing, or AutofuseError for an unknown mode."""
    return CudaPlan(artifact, mode=mode or MODES[0])
