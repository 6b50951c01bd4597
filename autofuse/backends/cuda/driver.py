"""CuPy's view of the driver, as thin as can be: all that a plan asks of a GPU, and nothing else.

Everything goes to the current stream (`with stream:`). Tests put a fake in its place.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np

from autofuse.backends.cuda.actions import Gemm, Matmul
from autofuse.backends.cuda.blas import Cublas, device_cublas
from autofuse.backends.cuda.blaslt import LtPlan, device_cublaslt
from autofuse.backends.cuda.bound import DriverEntries
from autofuse.backends.cuda.cufft import CufftPlan
from autofuse.backends.cuda.devices import Target, target_of
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.graphs import (
    DeviceGraph,
    GraphApi,
    GraphKernel,
    GraphNode,
    HeldCall,
    LaunchCall,
)
from autofuse.backends.cuda.maps import Given, MapApi, has_tensor_maps
from autofuse.backends.cuda.nvrtc import nvrtc_version
from autofuse.kernel.ir.tensor_map import TensorMap
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import Transform
from autofuse.ops.types import AutofuseError, TensorType

T = TypeVar("T")
# What CuPy and we raise for errors of driver, runtime and cuBLAS, and when memory runs out.
ERRORS = (RuntimeError, MemoryError)
_CPU_DEVICES = (1, 3)  # DLPack's numbers of plain and of pinned host memory
_ATTRIBUTES = (
    "GlobalMemoryBusWidth", "MultiProcessorCount", "MaxThreadsPerMultiProcessor",
    "MaxBlocksPerMultiprocessor", "MaxRegistersPerMultiprocessor", "MaxSharedMemoryPerBlockOptin",
    "MaxSharedMemoryPerMultiprocessor", "L2CacheSize", "MemoryClockRate", "ClockRate",
)  # fmt: skip


class CudaMissing(AutofuseError):  # noqa: N818 - the name is what the user is told
    """CUDA cannot be used on this machine."""


def why_not() -> str | None:
    """Why CUDA cannot be used here, or None. Costs no import of CuPy."""
    if find_spec("cupy") is None:
        return "CuPy is not installed (install the extra cuda13 or cuda12)"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver was found"
    code, count = driver.cuInit(0), ctypes.c_int(0)
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0:
        return f"the CUDA driver does not start (error {code})"
    return None if count.value else "no CUDA device is visible"


def require_cuda() -> None:
    """Raises CudaMissing with one sentence when CUDA cannot be used here."""
    reason = why_not()
    if reason is not None:
        raise CudaMissing(f"device 'cuda' cannot be used: {reason}")


def _cupy() -> Any:
    require_cuda()
    import cupy

    return cupy


def ready() -> None:
    """Raises CudaMissing without a device, CompilerMissing without NVRTC."""
    require_cuda()
    nvrtc_version()


def query_target() -> Target:
    """The running device. Raises CudaMissing without one, TargetError for one too old."""
    cupy = _cupy()
    device = cupy.cuda.Device()
    attributes = {k: int(v) for k, v in device.attributes.items() if k in _ATTRIBUTES}
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    capability = device.compute_capability
    return target_of(name, (int(capability[:-1]), int(capability[-1])), attributes)


def running_target() -> Target:
    """`query_target`, asked once per process and device."""
    return _target_of(int(_cupy().cuda.runtime.getDevice()))


@lru_cache(maxsize=64)
def _target_of(_: int) -> Target:
    """That of the current device, which has this number."""
    return query_target()


def driver_version() -> str:
    """Version of the driver, such as "13000"; raises CudaMissing without one."""
    return str(_cupy().cuda.runtime.driverGetVersion())


def cupy_version() -> str:
    import cupy

    return str(cupy.__version__)


class CupyDriver:
    """The methods that `launch` and the measuring device use."""

    errors: tuple[type[BaseException], ...] = ERRORS

    def __init__(
        self, cupy: Any = None, blas: Cublas | None = None, graphs: GraphApi | None = None,
        maps: MapApi | None = None,
    ) -> None:  # fmt: skip
        """On the module `cupy`: without one CuPy itself, and CudaMissing where it is of no use."""
        self.cupy, self._blas, self._graphs = cupy or _cupy(), blas, graphs
        self._maps = maps

    # --- memory -----------------------------------------------------------------------------

    def empty(self, type_: TensorType) -> Any:
        """An uninitialised device array that starts on a 256-byte boundary."""
        return self.cupy.empty(type_.shape, type_.dtype.numpy)

    def zeros(self, count: int) -> Any:
        """`count` zero bytes (at least one)."""
        return self.cupy.zeros(max(count, 1), np.uint8)

    def upload(self, array: np.ndarray) -> Any:
        """A device copy of a host array."""
        return self.cupy.asarray(array)

    def assign(self, target: Any, source: Any) -> None:
        """Copy a host or device array into a device array of the same type."""
        if isinstance(source, np.ndarray):
            target.set(source)
        else:
            target[...] = source

    def download(self, array: Any, out: np.ndarray | None = None) -> np.ndarray:
        """A host copy, made when the current stream has come so far."""
        host: np.ndarray = array.get(out=out)
        return host

    def pointer(self, array: Any) -> int:
        """Address of a device array's first element."""
        return int(array.data.ptr)

    def shared_view(self, array: Any, released: Callable[[], None]) -> Any:
        """The same memory as a new array; `released` is called once no view of it is left."""
        owner = _Owner(array)
        weakref.finalize(owner, released).atexit = False
        size, device = max(array.nbytes, 1), self.cupy.cuda.runtime.getDevice()
        memory = self.cupy.cuda.UnownedMemory(array.data.ptr, size, owner, device)
        pointer = self.cupy.cuda.MemoryPointer(memory, 0)
        return self.cupy.ndarray(array.shape, array.dtype, pointer)

    def adopt(self, array: Any) -> Any:
        """A CuPy, PyTorch or JAX array as CuPy's or NumPy's, without a copy.

        Raises AutofuseError for anything else."""
        if isinstance(array, (np.ndarray, self.cupy.ndarray)):
            return array
        try:
            if hasattr(array, "__dlpack_device__"):
                on_host = int(array.__dlpack_device__()[0]) in _CPU_DEVICES
                return np.from_dlpack(array) if on_host else self.cupy.from_dlpack(array)
            if hasattr(array, "__cuda_array_interface__"):
                return self.cupy.asarray(array)
        except (BufferError, TypeError, ValueError, RuntimeError) as error:
            kind = type(array).__name__
            raise AutofuseError(f"a {kind} cannot be used in place: {error}") from error
        raise AutofuseError(f"a {type(array).__name__} is no array that CUDA can use")

    def contiguous(self, array: Any) -> bool:
        return bool(array.flags.c_contiguous)

    # --- work -------------------------------------------------------------------------------

    def load(self, cubin: bytes) -> Any:
        """A module; it is unloaded when nothing refers to it or its functions."""
        module = self.cupy.cuda.function.Module()
        module.load(cubin)
        return module

    def function(self, module: Any, symbol: str, shared: int) -> Any:
        """A kernel that may be launched with `shared` bytes of dynamic shared memory."""
        found, driver = module.get_function(symbol), self.cupy.cuda.driver
        # Asking for anything loads the code now: it must not happen while a graph is captured.
        driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, found.ptr)
        if shared:
            # Without it static and dynamic bytes together stop at 48 KiB.
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(found.ptr, attribute, shared)
        return found

    def blocks_held(self, function: Any, shape: Geometry) -> int:
        """Blocks of this shape that the device holds at once, as the driver counts them."""
        ask = self.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        each = int(ask(function.ptr, shape.block, shape.shared))
        return each * int(self.cupy.cuda.Device().attributes["MultiProcessorCount"])

    def tensor_map(self, tensor: TensorMap, buffer: int) -> bytes:
        """The map of a buffer at this address. Raises TensorMapMissing, TensorMapError."""
        self._maps = self._maps or MapApi()
        return self._maps.encoded(tensor, buffer)

    def launch(self, function: Any, shape: Geometry, arguments: tuple[Given, ...]) -> None:
        """Start a kernel. CuPy makes a cooperative grid smaller than asked for where it does not
        fit: ask `blocks_held` before."""
        if any(isinstance(given, bytes) for given in arguments):
            assert self._maps is not None, "who has a map has asked for it"
            stream = self.cupy.cuda.get_current_stream().ptr
            self._maps.launch(function.ptr, shape, stream, arguments)
            return
        grid, block = (shape.grid, 1, 1), (shape.block, 1, 1)
        if shape.cooperative:
            function(grid, block, arguments, shape.shared, enable_cooperative_groups=True)
        else:
            function(grid, block, arguments, shape.shared)

    def prepare_products(self) -> None:
        """Once before `gemm`, and not while a graph is captured. Raises CublasMissing."""
        self._blas = self._blas or device_cublas(self.cupy.cuda.runtime.getDevice())

    def gemm(self, product: Gemm, addresses: tuple[int, int, int], workspace: int) -> None:
        """A product of what is at these addresses; see `Cublas.multiply`."""
        assert self._blas is not None, "products are prepared when a program is loaded"
        stream = self.cupy.cuda.get_current_stream().ptr
        self._blas.multiply(product, addresses, stream, workspace)

    def matmul_plan(self, product: Matmul) -> LtPlan:
        """What `matmul` needs for a product; not while a graph is captured. Raises CublasLtMissing,
        CublasLtError."""
        return device_cublaslt(self.cupy.cuda.runtime.getDevice()).prepare(product)

    def matmul(self, plan: LtPlan, addresses: tuple[int, ...], workspace: int) -> None:
        """A product and what follows it; see `LtPlan.multiply`."""
        plan.multiply(addresses, self.cupy.cuda.get_current_stream().ptr, workspace)

    def transforms(self, kind: Transform, dtype: DType) -> CufftPlan:
        """What `fft` needs for transforms of a kind; not while a graph is captured. Raises
        CufftMissing, CufftError."""
        return CufftPlan(kind, dtype, self.zeros)

    def fft(self, plan: CufftPlan, source: int, target: int) -> None:
        """The transforms of what is at one address, to another."""
        if plan.copied:
            self.copy(self.pointer(plan.room), source, plan.copied)
            source = self.pointer(plan.room)
        place = self.pointer(plan.place) if plan.apart else 0
        stream = self.cupy.cuda.get_current_stream().ptr
        plan.execute(source, target, stream, self.copy, place)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        runtime = self.cupy.cuda.runtime
        stream = self.cupy.cuda.get_current_stream().ptr
        runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDeviceToDevice, stream)

    def fetch(self, source: int, nbytes: int) -> np.ndarray:
        """Bytes at an address of the device, when the current stream has come so far."""
        runtime, found = self.cupy.cuda.runtime, np.empty(nbytes, np.uint8)
        stream = self.cupy.cuda.get_current_stream()
        place, kind = found.ctypes.data, runtime.memcpyDeviceToHost
        runtime.memcpyAsync(place, source, nbytes, kind, stream.ptr)
        stream.synchronize()
        return found

    def put(self, target: int, array: np.ndarray) -> None:
        """An array of the host at an address of the device; the caller may change it at once."""
        runtime, stream = self.cupy.cuda.runtime, self.cupy.cuda.get_current_stream().ptr
        place, kind = array.ctypes.data, runtime.memcpyHostToDevice
        # Memory that is not pinned has been read when the call returns.
        runtime.memcpyAsync(target, place, array.nbytes, kind, stream)

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        stream = self.cupy.cuda.get_current_stream().ptr
        self.cupy.cuda.runtime.memsetAsync(target, byte, nbytes, stream)

    def bus_id(self) -> str:
        """The PCI address that the management library knows the device by."""
        runtime = self.cupy.cuda.runtime
        return str(runtime.deviceGetPCIBusId(runtime.getDevice()))

    # --- streams, events, graphs ----------------------------------------------------------------

    def enter(self) -> None:
        """What a thread does first. The runtime's functions make the device's context current, but
        those for graphs are the driver's own, which want it so."""
        runtime = self.cupy.cuda.runtime
        runtime.setDevice(runtime.getDevice())

    def current_stream(self) -> Any:
        return self.cupy.cuda.get_current_stream()

    def stream(self, ptr: int) -> Any:
        """The stream of a handle; whoever made it keeps it."""
        cuda = self.cupy.cuda
        return cuda.ExternalStream(ptr) if ptr else cuda.Stream.null

    def entries(self) -> DriverEntries:
        """The driver's functions for callers in C."""
        library = ctypes.CDLL("libcuda.so.1")
        names = ("cuLaunchKernel", "cuLaunchCooperativeKernel", "cuMemcpyDtoDAsync_v2")
        found = [ctypes.cast(library[name], ctypes.c_void_p).value or 0 for name in names]
        return DriverEntries(*found, *[MapApi().replace] * has_tensor_maps())

    def handle(self, function: Any) -> int:
        """The driver's handle of a kernel."""
        return int(function.ptr)

    def new_stream(self) -> Any:
        return self.cupy.cuda.Stream(non_blocking=True)

    def event(self) -> Any:
        return self.cupy.cuda.Event()

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two events that have happened."""
        return 1e3 * float(self.cupy.cuda.get_elapsed_time(start, end))

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        self.cupy.cuda.runtime.deviceSynchronize()

    def capture(self, stream: Any, work: Sequence[LaunchCall]) -> Any:
        """`work`, one after another, as a graph: nothing of it runs now."""
        return _captured(stream, work, stream.begin_capture, stream.end_capture)

    def graph(self, stream: Any, nodes: Sequence[GraphNode]) -> DeviceGraph:
        """A graph of these nodes; what is no kernel is captured on `stream`. The caller keeps what
        the calls work with for as long as the graph."""
        self._graphs = self._graphs or GraphApi()
        api = self._graphs
        begin, end = partial(api.begin, stream.ptr), partial(api.end, stream.ptr)
        return DeviceGraph(
            api, nodes, self._kernel, lambda call: _captured(stream, (call,), begin, end)
        )

    def _kernel(self, call: LaunchCall) -> GraphKernel | None:
        if not isinstance(call, HeldCall) or call.method != self.launch:
            return None
        function, shape, arguments = call.arguments
        return GraphKernel(function.ptr, shape, arguments)


def _captured(
    stream: Any, work: Sequence[LaunchCall], begin: Callable[[], None], end: Callable[[], T]
) -> T:
    """What `end` makes of `work`, captured on `stream`."""
    # A module that the collector unloaded meanwhile would end the capture.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with stream:
            begin()
            try:
                for call in work:
                    call()
            except BaseException:  # an interrupt too must not leave the stream capturing
                end()
                raise
            return end()
    finally:
        if collecting:
            gc.enable()


class _Owner:
    """Keeps an array's memory for as long as anything built on it is in use."""

    def __init__(self, array: Any) -> None:
        self.array = array
