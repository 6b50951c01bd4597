"""When TorchInductor's scheduler fuses two nodes, each rule a predicate that says why not.

The rules of a GPU (`choices.py`, `scheduler.py`, `codegen/simd.py`). The first of a pair comes
first in the order of nodes, so it never depends on the second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autofuse.baselines.base import NONE_OFF, Off
from autofuse.baselines.inductor.nodes import Loops, Sizes, tiling_scores
from autofuse.baselines.merging import MergeRefusal
from autofuse.graph.types import Graph
from autofuse.plan.fusion.clusters import Clusters

MAX_NODES = 64  # max_fusion_size
MAX_DISTANCE = 64  # are_long_distant_nodes
LEAST_BYTES = 10  # score_fusion_memory_threshold
PEAK_FACTOR = 32  # can_fusion_increase_peak_memory calls it quite arbitrary
BYTES_FACTOR = 16  # scores this far apart are ranked by bytes alone


@dataclass(frozen=True, slots=True)
class Pair:
    """Two nodes of the scheduler, the bytes of accesses they have in common, and the rest."""

    graph: Graph
    clusters: Clusters
    first: Loops
    second: Loops
    shared: int

    @property
    def vertical(self) -> bool:
        return self.clusters.needed_by(self.first.id, self.second.id)


@dataclass(frozen=True, slots=True)
class Score:
    """How early a pair is fused: larger is earlier."""

    same_kind: int
    shared: int
    proximity: int

    def __lt__(self, other: Score) -> bool:
        most, least = max(self.shared, other.shared), min(self.shared, other.shared)
        if most > least * BYTES_FACTOR:
            return self.shared < other.shared
        mine = (self.same_kind, self.shared, self.proximity)
        return mine < (other.same_kind, other.shared, other.proximity)


def shared_bytes(a: Loops, b: Loops) -> int:
    """Bytes of the accesses that both make, at the same index."""
    return sum(dep.nbytes for dep in (a.reads | a.writes) & (b.reads | b.writes))


def distance(a: Loops, b: Loops) -> int:
    """How far apart two nodes are in the original order, at most."""
    return max(abs(a.orders[0] - b.orders[1]), abs(b.orders[0] - a.orders[1]))


def score(a: Loops, b: Loops) -> Score:
    shared = shared_bytes(a, b)
    same = int(a.is_reduction == b.is_reduction and shared > 0)
    return Score(same, shared, -distance(a, b))


# both directions


def extern(pair: Pair) -> str | None:
    which = next((one for one in (pair.first, pair.second) if one.fixed), None)
    if which is None:
        return None
    return f"%{which.id} {pair.graph[which.id].op} is a call or a copy of its own"


def no_shared_data(pair: Pair) -> str | None:
    if pair.shared:
        return None
    both = pair.first.touched & pair.second.touched
    if both:
        return f"they access %{min(both).node} at different indices"
    return "they access nothing in common"


def too_many_nodes(pair: Pair) -> str | None:
    count = len(pair.first.buffers) + len(pair.second.buffers)
    return f"{count} nodes (limit {MAX_NODES})" if count > MAX_NODES else None


def peak_memory(pair: Pair) -> str | None:
    """Inputs with one user could be reused for results if the two ran one after the other."""
    sizes = [_reusable(pair, one) for one in (pair.first, pair.second)]
    lost = sum(sizes[0] & sizes[1])
    if lost <= PEAK_FACTOR * pair.shared:
        return None
    return f"{lost} bytes could be reused, for {pair.shared} bytes saved"


def _reusable(pair: Pair, one: Loops) -> set[int]:
    graph, home = pair.graph, pair.clusters.home
    values = {d.value for d in one.reads}
    users = {v: {home[u] for u in pair.graph.users[v.node] if u in home} for v in values}
    return {
        graph.type_of(v).nbytes for v in values
        if v.node in home and len(users[v]) <= 1 and v not in graph.outputs
    }  # fmt: skip


# producer and consumer


def index_mismatch(pair: Pair) -> str | None:
    if not pair.vertical:
        return None
    written = {d.value.node for d in pair.first.writes}
    for dep in sorted(pair.second.reads - pair.first.writes, key=lambda d: d.value):
        if dep.value.node in written:
            return f"%{dep.value.node} is not read at the index at which it is written"
    return None


def intermediate(pair: Pair) -> str | None:
    third = pair.clusters.between(pair.first.id, pair.second.id)
    return None if third is None else f"%{third} lies between them"


# independent nodes


def few_bytes(pair: Pair) -> str | None:
    if pair.vertical or pair.shared >= LEAST_BYTES:
        return None
    return f"{pair.shared} shared bytes (at least {LEAST_BYTES})"


def far_apart(pair: Pair) -> str | None:
    steps = distance(pair.first, pair.second)
    if pair.vertical or steps <= MAX_DISTANCE:
        return None
    return f"{steps} nodes apart (limit {MAX_DISTANCE})"


# what one generated kernel may loop over


def loop_sizes(pair: Pair) -> str | None:
    a, b = pair.first, pair.second
    if a.is_reduction == b.is_reduction:
        same = (a.numel, a.rnumel) == (b.numel, b.rnumel)
    else:
        red, flat = (a, b) if a.is_reduction else (b, a)
        same = flat.numel in (red.numel, red.numel * red.rnumel)
    return None if same else f"loops of {_sizes(a)} and {_sizes(b)} elements"


def _sizes(one: Loops) -> str:
    return f"{one.numel} x {one.rnumel}" if one.is_reduction else f"{one.numel}"


def ranges(pair: Pair) -> str | None:
    """Pointwise loops inside a reduction's must divide into its rows."""
    a, b = pair.first, pair.second
    if a.is_reduction == b.is_reduction:
        return None
    red, flat = (a, b) if a.is_reduction else (b, a)
    if flat.numel != red.numel * red.rnumel:
        return None
    bad = next((r for r in flat.ranges if not splits(r, red.numel)), None)
    return None if bad is None else f"loops {list(bad)} do not divide into {red.numel} rows"


def splits(sizes: Sizes, rows: int) -> bool:
    """Whether leading loops, the last perhaps cut evenly, make `rows` steps."""
    left = rows
    for extent in sizes:
        if left == 1 or not extent:
            break
        if extent > left:
            return extent % left == 0
        if left % extent:
            return False
        left //= extent
    return left == 1


def tilings(pair: Pair) -> str | None:
    a, b = pair.first, pair.second
    if a.is_reduction and b.is_reduction:
        return None
    if a.is_reduction != b.is_reduction:
        return _reduction_tiling(*((a, b) if a.is_reduction else (b, a)))
    if a.numel != b.numel:
        return None  # of another rule, which may be off
    one, two = tiling_scores([a], a.numel), tiling_scores([b], a.numel)
    if one is None and two is None:
        return None
    both = tiling_scores([a, b], a.numel)
    wanted = {t for t in (one, two) if t is not None}
    return None if wanted == {both} else f"they prefer the tilings {one} and {two}"


def _reduction_tiling(red: Loops, flat: Loops) -> str | None:
    if flat.numel != red.numel * red.rnumel:
        return None
    found = tiling_scores([flat], flat.numel)
    if found is None or found == (red.numel, red.rnumel):
        return None
    return f"the pointwise loops prefer the tiling {found}"


PairRule = Callable[[Pair], str | None]
RULES: Sequence[tuple[str, PairRule]] = (
    ("extern", extern),
    ("no-shared-data", no_shared_data),
    ("max-nodes", too_many_nodes),
    ("peak-memory", peak_memory),
    ("index-mismatch", index_mismatch),
    ("intermediate", intermediate),
    ("few-bytes", few_bytes),
    ("far-apart", far_apart),
    ("loop-sizes", loop_sizes),
    ("ranges", ranges),
    ("tiling", tilings),
)


def pair_refusal(pair: Pair, off: Off = NONE_OFF) -> MergeRefusal:
    """The first rule that refuses and is not `off`, as (name, reason); None when the two may be
    fused."""
    for name, rule in RULES:
        reason = None if name in off else rule(pair)
        if reason is not None:
            return name, reason
    return None
