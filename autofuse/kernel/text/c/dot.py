"""The C text of a register tile whose vectors run along terms: a sum of products for each element,
for operands that both lie row by row (a product with the second factor transposed).

Nothing is copied before it is used, so a right operand that is used but few times is best read so.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.kernel.ir.types import TileProduct
from autofuse.kernel.text.c.tile import Text, operand_lines
from autofuse.kernel.text.dialects import C

# Bytes of a vector inside which any shuffle is cheap.
PIECE = 16


def dot_text(stmt: TileProduct, text: Text, vector_bytes: int) -> Iterator[str]:
    """The lines of a block that computes one tile, with vectors of `vector_bytes` along terms. The
    last of them are read in one more vector, of which terms that were added already are zeroed."""
    element, lanes = C.types[stmt.dtype], vector_bytes // stmt.dtype.itemsize
    vector = f"af_{element}x{lanes}"
    cells = [(r, c) for r in range(stmt.rows) for c in range(stmt.columns)]
    yield "{"
    yield from operand_lines(stmt, text, element, element)
    yield f"  const int64_t te = {text(stmt.extent)}, tv = te - te % {lanes};"
    for r, c in cells:
        yield f"  {vector} c{r}_{c} = {{0}};"
    yield f"  for (int64_t tk = 0; tk < tv; tk += {lanes}) {{"
    for c in range(stmt.columns) if stmt.right.ahead else ():
        yield f"    __builtin_prefetch(tb + tk + {c * stmt.right.inner + stmt.right.ahead});"
    yield from _terms(stmt, vector, "")
    yield "  }"
    yield f"  if (te >= {lanes} && tv < te) {{"
    numbers = ", ".join(map(str, range(lanes)))
    yield f"    const int64_t tk = te - {lanes};"
    yield f"    const {vector} number = {{{numbers}}};"
    yield f"    const {vector} known = ({vector}){{0}} + ({element})(tv - tk);"
    yield "    const __typeof__(number < known) keep = number >= known;"
    yield from _terms(stmt, vector, "keep")
    yield "  } else {"
    yield "    for (int64_t tk = tv; tk < te; tk++) {"
    for r, c in cells:
        pair = f"ta[{r * stmt.left.outer} + tk] * tb[{c * stmt.right.inner} + tk]"
        yield f"      c{r}_{c}[0] += {pair};"
    yield "    }"
    yield "  }"
    for first in range(0, len(cells), lanes):
        some = cells[first : first + lanes]
        names = [f"c{r}_{c}" for r, c in some] + [f"({vector}){{0}}"] * (lanes - len(some))
        yield from _sums(names, f"s{first}", vector, stmt.dtype.itemsize)
        for lane, (r, c) in enumerate(some):
            sign = "=" if stmt.fresh else "+="
            yield f"  tc[{r * stmt.target.outer + c}] {sign} s{first}[{lane}];"
    yield "}"


def _sums(names: list[str], made: str, vector: str, itemsize: int) -> Iterator[str]:
    """A vector `made` of the sums of as many vectors as one has lanes, in their order: neighbours
    in pieces of 16 bytes are added, two vectors at a time, then neighbouring pieces. Shuffles that
    stay in such a piece, or move whole ones, are one instruction each."""
    lanes, whole = len(names), f"int{8 * itemsize}_t"
    piece = min(lanes, PIECE // itemsize)
    depth = 0
    while len(names) > 1:
        half = len(names) // 2
        level = [made] if half == 1 else [f"{made}_{half}_{i}" for i in range(half)]
        even, odd = (", ".join(map(str, _picked(lanes, piece, depth, k))) for k in (0, 1))
        for name, a, b in zip(level, names[::2], names[1::2], strict=True):
            turns = (f"AF_TURNS({whole}, {lanes}, {a}, {b}, {order})" for order in (even, odd))
            yield f"  const {vector} {name} = {' + '.join(turns)};"
        names, depth = level, depth + 1


def _picked(lanes: int, piece: int, depth: int, odd: int) -> list[int]:
    """The even (or odd) numbers of one vector, then of another, piece by piece; from the level on
    where pieces are sums, the even (odd) pieces of both."""
    if 1 << depth < piece:
        pairs = [(v, p) for p in range(0, lanes, piece) for v in (0, lanes)]
        return [v + p + i + odd for v, p in pairs for i in range(0, piece, 2)]
    pieces = [v + p + odd * piece for v in (0, lanes) for p in range(0, lanes, 2 * piece)]
    return [p + i for p in pieces for i in range(piece)]


def _terms(stmt: TileProduct, vector: str, keep: str) -> Iterator[str]:
    """One vector of terms of every row and column; of those of `keep` alone where it is named."""

    def part(name: str, start: int) -> str:
        read = f"*(const {vector}_u *)({name} + {start} + tk)"
        return f"({vector})((__typeof__({keep}))({read}) & {keep})" if keep else read

    for c in range(stmt.columns):
        yield f"    {vector} b{c} = {part('tb', c * stmt.right.inner)};"
    yield from (f"    AF_KEEP(b{c});" for c in range(stmt.columns) if stmt.rows > 1)
    for r in range(stmt.rows):
        kept = "AF_KEEP(a); " * (stmt.columns > 1)
        sums = " ".join(f"c{r}_{c} += a * b{c};" for c in range(stmt.columns))
        yield f"    {{ {vector} a = {part('ta', r * stmt.left.outer)}; {kept}{sums} }}"
