"""The addresses of tensors in a plan's table, written by one call of C (`torch_exchange.c`).

A number of Python for each address and a tuple for each tensor's strides cost a quarter of a
microsecond a tensor. DLPack's exchange API (dlpack.h 1.3), a table of functions that the class of
PyTorch's tensors has, tells C both in some ten nanoseconds. The C text needs no header of Python or
PyTorch, and is built by our compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from autofuse.backends.base import BoundEntry, Program, Source
from autofuse.backends.ccompiler import compile_program
from autofuse.errors import AutofuseError
from autofuse.frontends.torch_types import torch_module
from autofuse.interop.torch_device import IslandPlace
from autofuse.interop.torch_layout import TensorLayout

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any

# Of a tuple of inputs and one of outputs: whether the inputs lie as they should. Where they do,
# all addresses are in the table.
Filling = Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], int]
_FILL, _CAPSULE, _MAJOR = "af_torch_fill", b"dlpack_exchange_api", 1
_Numbers = ctypes.POINTER(ctypes.c_int64)


class _ExchangeApi(ctypes.Structure):
    """`DLPackExchangeAPI` of dlpack.h."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("give", ctypes.c_void_p), ("take", ctypes.c_void_p),
        ("view", ctypes.c_void_p), ("stream", ctypes.c_void_p),
    )  # fmt: skip


class _Port(ctypes.Structure):
    """`af_port` of torch_exchange.c."""

    _fields_ = (
        ("place", ctypes.c_int64), ("ndim", ctypes.c_int64), ("shape", _Numbers),
        ("strides", _Numbers),
    )  # fmt: skip


class _Border(ctypes.Structure):
    """`af_border` of torch_exchange.c."""

    _fields_ = (
        ("view", ctypes.c_void_p), ("item", ctypes.c_void_p), ("table", ctypes.c_void_p),
        ("ports", ctypes.POINTER(_Port)), ("inputs", ctypes.c_int64), ("outputs", ctypes.c_int64),
        ("first_output", ctypes.c_int64), ("alignment", ctypes.c_int64),
        ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
    )  # fmt: skip


def filling(
    entry: BoundEntry, inputs: Sequence[TensorLayout], outputs: int, place: IslandPlace
) -> Filling:
    """What writes addresses to the table of `entry`, for inputs of these layouts at `place`; who
    calls it holds the entry's lock. Raises AutofuseError where it cannot be built, and for a
    PyTorch without the exchange API."""
    ports = [
        _Port(place, len(layout.shape), _numbers(layout.shape), _numbers(layout.strides))
        for place, layout in zip(entry.inputs, inputs, strict=True)
    ]
    item = ctypes.cast(ctypes.pythonapi.PyTuple_GetItem, ctypes.c_void_p)
    border = _Border(
        _view(), item, ctypes.addressof(entry.table), (_Port * len(ports))(*ports),
        len(ports), outputs, entry.first_output, place.device.alignment, place.device.number,
        place.unit,
    )  # fmt: skip
    return partial(_function(), ctypes.byref(border))


def _numbers(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


@lru_cache(maxsize=1)
def _view() -> int:
    """The address of PyTorch's `dltensor_from_py_object_no_sync`."""
    torch = torch_module()
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    address_in = prototype(("PyCapsule_GetPointer", ctypes.pythonapi))
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    api = None if capsule is None else _ExchangeApi.from_address(address_in(capsule, _CAPSULE))
    if api is None or api.major != _MAJOR or not api.view:
        raise AutofuseError(f"torch {torch.__version__} does not say where its tensors are")
    return int(api.view)


@lru_cache(maxsize=1)
def _function() -> Any:
    text = files("autofuse.interop").joinpath("torch_exchange.c").read_text()
    built = compile_program(Program((Source("torch_exchange", text, ("-O2",)),), _FILL, (), ()))
    function = ctypes.PyDLL(str(built.artifact.path))[_FILL]
    function.restype = ctypes.c_int32
    function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return function
