"""A caller's arrays as addresses: used in place where they fit, through buffers of ours otherwise.

An array fits when it is on the device, row-major contiguous, and starts on a 16-byte boundary, as
the widest accesses of kernels want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autofuse.backends.cuda.driver import CupyDriver
from autofuse.backends.cuda.runs import BOUNDARY
from autofuse.backends.library import ArrayError
from autofuse.ops.types import TensorType

_KEPT_PER_OUTPUT = 2


@dataclass(frozen=True)
class Taken:
    """The addresses of one call, how its results come about once it has been issued, and the views
    of other libraries' arrays, whose memory may be given away once they are gone."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    results: Callable[[], tuple[Any, ...]]
    adopted: tuple[Any, ...] = ()


class Arguments:
    """The arguments of one program, with the buffers that stand in for arrays that do not fit."""

    def __init__(
        self, driver: CupyDriver, inputs: Sequence[TensorType], outputs: Sequence[TensorType]
    ) -> None:
        self.driver = driver
        self.types = {"input": tuple(inputs), "output": tuple(outputs)}
        self._own: dict[tuple[str, int], Any] = {}
        # By position and stream: memory is used again in the order of one stream only.
        self._free: dict[tuple[int, int], list[Any]] = {}

    def take(self, inputs: Sequence[Any], outputs: Sequence[Any] | None, stream: Any) -> Taken:
        """Check, copy what must be copied, and find addresses. Raises ArrayError."""
        given = self._checked("input", inputs)
        wanted = None if outputs is None else self._checked("output", outputs)
        places = tuple(self._input(k, array) for k, array in enumerate(given))
        pairs = zip((*given, *(wanted or ())), (*inputs, *(outputs or ())), strict=True)
        adopted = tuple(own for own, array in pairs if own is not array and not _on_host(own))
        if wanted is not None:
            return replace(self._into(places, wanted, given), adopted=adopted)
        on_host = all(map(_on_host, given))
        made = tuple(self._fresh(k, stream.ptr) for k in range(len(self.types["output"])))

        def results() -> tuple[Any, ...]:
            return tuple(map(self.driver.download, made)) if on_host else made

        return Taken(places, tuple(map(self.driver.pointer, made)), results, adopted)

    def copies(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Device arrays of our own with the contents of `inputs`. Raises ArrayError."""
        given = self._checked("input", inputs)
        return tuple(self._copied(position, array) for position, array in enumerate(given))

    def _into(
        self, places: tuple[int, ...], wanted: tuple[Any, ...], given: tuple[Any, ...]
    ) -> Taken:
        self._check_apart(wanted, given)
        fits = [self._fits(array) for array in wanted]
        targets = [
            array if fit else self._stand_in("output", k)
            for k, (array, fit) in enumerate(zip(wanted, fits, strict=True))
        ]

        def results() -> tuple[Any, ...]:
            for array, target, fit in zip(wanted, targets, fits, strict=True):
                if _on_host(array):
                    array[...] = self.driver.download(target)
                elif not fit:
                    self.driver.assign(array, target)
            return wanted

        return Taken(places, tuple(map(self.driver.pointer, targets)), results)

    def _checked(self, what: str, arrays: Sequence[Any]) -> tuple[Any, ...]:
        types = self.types[what]
        if len(arrays) != len(types):
            raise ArrayError(f"the program has {len(types)} {what}s, not {len(arrays)}")
        found = []
        for position, (array, type_) in enumerate(zip(arrays, types, strict=True)):
            own = self.driver.adopt(array)
            if tuple(own.shape) != type_.shape or own.dtype != type_.dtype.numpy:
                given = f"{own.dtype}[{','.join(map(str, own.shape))}]"
                raise ArrayError(f"{what} {position} must be {type_}, not {given}")
            found.append(own)
        return tuple(found)

    def _spans(self, named: list[tuple[Any, int]], host: bool) -> list[tuple[int, int, int]]:
        return [(*self._span(a), n) for a, n in named if _on_host(a) is host and a.nbytes]

    def _check_apart(self, wanted: tuple[Any, ...], given: tuple[Any, ...]) -> None:
        for position, array in enumerate(wanted):
            if not (self.driver.contiguous(array) and _writeable(array)):
                raise ArrayError(f"output {position} must be contiguous and writeable")
        named = [(a, n) for n, a in enumerate(wanted)] + [(a, -1) for a in given]
        for host in (True, False):
            shared = first_overlap(self._spans(named, host))
            if shared is not None:
                raise ArrayError(f"output {shared} shares memory with another argument")

    def _span(self, array: Any) -> tuple[int, int]:
        """First address and the one after the last."""
        if _on_host(array):
            steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
            low = array.ctypes.data + sum(s for s in steps if s < 0)
            return low, low + sum(map(abs, steps)) + array.itemsize
        # Exact for contiguous arrays; a view with gaps is copied before anything is written.
        start = self.driver.pointer(array)
        return start, start + array.nbytes

    def _fits(self, array: Any) -> bool:
        if _on_host(array) or not self.driver.contiguous(array):
            return False
        return self.driver.pointer(array) % BOUNDARY == 0

    def _input(self, position: int, array: Any) -> int:
        if not self._fits(array):
            array = self._copied(position, array)
        return self.driver.pointer(array)

    def _copied(self, position: int, array: Any) -> Any:
        """Our own copy of an input."""
        own = self._stand_in("input", position)
        if _on_host(array):
            array = np.ascontiguousarray(array).reshape(array.shape)
        self.driver.assign(own, array)
        return own

    def _stand_in(self, what: str, position: int) -> Any:
        key = (what, position)
        if key not in self._own:
            self._own[key] = self.driver.empty(self.types[what][position])
        return self._own[key]

    def _fresh(self, position: int, stream: int) -> Any:
        """A result that nobody else holds; its memory comes back when its last view is gone."""
        free = self._free.setdefault((position, stream), [])
        memory = free.pop() if free else self.driver.empty(self.types["output"][position])

        def released() -> None:
            if len(free) < _KEPT_PER_OUTPUT:
                free.append(memory)

        return self.driver.shared_view(memory, released)


def first_overlap(spans: Iterable[tuple[int, int, int]]) -> int | None:
    """An output that shares memory with anything, or None. `spans`: start, end and number of an
    output (-1: an input) of everything that is not empty; inputs may overlap each other."""
    any_end, out_end, out_number = 0, 0, -1
    for start, end, number in sorted(spans):
        if number >= 0 and start < any_end:
            return number
        if start < out_end:
            return out_number
        any_end = max(any_end, end)
        if number >= 0 and end > out_end:
            out_end, out_number = end, number
    return None


def _on_host(array: Any) -> bool:
    return isinstance(array, np.ndarray)


def _writeable(array: Any) -> bool:
    return not _on_host(array) or bool(array.flags.writeable)
