"""The C text of a register tile: vectors with names of their own, which stay in registers.

Accumulators in an array are left on the stack by gcc 12 unless all of -ffast-math is given; one
GNU vector with a name for each stays in a register (seen in its machine code, 28 accumulators).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofuse.kernel.ir.types import Panel, TileProduct
from autofuse.kernel.ir.walk import ALWAYS, Walk
from autofuse.kernel.text.dialects import C
from autofuse.ops.index import isub
from autofuse.ops.scalar import Expr, Lit

Text = Callable[[Expr], str]
# Bytes of a line of the cache.
LINE = 64


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
    yield from operand_lines(stmt, text, element, element)
    for r in range(stmt.rows):
        for v in parts:
            start = f"({v.type}){{0}}" if stmt.fresh else _vector_at("tc", stmt.target, r, v)
            yield f"  {v.type} c{r}_{v.first} = {start};"
    if not isinstance(stmt.walk, Walk):
        lefts = [f"ta[{_scaled('tk', stmt.left.inner)} + {r * stmt.left.outer}]"
                 for r in range(stmt.rows)]  # fmt: skip
        yield from _terms(stmt, lefts, "tb", element, parts, text)
    else:
        yield from _taps(stmt, stmt.walk, element, parts, text)
    for r in range(stmt.rows):
        for v in parts:
            yield f"  {_vector_at('tc', stmt.target, r, v)} = c{r}_{v.first};"
    yield "}"


def operand_lines(stmt: TileProduct, text: Text, factors: str, sums: str) -> Iterator[str]:
    """Where operands (`ta`, unless it is walked, and `tb`) and the target (`tc`) of a tile start,
    in C types of their elements."""
    panels = ("ta", stmt.left), ("tb", stmt.right), ("tc", stmt.target)
    for name, panel in panels[stmt.walk is not None :]:
        kind = sums if name == "tc" else f"const {factors}"
        yield f"  {kind} *const {name} = {panel.buffer} + {text(panel.start)};"


def _terms(
    stmt: TileProduct, lefts: list[str], right: str, element: str, parts: list[_Vector], text: Text
) -> Iterator[str]:
    """The loop over terms: `lefts` are the elements of its rows, or with a walk across columns the
    addresses of the first ones."""
    yield f"  for (int64_t tk = 0; tk < {text(stmt.extent)}; tk++) {{"
    for v in parts:
        place = f"{right} + {_scaled('tk', stmt.right.outer)} + {v.first}"
        yield f"    {v.type} b{v.first} = *(const {v.type}_u *)({place});"
    yield from (f"    AF_KEEP(b{v.first});" for v in parts if stmt.rows > 1)
    if stmt.right.ahead:
        yield from _asked_ahead(stmt, right)
    for r, left in enumerate(lefts):
        if isinstance(stmt.walk, Walk) and stmt.walk.across:
            for v in parts:
                own = f"*(const {v.type}_u *)({left} + {v.first})"
                yield f"    c{r}_{v.first} += {own} * b{v.first};"
            continue
        sums = " ".join(f"c{r}_{v.first} += a * b{v.first};" for v in parts)
        yield f"    {{ const {element} a = {left}; {sums} }}"
    yield "  }"


def _asked_ahead(stmt: TileProduct, right: str) -> Iterator[str]:
    """The lines of a row of the right operand that is needed later."""
    row = f"{right} + {_scaled('tk', stmt.right.outer)}"
    for first in range(0, stmt.columns, LINE // stmt.dtype.itemsize):
        yield f"    __builtin_prefetch({row} + {first + stmt.right.ahead});"


def _taps(
    stmt: TileProduct, ways: Walk, element: str, parts: list[_Vector], text: Text
) -> Iterator[str]:
    """The loops over taps: where each row starts, and the loop over the terms that it has there."""
    yield f"  const {element} *tw = tb;"
    for sym, extent in ways.taps:
        n = sym.name
        yield f"  for (int64_t {n} = 0; {n} < {text(extent)}; {n}++) {{"
    if ways.needed != ALWAYS:
        yield f"  if ({text(ways.needed)}) {{"
    lefts = list[str]()
    # Rows that always have terms are so far from the first of these.
    base = next((r for r, there in enumerate(ways.there) if there == ALWAYS), 0)
    for r, (start, there) in enumerate(zip(ways.starts, ways.there, strict=True)):
        apart = isub(start, ways.starts[base])
        if r > base and there == ALWAYS and isinstance(apart, Lit):
            lefts.append(f"ta{base} + {apart.value}")
            continue
        place = f"{stmt.left.buffer} + {text(start)}"
        if there != ALWAYS:
            place = (
                ways.zeros if isinstance(there, Lit) else f"{text(there)} ? {place} : {ways.zeros}"
            )
        yield f"  const {element} *const ta{r} = {place};"
        lefts.append(f"ta{r}")
    own = f" + {_scaled('tk', stmt.left.inner)}"
    places = [left + own for left in lefts]
    lefts = places if ways.across else [f"*({place})" for place in places]
    yield from _terms(stmt, lefts, "tw", element, parts, text)
    yield from ["  }"] * (ways.needed != ALWAYS)
    yield f"  tw += ({text(stmt.extent)}) * {stmt.right.outer};"
    yield from ("  }" for _ in ways.taps)


def _vectors(columns: int, lanes: int, element: str) -> list[_Vector]:
    """A row of the tile as vectors. The last one begins where the row ends with it: columns that
    are in two vectors have the same sums in both."""
    while lanes > columns:
        lanes //= 2
    firsts = list(range(0, columns - lanes + 1, lanes))
    rest = columns - firsts[-1] - lanes
    found = [_Vector(first, f"af_{element}x{lanes}") for first in firsts]
    if rest:
        least = 1 << (rest - 1).bit_length()
        found.append(_Vector(columns - least, f"af_{element}x{least}"))
    return found


def _vector_at(name: str, panel: Panel, row: int, v: _Vector) -> str:
    return f"*({v.type}_u *)({name} + {row * panel.outer + v.first})"


def _scaled(name: str, factor: int) -> str:
    return name if factor == 1 else f"{name} * {factor}"
