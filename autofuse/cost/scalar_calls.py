"""The scalar functions that an op's body calls for each element, by name and type.

A call is named like `exp.f32`, a conversion like `cast.i64.f32`. Its reciprocal throughput (in the
sense of Fog's instruction tables: nanoseconds from one result to the next of many independent
ones) is measured once for a machine, and those that share a unit add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import LIBM, Call, Expr, Lit, Sym, walk
from autofuse.ops.spec import Family, Motion
from autofuse.plan.fusion.groups import is_inline

FLOATS = (DType.F32, DType.F64)
WHOLE = (DType.I32, DType.I64, DType.U32)
# What shares a unit adds up; other units work meanwhile. Divisions and roots have one of their own,
# and so have remainders and quotients of 32 bits, whose long chains leave room for others.
ARITHMETIC, DIVISION, INTEGER, CHAINED = "arithmetic", "division", "integer", "chained"
QUOTIENT = "quotient"
# What was measured as "rem" and "div" of these before were C's own function and instruction.
_RENAMED = {
    **dict.fromkeys((("rem", dtype) for dtype in FLOATS), "remainder"),
    **dict.fromkeys((("div", dtype) for dtype in (DType.I32, DType.U32)), QUOTIENT),
}


def call_name(call: Call) -> str:
    """The name under which a call is measured; "" for one that counts as plain arithmetic."""
    operand, fn = call.args[-1].dtype, call.fn
    if fn == "cast":
        told = {operand, call.dtype} <= {*FLOATS, *WHOLE}
        return f"{fn}.{operand}.{call.dtype}" if told else ""
    slow = {*LIBM, "sqrt", "rem", "div"} if operand in FLOATS else {"div", "mul", "mulhi"}
    if fn not in slow or operand not in (*FLOATS, *WHOLE):
        return ""
    return f"{_RENAMED.get((fn, operand), fn)}.{operand}"


def unit_of(name: str) -> str:
    """The unit that calls of this name keep busy."""
    fn = name.split(".")[0]
    if fn in LIBM:
        return ARITHMETIC
    if fn in ("remainder", QUOTIENT):
        return CHAINED if fn == "remainder" else QUOTIENT
    return DIVISION if fn in ("div", "sqrt") else INTEGER


@lru_cache(maxsize=16)
def least_ns(scalar: tuple[tuple[str, float], ...]) -> dict[str, float]:
    """Nanoseconds a call, by name, at the vector width at which it is fastest; given by name and
    width in bits."""
    found: dict[str, float] = {}
    for key, ns in scalar:
        name = key.rpartition(".")[0]
        found[name] = min(ns, found.get(name, ns))
    return found


def busy_ns(calls: Iterable[tuple[str, float]], known: Mapping[str, float]) -> dict[str, float]:
    """Nanoseconds that each unit is busy with so many calls of each name, those that are known."""
    busy = dict.fromkeys((ARITHMETIC, DIVISION, INTEGER, CHAINED), 0.0)
    for name, count in calls:
        busy[unit_of(name)] += count * known.get(name, 0.0)
    return busy


@dataclass(frozen=True, slots=True)
class NodeCalls:
    """What one element of a node calls: `names` for each element that is made; `divisors` are the
    operands that it is divided by, each with the name of that call. Compilers divide once by one
    value and multiply by its reciprocal (-freciprocal-math), so as many divisions are needed as
    there are different divisors. `divided` are all direct operands of quotients."""

    names: tuple[str, ...] = ()
    divisors: tuple[tuple[int, str], ...] = ()
    divided: frozenset[int] = frozenset()

    @property
    def divides(self) -> bool:
        return bool(self.divisors) or any(name.startswith("div.") for name in self.names)


NO_CALLS = NodeCalls()


class _Operands:
    """What a body asks of its operands: symbols, and literals where they are; what it binds is
    kept."""

    def __init__(self, graph: Graph, node: int) -> None:
        self.types = tuple(graph.type_of(v).dtype.compute for v in graph[node].inputs)
        self.literal = tuple(_is_literal(graph, v.node) for v in graph[node].inputs)
        self.bound: list[Expr] = []

    def __call__(self, operand: int, index: Index, /) -> Expr:
        dtype = self.types[operand]
        if not self.literal[operand]:
            return Sym(f"x{operand}", dtype)
        return Lit(True if dtype is DType.BOOL else 2.0 if dtype.is_float else 2, dtype)

    def let(self, value: Expr, /) -> Expr:
        self.bound.append(value)
        return Sym(f"t{len(self.bound)}", value.dtype)


def _is_literal(graph: Graph, node: int) -> bool:
    """Whether a node is one number, repeated or not."""
    while graph[node].spec.motion is Motion.REPEAT:
        node = graph[node].inputs[0].node
    return is_inline(graph, node)


def body_of(graph: Graph, node: int) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The scalar body of an elementwise node: its results, and what these call t1, t2, ...
    Operands are called x0, x1, ..., and literal ones are literals."""
    own, pull = graph[node], _Operands(graph, node)
    assert own.spec.body is not None
    index = tuple(Sym(f"i{k}", DType.I64) for k in range(len(own.types[0].shape)))
    results = own.spec.body(graph.call(node), index, pull)
    return tuple(results), tuple(pull.bound)


def calls_of(graph: Graph, node: int) -> NodeCalls:
    """What one element of an elementwise node calls; nothing for other nodes, whose bodies are not
    computed once for each element."""
    own = graph[node]
    if own.spec.family is not Family.ELEMENTWISE or own.spec.body is None:
        return NO_CALLS
    results, bound = body_of(graph, node)
    parts = {e for part in (*results, *bound) for e in walk(part)}
    calls = [(call_name(e), e) for e in parts if isinstance(e, Call)]
    operands = {f"x{k}": k for k in range(len(own.inputs))}
    names, divisors, divided = list[str](), list[tuple[int, str]](), set[int]()
    for name, call in sorted((pair for pair in calls if pair[0]), key=lambda pair: pair[0]):
        # A literal last operand is a factor, a power of known exponent, or a shift.
        if isinstance(call.args[-1], Lit):
            continue
        if call.fn != "div":
            names.append(name)
            continue
        direct = [operands.get(a.name) if isinstance(a, Sym) else None for a in call.args]
        divided |= {k for k in direct if k is not None}
        if direct[1] is None:
            names.append(name)
        else:
            divisors.append((direct[1], name))
    found = NodeCalls(tuple(names), tuple(divisors), frozenset(divided))
    return NO_CALLS if found == NO_CALLS else found


def merged_divisions(graph: Graph, calls: Sequence[NodeCalls]) -> frozenset[int]:
    """Nodes whose division another may take over: (a / b) / c is a / (b * c) and a / (b / c) is
    a / b * c under -freciprocal-math, so of neighbours none is sure."""
    found = set[int]()
    for n, own in enumerate(calls):
        above = {graph[n].inputs[k].node for k in own.divided}
        divided = {m for m in above if calls[m].divided or calls[m].divides}
        found |= divided | ({n} if divided else set())
    return frozenset(found)
