"""What a block of columns is folded of, as one number of it and numbers of its row.

A term that is an exponential of such a sum is a power of two, one multiply-add and one instruction:
exp(x * c - m) is 2^(x * C - M), C = c * log2(e), and M = m * log2(e) is one number a row. An
extremum of what only grows with x is that of x, exactly: rounding keeps the order of numbers.
Both follow from the scalar bodies of the ops between, whatever these are called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from itertools import islice

from autofuse.graph.types import Graph, Value
from autofuse.kernel.elements.values import ElementSource, Frame
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Lit, Sym, call, walk
from autofuse.ops.spec import Family
from autofuse.plan.schedules.masks import literal_of
from autofuse.plan.schedules.online import Online

LOG2_E = math.log2(math.e)
# Parts of an expression from which nobody looks into it: its text may be longer than the graph.
MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class AffineForm:
    """A sum of numbers times literals, and a literal: `parts` by what they are called."""

    parts: Mapping[str, float]
    rest: float = 0.0

    def scaled(self, by: float) -> AffineForm:
        return AffineForm({name: by * times for name, times in self.parts.items()}, by * self.rest)

    def plus(self, other: AffineForm) -> AffineForm:
        names = {**self.parts, **other.parts}
        found = {n: self.parts.get(n, 0.0) + other.parts.get(n, 0.0) for n in names}
        return AffineForm(found, self.rest + other.rest)


def affine(expr: Expr) -> AffineForm | None:
    """An expression of floats as such a sum, or None."""
    match expr:
        case Lit(value) if not isinstance(value, bool) and math.isfinite(value):
            return AffineForm({}, float(value))
        case Sym(name):
            return AffineForm({name: 1.0})
        case Call("neg", (x,)):
            found = affine(x)
            return None if found is None else found.scaled(-1.0)
        case Call("add" | "sub" as fn, (x, y)):
            a, b = affine(x), affine(y)
            if a is None or b is None:
                return None
            return a.plus(b.scaled(1.0 if fn == "add" else -1.0))
        case Call("mul" | "div" as fn, (x, Lit(by))) if by and math.isfinite(by):
            found = affine(x)
            return None if found is None else found.scaled(by if fn == "mul" else 1 / by)
        case Call("mul", (Lit() as by, x)):
            return affine(call("mul", x, by))
    return None


def grows(expr: Expr, name: str) -> bool:
    """Whether an expression is one number, times positive literals: then it never falls where that
    rises, rounded or not."""
    match expr:
        case Sym(found):
            return found == name
        case Call("mul" | "div", (x, Lit(by))) if by > 0 and math.isfinite(by):
            return grows(x, name)
        case Call("mul", (Lit(by), x)) if by > 0 and math.isfinite(by):
            return grows(x, name)
    return False


class ScalarTerms:
    """The scalar expressions of values that there is one of for every row and column. Leaves are
    symbols that `leaves` tells: what is `kept` of a block, values of a row, and what no scalar body
    makes. `same` are values that are others as they are."""

    def __init__(
        self, graph: Graph, online: Online, same: Mapping[Value, Value], kept: Set[Value]
    ) -> None:
        self.graph, self.online, self.same, self.kept = graph, online, same, kept
        self.sources = {Value(p.node) for p in online.sources} & kept
        self.leaves: dict[str, Value] = {}
        self.known: dict[Value, Expr] = {}

    def of(self, value: Value) -> Expr:
        """The expression of a value; what is too long is a leaf."""
        value = self.same.get(value, value)
        if value not in self.known:
            found = self._made(value)
            long = sum(1 for _ in islice(walk(found), MOST_PARTS)) == MOST_PARTS
            dtype = self.graph.type_of(value).dtype.compute
            self.known[value] = self._leaf(value, dtype) if long else found
        return self.known[value]

    def _made(self, value: Value) -> Expr:
        node, dtype = self.graph[value.node], self.graph.type_of(value).dtype.compute
        literal = literal_of(self.graph, value)
        if literal is not None and dtype.is_float:
            return Lit(literal, dtype)
        inner = value in self.online.block and value not in self.kept
        if not inner or node.spec.family is not Family.ELEMENTWISE or node.spec.body is None:
            return self._leaf(value, dtype)
        return node.spec.body(self.graph.call(value.node), (), _Operands(self, value.node))[0]

    def _leaf(self, value: Value, dtype: DType) -> Expr:
        name = f"{value.node}.{value.index}"
        self.leaves[name] = value
        return Sym(name, dtype)

    def grown(self, value: Value) -> tuple[Value, Expr] | None:
        """The source that a value grows with, called by its name, and the value as an expression of
        it; None where it is that source, or no such value."""
        found = self.of(value)
        for name, leaf in self.leaves.items():
            if leaf in self.sources and not isinstance(found, Sym) and grows(found, name):
                return leaf, found
        return None


@dataclass(frozen=True, slots=True)
class _Operands:
    """What a body sees: expressions of its operands."""

    terms: ScalarTerms
    node: int

    def __call__(self, operand: int, index: Index) -> Expr:
        return self.terms.of(self.terms.graph[self.node].inputs[operand])

    def let(self, value: Expr) -> Expr:
        return value


def replaced(expr: Expr, name: str, by: Expr) -> Expr:
    """An expression with something in the place of a symbol."""
    if isinstance(expr, Sym):
        return by if expr.name == name else expr
    if isinstance(expr, Call):
        return Call(expr.fn, tuple(replaced(a, name, by) for a in expr.args), expr.dtype)
    return expr


def _score_of(terms: ScalarTerms, found: AffineForm | None) -> str | None:
    """The one part that is of a product's block, if it is a product's sum."""
    block = [n for n in found.parts if terms.leaves[n] in terms.online.block] if found else []
    return block[0] if len(block) == 1 and terms.leaves[block[0]] in terms.sources else None


def as_power(
    terms: ScalarTerms, frame: Frame, value: Value, *, of_source: bool = True
) -> ElementSource | None:
    """The element of a value that is an exponential, as a power of two; None where it is none.

    Where the exponent is a product's sum times a literal, and numbers of its row (`of_source`),
    those are put together first: that would make no number of scores beyond 2^126. Any other
    exponent, one with masks of -3e38 in it, say, is what it was, times log2(e)."""
    value = terms.same.get(value, value)
    expr, operands = terms.of(value), terms.graph[value.node].inputs
    if not isinstance(expr, Call) or expr.fn != "exp" or len(operands) != 1:
        return None
    if expr.dtype is not DType.F32:
        return None
    found = affine(expr.args[0]) if of_source else None
    score = _score_of(terms, found)
    if found is None or score is None:
        return lambda index: _power(frame, frame.pull(operands[0], index))
    return _of_source(terms, frame, found, score)


def _power(frame: Frame, exponent: Expr) -> Expr:
    return call("exp2", frame.e.let(call("mul", exponent, Lit(LOG2_E, DType.F32))))


def _of_source(terms: ScalarTerms, frame: Frame, found: AffineForm, core: str) -> ElementSource:
    def power(index: Index) -> Expr:
        total: Expr = Lit(found.rest * LOG2_E, DType.F32)
        for name, by in found.parts.items():
            if name != core:
                own = frame.pull(terms.leaves[name], index)
                part = call("mul", own, Lit(by * LOG2_E, DType.F32))
                total = part if total == Lit(0.0, DType.F32) else call("add", total, part)
        total, x = frame.e.let(total), frame.pull(terms.leaves[core], index)
        factor = Lit(found.parts[core] * LOG2_E, DType.F32)
        return call("exp2", frame.e.let(call("add", call("mul", x, factor), total)))

    return power
