"""Register tiles whose right operand is computed in registers: weights of few bits, say, that a
product of few rows reads once. A vector of it is multiplied by all rows of the tile where it is, so
that nothing of it is written. Vectors run along what lies side by side, terms or columns.

Along terms each lane has a sum of its own for each element of the tile; they are added up at the
end.

Where what is read repeats itself (a scale for 32 terms, a byte for two of them), terms are walked
in levels: runs that share what changes slowly, vectors inside of a run, and what is packed into one
element side by side. Rows of the left operand are copied in that order.

Along columns sums are those of the elements themselves. They wait in the nearest cache for the next
few terms, whose rows are read from end to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from autofuse.graph.types import Value
from autofuse.kernel.elements.values import ElementSource, Frame, Puller
from autofuse.kernel.ir.emit import Emitter
from autofuse.kernel.ir.types import Ahead, Fold, Panel
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.operands import right_matrix
from autofuse.kernel.tiles.panels import factor, symbol, term_loops
from autofuse.kernel.tiles.parts import TermBlock, TileRun
from autofuse.ops import index as ix
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym, walk
from autofuse.plan.schedules.tiles import Contraction

# Terms of one element of memory that are written out, and vectors of a run.
MOST_PACKED, MOST_VECTORS = 8, 8
# Arrays smaller than this wait in the second-level cache, where nobody has to ask for them.
AHEAD_BYTES = 1 << 18
# Terms that are written out where vectors run along columns.
MOST_TERMS = 32


@dataclass(frozen=True, slots=True)
class Levels:
    """How terms are walked: in runs of so many `lanes`, each with `packed` terms side by side."""

    lanes: int
    packed: int

    @property
    def terms(self) -> int:
        """Terms of a run."""
        return self.lanes * self.packed


@dataclass(frozen=True, slots=True)
class AlongProduct:
    """Multiplies tiles of one product of a block, by vectors of so many `lanes`. The terms of a row
    of `left` are neighbours, those of a run in the order of `levels`."""

    b: TileBlock
    p: Contraction
    left: Panel
    levels: Levels
    lanes: int

    @staticmethod
    def of(b: TileBlock, p: Contraction, left: Panel) -> AlongProduct:
        """That of a left operand whose terms are neighbours, in their order."""
        lanes = b.s.vector_bits // (8 * b.dtype(p).itemsize)
        levels = levels_of(b, p, lanes)
        return AlongProduct(b, p, _in_order(b, p, left, levels), levels, lanes)

    def multiply(
        self, tile: TileRun, count: int, target: Panel, column: Expr, block: TermBlock
    ) -> None:
        """One tile of `count` columns from `column` on: all of its terms, which are one block."""
        b, e, dtype = self.b, self.b.e, self.b.dtype(self.p)
        cells = tuple(product(range(tile.count), range(count)))
        sums = e.local(dtype, len(cells) * self.lanes, "sums")
        b.zeros(dtype, sums, ix.lit(0), len(cells) * self.lanes)
        runs, rest = divmod(self.p.terms, self.levels.terms)
        columns = [e.let_index(ix.iadd(column, ix.lit(c)), "n", self.p.width) for c in range(count)]
        part = _Part(self, tile, columns, sums)
        if runs:
            run = e.open("q", runs)
            self._ask_ahead(ix.iadd(column, ix.lit(count)), count, run)
            for first in range(0, self.levels.lanes, self.lanes):
                part.emit("vector", ix.imul(run, self.levels.terms), first, self.lanes)
            e.close("serial", run, ix.lit(runs))
        if rest:
            part.rest(runs * self.levels.terms, rest)
        for number, (r, c) in enumerate(cells):
            total, lane = e.variable(Lit(0.0, dtype)), e.open("l", self.lanes)
            own = Load(sums, ix.iadd(ix.lit(number * self.lanes), lane), dtype)
            e.assign(total, Call("add", (total, own), dtype))
            e.close("lane", lane, ix.lit(self.lanes), (Fold(total, "add"),))
            place = ix.iadd(target.start, ix.lit(r * target.outer + c * target.inner))
            e.store(target.buffer, place, total)

    def _ask_ahead(self, column: Expr, count: int, run: Expr) -> None:
        """Ask for what a run of the next panel is computed from, where it lies far: short pieces of
        several columns are nothing that a processor fetches by itself (a row by 2048 x 4096 weights
        of 4 bits from memory, one thread of Zen 3: 862 us instead of 1386)."""
        b, p = self.b, self.p
        symbols = symbol("column", p.width), symbol("run", p.terms // self.levels.terms)
        places = places_read(b, p, symbols[0], ix.imul(symbols[1], self.levels.terms))
        far = {v: at for v, at in places if b.graph.type_of(v).nbytes >= AHEAD_BYTES}
        for value, at in far.items():
            found = ix.coefficients(at, [each.name for each in symbols])
            buffer = _buffer(b.base.sources[value], b.graph.type_of(value).rank)
            if found is None or not buffer:
                continue
            (each, step), first = found
            start = ix.iadd(first, ix.iadd(ix.imul(column, each), ix.imul(run, step)))
            for c in range(count):
                own = ix.iadd(start, ix.lit(c * each))
                b.e.put(Ahead(buffer, own, ix.lit(max(1, step)), written=False))


def _buffer(source: ElementSource, rank: int) -> str:
    """The name of the memory that a value lies in; "" where it does not."""
    element = source((ix.lit(0),) * rank)
    while isinstance(element, Call) and element.fn == "cast":
        (element,) = element.args
    return element.buffer if isinstance(element, Load) else ""


@dataclass(frozen=True, slots=True)
class _Part:
    """Terms of a tile of some columns; lanes add to their `sums`."""

    whole: AlongProduct
    tile: TileRun
    columns: list[Sym | Lit]
    sums: str

    def emit(self, kind: str, start: Expr, first: int, lanes: int) -> None:
        """`lanes` of the run that starts at a term, from its `first` lane on."""
        levels, e = self.whole.levels, self.whole.b.e
        lane = e.open("l", lanes)
        own = ix.iadd(lane, ix.lit(first))
        every = range(levels.packed)
        terms = [ix.iadd(start, ix.iadd(ix.imul(own, levels.packed), ix.lit(k))) for k in every]
        lefts = [ix.iadd(start, ix.iadd(own, ix.lit(k * levels.lanes))) for k in every]
        self._add(lane, terms, lefts)
        e.close(kind, lane, ix.lit(lanes))

    def rest(self, start: int, count: int) -> None:
        """So many terms behind the last run, one after another."""
        e = self.whole.b.e
        step = e.open("k", count)
        term = ix.iadd(step, ix.lit(start))
        self._add(ix.lit(0), [term], [term])
        e.close("serial", step, ix.lit(count))

    def _add(self, lane: Expr, terms: list[Expr], lefts: list[Expr]) -> None:
        """Add the products of some terms, whose left factors have places of their own, to the sums
        of a lane."""
        w, b = self.whole, self.whole.b
        e, dtype, frame = b.e, b.dtype(w.p), b.base.fresh()
        factors = {(r, k): e.let(self._left(r, at))
                   for r, (k, at) in product(range(self.tile.count), enumerate(lefts))}  # fmt: skip
        for c, column in enumerate(self.columns):
            index = b.out_index(w.p, ix.lit(0), column)
            rights = [e.let(_right(b, w.p, frame, index, term)) for term in terms]
            for r in range(self.tile.count):
                place = ix.iadd(ix.lit((r * len(self.columns) + c) * w.lanes), lane)
                total: Expr = Load(self.sums, place, dtype)
                for k, right in enumerate(rights):
                    total = Call("add", (total, Call("mul", (factors[r, k], right), dtype)), dtype)
                e.store(self.sums, place, total)

    def _left(self, row: int, place: Expr) -> Expr:
        w = self.whole
        panel = w.left.moved(ix.iadd(self.tile.first, ix.lit(row)), place)
        return Load(panel.buffer, panel.start, w.b.dtype(w.p))


@dataclass(frozen=True, slots=True)
class AcrossProduct:
    """Multiplies tiles of one product of a block, by vectors along columns: so many terms at once
    as are in a block of them, whose sums wait for the next one."""

    b: TileBlock
    p: Contraction
    left: Panel

    def multiply(
        self, tile: TileRun, count: int, target: Panel, column: Expr, block: TermBlock
    ) -> None:
        """One tile of `count` columns from `column` on, at a block of terms."""
        b, p, e, dtype = self.b, self.p, self.b.e, self.b.dtype(self.p)
        lanes = b.s.vector_bits // (8 * dtype.itemsize)
        terms = [ix.iadd(block.first, ix.lit(k)) for k in range(block.cut)]
        rows = range(tile.count)
        panels = [self.left.moved(ix.iadd(tile.first, ix.lit(r)), ix.lit(0)) for r in rows]
        factors = [
            [e.let(Load(each.buffer, each.moved(ix.lit(0), term).start, dtype)) for term in terms]
            for each in panels
        ]
        for first in range(0, count, lanes):
            size = min(lanes, count - first)
            lane, frame = e.open("l", size), b.base.fresh()
            own = ix.iadd(lane, ix.lit(first))
            named = e.let_index(ix.iadd(column, own), "n", p.width)
            index = b.out_index(p, ix.lit(0), named)
            rights = [e.let(_right(b, p, frame, index, term)) for term in terms]
            for r in rows:
                place = ix.iadd(target.start, ix.iadd(ix.lit(r * target.outer), own))
                total: Expr = Load(target.buffer, place, dtype)
                for left, right in zip(factors[r], rights, strict=True):
                    total = Call("add", (total, Call("mul", (left, right), dtype)), dtype)
                e.store(target.buffer, place, total)
            e.close("vector" if size == lanes else "lane", lane, ix.lit(size))


def _right(b: TileBlock, p: Contraction, frame: Frame, index: Index, term: Expr) -> Expr:
    at = ix.delinearize(term, term_loops(b.graph, p))
    return factor(b.graph, p, p.right, index, at, Puller(frame, p.node, frame.pull))


def _in_order(b: TileBlock, p: Contraction, left: Panel, levels: Levels) -> Panel:
    """The rows of a block with the terms of a run in the order in which they are met."""
    if levels.packed == 1:
        return left
    e, dtype = b.e, b.dtype(p)
    buffer = e.local(dtype, b.height * p.terms, "left")
    with b.each_row() as (row, _):
        start, source = ix.imul(row, p.terms), left.moved(row, ix.lit(0))
        runs, rest = divmod(p.terms, levels.terms)
        if runs:
            run = e.open("q", runs)
            first = ix.imul(run, levels.terms)
            for k in range(levels.packed):
                lane = e.open("l", levels.lanes)
                term = ix.iadd(first, ix.iadd(ix.imul(lane, levels.packed), ix.lit(k)))
                place = ix.iadd(first, ix.iadd(lane, ix.lit(k * levels.lanes)))
                found = Load(source.buffer, ix.iadd(source.start, term), dtype)
                e.store(buffer, ix.iadd(start, place), found)
                e.close("lane", lane, ix.lit(levels.lanes))
            e.close("serial", run, ix.lit(runs))
        if rest:
            lane = e.open("l", rest)
            term = ix.iadd(lane, ix.lit(runs * levels.terms))
            found = Load(source.buffer, ix.iadd(source.start, term), dtype)
            e.store(buffer, ix.iadd(start, term), found)
            e.close("lane", lane, ix.lit(rest))
    return Panel(buffer, ix.lit(0), p.terms, 1)


ComputedProduct = AlongProduct | AcrossProduct


def computed_products(
    b: TileBlock, products: Iterable[Contraction], lefts: Mapping[int, Panel], cut: int
) -> dict[int, ComputedProduct]:
    """Those whose right operand is computed in registers, by node: `cut` terms are summed at once
    (0: all), and the rows of left operands lie where `lefts` says."""
    found: dict[int, ComputedProduct] = {}
    for p in products:
        if is_along(b, p):
            found[p.node] = AlongProduct.of(b, p, lefts[p.node])
        elif is_across(b, p, cut):
            found[p.node] = AcrossProduct(b, p, lefts[p.node])
    return found


def is_along(b: TileBlock, p: Contraction) -> bool:
    """Whether vectors run along terms of a right operand that has to be computed."""
    if not b.s.dot or p.node in b.packed or b.pair_unit(p) or b.instruction(p):
        return False
    return right_matrix(b, p) is None


def is_across(b: TileBlock, p: Contraction, cut: int) -> bool:
    """Whether vectors run along columns of a right operand that has to be computed, so many terms
    of it at once."""
    kept = b.s.pack or b.s.pack_left or b.s.dot or b.s.across or p.node in b.packed
    if kept or b.pair_unit(p) or b.instruction(p) or not 0 < cut <= MOST_TERMS or p.terms % cut:
        return False
    return right_matrix(b, p) is None and not p.diagonal


def levels_of(b: TileBlock, p: Contraction, lanes: int) -> Levels:
    """How terms are walked so that vectors of so many `lanes` read neighbours, or one element."""
    places = [place for _, place in places_read(b, p, symbol("column", p.width),
                                                symbol("term", p.terms))]  # fmt: skip
    steps = sorted({n for place in places for n in _divisors(place) if p.terms % n == 0})
    packed = max((n for n in steps if n <= MOST_PACKED), default=1)
    runs = (n // packed for n in steps if n % (packed * lanes) == 0)
    return Levels(min((n for n in runs if n <= MOST_VECTORS * lanes), default=lanes), packed)


def _divisors(place: Expr) -> Iterator[int]:
    """By what positions are divided in an index."""
    for e in walk(place):
        match e:
            case Call(fn="div" | "rem", args=(_, Lit(value=int(n)))) if n > 1:
                yield n


def places_read(b: TileBlock, p: Contraction, column: Expr, term: Expr) -> list[tuple[Value, Expr]]:
    """What is read for a term of a column of the right operand: each array, and where in it."""
    found: list[tuple[Value, Expr]] = []

    def noted(value: Value, source: ElementSource) -> ElementSource:
        def read(index: Index) -> Expr:
            found.append((value, ix.linearize(index, b.graph.type_of(value).shape)))
            return source(index)

        return read

    sources = {value: noted(value, source) for value, source in b.base.sources.items()}
    frame = Frame(b.graph, Emitter(), sources)
    _right(b, p, frame, b.out_index(p, ix.lit(0), column), term)
    return found
