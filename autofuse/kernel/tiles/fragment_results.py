"""What becomes of the rows of warps when all columns are folded: elements of the products that sums
in registers are, or one number a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.graph.types import Value
from autofuse.kernel.cuda.fragments import ROW_LANES, Lane
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.epilogue import IndexOf, store_outputs
from autofuse.kernel.tiles.rows import KeptRows, frame_of_row, only_at, rescaled
from autofuse.kernel.tiles.running_fragments import RunningFragments
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Load, call
from autofuse.plan.schedules.forms import join, local_shape
from autofuse.plan.schedules.tiles import Contraction


@dataclass(frozen=True)
class FragmentResults:
    """Stores what the rows of a `lane` become. `sums_of` are the columns of the sums that there are
    for so many columns, `sinks` the products whose sums are running."""

    b: TileBlock
    running: RunningFragments
    sums_of: Callable[[int], int]
    lane: Lane
    sinks: Sequence[Contraction]

    def store(self, done: KeptRows) -> None:
        """The outputs of all rows. Raises LoweringError for columns that sums have not."""
        b = self.b
        tags = dict(b.form.tags)
        wide = [v for v in b.form.outputs if local_shape(self.b.graph, v, tags[v])]
        widths = {p.width for p in self.sinks}
        if wide and len(widths) != 1:
            raise LoweringError("the products of a row have different columns")
        for v in wide:
            shape = local_shape(self.b.graph, v, tags[v])
            if ix.linearize([ix.lit(n - 1) for n in shape], shape) != ix.lit(max(widths) - 1):
                raise LoweringError("a result has other columns than the products of its row")
        with self.running.over_rows(ix.lit(0), 0, ix.lit(0)) as row:
            at_row = self.running.row_of(row)
            inside: Expr | None = None
            if b.rows % b.height:
                whole = ix.iadd(b.first_row, self.running.own_row(row))
                inside = ix.ilt(whole, ix.lit(b.rows))
            with b.only(inside):
                self._row(done, row, at_row, wide)

    def _row(self, done: KeptRows, row: Expr, at_row: Expr, wide: list[Value]) -> None:
        b, e = self.b, self.b.e
        for v in b.form.outputs:
            if v not in wide:
                with b.only(call("eq", ix.imod(self.lane.number, ROW_LANES), ix.lit(0))):
                    frame = frame_of_row(b, done, row, at_row)
                    store_outputs(b, [v], frame, self._place(at_row, {v: ()}))
        if not wide:
            return
        columns = self.sums_of(self.sinks[0].width)
        width = self.sinks[0].width
        with (
            self.running.over_columns(columns, row) as (place, column),
            b.only(None if width == columns else ix.ilt(column, ix.lit(width))),
        ):
            # What is read for a column may be read before it is known to be there.
            if width < columns:
                column = Call("min", (column, ix.lit(width - 1)), DType.I64)
            column = e.let_index(column, "n", width)
            frame = frame_of_row(b, done, row, at_row)
            for p in self.sinks:
                own = self.running.sums[p.node]
                found: Expr = e.bind(Load(own.buffer, place, b.dtype(p)))
                found = rescaled(b, p, done, frame, at_row, found)
                index = b.index_at(p, b.items(at_row), column)
                frame.sources[Value(p.node)] = only_at(index, found)
            shapes = {v: local_shape(self.b.graph, v, b.tags[v]) for v in wide}
            local = {v: ix.delinearize(column, shape) for v, shape in shapes.items()}
            store_outputs(b, wide, frame, self._place(at_row, local))

    def _place(self, at_row: Expr, local: Mapping[Value, Index]) -> IndexOf:
        """The index of outputs in a row, of whose own axes the indices are `local`."""
        items = self.b.items(at_row)
        return lambda v: join(self.b.tags[v], items, local[v])
