"""C text of the kernels of a reference: rows of elements, every float a double.

A kernel is `void name(void **a, int64_t first, int64_t last)`: rows `first` to `last` of what it
stores. Arguments: what it reads, what it stores, the table of noise, where each rounded result
begins to read it. Every rounded result is multiplied by 1 + eps * noise, as in
`autofuse.graph.reference`; a table of zeros leaves all as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from autofuse.graph.noise import FOLDED, STORED, Noise
from autofuse.graph.reference import fold_error
from autofuse.graph.types import Graph, Node, Value
from autofuse.kernel.elements.values import ElementSource, Frame, Puller
from autofuse.kernel.ir.emit import Emitter
from autofuse.kernel.ir.types import Loop, Stmt, Store
from autofuse.kernel.text.dialects import C
from autofuse.kernel.text.printer import Printer
from autofuse.measure.truth.plan import TruthKernel, is_light, promoted
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym
from autofuse.ops.spec import Family, Fold
from autofuse.ops.types import Literal, OpCall, TensorType
from autofuse.ops.updates import window_start

# Numbers of the table of noise before it begins anew; it is there twice.
TABLE = Noise.LENGTH
# Where the table says whether there is noise at all: 0.0, infinite if there is none. Then what is
# beyond a narrow type is left as it is.
QUIET = 3 * TABLE
# Behind it, what results of these types are rounded to them by, 0.0 where they are not.
ROUNDED = (DType.F32, DType.BF16, DType.F16)
# Elements of a row, where these lie next to each other whatever the axes are.
ROW = 4096
# Nothing that changes a result: no contraction, no vector mathematics, no reassociation. That
# arithmetic does not trap and errno is not read lets loops become vectors.
FLAGS = (
    "-std=gnu11", "-fPIC", "-march=native", "-ffp-contract=off", "-fno-trapping-math",
    "-fno-math-errno", "-w",
)  # fmt: skip
# As much as pays, and what pays where a long text does little: a body of 740 nodes took 3.9 and
# 1.0 s.
OPTIMIZED, PLAIN = ("-O2", "-ftree-vectorize"), ("-O0",)


@dataclass(frozen=True)
class KernelText:
    """One kernel: its text under the name NAME, rows, elements, and how many results round."""

    body: str
    rows: int
    size: int
    rounded: int


class _Printer(Printer):
    dialect = replace(C, instead={})

    def __init__(self) -> None:
        self.outs: set[str] = set()

    def local(self, type_name: str, name: str, size: int) -> str:
        return f"{type_name} {name}[{size}];"

    def loop(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        pad = "  " * depth
        yield f"{pad}{self.head(loop, 'first' if loop.kind == 'grid' else '0')}"
        yield from self.block(loop.body, depth + 1, in_lane)
        yield f"{pad}}}"

    def condition(self, loop: Loop) -> str:
        return f"{loop.var.name} < last" if loop.kind == "grid" else super().condition(loop)


class _Frame(Frame):
    """Elements of a promoted graph, casts and noise as the reference has them."""

    def __init__(self, graph: Graph, emitter: Emitter, sources: dict[Value, ElementSource]) -> None:
        super().__init__(promoted(graph), emitter, sources)
        self.given = graph
        self.rounded: list[int] = []
        self.noise_at: Expr = ix.lit(0)
        self.squaring = False

    def _compute(self, node: int, index: Index) -> tuple[Expr, ...]:
        n = self.given[node]
        if n.op == "constant":
            value: Literal = dict(n.attrs)["value"]
            return (_number(value.scalar, n.types[0].dtype),)
        if n.op == "cast":
            results: tuple[Expr, ...] = (self._cast(node, index),)
        elif n.op == "bitcast":
            results = (self._bits(node, index),)
        elif self.folds(node):
            results = super()._compute(node, index)
            pairs = zip(results, self._squares(node, index), strict=True)
            return tuple(self.noisy(node, k, *pair) for k, pair in enumerate(pairs))
        else:
            results = super()._compute(node, index)
        return tuple(self.noisy(node, k, r) for k, r in enumerate(results))

    def noisy(self, node: int, k: int, result: Expr, squares: Expr | None = None) -> Expr:
        """A result with noise, if the op rounds; of a fold also with what the order of its terms
        may do, given their `squares` (`Noise.stored`)."""
        n, dtype = self.given[node], self.given[node].types[k].dtype
        call = self.given.call(node)
        if not dtype.is_float or not n.spec.rounds(call):
            return result
        own = dtype.eps * (1.0 if dtype.compute is dtype else STORED)
        exact = self.e.let(result)
        part = _f64("mul", Lit(own, DType.F64), self._drawn(node))
        found = _f64("mul", exact, _f64("add", Lit(1.0, DType.F64), part))
        if squares is not None:
            square = _f64("add", _f64("mul", exact, exact), _f64("abs", squares))
            root = _f64("mul", Lit(fold_error(n.spec, call), DType.F64), _f64("sqrt", square))
            moved = _f64("mul", Lit(FOLDED, DType.F64), _f64("mul", self._drawn(node), root))
            finite = Call("isfinite", (square,), DType.BOOL)
            moved = _f64("select", finite, moved, Lit(0.0, DType.F64))
            found = _f64("add", found, moved)
        if dtype is DType.F64:
            return found
        found = self.e.let(found)
        split = Load("noise", ix.lit(QUIET + 1 + ROUNDED.index(dtype)), DType.F64)
        large = self.e.let(_f64("mul", found, split))
        rounded = _f64("sub", large, _f64("sub", large, found))
        finite = Call("isfinite", (large,), DType.BOOL)
        found = self.e.let(_f64("select", finite, rounded, found))
        quiet = Load("noise", ix.lit(QUIET), DType.F64)
        top = _f64("add", Lit(dtype.largest, DType.F64), quiet)
        beyond = Call("gt", (_f64("abs", found), top), DType.BOOL)
        below = Call("lt", (found, Lit(0.0, DType.F64)), DType.BOOL)
        ends = (Lit(float("-inf"), DType.F64), Lit(float("inf"), DType.F64))
        return _f64("select", beyond, _f64("select", below, *ends), found)

    def _drawn(self, node: int) -> Expr:
        """The noise of another result, here."""
        start = Sym(f"s{len(self.rounded)}", DType.I64, TABLE)
        self.rounded.append(node)
        return Load("noise", ix.iadd(start, self.noise_at), DType.F64)

    def folds(self, node: int) -> bool:
        """Whether the order of terms moves results of a node."""
        spec, call = self.given[node].spec, self.given.call(node)
        return spec.rounds(call) and fold_error(spec, call) > 0.0

    def _pull_inside(self, value: Value, index: Index) -> Expr:
        found = super()._pull_inside(value, index)
        if not self.squaring or not found.dtype.is_float:
            return found
        named = self.e.let(found)
        return _f64("mul", named, named)

    def _squares(self, node: int, index: Index) -> tuple[Expr, ...]:
        """The results of a fold whose operands are squared."""
        self.squaring = True
        found = super()._compute(node, index)
        self.squaring = False
        return found

    def _cast(self, node: int, index: Index) -> Expr:
        x = self.pull(self.given[node].inputs[0], index)
        source, target = self.given.call(node).ins[0].dtype, self.given[node].types[0].dtype
        wide = target is DType.F64 or (source.is_float and source is target)
        if not target.is_float or wide:
            (found,) = super()._compute(node, index)
            return found
        stored = Call("cast", (x,), target)
        if target.compute is target:
            return Call("cast", (stored,), DType.F64)
        if not source.is_float:
            x = Call("cast", (x,), DType.F64)
        narrow = self.e.let(Call("cast", (x,), target))
        return Call("cast", (Call("cast", (narrow,), DType.F32),), DType.F64)

    def _bits(self, node: int, index: Index) -> Expr:
        x = self.pull(self.given[node].inputs[0], index)
        source, target = self.given.call(node).ins[0].dtype, self.given[node].types[0].dtype
        if source is target:
            return x
        if source is not x.dtype:
            x = Call("cast", (x,), source)
        made = Call("bitcast", (x,), target)
        return Call("cast", (made,), DType.F64) if target.is_float else made


def _f64(fn: str, *args: Expr) -> Expr:
    return Call(fn, args, DType.F64)


def _number(value: bool | int | float, dtype: DType) -> Lit:
    return Lit(float(value), DType.F64) if dtype.is_float else Lit(value, dtype)


def stored(dtype: DType) -> DType:
    """How the reference holds an element."""
    return DType.F64 if dtype.is_float else dtype


@lru_cache(maxsize=1024)
def kernel_text(graph: Graph, item: TruthKernel) -> KernelText:
    """The kernel of an item. Raises LoweringError where it would be too large."""
    return _Writer(graph, item).text()


class _Writer:
    def __init__(self, graph: Graph, item: TruthKernel) -> None:
        self.graph, self.item, self.e = graph, item, Emitter()
        names = {value: f"i{k}" for k, value in enumerate(item.reads)}
        sources = {v: self._memory(name, graph.type_of(v)) for v, name in names.items()}
        self.frame = _Frame(graph, self.e, sources)
        self.names = names

    @staticmethod
    def _memory(name: str, type_: TensorType) -> ElementSource:
        def load(index: Index) -> Expr:
            return Load(name, ix.linearize(index, type_.shape), stored(type_.dtype))

        return load

    def text(self) -> KernelText:
        node = self.graph[self.item.nodes[0]]
        if node.spec.family is Family.SCAN:
            rows, size = self._scan(self.item.nodes[0], node)
        elif self._flat:
            rows, size = self._elements(self.item.outs[0])
        else:
            rows, size = self._rows(self.item.outs[0])
        lines = "\n".join(_lines(self.e.body))
        return KernelText(f"{self._head()}\n{lines}\n}}\n", rows, size, len(self.frame.rounded))

    def _head(self) -> str:
        types = _Printer.dialect.types
        lines = ["static void NAME(void **a, int64_t first, int64_t last)\n{"]
        for k, value in enumerate(self.item.reads):
            kind = types[stored(self.graph.type_of(value).dtype)]
            kind = "uint8_t" if kind == "bool" else kind
            lines.append(f"  const {kind} *restrict i{k} = a[{k}];")
        at = len(self.item.reads)
        for k, value in enumerate(self.item.outs):
            kind = types[stored(self.graph.type_of(value).dtype)]
            lines.append(f"  {kind} *restrict o{k} = a[{at + k}];")
        at += len(self.item.outs)
        lines.append(f"  const double *restrict noise = a[{at}];")
        lines.append(f"  const int64_t *starts = a[{at + 1}];")
        lines += [f"  const int64_t s{k} = starts[{k}];" for k in range(len(self.frame.rounded))]
        return "\n".join(lines)

    @property
    def _flat(self) -> bool:
        """Whether all elements that are read lie at the same place, or are one and the same."""
        graph = self.graph
        if any(graph[i].spec.family is not Family.ELEMENTWISE for i in self.item.nodes):
            return False
        stack = [v for i in self.item.nodes for v in graph[i].inputs]
        while stack:
            value = stack.pop()
            if not is_light(graph, value.node) or graph.type_of(value).size == 1:
                continue
            node = graph[value.node]
            if node.op != "broadcast" or graph.type_of(node.inputs[0]).size != 1:
                return False
        return True

    def _elements(self, out: Value) -> tuple[int, int]:
        shape = self.graph.type_of(out).shape
        size = math.prod(shape)
        rows, length = -(-size // ROW), min(ROW, size)
        row = self.e.open("r", rows)
        first = self._first(row, length)
        room = ix.isub(ix.lit(size), ix.imul(row, ROW))
        extent: Expr = ix.lit(length) if rows == 1 else Call("min", (ix.lit(ROW), room), DType.I64)
        bound = self.e.let(extent)
        at = self.e.open("x", length)
        self.frame.noise_at = ix.iadd(first, at)
        flat = ix.iadd(ix.imul(row, ROW), at)
        self._store(ix.delinearize(flat, shape), flat)
        self.e.close("serial", at, bound)
        self.e.close("grid", row, ix.lit(rows))
        return rows, size

    def _first(self, row: Expr, length: int) -> Expr:
        """Where a row begins in the table of noise."""
        return self.e.let(ix.imod(ix.imul(row, length % TABLE), TABLE))

    def _rows(self, out: Value) -> tuple[int, int]:
        shape = self.graph.type_of(out).shape
        last = max((a for a, n in enumerate(shape) if n > 1), default=-1)
        length = shape[last] if shape else 1
        rows = math.prod(shape) // length
        row = self.e.open("r", rows)
        outer = [n for a, n in enumerate(shape) if a != last % max(1, len(shape))]
        index = [self.e.let(i) for i in ix.delinearize(row, outer)] if shape else []
        first = self._first(row, length)
        at = self.e.open("x", length)
        self.frame.noise_at = ix.iadd(first, ix.imod(at, TABLE))
        if shape:
            index.insert(last % len(shape), at)
        self._store(tuple(index), ix.linearize(index, shape))
        self.e.close("serial", at, ix.lit(length))
        self.e.close("grid", row, ix.lit(rows))
        return rows, rows * length

    def _store(self, index: Index, flat: Expr) -> None:
        for k, value in enumerate(self.item.outs):
            element = self.frame.pull(value, index)
            self.e.put(Store(f"o{k}", flat, element))

    def _scan(self, i: int, node: Node) -> tuple[int, int]:
        graph = promoted(self.graph)
        call, fold = graph.call(i), node.spec.fold
        assert fold is not None
        shape, axis = call.out.shape, call["axis"]
        rows = math.prod(n for a, n in enumerate(shape) if a != axis)
        row = self.e.open("r", rows)
        outer = ix.delinearize(row, [n for a, n in enumerate(shape) if a != axis])
        index = [self.e.let(x) for x in outer]
        first = self._first(row, shape[axis])
        accs = tuple(self.e.variable(init) for init in fold.init(call))
        squared = tuple(self.e.variable(init) for init in fold.init(call))
        at = self.e.open("k", shape[axis])
        index.insert(axis, at)
        self.frame.noise_at = ix.iadd(first, ix.imod(at, TABLE))
        element = self.frame.pull(node.inputs[0], tuple(index))
        found = self._step(call, fold, accs, element, at)
        squares = None
        if self.frame.folds(i):
            squares = self._step(call, fold, squared, _f64("mul", element, element), at)
        found = self.frame.noisy(i, 0, found, squares)
        self.e.put(Store("o0", ix.linearize(index, shape), found))
        self.e.close("serial", at, ix.lit(shape[axis]))
        self.e.close("grid", row, ix.lit(rows))
        return rows, math.prod(shape)

    def _step(
        self, call: OpCall, fold: Fold, accs: tuple[Sym, ...], element: Expr, at: Expr
    ) -> Expr:
        """The next prefix."""
        new = [self.e.bind(v) for v in fold.combine(accs, fold.lift(call, element, at))]
        for acc, value in zip(accs, new, strict=True):
            self.e.assign(acc, value)
        return fold.finish(call, tuple(self.e.bind(a) for a in accs))


def _lines(body: tuple[Stmt, ...]) -> Iterator[str]:
    return _Printer().block(body, 1, False)


@lru_cache(maxsize=256)
def window_text(graph: Graph, item: TruthKernel) -> KernelText:
    """The kernel that writes the window of an update into the array, which is there already."""
    writer = _Writer(graph, item)
    i = item.nodes[0]
    call = promoted(graph).call(i)
    shape, whole = call.ins[1].shape, call.out.shape
    row = writer.e.open("r", 1)
    pull = Puller(writer.frame, i, writer.frame.pull)
    start = tuple(writer.e.let(s) for s in window_start(call, pull))
    loops = [(writer.e.open("x", n), n) for n in shape]
    index = tuple(sym for sym, _ in loops)
    element = writer.frame.pull(graph[i].inputs[1], index)
    place = ix.linearize([ix.iadd(s, x) for s, x in zip(start, index, strict=True)], whole)
    writer.e.put(Store("o0", place, element))
    for sym, extent in reversed(loops):
        writer.e.close("serial", sym, ix.lit(extent))
    writer.e.close("grid", row, ix.lit(1))
    lines = "\n".join(_lines(writer.e.body))
    return KernelText(f"{writer._head()}\n{lines}\n}}\n", 1, math.prod(shape), 0)
