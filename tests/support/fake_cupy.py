"""What `CupyDriver` calls of CuPy, with the rules that the real one and the CUDA driver enforce.

A kernel is its symbol; `FakeCupy(KERNEL=Resources(...))` says what the compiler made of it. The
rules: dynamic and static shared memory together stay within 48 KiB until the kernel opts in, and
within the device's limit then (CUDA driver API, cuFuncSetAttribute). A cooperative grid larger
than what fits is made smaller (CuPy's cupy/cuda/function.pyx). CuPy's own cuBLAS is refused while
a graph is captured (cupy_backends/cuda/libs/cublas.pyx, setStream).
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import get_ident
from types import SimpleNamespace
from typing import Any

from autofuse.backends.cuda.devices import DEFAULT_TARGET, blocks_resident

PLAIN_SHARED = 48 << 10


class DriverError(RuntimeError):
    """Stands for CuPy's CUDADriverError."""


@dataclass(frozen=True)
class Resources:
    """Of one kernel: registers a thread and bytes of static shared memory a block."""

    registers: int = 32
    shared: int = 0


class Function:
    """A kernel, called as CuPy's are."""

    def __init__(self, cupy: FakeCupy, symbol: str) -> None:
        self.cupy, self.ptr = cupy, symbol

    def __call__(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: tuple[int, ...],
        shared_mem: int = 0,
        enable_cooperative_groups: bool = False,
    ) -> None:
        if shared_mem > self.cupy.dynamic_limit(self.ptr):
            raise DriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        held = self.cupy.resident(self.ptr, block[0], shared_mem) * self.cupy.target.sms
        blocks = min(grid[0], held) if enable_cooperative_groups else grid[0]
        self.cupy.launched.append((self.ptr, blocks, shared_mem))


class Stream:
    """One that can be captured; `with` makes it the current one."""

    def __init__(self, cupy: FakeCupy, ptr: int) -> None:
        self.cupy, self.ptr, self.capturing = cupy, ptr, False

    def __enter__(self) -> None:
        self.cupy.streams.append(self)

    def __exit__(self, *_: object) -> None:
        self.cupy.streams.pop()

    def begin_capture(self) -> None:
        self.capturing = True

    def end_capture(self) -> str:
        self.capturing = False
        return "graph"


class FakeCupy:
    """The module. `launched`: symbol, blocks and dynamic shared memory of every launch;
    `contexts`: threads that have made the context of a device current."""

    def __init__(self, **kernels: Resources) -> None:
        self.kernels, self.target = kernels, DEFAULT_TARGET
        self.opted: dict[str, int] = {}
        self.contexts: set[tuple[int, int]] = set()
        self.launched: list[tuple[str, int, int]] = []
        self.streams = [Stream(self, 0)]
        self.cuda = SimpleNamespace(
            driver=SimpleNamespace(
                CU_FUNC_ATTRIBUTE_NUM_REGS=4,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                funcGetAttribute=lambda attribute, symbol: self.kernels[symbol].registers,
                funcSetAttribute=self._opt_in,
                occupancyMaxActiveBlocksPerMultiprocessor=self.resident,
            ),
            runtime=SimpleNamespace(getDevice=lambda: 0, setDevice=self._set_device),
            device=SimpleNamespace(get_cublas_handle=self._cublas_handle),
            get_current_stream=lambda: self.streams[-1],
            Device=lambda: SimpleNamespace(attributes={"MultiProcessorCount": self.target.sms}),
        )

    def module(self) -> Any:
        """A loaded module, which has every kernel."""
        return SimpleNamespace(get_function=lambda symbol: Function(self, symbol))

    def _cublas_handle(self) -> int:
        if self.streams[-1].capturing:
            raise NotImplementedError(
                "calling cuBLAS API during stream capture is currently unsupported"
            )
        return 1

    def dynamic_limit(self, symbol: str) -> int:
        return self.opted.get(symbol, PLAIN_SHARED - self.kernels[symbol].shared)

    def resident(self, symbol: str, threads: int, dynamic: int) -> int:
        own = self.kernels[symbol]
        return blocks_resident(self.target, threads, own.registers, own.shared + dynamic)

    def _set_device(self, number: int) -> None:
        self.contexts.add((get_ident(), number))

    def _opt_in(self, symbol: str, attribute: int, value: int) -> None:
        assert attribute == 8
        if value + self.kernels[symbol].shared > self.target.shared_per_block:
            raise DriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        self.opted[symbol] = value
