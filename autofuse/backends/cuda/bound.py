"""The launches of a plan on addresses that a caller fills in, issued by one call of C (`bound.c`).

Kernels and copies go to the stream by the driver's own functions; what a library does is called
from Python between them. Nothing is captured and nothing is allocated, so a call on other addresses
costs what one on the same addresses does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from autofuse.backends.base import LaunchError, Program, Source
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cuda.actions import Argument, KernelLaunch
from autofuse.backends.cuda.graphs import LaunchCall
from autofuse.backends.cuda.maps import aligned_room
from autofuse.backends.cuda.ordering import OneLaunch
from autofuse.backends.sealed import load_checked
from autofuse.kernel.ir.tensor_map import MAP_BYTES, TensorMap
from autofuse.plan.program.schedule import Copy, Ref

_ISSUE = "af_cuda_issue"
_KERNEL, _TOGETHER, _COPY = range(3)


class DriverEntries(NamedTuple):
    """Addresses of the driver's cuLaunchKernel, cuLaunchCooperativeKernel, cuMemcpyDtoDAsync and,
    where it has it, cuTensorMapReplaceAddress."""

    launch: int
    together: int
    copy: int
    replace: int = 0


class LaunchDriver(Protocol):
    """What is asked of a driver."""

    errors: tuple[type[BaseException], ...]

    def entries(self) -> DriverEntries: ...

    def handle(self, function: Any) -> int: ...

    def stream(self, ptr: int) -> Any: ...

    def tensor_map(self, tensor: TensorMap, buffer: int) -> bytes: ...


class _Argument(ctypes.Structure):
    """`af_argument` of bound.c."""

    _fields_ = (
        ("place", ctypes.c_int64), ("offset", ctypes.c_int64), ("map", ctypes.c_void_p),
        ("last", ctypes.c_void_p),
    )  # fmt: skip


class _Step(ctypes.Structure):
    """`af_step` of bound.c."""

    _fields_ = (
        ("kind", ctypes.c_int64), ("nbytes", ctypes.c_int64), ("count", ctypes.c_int64),
        ("function", ctypes.c_void_p), ("arguments", ctypes.POINTER(_Argument)),
        ("grid", ctypes.c_uint32), ("block", ctypes.c_uint32), ("shared", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    )  # fmt: skip


class _Bound(ctypes.Structure):
    """`af_bound` of bound.c."""

    _fields_ = (
        ("launch", ctypes.c_void_p), ("together", ctypes.c_void_p), ("copy", ctypes.c_void_p),
        ("replace", ctypes.c_void_p),
        ("steps", ctypes.POINTER(_Step)), ("table", ctypes.c_void_p), ("values", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spaces:
    """A table of addresses: where each space of a program starts in it, and what is known of it
    (0 where the arrays of a call go)."""

    starts: Mapping[str, int]
    addresses: tuple[int, ...]

    @staticmethod
    def of(base: Mapping[str, Sequence[int]]) -> Spaces:
        """The table for the addresses of each space."""
        starts: dict[str, int] = {}
        found: list[int] = []
        for space, addresses in base.items():
            starts[space] = len(found)
            found += addresses
        return Spaces(starts, tuple(found))

    def place(self, ref: Ref) -> int:
        return self.starts[ref.space] + ref.index

    def base(self, table: Iterable[int | None]) -> dict[str, list[int]]:
        """The addresses of each space as the table has them now."""
        whole = [address or 0 for address in table]
        ends = [*self.starts.values(), len(whole)][1:]
        spans = zip(self.starts.items(), ends, strict=True)
        return {space: whole[start:end] for (space, start), end in spans}


class BoundLaunches:
    """Launches in order, none of them in a loop that is still to be unrolled; `functions` are the
    program's kernels. `other` makes the call of what is no kernel and no copy, for the addresses of
    each space."""

    def __init__(
        self, driver: LaunchDriver, functions: Mapping[str, Any], launches: Sequence[OneLaunch],
        spaces: Spaces, other: Callable[[OneLaunch, Mapping[str, Sequence[int]]], LaunchCall],
    ) -> None:  # fmt: skip
        self._driver, self._functions, self._spaces, self._other = driver, functions, spaces, other
        self.table = (ctypes.c_void_p * len(spaces.addresses))(*spaces.addresses)
        self._maps: list[Any] = []
        own = [one for one in launches if isinstance(one, KernelLaunch | Copy)]
        self._steps = (_Step * len(own))(*map(self._step, own))
        most = max((step.count for step in self._steps), default=0)
        self._room = (ctypes.c_void_p * (2 * most))()
        values = ctypes.addressof(self._room)
        self._bound = _Bound(
            *driver.entries(), self._steps, ctypes.addressof(self.table), values, values + 8 * most
        )
        self._parts = tuple(_parts(launches))
        self._call = _function()

    def _step(self, one: KernelLaunch | Copy) -> _Step:
        if isinstance(one, Copy):
            both = self._arguments((one.target, one.source))
            return _Step(_COPY, one.nbytes, 2, None, both)
        shape, count = one.geometry, len(one.arguments)
        kind = _TOGETHER if shape.cooperative else _KERNEL
        function = self._driver.handle(self._functions[one.symbol])
        arguments = (_Argument * count)(*map(self._given, one.arguments))
        return _Step(
            kind, 0, count, function, arguments, shape.grid, shape.block, shape.shared
        )  # fmt: skip

    def _given(self, argument: Argument) -> _Argument:
        place, offset = self._spaces.place(argument.ref), argument.ref.offset
        if argument.map is None:
            return _Argument(place, offset)
        # Of any array: before a launch it becomes that of the one in the table.
        start = self._spaces.addresses[self._spaces.starts["work"]]
        room = aligned_room(MAP_BYTES)
        room.raw = self._driver.tensor_map(argument.map, start)
        self._maps.append(room)
        return _Argument(place, offset + argument.map.offset, ctypes.addressof(room), None)

    def _arguments(self, refs: Sequence[Ref]) -> Any:
        found = (_Argument(self._spaces.place(ref), ref.offset) for ref in refs)
        return (_Argument * len(refs))(*found)

    def issue(self, stream: int) -> int:
        """Start everything on the stream of this handle: 0, or the driver's code for what it
        refused. Raises LaunchError for what a library refused."""
        for part in self._parts:
            if isinstance(part, tuple):
                code = int(self._call(ctypes.byref(self._bound), *part, stream))
                if code != 0:
                    return code
            else:
                self._by_library(part, stream)
        return 0

    def _by_library(self, one: OneLaunch, stream: int) -> None:
        base = self._spaces.base(self.table)
        try:
            with self._driver.stream(stream):
                self._other(one, base)()
        except self._driver.errors as error:
            raise LaunchError(f"the device failed: {error}") from error


def _parts(launches: Sequence[OneLaunch]) -> list[tuple[int, int] | OneLaunch]:
    """Runs of steps of ours, as the number of the first and how many, and what is between them."""
    found: list[tuple[int, int] | OneLaunch] = []
    first = 0
    for is_own, group in groupby(launches, lambda one: isinstance(one, KernelLaunch | Copy)):
        members = list(group)
        if is_own:
            found.append((first, len(members)))
            first += len(members)
        else:
            found += members
    return found


@lru_cache(maxsize=1)
def _function() -> Any:
    text = files("autofuse.backends.cuda").joinpath("bound.c").read_text()
    built = compile_program(Program((Source("cuda_bound", text, ("-O2",)),), _ISSUE, (), ()))
    function = load_checked(built.artifact.path, built.artifact.digest)[_ISSUE]
    function.restype = ctypes.c_int32
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return function
