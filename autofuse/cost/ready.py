"""When the elements of a value can be ready at the earliest, from when its operands' are.

Times are lower bounds for every kernel: an element is never ready before what it is computed from,
plus the latency of the operation. Where a processor may guess, an element is as early as the
earliest of what it may be: of a choice the earlier branch, of a flag no time at all. An element of
what is moved is as early as the one that it is. Sums of an axis may be taken in any order: a tree
of two at a time, begun with what is there first. Times are -inf for what is known before the loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from autofuse.cost.latency import NOTHING, Delays
from autofuse.cost.masked import may_be_masked
from autofuse.cost.scalar_calls import FLOATS, body_of
from autofuse.graph.types import Graph
from autofuse.ops.contraction import dot_axes
from autofuse.ops.dtypes import DType
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.scalar import LIBM, Call, Expr, Sym
from autofuse.ops.spec import Family, Motion
from autofuse.plan.schedules.masks import literal_of

ReadyTimes = NDArray[np.float64]
DelayTable = Mapping[DType, Delays]
# Elements of a value above which one time stands for all of them, and terms of a product.
EACH, TERMS = 1024, 1 << 15
NEVER = np.array(-math.inf)
# Operations that choose by a flag, which processors guess.
_GUESSED = frozenset(("select",))
EXTREMUM = "extremum"
# Operations that compilers leave out where one operand is such a number.
_NEUTRAL = {"mul": (1.0, -1.0), "div": (1.0, -1.0), "add": (0.0,), "sub": (0.0,)}


@dataclass(frozen=True, slots=True)
class ReadyAt:
    """When elements are ready, nanoseconds, of the shape of the value or one for all: `at`, and
    when a sum can be that takes them in, where that is before `at` and the latency of a sum (a
    product and a sum may be one operation)."""

    at: ReadyTimes
    summed: ReadyTimes | None = None

    def joined(self, delays: Delays) -> ReadyTimes:
        later: ReadyTimes = self.at + delays.joining
        return later if self.summed is None else np.minimum(self.summed, later)

    def later(self, by: float) -> ReadyAt:
        """The same, by so many nanoseconds later."""
        if self is KNOWN or not by:
            return self
        return ReadyAt(self.at + by, None if self.summed is None else self.summed + by)


KNOWN = ReadyAt(NEVER)


def node_ready(graph: Graph, node: int, operands: Sequence[ReadyAt], table: DelayTable) -> ReadyAt:
    """The first output of a node that is no loop."""
    spec = graph[node].spec
    if spec.family is Family.ELEMENTWISE:
        return _elementwise(graph, node, operands, table)
    if spec.family is Family.MOVEMENT:
        return _moved(graph, node, operands, table)
    if spec.family is Family.REDUCTION:
        return _folded(graph, node, operands[0], table)
    if spec.family is Family.CONTRACTION and graph[node].op == "dot_general":
        return _product(graph, node, operands, table)
    if spec.family is Family.SCAN:
        at = operands[0].at
        each = at.ndim > 0
        return ReadyAt(np.maximum.accumulate(at, axis=graph.call(node)["axis"]) if each else at)
    if spec.family is Family.SORT or spec.family is Family.SCATTER:
        return ReadyAt(_earliest(operands))
    return KNOWN


def _earliest(operands: Sequence[ReadyAt]) -> ReadyTimes:
    return np.asarray(min((float(one.at.min()) for one in operands), default=-math.inf))


# --- scalar bodies ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """One operation of a body: its function and type, and where its operands are: an operand of
    the node (from 0 on), an earlier step (-1 and below), or None for a literal or an index."""

    fn: str
    dtype: DType
    args: tuple[int | None, ...]


@lru_cache(maxsize=4096)
def _steps(graph: Graph, node: int) -> tuple[tuple[_Step, ...], int | None]:
    """The operations of the node's first result, and where that is."""
    neutral = _NEUTRAL.get(graph[node].op, ())
    for k, v in enumerate(graph[node].inputs):
        if neutral and literal_of(graph, v) in neutral:
            return (), 1 - k
    results, bound = body_of(graph, node)
    names = {f"t{k + 1}": expr for k, expr in enumerate(bound)}
    steps: list[_Step] = []
    known: dict[Expr, int | None] = {}

    def place(expr: Expr) -> int | None:
        if expr in known:
            return known[expr]
        found: int | None = None
        if isinstance(expr, Sym) and expr.name in names:
            found = place(names[expr.name])
        elif isinstance(expr, Sym) and expr.name.startswith("x"):
            found = int(expr.name[1:])
        elif isinstance(expr, Call):
            args = expr.args[1:] if _is_extremum(expr) else expr.args
            fn = EXTREMUM if _is_extremum(expr) else expr.fn
            steps.append(_Step(fn, expr.dtype, tuple(place(a) for a in args)))
            found = -len(steps)
        known[expr] = found
        return found

    last = place(results[0])
    return tuple(steps), last


def _is_extremum(expr: Call) -> bool:
    """Whether a choice is between what is compared: one instruction that waits for both."""
    test = expr.args[0]
    if expr.fn != "select" or expr.dtype not in FLOATS or not isinstance(test, Call):
        return False
    return test.fn in ("lt", "le", "gt", "ge") and set(test.args) == set(expr.args[1:])


def _elementwise(
    graph: Graph, node: int, operands: Sequence[ReadyAt], table: DelayTable
) -> ReadyAt:
    if graph[node].spec.body is None:
        return KNOWN
    steps, last = _steps(graph, node)
    made: list[ReadyAt] = []

    def of(place: int | None) -> ReadyAt:
        if place is None:
            return KNOWN
        return operands[place] if place >= 0 else made[-place - 1]

    for step in steps:
        made.append(_operation(step, [of(a) for a in step.args], table.get(step.dtype, NOTHING)))
    return of(last)


def _operation(step: _Step, args: Sequence[ReadyAt], delays: Delays) -> ReadyAt:
    """What one operation gives. Of whole numbers minima are choices, too."""
    fn, is_float = step.fn, step.dtype in FLOATS
    if step.dtype is DType.BOOL:
        return KNOWN
    if fn in _GUESSED or (fn in ("min", "max") and not is_float):
        arms = args[1:] if fn in _GUESSED else args
        return ReadyAt(np.minimum(*(one.at for one in arms)))
    if fn == "neg" and is_float:
        return args[0]
    if is_float and fn in ("add", "sub"):
        one, other = args
        return ReadyAt(
            np.minimum(
                np.maximum(one.joined(delays), other.at + delays.joining),
                np.maximum(one.at + delays.joining, other.joined(delays)),
            )
        )
    latest = args[0].at
    for one in args[1:]:
        latest = np.maximum(latest, one.at)
    if not is_float:
        return ReadyAt(latest)
    if fn == "mul" or (fn == "div" and step.args[1] is None):
        took = delays.scaling if None in step.args else delays.mul
        return ReadyAt(latest + took, latest + delays.fma)
    if fn == "div":
        quotient = np.maximum(args[0].at + min(delays.mul, delays.div), args[1].at + delays.div)
        return ReadyAt(quotient)
    if fn in LIBM and len(args) == 2 and step.args[1] is None:
        return ReadyAt(latest)  # a power of known exponent
    return ReadyAt(latest + delays.of(fn))


# --- moves, folds and products -----------------------------------------------------------------


def _moved(graph: Graph, node: int, operands: Sequence[ReadyAt], table: DelayTable) -> ReadyAt:
    """What is moved: as it was where all elements are told apart, else as early as any."""
    spec, call = graph[node].spec, graph.call(node)
    if spec.motion is Motion.PICK:
        moved = operands[:2] if spec.overwrites else operands[:1]
        return ReadyAt(_earliest(moved))
    alike = all(one.at.ndim == 0 for one in operands)
    small = max(t.size for t in (*call.ins, *graph[node].types)) <= EACH
    if len(operands) == 1 and alike:
        return operands[0]
    if alike or not small:
        return ReadyAt(_earliest(operands))

    def through(times: Sequence[ReadyTimes]) -> ReadyTimes:
        pairs = zip(times, call.ins, strict=True)
        arrays = tuple(np.broadcast_to(one, kind.shape) for one, kind in pairs)
        return np.asarray(spec.reference(arrays, call)[0], dtype=float)

    at = through([one.at for one in operands])
    if all(one.summed is None for one in operands):
        return ReadyAt(at)
    delays = table.get(graph[node].types[0].dtype, NOTHING)
    return ReadyAt(at, through([one.joined(delays) for one in operands]))


def _folded(graph: Graph, node: int, operand: ReadyAt, table: DelayTable) -> ReadyAt:
    spec, call, at = graph[node].spec, graph.call(node), operand.at
    axes, kind = reduced_axes(call), call.ins[0]
    operator = spec.fold.operator if spec.fold is not None else None
    count = math.prod(kind.shape[a] for a in axes)
    if not count:
        return KNOWN
    is_float = kind.dtype in FLOATS
    if operator == "add":
        add = table.get(kind.dtype, NOTHING).add if is_float else 0.0
        found = _tree(at, axes, count, add)
        return ReadyAt(found, found)
    if is_float and operator in ("mul", "max", "min"):
        return ReadyAt(at.max(axis=axes) if at.ndim else at)
    return ReadyAt(at.min(axis=axes) if at.ndim else at)


def _tree(at: ReadyTimes, axes: Sequence[int], count: int, add: float) -> ReadyTimes:
    """When the sum over some axes can be ready of terms that are ready then: 2^(t / add) of a sum
    is never below those of its terms together (Kraft's inequality)."""
    if not at.ndim:
        return np.asarray(at + add * math.log2(count))
    latest: ReadyTimes = at.max(axis=tuple(axes))
    if add <= 0:
        return latest
    base = np.where(np.isfinite(latest), latest, 0.0)
    shares = np.exp2((at - np.expand_dims(base, tuple(axes))) / add)
    with np.errstate(divide="ignore"):
        return np.asarray(base + add * np.log2(shares.sum(axis=tuple(axes))))


def _product(graph: Graph, node: int, operands: Sequence[ReadyAt], table: DelayTable) -> ReadyAt:
    """A product of matrices, whose sums may be taken in any order; of terms that a mask may hide
    only the latest counts."""
    call = graph.call(node)
    lhs, rhs = (one.at for one in operands)
    roles = dot_axes(call)
    count = math.prod(call.ins[0].shape[a] for a in roles.lhs_contract)
    if not count:
        return KNOWN
    kinds = {t.dtype for t in (*call.ins, *graph[node].types)}
    delays = table.get(call.ins[0].dtype, NOTHING) if len(kinds) == 1 else NOTHING
    term, add = delays.term, 0.0 if _is_masked(graph) else delays.add
    terms = math.prod(graph[node].types[0].shape) * count
    if (lhs.ndim or rhs.ndim) and terms <= TERMS:
        at = _terms(call.ins[0].shape, lhs, roles.lhs_batch, roles.lhs_free, roles.lhs_contract)
        by = _terms(call.ins[1].shape, rhs, roles.rhs_batch, roles.rhs_free, roles.rhs_contract)
        both = np.maximum(at[:, :, None, :], by[:, None, :, :])
        found = _tree(both + term, (3,), count, add).reshape(graph[node].types[0].shape)
    else:
        latest = np.maximum(lhs.min(), rhs.min())
        found = np.asarray(latest + term + add * math.log2(count))
    return ReadyAt(found, found)


@lru_cache(maxsize=64)
def _is_masked(graph: Graph) -> bool:
    return may_be_masked(graph, range(len(graph.nodes)))


def _terms(
    shape: tuple[int, ...], at: ReadyTimes, batch: Sequence[int], free: Sequence[int],
    contract: Sequence[int],
) -> ReadyTimes:  # fmt: skip
    """Times of a factor's elements, by batch, free axes and terms."""
    whole = np.broadcast_to(at, shape).transpose((*batch, *free, *contract))
    sizes = (math.prod(shape[a] for a in axes) for axes in (batch, free, contract))
    return whole.reshape(tuple(sizes))
