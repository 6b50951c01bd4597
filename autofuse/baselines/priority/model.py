"""The cost model of XLA:GPU's priority fusion: what a kernel computes, reads and takes.

Times are whole ticks of a quarter nanosecond, as in XLA, so that sums do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autofuse.baselines.xla.launch import Gpu, Launch
from autofuse.graph.types import Value

TICKS_PER_NS = 4
LAUNCH = 1000 * TICKS_PER_NS
OVERLAP = 0.95
L2_SPEED_UP, L1_SPEED_UP = 2.5, 8.0
RESULT = 0
AT_RESULT = frozenset((RESULT,))
LOOP_EMITTER, ROW, COLUMN, TRANSPOSE = "loop", "row", "column", "transpose"


@dataclass(frozen=True, slots=True)
class KernelEmitter:
    """Which code generator a kernel gets. `hero` is the reduction or transposition that decides
    it (-1: none); `transposes`, `reduces`, `rolled`: it moves an innermost axis, folds at least 16
    elements into one, may not be unrolled. `coalesced` says that neighbours read neighbours."""

    kind: str
    hero: int
    transposes: bool
    reduces: bool
    rolled: bool
    coalesced: bool
    launch: Launch


@dataclass(frozen=True, slots=True)
class OperandTraffic:
    """An array read: bytes of all of it and of one element."""

    nbytes: int
    itemsize: int


@dataclass(frozen=True, slots=True)
class PricedKernel:
    """One kernel under the cost model.

    `points` are the indices its values are needed at: for each, the share of the elements needed
    (above 1: computed repeatedly) and how often code for it is emitted. Point RESULT is the
    result's own index. `reads` says at which points each operand is read. Ticks: `read` per
    operand, `total_read`, `write`, `time`.
    """

    flops: float
    emitted: int
    points: Mapping[int, tuple[float, int]]
    reads: Mapping[Value, frozenset[int]]
    emitter: KernelEmitter
    read: Mapping[Value, int]
    total_read: int
    write: int
    time: int


def _ticks(nanoseconds: float) -> int:
    return int(nanoseconds * TICKS_PER_NS + 0.5)


def write_ticks(gpu: Gpu, nbytes: int) -> int:
    """Ticks to write `nbytes`."""
    return _ticks(nbytes / gpu.bandwidth)


def read_ticks(gpu: Gpu, emitter: KernelEmitter, operand: OperandTraffic, share: float) -> int:
    """Ticks to read an operand: once from DRAM, what is read again from a cache if it fits."""
    total = round(operand.nbytes * share)
    first = min(operand.nbytes, total)
    waste = 1.0 if emitter.coalesced else min(1.0, operand.itemsize / gpu.transaction_bytes)
    cap = emitter.launch.blocks * gpu.clock_ghz * gpu.issue_bytes
    again = gpu.bandwidth
    if first >= gpu.l2_bytes:
        again *= waste
    else:
        again *= L2_SPEED_UP
        if first < gpu.l1_bytes_per_sm * gpu.sms:
            again *= L1_SPEED_UP
    found = _ticks(first / min(cap, gpu.bandwidth * waste))
    return found + _ticks((total - first) / min(cap, again)) if total > first else found


def compute_ticks(gpu: Gpu, launch: Launch, flops: float) -> int:
    """Ticks of arithmetic on the processors that the launch keeps busy."""
    units = min(launch.blocks, gpu.sms) * min(launch.threads, gpu.fpus_per_sm)
    return _ticks(flops / (2 * gpu.clock_ghz * units))


def together(compute: int, memory: int) -> int:
    """Arithmetic and memory traffic overlap by 95 % of the smaller."""
    return compute + memory - int(OVERLAP * min(compute, memory) + 0.5)


def share_of(points: Mapping[int, tuple[float, int]], at: Iterable[int]) -> float:
    return sum(points[k][0] for k in at)


def emitted_at(points: Mapping[int, tuple[float, int]], at: Iterable[int]) -> int:
    return sum(points[k][1] for k in at)


def make_kernel(
    gpu: Gpu, flops: float, emitted: int, points: Mapping[int, tuple[float, int]],
    reads: Mapping[Value, frozenset[int]], operands: Mapping[Value, OperandTraffic],
    emitter: KernelEmitter, write: int,
) -> PricedKernel:  # fmt: skip
    """The kernel with its times."""
    read = {
        v: read_ticks(gpu, emitter, operands[v], share_of(points, at)) for v, at in reads.items()
    }
    total = sum(read.values())
    time = together(compute_ticks(gpu, emitter.launch, flops), total + write)
    return PricedKernel(flops, emitted, points, reads, emitter, read, total, write, time)


def _reads_alike(a: KernelEmitter, b: KernelEmitter) -> bool:
    """Whether reading an operand takes the same under both."""
    return a.launch.blocks == b.launch.blocks and a.coalesced == b.coalesced


class Joined:
    """A producer's kernel fused into a consumer's, priced without being built.

    `values` are the producer's results. The consumer's write stays, the producer's goes."""

    def __init__(
        self, gpu: Gpu, producer: PricedKernel, consumer: PricedKernel, values: Iterable[Value],
        operands: Mapping[Value, OperandTraffic], emitter: KernelEmitter,
    ) -> None:  # fmt: skip
        self.gpu, self.producer, self.consumer = gpu, producer, consumer
        self.values = frozenset(values)
        self.operands, self.emitter = operands, emitter
        empty: frozenset[int] = frozenset()
        self.at = empty.union(*(consumer.reads.get(v, empty) for v in self.values))
        self.share = share_of(consumer.points, self.at)
        copies = emitted_at(consumer.points, self.at)
        self.emitted = consumer.emitted + copies * producer.emitted
        self.flops = consumer.flops + self.share * producer.flops

    def share_read(self, value: Value) -> float:
        """The part of `value` that the fused kernel reads."""
        mine = self.consumer.reads.get(value)
        theirs = self.producer.reads.get(value)
        points = self.consumer.points
        if mine is None or theirs is None:
            points, at = (points, mine) if theirs is None else (self.producer.points, theirs)
            return share_of(points, at or ()) * (1.0 if theirs is None else self.share)
        inner = sum(self.producer.points[k][0] for k in theirs if k != RESULT)
        outer = mine | self.at if RESULT in theirs else mine
        return share_of(points, outer) + self.share * inner

    def time(self) -> int:
        """Ticks of the fused kernel, its launch aside."""
        alike = _reads_alike(self.emitter, self.consumer.emitter)
        total = self._read_changed() if alike else self._read_anew()
        compute = compute_ticks(self.gpu, self.emitter.launch, self.flops)
        return together(compute, total + self.consumer.write)

    def _read(self, value: Value) -> int:
        share = self.share_read(value)
        return read_ticks(self.gpu, self.emitter, self.operands[value], share)

    def _read_anew(self) -> int:
        every = {**self.consumer.reads, **self.producer.reads}
        return sum(self._read(v) for v in every if v not in self.values)

    def _read_changed(self) -> int:
        """What the consumer reads already, and what the producer changes about it."""
        known, reads = self.consumer.read, self.consumer.reads
        total = self.consumer.total_read - sum(known.get(v, 0) for v in self.values)
        # What only the producer reads, once per element as before, takes what it took before.
        alike = self.share == 1.0 and _reads_alike(self.emitter, self.producer.emitter)
        for value, theirs in self.producer.reads.items():
            mine = reads.get(value)
            if mine is None:
                total += self.producer.read[value] if alike else self._read(value)
            elif theirs != AT_RESULT or not self.at <= mine:
                total += self._read(value) - known[value]
        return total

    def _moved(self, at: frozenset[int], renamed: Mapping[int, int]) -> frozenset[int]:
        """Points of the producer in the fused kernel; its result is where the consumer reads it."""
        moved = frozenset(renamed[k] for k in at if k != RESULT)
        return moved | self.at if RESULT in at else moved

    def build(self, fresh: Iterable[int]) -> PricedKernel:
        """The fused kernel; `fresh` gives unused point numbers."""
        producer, consumer = self.producer, self.consumer
        copies = emitted_at(consumer.points, self.at)
        renamed = {k: next(iter(fresh)) for k in producer.points if k != RESULT}
        points = dict(consumer.points)
        for k, new in renamed.items():
            share, emitted = producer.points[k]
            points[new] = (share * self.share, emitted * copies)
        reads = {v: at for v, at in consumer.reads.items() if v not in self.values}
        for value, at in producer.reads.items():
            reads[value] = reads.get(value, frozenset()) | self._moved(at, renamed)
        used = AT_RESULT.union(*reads.values())
        kept = {k: p for k, p in points.items() if k in used}
        return make_kernel(
            self.gpu, self.flops, self.emitted, kept, reads, self.operands, self.emitter,
            consumer.write,
        )  # fmt: skip
