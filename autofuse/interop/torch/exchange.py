"""The addresses of tensors in a plan's table, written by one call of C (`exchange.c`).

A number of Python for each address and a tuple for each tensor's strides cost a quarter of a
microsecond a tensor; DLPack's exchange API takes a reference to each, and Python's lock with it.
Functions that PyTorch keeps stable for compiled code (`aoti_torch_get_*` of its shim.h) take a
pointer into the object of Python: all that is checked costs some ten nanoseconds a tensor. Where in
an object that pointer is is found by looking. No header of Python or PyTorch is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from autofuse.backends.base import BoundEntry, Program, Source
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.sealed import load_checked
from autofuse.errors import AutofuseError
from autofuse.frontends.torch.types import torch_module
from autofuse.interop.torch.device import CPU, IslandPlace
from autofuse.interop.torch.layout import TensorLayout

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any

# Of a tuple of inputs and one of outputs: whether the inputs lie as they should. Where they do,
# all addresses are in the table.
Filling = Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], int]
_FILL = "af_torch_fill"
_Numbers = ctypes.POINTER(ctypes.c_int64)
_ANY_UNIT = -1


class _Shim(ctypes.Structure):
    """`af_shim` of torch_exchange.c: what of a tensor each function says."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("data_ptr", "dim", "sizes", "strides", "dtype", "device_type", "device_index")
    )


class _Objects(ctypes.Structure):
    """`af_objects` of torch_exchange.c."""

    _fields_ = (
        ("item", ctypes.c_void_p), ("derives", ctypes.c_void_p), ("base", ctypes.py_object),
        ("usual", ctypes.py_object * 2), ("kind", ctypes.c_int64), ("handle", ctypes.c_int64),
    )  # fmt: skip


class _Port(ctypes.Structure):
    """`af_port` of torch_exchange.c."""

    _fields_ = (
        ("place", ctypes.c_int64), ("ndim", ctypes.c_int64), ("shape", _Numbers),
        ("strides", _Numbers), ("dtype", ctypes.c_int64),
    )  # fmt: skip


class _Border(ctypes.Structure):
    """`af_border` of torch_exchange.c."""

    _fields_ = (
        ("torch", ctypes.POINTER(_Shim)), ("python", ctypes.POINTER(_Objects)),
        ("table", ctypes.c_void_p), ("ports", ctypes.POINTER(_Port)), ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64), ("first_output", ctypes.c_int64),
        ("alignment", ctypes.c_int64), ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
    )  # fmt: skip


def filling(
    entry: BoundEntry, inputs: Sequence[tuple[TensorLayout, Any]], outputs: int, place: IslandPlace
) -> Filling:
    """What writes addresses to the table of `entry`, for inputs of these layouts and dtypes of
    PyTorch at `place`; who calls it holds the entry's lock. Raises AutofuseError where it cannot be
    built, and for a PyTorch that does not say where its tensors are."""
    ports = [
        _Port(at, len(layout.shape), _numbers(layout.shape), _numbers(layout.strides), _code(dtype))
        for at, (layout, dtype) in zip(entry.inputs, inputs, strict=True)
    ]
    serves = place.device.serves
    kind = int(_asked(f"device_type_{serves}")())
    unit = _ANY_UNIT if serves == CPU else place.unit
    border = _Border(
        ctypes.pointer(_shim()), ctypes.pointer(_objects()), ctypes.addressof(entry.table),
        (_Port * len(ports))(*ports), len(ports), outputs, entry.first_output,
        place.device.alignment, kind, unit,
    )  # fmt: skip
    return partial(_function(), ctypes.byref(border))


def _numbers(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


@lru_cache(maxsize=1)
def _functions() -> ctypes.PyDLL:
    """What PyTorch exports: its own module and all that this one needs."""
    return ctypes.PyDLL(torch_module()._C.__file__)


def _asked(name: str) -> Any:
    """A function of shim.h."""
    found = getattr(_functions(), f"aoti_torch_{name}", None)
    if found is None:
        raise _unknown()
    return found


def _unknown() -> AutofuseError:
    version = torch_module().__version__
    return AutofuseError(f"torch {version} does not say where its tensors are")


@lru_cache(maxsize=1)
def _shim() -> _Shim:
    names = (name for name, *_ in _Shim._fields_)
    return _Shim(*(ctypes.cast(_asked(f"get_{name}"), ctypes.c_void_p) for name in names))


@lru_cache(maxsize=1)
def _objects() -> _Objects:
    """Raises AutofuseError where an object does not hold what it should."""
    torch, python = torch_module(), ctypes.pythonapi
    item, derives = (
        ctypes.cast(f, ctypes.c_void_p) for f in (python.PyTuple_GetItem, python.PyType_IsSubtype)
    )
    usual = torch.Tensor, torch.nn.Parameter
    probes = [torch.empty(2), torch.nn.Parameter(torch.empty(()))]
    kind = _offset(probes, lambda probe: id(type(probe)))
    handle = _offset(probes, lambda probe: int(probe._cdata))
    return _Objects(
        item, derives, torch._C.TensorBase, (ctypes.py_object * 2)(*usual), kind, handle
    )


def _offset(probes: Sequence[Tensor], word: Callable[[Tensor], int]) -> int:
    """Bytes from the start of any tensor's object to where this word of it is."""
    size = ctypes.sizeof(ctypes.c_void_p)
    count = torch_module()._C.TensorBase.__basicsize__ // size
    found = set(range(count))
    for probe in probes:
        words = (ctypes.c_void_p * count).from_address(id(probe))
        found &= {at for at, each in enumerate(words) if each == word(probe)}
    if len(found) != 1:
        raise _unknown()
    return found.pop() * size


@lru_cache(maxsize=64)
def _code(dtype: Any) -> int:
    """PyTorch's number of a dtype."""
    probe, code = torch_module().empty(0, dtype=dtype), ctypes.c_int32()
    handle = ctypes.c_void_p(id(probe) + _objects().handle)
    if _asked("get_dtype")(handle, ctypes.byref(code)):
        raise _unknown()
    return code.value


@lru_cache(maxsize=1)
def _function() -> Any:
    text = files("autofuse.interop.torch").joinpath("exchange.c").read_text()
    built = compile_program(Program((Source("torch_exchange", text, ("-O2",)),), _FILL, (), ()))
    library = load_checked(built.artifact.path, built.artifact.digest, ctypes.PyDLL)
    function = library[_FILL]
    function.restype = ctypes.c_int32
    function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return function
