"""Calls of oneDNN ready for a plan: primitives made once, when the plan is loaded.

The C text of `onednn.c` runs them; the structures here are its. Primitives of equal pieces are one
for the library, which keeps what it generates. A piece has scratch memory of its own, so that any
thread may run it; as calls run one after another, all calls have the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

import numpy as np

from autofuse.backends.base import ALIGNMENT
from autofuse.backends.cpu.onednn import Handles, OneDnnError, Role, onednn
from autofuse.kernel.library.onednn import DnnlCall, pieces
from autofuse.ops.views import View

# Names of implementations that compute element by element.
_REFERENCE = "ref"
_PLACES = {Role.SRC: 0, Role.WEIGHTS: 1, Role.DST: 2}
_FIXED = -1
_MOST_OPERANDS = 4
# Those that the C text calls, in the order of its table.
_FUNCTIONS = (
    "dnnl_primitive_execute", "dnnl_memory_set_data_handle", "omp_get_max_threads",
    "omp_set_num_threads",
)  # fmt: skip


class _Operand(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_int32), ("place", ctypes.c_int32), ("offset", ctypes.c_int64),
        ("memory", ctypes.c_void_p),
    )  # fmt: skip


class _Piece(ctypes.Structure):
    _fields_ = (
        ("primitive", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("count", ctypes.c_int64),
        ("operands", _Operand * _MOST_OPERANDS),
    )  # fmt: skip


class _Stage(ctypes.Structure):
    _fields_ = (("pieces", ctypes.POINTER(_Piece)), ("count", ctypes.c_int64))


class _Table(ctypes.Structure):
    _fields_ = (
        ("execute", ctypes.c_void_p), ("set_data", ctypes.c_void_p),
        ("get_threads", ctypes.c_void_p), ("set_threads", ctypes.c_void_p),
        ("stages", ctypes.POINTER(_Stage)),
    )  # fmt: skip


# Where an operand lies: in which array of the call, and how many bytes into it; None: in the room
# for weights.
Operands = Mapping[Role, tuple[int, int] | None]
Layout = ctypes.c_void_p


@dataclass(frozen=True, slots=True)
class _Step:
    """A primitive as it is described, and where its operands lie."""

    description: Layout
    operands: Operands


Stages = tuple[tuple[_Step, ...], tuple[_Step, ...]]


@lru_cache(maxsize=4096)
def does(call: DnnlCall, threads: int) -> bool:
    """Whether oneDNN is here and computes a call, every piece of it for so many threads, otherwise
    than by the code that is its reference."""
    try:
        handles = Handles(onednn())
    except OneDnnError:
        return False
    try:
        with handles.dnnl.one_thread():
            _, steps = _stages(handles, pieces(call, threads))
        names = {handles.dnnl.implementation_of(step.description) for step in steps}
        return not any(name.startswith(_REFERENCE) for name in names)
    except OneDnnError:
        return False
    finally:
        handles.close()


class PreparedCalls:
    """The calls of one loaded plan, each given by its pieces; `address` is what the plan gets.

    Raises OneDnnError where oneDNN is missing or does not do one of them."""

    def __init__(self, calls: Sequence[Sequence[DnnlCall]]) -> None:
        self._handles = handles = Handles(onednn())
        dnnl = handles.dnnl
        self._primitives: dict[int | None, Layout] = {}
        with dnnl.one_thread():
            found = [stage for parts in calls for stage in _stages(handles, parts)]
            places = range(max(map(len, found), default=0))
            self._streams = [handles.stream() for _ in places]
            self._weights = _room(
                self._bytes(step, role)
                for step in chain(*found)
                for role, place in step.operands.items()
                if place is None
            )
            self._scratch = [
                _room(self._bytes(stage[k], Role.SCRATCHPAD) for stage in found if k < len(stage))
                for k in places
            ]
            made = [[self._piece(k, step) for k, step in enumerate(stage)] for stage in found]
        each = [(_Piece * len(stage))(*stage) for stage in made]
        stages = (_Stage * len(each))(*(_Stage(one, len(one)) for one in each))
        self._table = _Table(*map(dnnl.address, _FUNCTIONS), stages)
        self.address = ctypes.addressof(self._table)

    def close(self) -> None:
        """Destroy the primitives; the plan must not be called any more."""
        self._handles.close()

    def _bytes(self, step: _Step, role: Role) -> int:
        dnnl = self._handles.dnnl
        return dnnl.size_of(dnnl.layout_of(step.description, role))

    def _piece(self, place: int, step: _Step) -> _Piece:
        handles, description = self._handles, step.description
        if description.value not in self._primitives:
            self._primitives[description.value] = handles.primitive(description)
        rooms = dict.fromkeys(step.operands, self._weights) | {
            Role.SCRATCHPAD: self._scratch[place]
        }
        operands = []
        for role, room in rooms.items():
            lies = step.operands.get(role)
            address = ctypes.c_void_p(_start(room) if lies is None else None)
            memory = handles.memory(handles.dnnl.layout_of(description, role), address)
            operands.append(_Operand(role, *(lies or (_FIXED, 0)), memory))
        own = (_Operand * _MOST_OPERANDS)(*operands)
        primitive = self._primitives[description.value]
        return _Piece(primitive, self._streams[place], len(operands), own)


def _stages(handles: Handles, parts: Sequence[DnnlCall]) -> Stages:
    """What puts weights in place, where oneDNN wants them otherwise, and the pieces.

    Raises OneDnnError for what oneDNN does not do."""
    attributes, first = handles.threadable(), parts[0]
    plain = weights = _layout(handles, first, first.weights)
    if first.windows:
        wanted = handles.chosen(first.dtype, first.weights.shape)
        free = _described(handles, first, wanted, attributes)
        weights = handles.dnnl.layout_of(free, Role.WEIGHTS)
    if handles.dnnl.are_equal(plain, weights):
        return (), tuple(_pieces(handles, parts, None, attributes))
    copy = handles.reorder(plain, weights, attributes)
    lying: Operands = {Role.SRC: _lies(first, Role.WEIGHTS), Role.DST: None}
    return (_Step(copy, lying),), tuple(_pieces(handles, parts, weights, attributes))


def _pieces(
    handles: Handles, parts: Sequence[DnnlCall], weights: Layout | None, attributes: Layout
) -> Iterator[_Step]:
    """Each piece; `weights` is the layout in which they were put in place. Pieces that differ only
    in where they lie are one primitive."""
    known: dict[DnnlCall, Layout] = {}
    for part in parts:
        kind = part.on(lambda view: replace(view, offset=0))
        if kind not in known:
            layout = weights or _layout(handles, part, part.weights)
            known[kind] = _described(handles, part, layout, attributes)
        operands: Operands = {role: _lies(part, role) for role in _PLACES}
        moved: Operands = {} if weights is None else {Role.WEIGHTS: None}
        yield _Step(known[kind], {**operands, **moved})


def _described(handles: Handles, call: DnnlCall, weights: Layout, attributes: Layout) -> Layout:
    src, dst = (_layout(handles, call, view) for view in (call.src, call.dst))
    if not call.windows:
        return handles.matmul(src, weights, dst, attributes)
    windows = [(w.stride, w.dilation, w.low, w.high) for w in call.windows]
    return handles.convolution(src, weights, None, dst, windows, attributes)


def _layout(handles: Handles, call: DnnlCall, view: View) -> Layout:
    return handles.strided(call.dtype, view.shape, view.strides)


def _lies(call: DnnlCall, role: Role) -> tuple[int, int]:
    view = {Role.SRC: call.src, Role.WEIGHTS: call.weights, Role.DST: call.dst}[role]
    return _PLACES[role], view.offset * call.dtype.itemsize


def _room(sizes: Iterable[int]) -> np.ndarray:
    """Memory for the largest of these."""
    return np.empty(max(sizes, default=0) + ALIGNMENT, np.uint8)


def _start(room: np.ndarray) -> int:
    return int(room.ctypes.data + -room.ctypes.data % ALIGNMENT)
