"""The op table: one OpSpec row per primitive op, in one registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from autofuse.ops import needs
from autofuse.ops.algebra import NO_ALGEBRA, Algebra
from autofuse.ops.domains import Domain
from autofuse.ops.dtypes import SELDOM, DType
from autofuse.ops.needs import Needed
from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Expr
from autofuse.ops.types import Attrs, GraphError, OpCall, TensorType
from autofuse.ops.views import View, WindowAt

# Rows of the families that have them bring these along.
if TYPE_CHECKING:
    from autofuse.ops.library_forms import Solver, StridedConv, Transform
    from autofuse.ops.terms import Factors, FoldOver

Infer = Callable[[OpCall], tuple[TensorType, ...]]
Shape = tuple[int, ...]
Reference = Callable[[tuple[np.ndarray, ...], OpCall], tuple[np.ndarray, ...]]
Body = Callable[[OpCall, Index, Pull], tuple[Expr, ...]]
# For each operand: for each output axis, the operand axis read at the very same index, or None.
AxisMap = tuple[tuple[int | None, ...], ...]


class Family(Enum):
    """How a kernel computes an op: its form follows from the family.

    What else planning, costing and checking ask of an op is a field of its row. Inputs, constants,
    the counted loop and dot_general are also known by name, to the code that owns them.
    """

    SOURCE = "source"  # input, constant, iota: has a body, reads nothing
    ELEMENTWISE = "elementwise"  # out[i] = f(in[i]...)
    MOVEMENT = "movement"  # out[i] = in[g(i)]: broadcast, reshape, slice, concat, gather, ...
    REDUCTION = "reduction"  # out[i] = fold over the axes of attribute `axes` or `axis`
    SCAN = "scan"  # out[i] depends on out[i-1] along the axis of attribute `axis`
    SORT = "sort"  # out[i] = which place along the axis of attribute `axis` comes i-th
    SCATTER = "scatter"  # windows of one operand written into another at computed places
    WINDOW = "window"  # out[i] = fold over in[g(i, k)] for every place k of a window: row.over
    CONTRACTION = "contraction"  # out[i] = sum of products of two operands: row.over
    RANDOM = "random"  # out[i] = generator(key, i): a body like SOURCE, but a library call to rules
    SOLVER = "solver"  # whole matrices factorised by a library: row.solves, and no body
    CONTROL = "control"  # counted loop


class Motion(Enum):
    """What a movement op does to the elements it moves."""

    REPEAT = "repeat"  # axes without an operand axis repeat the operand's elements
    PERMUTE = "permute"  # axes change places
    RESHAPE = "reshape"  # the same elements in the same order, under other axes
    CUT = "cut"  # axes are cut, joined, padded or turned around
    PICK = "pick"  # data say which element


# What a call needs of its operands at least, where the row says nothing better.
_NEEDED: Mapping[Family, Needed] = {
    Family.SOURCE: needs.nothing,
    Family.ELEMENTWISE: needs.each,
    Family.MOVEMENT: needs.any_one,
    Family.REDUCTION: needs.share,
    Family.SCAN: needs.each,
    Family.SORT: needs.each,
    Family.SCATTER: needs.any_one,
    Family.WINDOW: needs.any_one,
    Family.CONTRACTION: needs.share,
    Family.RANDOM: needs.nothing,
    Family.SOLVER: needs.any_one,
    Family.CONTROL: needs.nothing,
}


@dataclass(frozen=True)
class Fold:
    """A reduction in scalar terms: fold `combine` over elements starting from `init`.

    `init` gives as many accumulators as the fold keeps (argmax keeps value and position); `lift`
    turns an element and its position along the last reduced axis into as many, and `finish` turns
    them into the result.
    """

    init: Callable[[OpCall], tuple[Expr, ...]]
    lift: Callable[[OpCall, Expr, Expr], tuple[Expr, ...]]
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
    finish: Callable[[OpCall, tuple[Expr, ...]], Expr]
    operator: str | None = None  # "add", "mul", "max", "min", "and", "or" when it is one primitive


@dataclass(frozen=True)
class Sample:
    """One generated test: operand types, attributes, and the range floats are drawn from."""

    ins: tuple[TensorType, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    low: float = -2.0
    high: float = 2.0


def sampled(dtypes: Iterable[DType]) -> list[DType]:
    """Those of `dtypes` on which an op is tried that works on all of them alike."""
    return [dtype for dtype in dtypes if dtype not in SELDOM]


def never(call: OpCall) -> bool:
    return False


def always(call: OpCall) -> bool:
    return True


def one_term(call: OpCall) -> int:
    return 1


@dataclass(frozen=True)
class OpSpec:
    """One primitive op: everything the rest of the package knows of it.

    What it computes:
    `infer` checks operands and attributes (raising GraphError) and gives the output types;
    `reference` computes in NumPy, floats as float64, integers exactly;
    `body` gives one output element from operand elements (None for REDUCTION with a `fold`,
    SCAN, SORT, SCATTER, WINDOW, CONTRACTION, SOLVER and CONTROL); `over` says what a WINDOW or a
    CONTRACTION folds, and `factors` what a CONTRACTION multiplies; `convolves` gives one as a
    convolution that a library could do, None where it is not (without it: none is), `transforms`
    the same as Fourier transforms, which such an op shares no kernel with, and `solves` what a
    SOLVER asks a library for; `joins` what a SCATTER makes of an element that is there and one that
    comes;
    `axes` says which axes pass through untouched; `depends` gives for each operand the output axes
    on which the indices of its other axes depend (None: those of a reduction or a contraction on
    none, of other ops on all that do not pass through);
    `samples` are cases that tests run.

    What it costs:
    `flops` counts arithmetic operations of the whole call, `special` those of a special function
    (exp, log, ...), which devices do at a rate of their own;
    `needed` is how many different operand elements some results need at least, if not what holds
    for the whole family (see `least_needed`);
    `varies` gives the output axes along which results differ at all, for an op of at most one
    operand whose results repeat along the others (None: nothing is known to repeat).

    How it moves elements:
    `motion` is the kind of movement; `one_to_one` says that every output element is an element of
    the one operand, and none is used twice; `unrolls` that small axes which `axes` does not map are
    better unrolled, because indices there are then constants and choices between sources go;
    `view` gives the view of the result from that of its one operand, None where strides cannot say
    where the elements lie (without it: they never can).

    How it rounds:
    `exact` says whether a call rounds nothing, so that its results are as good as its operands
    (SOURCE and MOVEMENT never round); `terms` is how many terms one result is folded from, whose
    order a kernel may choose, and `squares` gives for each result the sum of their squares
    (without it: the reference of squared operands);
    `divides` says that the body of floats has a quotient or a square root, whose rounding a kernel
    may choose too; `blurs` gives, for what is backward stable, how far rounding may as well have
    moved each element of each operand, in epsilons: what that moves a result by, it may be wrong
    by; `proportional` names the operands of an elementwise op of two that its result is
    proportional to, each by itself; `snaps` that a call turns floats into whole numbers, so that
    one rounding error of an operand may move a result by one.

    Which identities it obeys: `algebra`. Where it is defined, by operand: `domains` (of floats;
    without them everywhere).
    """

    name: str
    family: Family
    infer: Infer
    reference: Reference
    flops: Callable[[OpCall], float]
    samples: Callable[[], Sequence[Sample]]
    body: Body | None = None
    fold: Fold | None = None
    over: FoldOver | None = None
    joins: Callable[[Expr, Expr], Expr] | None = None
    factors: Factors | None = None
    convolves: Callable[[OpCall], StridedConv | None] | None = None
    transforms: Callable[[OpCall], Transform | None] | None = None
    solves: Callable[[OpCall], Solver] | None = None
    axes: Callable[[OpCall], AxisMap] | None = None
    depends: Callable[[OpCall], tuple[Shape, ...]] | None = None
    special: bool = False
    needed: Needed | None = None
    varies: Callable[[OpCall], tuple[int, ...]] | None = None
    motion: Motion | None = None
    one_to_one: bool = False
    unrolls: bool = False
    view: Callable[[OpCall, View], View | None] | None = None
    window: Callable[[OpCall], WindowAt | None] | None = None
    overwrites: bool = False
    exact: Callable[[OpCall], bool] = never
    terms: Callable[[OpCall], int] = one_term
    squares: Reference | None = None
    divides: bool = False
    blurs: Reference | None = None
    proportional: tuple[int, ...] = ()
    snaps: Callable[[OpCall], bool] = never
    algebra: Algebra = NO_ALGEBRA
    domains: Mapping[int, Domain] = field(default_factory=dict)

    @property
    def least_needed(self) -> Needed:
        """At least how many different elements of each operand `made` > 0 results need: the row's
        rule, or what holds for every op of its family."""
        if self.needed is not None:
            return self.needed
        return needs.each if self.one_to_one else _NEEDED[self.family]

    def rounds(self, call: OpCall) -> bool:
        """Whether results of this call may be less exact than its operands."""
        moves = self.family in (Family.SOURCE, Family.MOVEMENT)
        return not (moves or self.exact(call))


KNOWN: dict[str, OpSpec] = {}
# Modules of this package that fill the table, in the order in which they are looked through.
_FAMILIES: dict[str, None] = {}


def families(*modules: str) -> None:
    """Name modules of `autofuse.ops` that fill the table. One is imported when an op is asked for
    that those before it lack: a graph of few ops needs few of them."""
    _FAMILIES.update(dict.fromkeys(modules))


def _load_families(until: str | None = None) -> None:
    """Import families in order until there is an op `until` (None: all of them).

    Each is asked for anew: importing it waits for another thread that has only begun to."""
    for module in tuple(_FAMILIES):
        import_module(f"autofuse.ops.{module}")
        if until in KNOWN:
            return


def register(*specs: OpSpec) -> None:
    """Add rows to the op table; a name is taken once."""
    for spec in specs:
        if spec.name in KNOWN:
            raise ValueError(f"op '{spec.name}' is registered twice")
        KNOWN[spec.name] = spec


def spec_of(name: str) -> OpSpec:
    """The row of op `name`; raises GraphError for an unknown op."""
    if name not in KNOWN:
        _load_families(until=name)
    try:
        return KNOWN[name]
    except KeyError:
        raise GraphError(f"unknown op '{name}'") from None


def all_specs() -> tuple[OpSpec, ...]:
    """Every row, sorted by name."""
    _load_families()
    return tuple(KNOWN[name] for name in sorted(KNOWN))


def infer(name: str, ins: tuple[TensorType, ...], attrs: Attrs) -> tuple[TensorType, ...]:
    """Output types of op `name`; raises GraphError."""
    return spec_of(name).infer(OpCall(attrs, ins))
