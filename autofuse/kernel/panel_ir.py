"""Matrices inside buffers, and their transposes (see `ir.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, show


@dataclass(frozen=True, slots=True)
class Panel:
    """A matrix inside a buffer: element (i, j) is buffer[start + i * outer + j * inner]."""

    buffer: str
    start: Expr
    outer: int
    inner: int = 1

    def __str__(self) -> str:
        return f"{self.buffer}[{show(self.start)}; {self.outer}, {self.inner}]"


@dataclass(frozen=True, slots=True)
class Transpose:
    """target[j, i] = source[i, j] for i < rows and j < extent, both of `dtype` and apart; those
    along the second index are neighbours in both (`inner` is 1). With `stream` they are written
    past the cache."""

    target: Panel
    source: Panel
    rows: Expr
    extent: Expr
    dtype: DType
    stream: bool = False
