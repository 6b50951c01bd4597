"""What an op is called with: tensor types, attributes and literals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError as AutofuseError
from autofuse.errors import GraphError as GraphError
from autofuse.ops.dtypes import DType


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape (row-major, static) and element type of one value."""

    shape: tuple[int, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


_DOMAIN = b"autofuse literal"


@dataclass(frozen=True, slots=True)
class Literal:
    """An immutable array constant: row-major little-endian bytes of `type`."""

    type: TensorType
    data: bytes

    @staticmethod
    def of(array: np.ndarray, dtype: DType) -> Literal:
        stored = np.asarray(array, dtype=dtype.numpy)
        return Literal(TensorType(tuple(stored.shape), dtype), stored.tobytes())

    def array(self) -> np.ndarray:
        return np.frombuffer(self.data, dtype=self.type.dtype.numpy).reshape(self.type.shape)

    @property
    def scalar(self) -> bool | int | float:
        """The one element, as a Python number; only for a literal of size 1."""
        value: bool | int | float = self.array().reshape(()).item()
        return value

    @property
    def digest(self) -> str:
        """64 hex digits, of the type too, in a domain of their own: no file, kernel or graph has
        this digest, whatever is in it."""
        # Imported late: most processes that load types digest nothing.
        from hashlib import sha256

        return sha256(b"\0".join((_DOMAIN, str(self.type).encode(), self.data))).hexdigest()

    def __str__(self) -> str:
        """For people: a scalar, or the beginning of an array's digest. Not an identity."""
        return f"{self.scalar!r}" if self.type.size == 1 else f"sha256:{self.digest[:16]}"


# Values are ints, floats, bools, strings, Literals, Graphs (a loop body) and tuples of these.
Attrs = tuple[tuple[str, Any], ...]


def make_attrs(values: Mapping[str, Any]) -> Attrs:
    """Attributes in their one order, with lists made tuples so that nodes stay hashable."""

    def freeze(value: Any) -> Any:
        return tuple(freeze(v) for v in value) if isinstance(value, list | tuple) else value

    return tuple((key, freeze(values[key])) for key in sorted(values))


@dataclass(frozen=True, slots=True)
class OpCall:
    """One op applied to operands of known types: all that shape rules, costs and bodies see."""

    attrs: Attrs
    ins: tuple[TensorType, ...]
    outs: tuple[TensorType, ...] = ()

    def __getitem__(self, key: str) -> Any:
        for name, value in self.attrs:
            if name == key:
                return value
        raise GraphError(f"attribute '{key}' is missing")

    def get(self, key: str, default: Any = None) -> Any:
        return next((value for name, value in self.attrs if name == key), default)

    @property
    def out(self) -> TensorType:
        """The type of the first (usually only) output."""
        return self.outs[0]
