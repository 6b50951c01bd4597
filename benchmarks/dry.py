"""A dry run of what needs a GPU: the code that measures on one, on a driver made of NumPy memory.

The driver is the one of the tests (`tests/support/fake_cuda.py`), with kernels that the CUDA
emulator runs, and products of a cuBLAS made of NumPy (`tests/support/fake_cublas.py`). Everything
but the device is real: NVRTC compiles, processes start, graphs are captured, results are checked.
Times are made up: they are stored under a device that says so, and their mode ends in "dry".
"""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import autofuse
from autofuse.backends.base import Built
from autofuse.backends.cache import BuildCache, content_key
from autofuse.backends.cuda.blas import Cublas
from autofuse.backends.cuda.build import CudaArtifact, build_cuda
from autofuse.backends.cuda.clocks import Clocks
from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.backends.cuda.environment import target_environment
from autofuse.backends.cuda.launch import MODES, CudaPlan
from autofuse.backends.cuda.maps import Given
from autofuse.backends.cuda.program import CudaProgram
from autofuse.backends.emulator.emulator import ORDERS, Emulated, EmulatorError
from autofuse.backends.emulator.maps import as_argument
from autofuse.backends.registry import Backend, emulated_backend
from autofuse.cost.bounds import Calibration
from autofuse.devices import DEVICES, DeviceKind
from autofuse.measure.calibrate.cuda import calibrate_cuda
from autofuse.measure.cuda import CudaDevice
from autofuse.measure.hardware import DeviceUnit, Hardware
from autofuse.ops.types import TensorType
from autofuse.records import Environment
from search_spaces import CudaLaunchSpace

if TYPE_CHECKING:
    from tests.support.fake_cublas import FakeCublas
    from tests.support.fake_cuda import DeviceArray, FakeDriver, Stream
else:
    # Before what is installed: a package of somebody else may be called `tests`.
    sys.path.insert(0, str(Path(autofuse.__file__).parent.parent))
    from tests.support.fake_cublas import FakeCublas
    from tests.support.fake_cuda import DeviceArray, FakeDriver, Stream

DRY = "cuda-emulated"
CUDA_KINDS = ("cuda", DRY)
# Small in every size that is filled or copied in earnest.
TARGET = replace(DEFAULT_TARGET, name=f"emulated {DEFAULT_TARGET.name}", l2_bytes=1 << 20)
FAR_BYTES = 1 << 21
_ELF = b"\x7fELF"


class DryDriver(FakeDriver):
    """Kernels compute when the host has written or made something since it last read a result.
    What is launched again after that, to be timed, only takes time."""

    errors: tuple[type[BaseException], ...] = (*FakeDriver.errors, EmulatorError)

    def __init__(self) -> None:
        super().__init__()
        self.arrays: weakref.WeakSet[DeviceArray] = weakref.WeakSet()
        self.libraries: dict[str, Emulated] = {}
        # By kernel: how many bytes each argument has at least, and whether they are written.
        self.bytes: dict[str, tuple[tuple[int, bool], ...]] = {}
        self.computing, self._streams = True, count(1)
        self.blas = Cublas(FakeCublas())

    def note(self, *what: Any) -> None:
        """Nothing is written down: a search launches millions of times."""
        self.fail_if_broken()

    def new_stream(self) -> Stream:
        return Stream(self, next(self._streams))

    # --- memory

    def empty(self, type_: TensorType) -> DeviceArray:
        return self._kept(super().empty(type_))

    def upload(self, array: np.ndarray) -> DeviceArray:
        return self._kept(super().upload(array))

    def _kept(self, array: DeviceArray) -> DeviceArray:
        self.arrays.add(array)
        self.computing = True
        return array

    def assign(self, target: DeviceArray, source: Any) -> None:
        super().assign(target, source)
        self.computing = True

    def download(self, array: DeviceArray, out: np.ndarray | None = None) -> np.ndarray:
        self.computing = False
        return super().download(array, out)

    # --- work

    def load(self, cubin: bytes) -> str:
        """A text of `build_dry` is emulated; a real cubin only takes time."""
        text = super().load(cubin)
        if not cubin.startswith(_ELF):
            library = Emulated(text)
            for name, head in library.kernels.items():
                self.libraries[name] = library
                self.bytes[name] = tuple((1, p.role in ("out", "work")) for p in head.parameters)
        return text

    def launch(self, function: str, shape: Any, arguments: tuple[Given, ...]) -> None:
        super().launch(function, shape, arguments)
        if self.computing and function in self.libraries:
            library = self.libraries[function]
            views = self._views(arguments, library.units(function))
            library.launch(
                function, shape.grid, shape.block, views, shape.shared, ORDERS[:1],
                shape.cooperative,
            )  # fmt: skip

    def _views(self, given: Sequence[Given], units: Sequence[int]) -> list[np.ndarray]:
        """What is at each address, to the next one or to the end of its memory; and tensor maps."""
        found, addresses = [], [address for address in given if isinstance(address, int)]
        for address, unit in zip(given, units, strict=True):
            if isinstance(address, bytes):
                found.append(as_argument(address))
                continue
            ends = [a + n for a, n in self._memory() if a <= address < a + n]
            end = min([*ends, *(other for other in addresses if other > address)])
            size = (end - address) // unit
            memory = memoryview((ctypes.c_uint8 * (size * unit)).from_address(address))
            found.append(np.frombuffer(memory, f"u{unit}"))
        return found

    def _memory(self) -> Iterator[tuple[int, int]]:
        return ((self.pointer(array), array.nbytes) for array in self.arrays)

    def gemm(self, product: Any, addresses: tuple[int, int, int], workspace: int) -> None:
        super().gemm(product, addresses, workspace)
        if self.computing:
            self.blas.multiply(product, addresses, self.current_stream().ptr, workspace)


class _Nvml:
    """No clock is here to be read."""

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's name
        return 1


class DryDevice(CudaDevice):
    """All that measuring on a GPU does, with times that say that they are none."""

    def __init__(self) -> None:
        super().__init__(dry_driver(), TARGET, Clocks("", _Nvml()))

    def _named(self, mode: str) -> str:
        return f"{mode},dry"


@lru_cache(maxsize=1)
def dry_driver() -> Any:
    """The one of this process, whose clock everything shares."""
    return DryDriver()


def build_dry(program: CudaProgram, *, timeout_s: float = math.inf) -> Built[CudaArtifact]:
    """What NVRTC builds, with the texts of kernels in the place of their cubins."""
    built, cache = build_cuda(program, timeout_s=timeout_s), BuildCache()
    texts = tuple(
        (one.name, cache.put_text(content_key(["dry", one.text]), ".cu", one.text))
        for one in program.sources
    )
    return replace(built, artifact=replace(built.artifact, cubins=texts))


def load_dry(artifact: CudaArtifact, mode: str = "") -> CudaPlan:
    return CudaPlan(artifact, dry_driver(), mode or MODES[0])


def dry_environment() -> Environment:
    """A fingerprint that no device has."""
    found = target_environment(TARGET)
    return replace(found, must=tuple(sorted((*found.must, ("times", "made up")))))


def dry_calibration() -> Calibration:
    return calibrate_cuda(dry_driver(), TARGET, FAR_BYTES)


def dry_kind() -> DeviceKind:
    """Device "cuda-emulated", timed as a GPU is: like one, it answers for itself."""
    backend: Backend = replace(
        emulated_backend(TARGET), build=build_dry, load=load_dry, environment=dry_environment,
        modes=MODES, target=None,
    )  # fmt: skip
    return replace(
        DEVICES[DRY], backend=backend, standing_for=None,
        launches=lambda _: CudaLaunchSpace(TARGET),
        hardware=Hardware(
            lambda: (DeviceUnit(DRY),), DryDevice, dry_calibration, lambda: TARGET.l2_bytes
        ),
    )  # fmt: skip


@contextmanager
def measured(name: str) -> Iterator[DeviceKind]:
    """One of CUDA_KINDS by its name, that can be timed meanwhile."""
    if name == DRY:
        with dry_run() as kind:
            yield kind
    else:
        yield DEVICES[name]


@contextmanager
def dry_run() -> Iterator[DeviceKind]:
    """Device "cuda-emulated" can be timed meanwhile, in this process and in those that measure."""
    before = DEVICES[DRY]
    DEVICES[DRY] = dry_kind()
    try:
        yield DEVICES[DRY]
    finally:
        DEVICES[DRY] = before
