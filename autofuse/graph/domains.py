"""Ranges from which inputs are drawn so that every op is defined.

A check on random inputs says nothing of a program that makes NaN of them: the variance that a
batch norm takes the root of, drawn from -1 to 1, is one. So what an op asks of its operand
(`OpSpec.domains`) is carried back to inputs, through ops that are monotone or move elements, where
the values that are known beforehand (interval arithmetic; Moore 1966) do not answer for it. What
cannot be carried on is dropped: inputs are then drawn as if nothing were asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.domains import ANY, POSITIVE, Interval, within
from autofuse.ops.spec import Family
from autofuse.ops.types import Literal

# Of the intervals of all operands.
_Forward = Callable[[Sequence[Interval]], Interval]
# Of what is wanted of a result and the intervals of all operands: what is then wanted of each;
# None for one of which nothing is.
_Backward = Callable[[Interval, Sequence[Interval]], Sequence[Interval | None]]
# The least part of the usual range that is drawn from, before one outside of it is.
_LEAST = 0.125


def input_ranges(graph: Graph, low: float, high: float) -> dict[int, Interval]:
    """For inputs of floats, by node, of which something is asked: the range to be drawn from where
    others are drawn from [low, high). An input that has a range of its own keeps it."""
    given = {i: dict(graph[i].attrs) for i in graph.inputs}
    drawn = {
        i: (float(attrs.get("low", low)), float(attrs.get("high", high)))
        for i, attrs in given.items()
        if graph[i].types[0].dtype.is_float
    }
    wanted = _wanted(graph, _known(graph, drawn))
    free = (i for i in drawn if not {"low", "high"} & given[i].keys())
    return {i: _range(wanted[Value(i)], low, high) for i in free if Value(i) in wanted}


def _range(wanted: Interval, low: float, high: float) -> Interval:
    """Of what is wanted the part from low to high; where there is little of it, one beside it."""
    first, last = max(low, wanted[0]), min(high, wanted[1])
    if last - first >= _LEAST * (high - low):
        return first, last
    width = 0.5 * (high - low)
    if wanted[0] > -math.inf:
        return wanted[0], min(wanted[0] + width, wanted[1])
    return wanted[1] - width, wanted[1]


def _wanted(graph: Graph, known: Mapping[Value, Interval]) -> dict[Value, Interval]:
    """What is asked of values that do not answer for it by themselves."""
    wanted: dict[Value, Interval] = {}
    refused: set[Value] = set()

    def ask(value: Value, asked: Interval) -> None:
        if within(known[value], asked) or value in refused:
            return
        before = wanted.get(value, ANY)
        both = max(before[0], asked[0]), min(before[1], asked[1])
        if both[0] < both[1]:
            wanted[value] = both
        else:
            refused.add(value)
            wanted.pop(value, None)

    for i in reversed(range(len(graph.nodes))):
        node = graph[i]
        operands = [known[v] for v in node.inputs]
        for value, asked in _asked(graph, i, operands):
            ask(value, asked)
        back = _backward(graph, i)
        if back is None or Value(i) not in wanted:
            continue
        for value, carried in zip(node.inputs, back(wanted[Value(i)], operands), strict=True):
            if carried is not None:
                ask(value, carried)
    return wanted


def _asked(graph: Graph, i: int, operands: Sequence[Interval]) -> Iterator[tuple[Value, Interval]]:
    """What a node asks of its operands."""
    node = graph[i]
    for k, domain in node.spec.domains.items():
        if graph.type_of(node.inputs[k]).dtype.is_float and not domain.holds(k, operands):
            yield node.inputs[k], domain.inside


# --- what is known of values beforehand


def _known(graph: Graph, drawn: Mapping[int, Interval]) -> dict[Value, Interval]:
    found: dict[Value, Interval] = {}
    for i, node in enumerate(graph.nodes):
        found.update((Value(i, k), ANY) for k in range(len(node.types)))
        operands = [found[v] for v in node.inputs]
        if i in drawn:
            found[Value(i)] = drawn[i]
        elif node.op == "constant":
            found[Value(i)] = _of_constant(node)
        elif _is_square(node):
            found[Value(i)] = _square(operands[0])
        elif node.spec.family is Family.MOVEMENT:
            found[Value(i)] = _picked(graph, i, operands)
        elif node.op in _SUMS:
            terms = node.spec.terms(graph.call(i))
            found[Value(i)] = _finite(terms * operands[0][0], terms * operands[0][1])
        elif node.op in _FORWARD:
            found[Value(i)] = _FORWARD[node.op](operands)
    return found


def _of_constant(node: Node) -> Interval:
    value = dict(node.attrs)["value"]
    assert isinstance(value, Literal)
    array = value.array().astype(np.float64)
    if array.size == 0:
        return ANY
    return _finite(float(array.min()), float(array.max()))


def _finite(first: float, last: float) -> Interval:
    """An interval; all numbers where an end is none."""
    return ANY if math.isnan(first) or math.isnan(last) else (first, last)


def _hull(intervals: Sequence[Interval]) -> Interval:
    if not intervals:
        return ANY
    return min(a for a, _ in intervals), max(b for _, b in intervals)


def _is_square(node: Node) -> bool:
    return node.op in _SQUARES and node.inputs[0] == node.inputs[1]


def _picked(graph: Graph, i: int, each: Sequence[Interval]) -> Interval:
    return _hull([known for _, known in _moved(graph, i, each)])


def _moved(graph: Graph, i: int, each: Sequence[Interval]) -> list[tuple[int, Interval]]:
    """Operands, by position, whose elements a movement's result is made of."""
    dtype, ins = graph[i].types[0].dtype, graph[i].inputs
    return [(k, each[k]) for k, v in enumerate(ins) if graph.type_of(v).dtype is dtype]


def _corners(
    f: Callable[[float, float], float], a: Interval, b: Interval
) -> Interval:  # fmt: skip
    found = [f(x, y) for x in a for y in b]
    return ANY if any(map(math.isnan, found)) else (min(found), max(found))


def _times(x: float, y: float) -> float:
    return 0.0 if x == 0 or y == 0 else x * y


def _over(x: float, y: float) -> float:
    return _times(x, math.inf if y == 0 else 1 / y)


def _square(x: Interval) -> Interval:
    ends = _times(x[0], x[0]), _times(x[1], x[1])
    return (0.0 if x[0] <= 0 <= x[1] else min(ends)), max(ends)


def _absolute(x: Interval) -> Interval:
    return (0.0 if x[0] <= 0 <= x[1] else min(map(abs, x))), max(map(abs, x))


def _divided(x: Interval, y: Interval) -> Interval:
    return _corners(_over, x, y) if y[0] >= 0 else ANY


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def _log(x: float) -> float:
    return math.log(x) if 0 < x < math.inf else (-math.inf if x <= 0 else x)


def _root(x: float) -> float:
    return math.sqrt(max(x, 0.0))


# Of these more is known: of operands that are one value, and by how many terms there are.
_SQUARES, _SUMS = {"mul"}, {"reduce_sum"}
_FORWARD: Mapping[str, _Forward] = {
    "neg": lambda x: (-x[0][1], -x[0][0]),
    "abs": lambda x: _absolute(x[0]),
    "exp": lambda x: (_exp(x[0][0]), _exp(x[0][1])),
    "log": lambda x: (_log(x[0][0]), _log(x[0][1])),
    "sqrt": lambda x: (_root(x[0][0]), _root(x[0][1])),
    "rsqrt": lambda x: (0.0, math.inf),
    "tanh": lambda x: (-1.0, 1.0),
    "erf": lambda x: (-1.0, 1.0),
    "sin": lambda x: (-1.0, 1.0),
    "cos": lambda x: (-1.0, 1.0),
    "logistic": lambda x: (0.0, 1.0),
    "cosh": lambda x: (1.0, math.inf),
    "cast": lambda x: x[0],
    "reciprocal": lambda x: _divided((1.0, 1.0), x[0]),
    "add": lambda x: _finite(x[0][0] + x[1][0], x[0][1] + x[1][1]),
    "sub": lambda x: _finite(x[0][0] - x[1][1], x[0][1] - x[1][0]),
    "mul": lambda x: _corners(_times, x[0], x[1]),
    "div": lambda x: _divided(x[0], x[1]),
    "max": lambda x: (max(x[0][0], x[1][0]), max(x[0][1], x[1][1])),
    "min": lambda x: (min(x[0][0], x[1][0]), min(x[0][1], x[1][1])),
    "clamp": lambda x: (max(x[0][0], x[1][0]), min(x[0][1], x[2][1])),
    "select": lambda x: _hull(x[1:]),
    "reduce_max": lambda x: x[0],
    "reduce_min": lambda x: x[0],
}


# --- what is carried back


def _backward(graph: Graph, i: int) -> _Backward | None:
    node = graph[i]
    if node.spec.family is Family.MOVEMENT:
        return lambda want, each: _of_moved(graph, i, want, each)
    if node.op in _SUMS:
        terms = max(node.spec.terms(graph.call(i)), 1)
        return lambda want, each: ((want[0] / terms, want[1] / terms),)
    if node.op in _SQUARES and node.inputs[0] == node.inputs[1]:
        return lambda want, each: (_shared(want), None)
    return _BACKWARD.get(node.op)


def _of_moved(
    graph: Graph, i: int, want: Interval, each: Sequence[Interval]
) -> list[Interval | None]:
    moved = dict(_moved(graph, i, each))
    return [want if k in moved else None for k in range(len(each))]


def _is_number(x: Interval) -> bool:
    return x[0] == x[1]


def _add(want: Interval, x: Interval, y: Interval) -> tuple[Interval | None, Interval | None]:
    """A number is taken away from what is wanted; so is what is never negative where the sum is to
    be positive. Of two others each gets half."""
    if _is_number(y):
        return (want[0] - y[0], want[1] - y[0]), None
    if _is_number(x):
        return None, (want[0] - x[0], want[1] - x[0])
    if want[1] == math.inf and (x[0] >= 0) != (y[0] >= 0):
        return (
            (None, (want[0] - x[0], math.inf)) if x[0] >= 0 else ((want[0] - y[0], math.inf), None)
        )
    half = want[0] / 2, want[1] / 2
    return half, half


def _sub(want: Interval, x: Interval, y: Interval) -> tuple[Interval | None, Interval | None]:
    """Of a number and another only: a difference of two others is a variance, as often as not, and
    what that needs no two ranges say."""
    if _is_number(y):
        return (want[0] + y[0], want[1] + y[0]), None
    if _is_number(x):
        return None, (x[0] - want[1], x[0] - want[0])
    return None, None


def _scaled(want: Interval, by: float) -> Interval:
    return _corners(_times, want, (by, by))


def _shared(want: Interval) -> Interval | None:
    """Of both factors of what is to be positive."""
    return (_root(want[0]), _root(want[1])) if want[0] >= 0 else None


def _mul(want: Interval, x: Interval, y: Interval) -> tuple[Interval | None, Interval | None]:
    if _is_number(y):
        return (_scaled(want, 1 / y[0]) if y[0] else None), None
    if _is_number(x):
        return None, (_scaled(want, 1 / x[0]) if x[0] else None)
    return _shared(want), _shared(want)


def _div(want: Interval, x: Interval, y: Interval) -> tuple[Interval | None, Interval | None]:
    if _is_number(y):
        return (_scaled(want, y[0]) if y[0] else None), None
    if want[0] < 0:
        return None, None
    # Both positive, and the quotient no smaller than it should be.
    top = y[1] if y[0] >= 0 and y[1] < math.inf else 1.0
    return (max(want[0] * top, POSITIVE[0]), math.inf), (None if y[0] >= 0 else POSITIVE)


def _max(want: Interval, x: Interval, y: Interval) -> tuple[Interval | None, Interval | None]:
    """Both are at most the upper end; one may do for the lower one."""
    below = -math.inf, want[1]
    return (below, want) if _is_number(x) else (want, below)


def _min(want: Interval, x: Interval, y: Interval) -> tuple[Interval | None, Interval | None]:
    above = want[0], math.inf
    return (above, want) if _is_number(x) else (want, above)


_BACKWARD: Mapping[str, _Backward] = {
    "neg": lambda want, x: ((-want[1], -want[0]),),
    "abs": lambda want, x: (want if want[0] >= 0 else None,),
    "exp": lambda want, x: ((_log(want[0]), _log(want[1])),),
    "log": lambda want, x: ((_exp(want[0]), _exp(want[1])),),
    "sqrt": lambda want, x: (_square((max(want[0], 0.0), want[1])),),
    "reciprocal": lambda want, x: (POSITIVE if want[0] >= 0 else None,),
    "cast": lambda want, x: (want,),
    "add": lambda want, x: _add(want, x[0], x[1]),
    "sub": lambda want, x: _sub(want, x[0], x[1]),
    "mul": lambda want, x: _mul(want, x[0], x[1]),
    "div": lambda want, x: _div(want, x[0], x[1]),
    "max": lambda want, x: _max(want, x[0], x[1]),
    "min": lambda want, x: _min(want, x[0], x[1]),
    "clamp": lambda want, x: (want, None, None),
    "select": lambda want, x: (None, want, want),
    "reduce_max": lambda want, x: (want,),
    "reduce_min": lambda want, x: (want,),
}
