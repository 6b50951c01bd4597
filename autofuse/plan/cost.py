"""What a kernel must cost at least: bytes it cannot avoid, operations it cannot avoid, a launch.

Every count here is a lower bound: a slice or a gather counts only what it must read, a value that
several readers share counts once, and work that a loop or a broadcast only repeats counts once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.spec import Family
from autofuse.ops.types import AutofuseError
from autofuse.plan.groups import is_inline, is_source, reads
from autofuse.plan.schedule import schedule
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig

SPECIAL = frozenset((
    "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "tanh", "sinh", "cosh", "asin", "acos",
    "atan", "logistic", "erf", "pow", "atan2",
))  # fmt: skip


class CalibrationError(AutofuseError):
    """Calibration constants that cannot be."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A device's peaks. `launch_us` microseconds per kernel; bandwidth in GB/s (10^9 bytes read
    plus written a second), out of cache and (`cached_gbytes_per_s`) in it; arithmetic in 10^9
    operations a second by class: `cheap`, `special` (exp, log, ...; one exp is 15) and
    `contraction`. `tiers` refines the cached bandwidth: (working set in bytes, GB/s), ascending.
    `alone` is the same for a kernel run by one thread, whose launch is cheaper.
    """

    launch_us: float
    gbytes_per_s: float
    cheap: float
    special: float
    contraction: float
    cached_gbytes_per_s: float
    cache_bytes: int = 1 << 25
    tiers: tuple[tuple[int, float], ...] = ()
    alone: Calibration | None = None

    def __post_init__(self) -> None:
        classes = (self.cheap, self.special, self.contraction)
        tiers = (rate for _, rate in self.tiers)
        rates = (self.gbytes_per_s, self.cached_gbytes_per_s, *classes, *tiers)
        if not all(math.isfinite(r) and r > 0 for r in rates):
            raise CalibrationError(f"calibrated rates must be positive numbers, got {rates}")
        if not (math.isfinite(self.launch_us) and self.launch_us >= 0):
            raise CalibrationError(f"a launch cannot cost {self.launch_us} us")

    def move_us(self, nbytes: float, warm: bool = True) -> float:
        """Microseconds to read and write `nbytes`; `warm`: what fits the cache may be there."""
        if not warm:
            return nbytes / (self.gbytes_per_s * 1e3)
        rate = max(self.cached_gbytes_per_s, self.gbytes_per_s)
        for size, tier in self.tiers:
            if nbytes >= size:
                rate = max(min(rate, tier), self.gbytes_per_s)
        kept = min(nbytes, float(self.cache_bytes))
        return kept / (rate * 1e3) + (nbytes - kept) / (self.gbytes_per_s * 1e3)

    def compute_us(self, work: Work) -> float:
        """Microseconds of arithmetic; classes may overlap, so the slowest counts."""
        pairs = (work.cheap, self.cheap), (work.special, self.special)
        return max(n / (rate * 1e3) for n, rate in (*pairs, (work.contraction, self.contraction)))

    def to_mapping(self) -> dict[str, float]:
        """Plain numbers by name, as the tuning database keeps them."""
        found = {
            f.name: float(getattr(self, f.name))
            for f in fields(self)
            if f.name not in ("tiers", "alone")
        }
        found |= {f"tier.{size}": rate for size, rate in self.tiers}
        if self.alone is not None:
            found |= {f"alone.{name}": value for name, value in self.alone.to_mapping().items()}
        return found

    @staticmethod
    def from_mapping(values: Mapping[str, float]) -> Calibration:
        """Inverse of to_mapping; other names are ignored. Raises CalibrationError."""
        inner = {k[6:]: v for k, v in values.items() if k.startswith("alone.")}
        names = [f.name for f in fields(Calibration) if f.name not in ("tiers", "alone")]
        missing = [n for n in names if n not in values]
        if missing:
            raise CalibrationError(f"the calibration lacks {', '.join(missing)}")
        try:
            sizes = sorted((int(k[5:]), v) for k, v in values.items() if k.startswith("tier."))
        except ValueError as error:
            raise CalibrationError(f"not a cache tier: {error}") from error
        rates = {n: values[n] for n in names if n != "cache_bytes"}
        alone = Calibration.from_mapping(inner) if inner else None
        return Calibration(
            **rates, cache_bytes=int(values["cache_bytes"]), tiers=tuple(sizes), alone=alone
        )


# Where nothing was measured: a fast desktop, faster than most.
NOMINAL = Calibration(2.0, 50.0, 500.0, 100.0, 1000.0, 400.0)


@dataclass(frozen=True, slots=True)
class Work:
    """The least a kernel moves (bytes) and computes (operations by class)."""

    nbytes: float = 0.0
    cheap: float = 0.0
    special: float = 0.0
    contraction: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.nbytes + other.nbytes,
            self.cheap + other.cheap,
            self.special + other.special,
            self.contraction + other.contraction,
        )

    def computing(self, times: float) -> Work:
        """The arithmetic alone, `times` over."""
        return Work(0.0, self.cheap * times, self.special * times, self.contraction * times)


def group_bound_us(
    graph: Graph, group: FusionGroup, calibration: Calibration, *, warm: bool = True
) -> float:
    """Microseconds one call of the plan spends in `group` at the very least.

    `warm` says that its inputs may be in the cache. A re-issued loop costs every trip of its
    body's plan."""
    if group.body is not None:
        call = graph.call(group.nodes[0])
        return float(call["trip"]) * plan_bound_us(call["body"], group.body, calibration, warm=warm)
    return work_bound_us(group_work(graph, group.nodes, group.outputs), calibration, warm=warm)


def plan_bound_us(
    graph: Graph, plan: FusionPlan, calibration: Calibration, *, warm: bool = True
) -> float:
    """The bounds of a plan's groups together."""
    return math.fsum(group_bound_us(graph, g, calibration, warm=warm) for g in plan.groups)


def work_bound_us(work: Work, calibration: Calibration, *, warm: bool = True) -> float:
    """The faster of all threads and one."""
    best = math.inf
    found: Calibration | None = calibration
    while found is not None:
        busy = max(found.move_us(work.nbytes, warm), found.compute_us(work))
        best = min(best, found.launch_us + busy)
        found = found.alone
    return best


def group_work(graph: Graph, nodes: Sequence[int], outputs: Sequence[Value]) -> Work:
    """The least that one kernel computing `outputs` from `nodes` moves and computes."""
    least = _needed(graph, nodes, {v: graph.type_of(v).size for v in outputs})
    moved = float(sum(graph.type_of(v).nbytes for v in outputs))
    for value in reads(graph, nodes):
        moved += least.get(value, 0) * graph.type_of(value).dtype.itemsize
    return _arithmetic(graph, nodes, least) + Work(nbytes=moved)


def _needed(graph: Graph, nodes: Iterable[int], least: dict[Value, int]) -> dict[Value, int]:
    """At least how many different elements of each value are needed: of several readers the one
    that needs most counts, because their elements may be the same."""
    for node in sorted(nodes, reverse=True):
        n = graph[node]
        made = max((least.get(Value(node, k), 0) for k in range(len(n.types))), default=0)
        if not made:
            continue
        share = made / max(1, n.types[0].size)
        for position, value in enumerate(n.inputs):
            size = graph.type_of(value).size
            count = min(size, _operand_needed(graph, n, node, position, made, share))
            if count > least.get(value, 0):
                least[value] = count
    return least


def _operand_needed(
    graph: Graph, n: Node, node: int, position: int, made: int, share: float
) -> int:
    """Different elements of one operand that `made` elements of a node's output need at least."""
    size = graph.type_of(n.inputs[position]).size
    family = n.spec.family
    if family is Family.ELEMENTWISE:
        return made
    if family is Family.MOVEMENT:
        return _moved_needed(n, position, made, size, share)
    if family is Family.CONTROL:
        return loop_needed(graph, node)[position]
    if family is Family.SCAN:
        return made
    return math.ceil(size * min(1.0, share))


def _moved_needed(n: Node, position: int, made: int, size: int, share: float) -> int:
    whole = n.types[0].size
    if n.op == "concat":
        return max(0, made - (whole - size))
    if n.op == "pad":
        return max(0, made - (whole - size)) if position == 0 else min(1, whole - size)
    if n.op == "gather" and position == 0:
        return 1
    return made if size >= whole else math.ceil(size * min(1.0, share))


@lru_cache(maxsize=256)
def loop_needed(graph: Graph, node: int) -> tuple[int, ...]:
    """Elements of each operand that a loop needs at least, all of its results being wanted."""
    body: Graph = graph.call(node)["body"]
    least = _needed(body, range(len(body.nodes)), {v: body.type_of(v).size for v in body.outputs})
    return tuple(least.get(Value(i), 0) for i in body.inputs[1:])


def _arithmetic(graph: Graph, nodes: Iterable[int], least: Mapping[Value, int]) -> Work:
    cheap = special = contraction = 0.0
    varies: dict[int, frozenset[int]] = {}
    extra = Work()
    for node in sorted(nodes):
        n = graph[node]
        family = n.spec.family
        total = max(1, n.types[0].size)
        made = max((least.get(Value(node, k), 0) for k in range(len(n.types))), default=0)
        distinct = math.prod(n.types[0].shape[a] for a in _varies(graph, node, varies))
        if not made or family in (Family.SOURCE, Family.MOVEMENT):
            continue
        if family is Family.CONTROL:
            extra += _loop_work(graph, node)
            continue
        # A value repeated by a broadcast may be computed once.
        share = min(made, distinct) / total if family is Family.ELEMENTWISE else made / total
        flops = n.spec.flops(graph.call(node)) * share
        if family is Family.CONTRACTION:
            contraction += flops
        elif n.op in SPECIAL:
            special += flops
        else:
            cheap += flops
    return extra + Work(0.0, cheap, special, contraction)


def _varies(graph: Graph, node: int, known: dict[int, frozenset[int]]) -> frozenset[int]:
    """Axes of a node's output along which its value may differ; `known` has earlier nodes."""
    n = graph[node]
    every = frozenset(range(n.types[0].rank))
    found = every
    if n.op == "iota":
        found = frozenset((dict(n.attrs)["axis"],))
    elif n.op == "broadcast":
        source = known.get(n.inputs[0].node)
        dims = dict(n.attrs)["dims"]
        axes = range(len(dims)) if source is None else source
        found = frozenset(dims[a] for a in axes)
    elif n.spec.family is Family.ELEMENTWISE:
        parts = [
            frozenset() if is_inline(graph, v.node) else known.get(v.node, every) for v in n.inputs
        ]
        found = frozenset().union(*parts)
    known[node] = found
    return found


@lru_cache(maxsize=256)
def _loop_work(graph: Graph, node: int) -> Work:
    """Arithmetic of all trips; what no trip changes may be computed once."""
    call = graph.call(node)
    body: Graph = call["body"]
    changing = set(body.inputs[: 1 + int(call["carries"])])
    for n, inner in enumerate(body.nodes):
        if any(v.node in changing for v in inner.inputs):
            changing.add(n)
    live = [n for n in range(len(body.nodes)) if not is_source(body, n)]
    least = _needed(body, live, {v: body.type_of(v).size for v in body.outputs})
    each = _arithmetic(body, [n for n in live if n in changing], least)
    once = _arithmetic(body, [n for n in live if n not in changing], least)
    return each.computing(float(call["trip"])) + once.computing(1.0)


def peak_bytes(graph: Graph, plan: FusionPlan) -> int:
    """Bytes of intermediates alive at once, with buffers reused; inputs and outputs apart."""
    launches = tuple(LaunchConfig() for _ in plan.groups)
    bodies = tuple(
        () if g.body is None else tuple(LaunchConfig() for _ in g.body.groups) for g in plan.groups
    )
    return schedule(graph, Candidate(plan, launches, bodies)).workspace
