"""The fake driver's functions for callers in C: what `bound.c` launches, and on which stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from inspect import signature
from typing import Any

from autofuse.backends.cuda.bound import DriverEntries
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.maps import Given
from autofuse.kernel.ir.tensor_map import MAP_BYTES
from tests.support.fake_cuda import FakeDriver, Stream

# CUDA_ERROR_LAUNCH_FAILED.
FAILED = 719
_P, _U = ctypes.c_void_p, ctypes.c_uint
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int32, _P, *[_U] * 7, _P, ctypes.POINTER(_P), _P)
_TOGETHER = ctypes.CFUNCTYPE(ctypes.c_int32, _P, *[_U] * 7, _P, ctypes.POINTER(_P))
_COPY = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_uint64] * 3, _P)
_REPLACE = ctypes.CFUNCTYPE(ctypes.c_int32, _P, _P)


class NativeLaunches(FakeDriver):
    """What C asks for is what Python asks for, on the stream of a handle. `issued` are the streams
    of launches and copies in order, `failures` what they raised. `mapped`: by kernel, which
    of its arguments are tensor maps."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.issued: list[int] = []
        self.failures: list[BaseException] = []
        self.capturing: set[int] = set()
        self._symbols: list[str] = []
        self.mapped: dict[str, tuple[int, ...]] = {}
        self._callbacks = (
            _LAUNCH(self._launched), _TOGETHER(self._together), _COPY(self._copied),
            _REPLACE(lambda place, address: self.replace(place or 0, address or 0)),
        )  # fmt: skip

    def stream(self, ptr: int) -> Stream:
        found = Stream(self, ptr)
        found.capturing = [] if ptr in self.capturing else None
        return found

    def entries(self) -> DriverEntries:
        return DriverEntries(*(ctypes.cast(f, _P).value or 0 for f in self._callbacks))

    def handle(self, function: str) -> int:
        self._symbols.append(function)
        return len(self._symbols)

    def _on(self, ptr: int | None, work: Callable[[], None]) -> int:
        """An exception would be lost in C."""
        self.issued.append(ptr or 0)
        try:
            with Stream(self, ptr or 0):
                work()
        except Exception as error:  # told to whoever asks
            self.failures.append(error)
            return FAILED
        return 0

    def _launched(self, function: int, *rest: Any, cooperative: bool = False) -> int:
        grid, _, _, block, _, _, shared, stream, places = rest[:9]
        symbol = self._symbols[function - 1]
        count = len(self.bytes.get(symbol) or signature(self.kernels[symbol]).parameters)
        values = [self._value(symbol, k, places[k] or 0) for k in range(count)]
        shape = Geometry(grid, block, shared, cooperative)
        return self._on(stream, lambda: self.launch(symbol, shape, tuple(values)))

    def _value(self, symbol: str, number: int, place: int) -> Given:
        if number in self.mapped.get(symbol, ()):
            return ctypes.string_at(place, MAP_BYTES)
        return ctypes.c_int64.from_address(place).value

    def replace(self, place: int, address: int) -> int:
        """cuTensorMapReplaceAddress."""
        return int(self.maps.library.cuTensorMapReplaceAddress(place, address))

    def _together(self, function: int, *rest: Any) -> int:
        return self._launched(function, *rest, cooperative=True)

    def _copied(self, target: int, source: int, nbytes: int, stream: int | None) -> int:
        return self._on(stream, lambda: self.copy(target, source, nbytes))
