"""A CUDA driver made of NumPy memory, which writes down what it is asked to do.

Streams run things at once; a capture keeps its calls for the graph. Kernels are Python functions
of addresses, by symbol. Device arrays are `DeviceArray`s around NumPy memory.
What one stream writes another may use once it, or the host, has waited: sooner it is refused here.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from autofuse.backends.aligned import aligned_copy, aligned_empty
from autofuse.backends.cuda.cufft import CufftPlan
from autofuse.backends.cuda.driver import ERRORS
from autofuse.backends.cuda.graphs import GraphNode, HeldCall, UpdateRefused
from autofuse.backends.cuda.maps import Given, MapApi
from autofuse.kernel.ir.tensor_map import TensorMap
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType
from tests.support.fake_arrays import DeviceArray, Foreign
from tests.support.fake_cublas import product_spans
from tests.support.fake_cufft import FakeCufft
from tests.support.fake_maps import FakeMaps

US_PER_LAUNCH = 3.0


class Stream:
    def __init__(self, driver: FakeDriver, ptr: int) -> None:
        self.driver, self.ptr = driver, ptr
        self.capturing: list[Callable[[], None]] | None = None

    def __enter__(self) -> Stream:
        self.driver.streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.streams.pop()

    def is_capturing(self) -> bool:
        return self.capturing is not None

    def synchronize(self) -> None:
        self.driver.note("synchronize")
        self.driver.settle(self.ptr)

    def wait_event(self, event: Event) -> None:
        self.driver.log.append(("wait", self.ptr, event.stream))
        for _, readers in self.driver.unfinished.values():
            if event.stream in readers:
                readers.add(self.ptr)


class Event:
    """Its time is the device's clock when the stream came to it."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver, self.at, self.stream = driver, 0.0, 0

    def record(self, stream: Stream) -> None:
        self.at, self.stream = self.driver.now_us, stream.ptr
        self.driver.note("event")

    @property
    def done(self) -> bool:
        return self.driver.idle

    def synchronize(self) -> None:
        self.driver.fail_if_broken()
        self.driver.idle = True


class Graph:
    """Launches run in the order of the edges, and otherwise the last one first. Two of which one
    writes what the other touches must be in order."""

    def __init__(self, driver: FakeDriver, nodes: Sequence[GraphNode]) -> None:
        self.driver, self.after = driver, [node.after for node in nodes]
        self.calls = [node.call for node in nodes]
        for n, node in enumerate(nodes):
            assert all(0 <= m < n for m in node.after) and len(set(node.after)) == len(node.after)
            if node.early:
                shapes = [driver.shape_of(nodes[m].call) for m in (n, *node.after)]
                assert len(shapes) == 2 and all(s is not None and s.early for s in shapes)
        self.check_races()

    def update(self, calls: Sequence[Callable[[], None]]) -> None:
        if self.driver.refuses:
            raise UpdateRefused("this graph stays as it is")
        self.driver.updates += 1
        self.calls = list(calls)
        self.check_races()

    def check_races(self) -> None:
        before: list[int] = []
        spans = [self.driver.touches(call) for call in self.calls]
        for n, after in enumerate(self.after):
            known = 0
            for m in after:
                known |= before[m] | 1 << m
            before.append(known)
            for m in (m for m in range(n) if not known >> m & 1):
                for start, end, written in spans[n]:
                    for other, stop, wrote in spans[m]:
                        apart = end <= other or stop <= start or not (written or wrote)
                        assert apart, f"launches {m} and {n} touch the same bytes in no order"

    def launch(self, stream: Stream) -> None:
        assert get_ident() in self.driver.threads, "this thread has no current context"
        self.driver.note("graph")
        left = dict(enumerate(self.after))
        with stream:
            while left:
                ready = max(n for n, after in left.items() if not any(m in left for m in after))
                del left[ready]
                self.calls[ready]()


class FakeDriver:
    """See the module text. `log` has one entry per thing done; `now_us` is the device's clock;
    `held` is how many blocks are on the device at once, `idle` whether events have happened, and
    `refuses` whether graphs take no other arguments. `bytes`: by kernel, how many each argument has
    and whether they are written; one that is not told of writes where its arguments begin."""

    errors: tuple[type[BaseException], ...] = ERRORS

    def __init__(self, kernels: dict[str, Callable[..., None]] | None = None) -> None:
        self.kernels = kernels or {}
        self.log: list[tuple[Any, ...]] = []
        self.now_us = 0.0
        self.captures = self.updates = 0
        self.threads = {get_ident()}
        self.refuses = False
        self.bytes: dict[str, tuple[tuple[int, bool], ...]] = {}
        self.broken = False
        self.held = 132 * 8
        self.prepared, self.idle = False, True
        self.streams: list[Stream] = [Stream(self, 0)]
        self.maps = MapApi(FakeMaps())
        # By address: where the memory ends, and the streams that know it to be written.
        self.unfinished: dict[int, tuple[int, set[int]]] = {}

    def note(self, *what: Any) -> None:
        self.fail_if_broken()
        self.log.append(what)

    def fail_if_broken(self) -> None:
        if self.broken:
            raise RuntimeError("an illegal memory access was encountered")

    def names(self) -> list[str]:
        """What was done, without details."""
        return [str(entry[0]) for entry in self.log]

    # --- what has been written, and who knows

    def forget(self, array: DeviceArray) -> None:
        """What was at these addresses before is of no interest."""
        start, end = self.pointer(array), self.pointer(array) + array.nbytes
        self.unfinished = {k: v for k, v in self.unfinished.items() if v[0] <= start or end <= k}

    def writing(self, array: DeviceArray) -> None:
        self.forget(array)
        start = self.pointer(array)
        self.unfinished[start] = (start + array.nbytes, {self.current_stream().ptr})

    def settle(self, stream: int | None = None) -> None:
        """All that a stream (default: every stream) had to write is written."""
        left = {k: v for k, v in self.unfinished.items() if stream is not None}
        self.unfinished = {k: v for k, v in left.items() if stream not in v[1]}

    def using(self, address: int) -> None:
        for start, (end, readers) in self.unfinished.items():
            if start <= address < end and self.current_stream().ptr not in readers:
                raise RuntimeError("a stream uses what another has yet to write")

    # --- memory

    def empty(self, type_: TensorType) -> DeviceArray:
        found = DeviceArray(aligned_empty(type_))
        self.forget(found)
        return found

    def zeros(self, count: int) -> DeviceArray:
        found = self.empty(TensorType((max(count, 1),), DType.U8))
        found.memory.fill(0)
        self.writing(found)
        return found

    def upload(self, array: np.ndarray) -> DeviceArray:
        words = TensorType((max(array.nbytes, 1),), DType.U8)
        room = aligned_empty(words)[: array.nbytes].view(array.dtype).reshape(array.shape)
        room[...] = array
        found = DeviceArray(room)
        self.writing(found)
        return found

    def assign(self, target: DeviceArray, source: Any) -> None:
        self.using(self.pointer(target))
        self.writing(target)
        target.memory[...] = source.memory if isinstance(source, DeviceArray) else source
        self.note("assign")

    def download(self, array: DeviceArray, out: np.ndarray | None = None) -> np.ndarray:
        self.note("download")
        if out is None:
            return array.memory.copy()
        out[...] = array.memory
        return out

    def pointer(self, array: DeviceArray) -> int:
        return int(array.memory.ctypes.data)

    def shared_view(self, array: DeviceArray, released: Callable[[], None]) -> DeviceArray:
        view = DeviceArray(array.memory, array)
        weakref.finalize(view, released).atexit = False
        return view

    def adopt(self, array: Any) -> Any:
        if not isinstance(array, Foreign):
            return array
        view = DeviceArray(array.memory, array)
        array.views.add(view)
        return view

    def contiguous(self, array: Any) -> bool:
        memory = array.memory if isinstance(array, DeviceArray) else array
        return bool(memory.flags.c_contiguous)

    # --- work

    def load(self, cubin: bytes) -> str:
        return cubin.decode("latin-1")

    def function(self, module: str, symbol: str, shared: int) -> str:
        return symbol

    def blocks_held(self, function: str, shape: Any) -> int:
        return self.held

    def tensor_map(self, tensor: TensorMap, buffer: int) -> bytes:
        return self.maps.encoded(tensor, buffer)

    def launch(self, function: str, shape: Any, arguments: tuple[Given, ...]) -> None:
        assert not shape.cooperative or shape.grid <= self.held, "blocks would wait for ever"
        self.note("launch", function, shape, arguments)
        for address in arguments if function != "af_stall" else ():
            if isinstance(address, int):
                self.using(address)
        self.now_us += US_PER_LAUNCH if function != "af_stall" else int(arguments[0]) * 1e-3
        if function in self.kernels:
            self.kernels[function](*arguments)

    def prepare_products(self) -> None:
        if self.current_stream().is_capturing():
            raise RuntimeError("a handle of cuBLAS cannot be made while a graph is captured")
        self.prepared = True

    def library_uses(self, *addresses: int) -> None:
        for address in addresses:
            self.using(address)
        self.now_us += US_PER_LAUNCH

    def gemm(self, product: Any, addresses: tuple[int, int, int], workspace: int) -> None:
        assert self.prepared and workspace, "cuBLAS would allocate, which ends a capture"
        self.note("gemm", product.form, *addresses, workspace)
        self.library_uses(*addresses)

    def matmul_plan(self, product: Any) -> Any:
        if self.current_stream().is_capturing():
            raise RuntimeError("cuBLASLt cannot be asked while a graph is captured")
        return product

    def matmul(self, plan: Any, addresses: tuple[int, ...], workspace: int) -> None:
        assert workspace, "cuBLASLt is given its workspace"
        self.note("matmul", plan, *addresses, workspace)
        self.library_uses(*addresses)

    def transforms(self, kind: Any, dtype: Any) -> CufftPlan:
        if self.current_stream().is_capturing():
            raise RuntimeError("cuFFT allocates when a plan is made")
        return CufftPlan(kind, dtype, self.zeros, FakeCufft())

    def fft(self, plan: CufftPlan, source: int, target: int) -> None:
        self.note("fft", source, target)
        self.library_uses(source, target)
        if plan.copied:
            ctypes.memmove(self.pointer(plan.room), source, plan.copied)
            source = self.pointer(plan.room)
        place = self.pointer(plan.place) if plan.apart else 0

        def moved(to: int, of: int, nbytes: int) -> None:
            ctypes.memmove(to, of, nbytes)

        plan.execute(source, target, self.current_stream().ptr, moved, place)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.note("copy", target, source, nbytes)
        self.now_us += US_PER_LAUNCH
        ctypes.memmove(target, source, nbytes)

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        self.note("fill", nbytes)
        self.now_us += 20.0
        ctypes.memset(target, byte, nbytes)

    def bus_id(self) -> str:
        return "0000:00:00.0"

    # --- streams

    def enter(self) -> None:
        self.threads.add(get_ident())

    def current_stream(self) -> Stream:
        return self.streams[-1]

    def new_stream(self) -> Stream:
        return Stream(self, 1000 + len(self.log))

    def event(self) -> Event:
        return Event(self)

    def elapsed_us(self, start: Event, end: Event) -> float:
        return end.at - start.at

    def synchronize(self) -> None:
        self.note("device")
        self.settle()

    def capture(self, stream: Stream, work: Sequence[Callable[[], None]]) -> Graph:
        self.captures += 1
        return Graph(self, [GraphNode(c, (n - 1,) if n else ()) for n, c in enumerate(work)])

    def graph(self, stream: Stream, nodes: Sequence[GraphNode]) -> Graph:
        self.captures += 1
        return Graph(self, nodes)

    def shape_of(self, call: Callable[[], None]) -> Any:
        """The launch configuration of a kernel, None for anything else."""
        own = isinstance(call, HeldCall) and call.method == self.launch
        return call.arguments[1] if own else None  # type: ignore[attr-defined]  # a HeldCall

    def touches(self, call: Callable[[], None]) -> list[tuple[int, int, bool]]:
        """Where the bytes that it uses begin and end, and whether it writes them."""
        if not isinstance(call, HeldCall):
            return []
        if call.method == self.launch:
            symbol, _, addresses = call.arguments
            sizes = self.bytes.get(symbol, ((1, True),) * len(addresses))
            pairs = zip(addresses, sizes, strict=True)
            return [(a, a + n, w) for a, (n, w) in pairs if isinstance(a, int)]
        if call.method == self.copy:
            target, source, nbytes = call.arguments
            return [(target, target + nbytes, True), (source, source + nbytes, False)]
        if call.method == self.fft:
            plan, source, target = call.arguments
            (_, read), (_, written) = plan.spans(source, target)
            return [(source, read, False), (target, written, True)]
        if call.method == self.matmul:
            product, addresses, workspace = call.arguments
            return [*product_spans(product, addresses), (workspace, workspace + 1, True)]
        product, (a, b, c), workspace = call.arguments
        spans = zip((a, b, c), product.form.sizes, (False, False, True), strict=True)
        found = [(at, at + n * product.dtype.itemsize, written) for at, n, written in spans]
        return [*found, (workspace, workspace + 1, True)]


def floats(address: int, count: int) -> np.ndarray:
    """The f32 numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


__all__ = ["DeviceArray", "FakeDriver", "Foreign", "Stream", "aligned_copy", "floats"]
