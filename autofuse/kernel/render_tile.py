"""The C text of a register tile: vectors with names of their own, which stay in registers.

Accumulators in an array are left on the stack by gcc 12 unless all of -ffast-math is given; one
GNU vector with a name for each stays in a register (seen in its machine code, 28 accumulators).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofuse.kernel.dialects import C
from autofuse.kernel.ir import Panel, TileProduct
from autofuse.ops.scalar import Expr

Text = Callable[[Expr], str]


@dataclass(frozen=True, slots=True)
class _Vector:
    """One vector of a row of the tile: its first column and its C type."""

    first: int
    type: str


def tile_text(stmt: TileProduct, text: Text, vector_bytes: int) -> Iterator[str]:
    """The lines of a block that computes one tile in vectors of at most `vector_bytes`."""
    element = C.types[stmt.dtype]
    parts = _vectors(stmt.columns, vector_bytes // stmt.dtype.itemsize, element)
    yield "{"
    for name, panel, const in (
        ("ta", stmt.left, "const "), ("tb", stmt.right, "const "), ("tc", stmt.target, ""),
    ):  # fmt: skip
        yield f"  {const}{element} *const {name} = {panel.buffer} + {text(panel.start)};"
    for r in range(stmt.rows):
        for v in parts:
            start = f"({v.type}){{0}}" if stmt.fresh else _vector_at("tc", stmt.target, r, v)
            yield f"  {v.type} c{r}_{v.first} = {start};"
    yield f"  for (int64_t tk = 0; tk < {text(stmt.extent)}; tk++) {{"
    for v in parts:
        place = f"tb + {_scaled('tk', stmt.right.outer)} + {v.first}"
        yield f"    const {v.type} b{v.first} = *(const {v.type}_u *)({place});"
    for r in range(stmt.rows):
        left = f"ta[{_scaled('tk', stmt.left.inner)} + {r * stmt.left.outer}]"
        sums = " ".join(f"c{r}_{v.first} += a * b{v.first};" for v in parts)
        yield f"    {{ const {element} a = {left}; {sums} }}"
    yield "  }"
    for r in range(stmt.rows):
        for v in parts:
            yield f"  {_vector_at('tc', stmt.target, r, v)} = c{r}_{v.first};"
    yield "}"


def _vectors(columns: int, lanes: int, element: str) -> list[_Vector]:
    """A row of the tile as vectors, the widest first."""
    found, first = list[_Vector](), 0
    while first < columns:
        while lanes > columns - first:
            lanes //= 2
        found.append(_Vector(first, f"af_{element}x{lanes}"))
        first += lanes
    return found


def _vector_at(name: str, panel: Panel, row: int, v: _Vector) -> str:
    return f"*({v.type}_u *)({name} + {row * panel.outer + v.first})"


def _scaled(name: str, factor: int) -> str:
    return name if factor == 1 else f"{name} * {factor}"
