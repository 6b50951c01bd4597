"""What a kernel that was never measured is expected to take: its lower bound, what shifted reads
have computed again, and of products what their tiles do more than once.

A bound says what no kernel can beat, so it cannot tell a good kernel from a hopeless one: two
products in one kernel read both weights again for every few rows, and their bound is that of the
two apart. Expectations order what is measured, and prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace

from autofuse.cost.amounts import Work
from autofuse.cost.bounds import Calibration, group_bound_us
from autofuse.cost.masked import least_work, masked_shares, may_be_masked
from autofuse.cost.repeated import LANE_BY_LANE, kept_bytes, repeated_work
from autofuse.cost.work import group_work
from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family, Motion
from autofuse.plan.fusion.clusters import ancestors, bits
from autofuse.plan.fusion.groups import reads
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.fusion.products import product_of
from autofuse.plan.parameters import (
    COLUMN_BLOCK,
    DOT,
    MICRO,
    PACK,
    ROW_BLOCK,
    THREADS,
    TRANSPOSE,
    WALK,
)
from autofuse.plan.program.binding import may_run_once
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.online import online_under
from autofuse.plan.schedules.tiles import Contraction, Tiles, is_packed, tiles_of
from autofuse.plan.types import FusionGroup, LaunchConfig

# Panels up to this size stay in a core's own cache from one block of rows to the next.
NEAR_BYTES = 1 << 20
# Bytes of memory that are fetched together.
LINE = 64
# Operations that vectors would do in the time of loading and storing an element by itself.
ONE_BY_ONE = 64.0
# How often an element must be used for a library to copy what it reads.
LEAST_USES = 24
# How many times longer sums take that every item computes by itself, without tiles.
SLOW_SUMS = 8.0
# Items from which on a kernel around a loop computes them side by side, in the lanes of vectors.
LANES = 8
# Microseconds of a call of a library, beside what it multiplies.
CALL_US = 0.2
# Microseconds of a kernel that does next to nothing: it is called, and its loops begin.
START_US = 0.1


def has_products(graph: Graph, nodes: Iterable[int]) -> bool:
    """Whether expectations may differ from lower bounds."""
    return any(graph[n].spec.family is Family.CONTRACTION for n in nodes)


def depends_on_launch(graph: Graph, nodes: Iterable[int]) -> bool:
    """Whether what is expected of a kernel follows from its launch configuration too."""
    return any(graph[n].spec.factors is not None or _turns(graph, n) for n in nodes)


def _forms(graph: Graph, group: FusionGroup) -> tuple[Form, ...]:
    verdict = check_group(graph, group.nodes, group.outputs, placed=True)
    return () if isinstance(verdict, Refusal) else verdict


def expected_us(
    graph: Graph, group: FusionGroup, launch: LaunchConfig, calibration: Calibration
) -> float:
    """Microseconds that one call of a plan is expected to spend in a group launched like this, at
    least its bound."""
    bound = group_bound_us(graph, group, calibration)
    if group.body is not None or may_run_once(graph, group.nodes):
        return bound
    if MICRO.name not in dict(launch.settings):
        # A GPU's library does all products of a batch in one call, a processor's each in its own.
        call_us = CALL_US if calibration.alone is not None else 0.0
        price = _without_tiles(graph, group, launch, call_us)
        items = max((form.items for form in _forms(graph, group)), default=0)
        return max(bound, min(map(price, _crews(calibration, launch, items))))
    peaks, workers = _workers(calibration, launch)
    found = ((form, tiles_of(graph, form)) for form in _forms(graph, group))
    parts = [_Tiled(graph, f, t, launch, peaks, workers) for f, t in found if t is not None]
    if not parts:
        return max(bound, _start_us(peaks))
    work = _whole_products(graph, parts, least_work(graph, group.nodes, group.outputs))
    # Idle workers and tiles that are not full cost all arithmetic alike.
    busy = _added_us(work, peaks) * max(part.waste for part in parts)
    more = sum(part.repeated_us() for part in parts)
    return max(bound, _start_us(peaks) + max(busy, peaks.move_us(work.nbytes)) + more)


def _whole_products(graph: Graph, parts: Sequence[_Tiled], work: Work) -> Work:
    """Tiles compute all columns of a product but those that a mask hides, also where each reader
    takes a slice of them, of which a bound can count one only."""
    done = sum(part.multiplied() for part in parts)
    times = max(1.0, done / work.products) if work.products else 1.0
    return replace(
        work, contraction=times * work.contraction, wide=times * work.wide,
        narrow=times * work.narrow, byte=times * work.byte,
    )  # fmt: skip


Pricing = Callable[[Calibration], float]


def _without_tiles(
    graph: Graph, group: FusionGroup, launch: LaunchConfig, call_us: float
) -> Pricing:
    """What a kernel without tiles takes by the peaks of a crew: what it does is counted once."""
    by_loops = product_of(graph, group.nodes) is None
    return _of_loops(graph, group, launch) if by_loops else _of_a_library(graph, group, call_us)


def _of_loops(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> Pricing:
    """Loops, whose arithmetic is too short to hide their memory."""
    work = least_work(graph, group.nodes, group.outputs) + repeated_work(graph, group, launch)
    slow = replace(work, contraction=SLOW_SUMS * work.products, wide=0.0, narrow=0.0, byte=0.0)
    slow += _summed_work(graph, group.nodes).computing(SLOW_SUMS)
    slow += _idle_work(graph, group)
    turned = sum(graph[n].types[0].size for n in group.nodes if _turns(graph, n))
    far = 0 if TRANSPOSE.of(launch) else turned
    kept = tuple(kept_bytes(graph, group, launch))

    def price(peaks: Calibration) -> float:
        moved = peaks.move_us(work.nbytes) + _lines_us(peaks, far)
        moved += sum(tiles * peaks.move_us(2 * each) for tiles, each in kept)
        return _start_us(peaks) + moved + _added_us(slow, peaks)

    return price


def _of_a_library(graph: Graph, group: FusionGroup, call_us: float) -> Pricing:
    """A call, at the library's own speed, having copied both operands once where that pays; each
    product takes `call_us` besides."""
    product = product_of(graph, group.nodes)
    calls = 0 if product is None else product.form.products
    work = least_work(graph, group.nodes, group.outputs)
    read = work.nbytes - sum(graph.type_of(v).nbytes for v in group.outputs)
    item = graph.type_of(group.outputs[0]).dtype.itemsize
    copied = 2 * read if work.products * item >= 2 * LEAST_USES * read else 0.0

    def price(peaks: Calibration) -> float:
        crew = peaks.contraction / (peaks.alone or peaks).contraction
        busy = _rated_us(work.products, peaks.library, peaks.contraction)
        busy += calls * call_us / crew
        return _start_us(peaks) + max(busy, peaks.move_us(work.nbytes)) + _copied_us(peaks, copied)

    return price


def _summed_work(graph: Graph, nodes: Sequence[int]) -> Work:
    """What items that compute sums by themselves compute once for each term."""
    found, inside = Work(), frozenset(nodes)
    for n in nodes:
        own = graph[n]
        if own.spec.family is Family.CONTRACTION:
            above = sorted(set(bits(ancestors(graph)[n])) & inside - {n})
            made = tuple(v for v in own.inputs if v.node in inside)
            terms = own.spec.terms(graph.call(n))
            found += group_work(graph, above, made).computing(terms - 1) if made else Work()
    return found


def _idle_work(graph: Graph, group: FusionGroup) -> Work:
    """What vectors would do while a kernel around a loop, whose items are too few for lanes, does
    one thing after another: also what is computed for the loop and beside it."""
    found = Work()
    if not any(graph[n].spec.family is Family.CONTROL for n in group.nodes):
        return found
    verdict = check_group(graph, group.nodes, group.outputs, placed=True)
    for form in () if isinstance(verdict, Refusal) else verdict:
        if form.items < LANES and any(graph[n].spec.family is Family.CONTROL for n in form.nodes):
            own = group_work(graph, form.nodes, form.outputs)
            found += own.computing(LANE_BY_LANE - 1)
    return found


def _turns(graph: Graph, node: int) -> bool:
    """Whether neighbours of a result are no neighbours in memory because axes change places."""
    own = graph[node]
    if own.spec.motion is not Motion.PERMUTE or own.types[0].nbytes <= NEAR_BYTES:
        return False
    return innermost(graph, Value(node), frozenset({node})) != len(own.types[0].shape) - 1


def innermost(graph: Graph, value: Value, nodes: Container[int]) -> int:
    """The axis of a value along which it lies in memory, if `nodes` are computed where it is read:
    the last one, but for axes that change places."""
    node = graph[value.node]
    if value.node not in nodes or node.spec.motion is not Motion.PERMUTE or node.spec.axes is None:
        return len(graph.type_of(value).shape) - 1
    (operand,), (mapping,) = node.inputs, node.spec.axes(graph.call(value.node))
    source = innermost(graph, operand, nodes)
    return next((out for out, axis in enumerate(mapping) if axis == source), -1)


def _lines_us(peaks: Calibration, elements: float) -> float:
    """Elements of which each costs a line of memory."""
    return elements * LINE / (peaks.gbytes_per_s * 1e3)


def _copied_us(peaks: Calibration, nbytes: float) -> float:
    """Copying panels: their rows lie far apart, so caches help only where all of it stays near."""
    near = nbytes <= NEAR_BYTES
    return peaks.move_us(nbytes) if near else nbytes / (peaks.gbytes_per_s * 1e3)


def _start_us(peaks: Calibration) -> float:
    return max(peaks.launch_us, START_US)


def _crews(calibration: Calibration, launch: LaunchConfig, items: int) -> tuple[Calibration, ...]:
    """The peaks of those that may run a kernel: of all threads or of one, as the launch says; of
    either where it does not, because a default launch has but one thread where that is faster. What
    is a single row, or item, has one."""
    if calibration.alone is None:
        return (calibration,)
    if items == 1:
        return (calibration.alone,)
    threads = dict(launch.settings).get(THREADS.name)
    if threads is None:
        return calibration, calibration.alone
    return (calibration.alone if threads == 1 else calibration,)


def _workers(calibration: Calibration, launch: LaunchConfig) -> tuple[Calibration, int]:
    """The peaks of those that a kernel's blocks are spread over, and how many these are where a
    block belongs to one of them (on a GPU there are enough blocks, or nothing is known)."""
    alone = calibration.alone
    if alone is None:
        return calibration, 1
    if launch.get(THREADS.name, THREADS.default) == 1:
        return alone, 1
    return calibration, max(1, round(calibration.contraction / alone.contraction))


def _added_us(work: Work, peaks: Calibration) -> float:
    """Arithmetic of all classes one after another, because they share their units; generated
    products use those of plain arithmetic."""
    return (
        peaks.added_us(work)
        + _rated_us(work.contraction, peaks.cheap, peaks.cheap)
        + (
            _rated_us(work.wide, peaks.wide, peaks.cheap)
            + _rated_us(work.narrow, peaks.narrow, peaks.cheap)
            + _rated_us(work.byte, peaks.byte or peaks.narrow, peaks.cheap)
        )
    )


def _rated_us(operations: float, rate: float, otherwise: float) -> float:
    return operations / ((rate or otherwise) * 1e3)


class _Tiled:
    """One segment in the tile schedule: its blocks, and what each does again."""

    def __init__(
        self, graph: Graph, form: Form, tiles: Tiles, launch: LaunchConfig, peaks: Calibration,
        workers: int,
    ) -> None:  # fmt: skip
        self.graph, self.form, self.tiles, self.peaks = graph, form, tiles, peaks
        self.nodes = frozenset(form.nodes)
        micro = int(str(launch.get(MICRO.name, MICRO.default)).split("x")[0])
        rows = self._extent(tiles.rows)
        columns = self._extent(tiles.columns)
        height = min(max(ROW_BLOCK.of(launch), micro), -(-rows // micro) * micro)
        self.batch = self._extent(tiles.batch)
        self.high = -(-rows // height)
        self.broad = -(-columns // min(COLUMN_BLOCK.of(launch) or columns, columns))
        self.packs, self.walks, self.dot = PACK.of(launch), WALK.of(launch), DOT.of(launch)
        online = online_under(graph, form, tiles, launch)
        self.streamed = {p.node for p in online.sources} if online is not None else set[int]()
        self.shares = (
            masked_shares(graph, form.nodes, form.outputs)
            if may_be_masked(graph, form.nodes)
            else {}
        )
        blocks = self.batch * self.high * self.broad
        idle = -(-blocks // workers) * workers / blocks
        self.waste = idle * (-(-rows // micro) * micro / rows if rows >= micro else 1.0)

    def _extent(self, axes: tuple[int, ...]) -> int:
        return math.prod(self.form.parallel[a] for a in axes)

    def multiplied(self) -> float:
        """Operations of the products that are computed."""
        return sum(
            self.shares.get(p.node, 1.0)
            * group_work(self.graph, (p.node,), (Value(p.node),)).products
            for p in self.tiles.products
        )

    def repeated_us(self) -> float:
        """Microseconds that memory costs beyond being read and written once, in order."""
        panels = sum(self._right_us(p) + self._left_us(p) for p in self.tiles.products)
        return panels + self._scattered_us()

    def _scattered_us(self) -> float:
        """What lies across the lanes costs a line of memory for each element that is read, and two
        for each that is written. Lanes run over columns, or along what is local to a row."""
        factors = {v for p in self.tiles.products for v in self.graph[p.node].inputs}
        elements = 0
        for value, lines in (
            *((v, 2) for v in self.form.outputs),
            *((v, 1) for v in reads(self.graph, self.form.nodes) if v not in factors),
        ):
            own = self.graph.type_of(value)
            if own.size * own.dtype.itemsize > LINE and self._is_across(value):
                elements += lines * own.size
        return _lines_us(self.peaks, elements)

    def _is_across(self, value: Value) -> bool:
        tags = dict(self.form.tags).get(value)
        if not tags or self.graph.type_of(value).shape[-1] == 1:
            return False
        if self.tiles.columns:
            along = self.dot and not isinstance(tags[-1], int)  # as vectors run, along terms
            return tags[-1] != self.tiles.columns[-1] and not along
        return isinstance(tags[-1], int)

    def _right_us(self, p: Contraction) -> float:
        """Every block of rows reads the panels of the right operand again, and copies or computes
        them first, but for vectors along terms, which take one element after another where terms
        are no neighbours. Where columns come in blocks, one whose terms are neighbours is read as
        it lies."""
        node = self.graph[p.node]
        value = node.inputs[p.right]
        nbytes = p.terms * p.width * self.graph.type_of(value).dtype.compute.itemsize
        is_made = value.node in self.nodes
        passes = self.batch * self.high * self.shares.get(p.node, 1.0)
        made = self.batch * self.high * p.groups * p.terms * p.width
        turned = self._is_turned(p, value)
        if self.dot or (is_made and not self.packs):  # read, or made in registers, not copied
            again = 0.0 if is_made else (passes - 1) * self.peaks.move_us(nbytes)
            if self.dot and not (is_made or turned) and p.width > 1:
                again += passes * self._one_by_one_us(p.terms * p.width)
            return again + self._again_us(value, made)
        lies = turned and p.node in self.streamed and not is_made
        copied = 2 * nbytes if is_made or (self.packs and not lies) else nbytes
        far = (turned and not lies) or self._is_patches(p, p.right)
        each = _copied_us(self.peaks, copied) + far * self._one_by_one_us(p.terms * p.width)
        return passes * each + self._again_us(value, made)

    def _is_turned(self, p: Contraction, value: Value) -> bool:
        """Whether columns of a right operand are no neighbours in memory, its terms are."""
        attrs, near = self.graph.call(p.node), innermost(self.graph, value, self.nodes)
        if self.graph[p.node].spec.convolves is not None:
            return p.right == 1 and near != attrs["rhs_axes"][0]
        contracted = attrs.get(("lhs_contract", "rhs_contract")[p.right])
        return contracted is not None and near in contracted

    def _left_us(self, p: Contraction) -> float:
        """Rows that are copied or computed for a block are so for every block of columns."""
        if not is_packed(self.graph, self.form, p):
            return 0.0
        value = self.graph[p.node].inputs[p.left]
        rows = self.batch * self._extent(self.tiles.rows)
        nbytes = rows * p.terms * self.graph.type_of(value).dtype.compute.itemsize
        again = self._again_us(value, self.broad * p.groups * rows * p.terms)
        far = self._one_by_one_us(rows * p.terms) if self._is_patches(p, p.left) else 0.0
        return self.broad * (self.peaks.move_us(2 * nbytes) + far) + again

    def _is_patches(self, p: Contraction, operand: int) -> bool:
        """Whether an operand is the patches of an image, which are then copied, not walked."""
        node = self.graph[p.node]
        if operand != 0 or self.walks or node.spec.convolves is None:
            return False
        found = node.spec.convolves(self.graph.call(p.node))
        return found is not None and math.prod(found.weights.shape[-len(found.windows) :]) > 1

    def _one_by_one_us(self, elements: float) -> float:
        return ONE_BY_ONE * elements / (self.peaks.cheap * 1e3)

    def _again_us(self, value: Value, elements: float) -> float:
        """Computing so many elements of a value of this kernel where its own would do, products in
        it apart: blocks do not share them, nor do the taps that read one element of an image."""
        times = elements / max(1, self.graph.type_of(value).size) - 1
        if value.node not in self.nodes or times <= 0:
            return 0.0
        above = set(bits(ancestors(self.graph)[value.node])) & self.nodes | {value.node}
        if has_products(self.graph, above):
            return 0.0
        return times * _added_us(group_work(self.graph, sorted(above), (value,)), self.peaks)
