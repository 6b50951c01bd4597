"""The CUDA text of sums that threads have by pairs of columns: element (m, n) of the tile of a
product and its neighbour, read from its target or stored there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autofuse.kernel.ir.indices import is_multiple
from autofuse.kernel.ir.types import TileProduct
from autofuse.ops.dtypes import DType


@dataclass(frozen=True)
class SumsText:
    """Prints accesses to the target `tc`; the tile is `high` x `wide` elements, those beyond the
    statement's own included. `pair` names the two sums, which are of the type `kind`."""

    stmt: TileProduct
    high: int
    wide: int
    kind: DType
    pair: tuple[str, str]

    @property
    def pairs(self) -> bool:
        """Whether two neighbours of the target are one access."""
        target = self.stmt.target
        even = target.outer % 2 == 0 and self.stmt.columns % 2 == 0
        return even and is_multiple(target.start, 2)

    def inside(self, column: str = "n") -> str:
        """A condition: an element of the padded tile exists."""
        stmt = self.stmt
        tests = [f"m < {stmt.rows}"] if stmt.rows < self.high else []
        tests += [f"{column} < {stmt.columns}"] if stmt.columns < self.wide else []
        return f"if ({' && '.join(tests)}) " if tests else ""

    def read(self) -> Iterator[str]:
        stmt = self.stmt
        for k in range(2):
            place = f"af_min_i32(m, {stmt.rows - 1}) * {stmt.target.outer}"
            column = f"af_min_i32(n + {k}, {stmt.columns - 1})"
            yield f"{self.pair[k]} = tc[{place} + {column}];"

    def store(self) -> Iterator[str]:
        outer = self.stmt.target.outer
        if self.pairs:
            place, kind = f"tc, m * {outer} + n", f"af_{self.kind}x2"
            yield f"{self.inside()}af_store_vector({kind}, {place}, {', '.join(self.pair)});"
            return
        for k in range(2):
            yield f"{self.inside(f'n + {k}')}tc[m * {outer} + n + {k}] = {self.pair[k]};"
