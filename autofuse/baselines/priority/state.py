"""The graph being fused by XLA:GPU of 2026: instructions with their modelled kernels."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import count

from autofuse.baselines.base import NONE_OFF, Off
from autofuse.baselines.priority.facts import (
    fact_2026,
    flops,
    is_tiled_transpose,
    moves_minor,
    shares,
)
from autofuse.baselines.priority.model import (
    AT_RESULT,
    COLUMN,
    LOOP_EMITTER,
    RESULT,
    ROW,
    TRANSPOSE,
    Joined,
    KernelEmitter,
    OperandTraffic,
    PricedKernel,
    emitted_at,
    make_kernel,
    share_of,
    write_ticks,
)
from autofuse.baselines.xla.launch import (
    Gpu,
    Launch,
    column_launch,
    loop_launch_2026,
    never_unrolled,
    row_launch,
    transpose_launch,
)
from autofuse.baselines.xla.state import INPUT, LIBRARY, LOOP, Instr, Limits, XlaState
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.groups import is_inline

LIMITS_2026 = Limits(49_152, 8, 96)
SIGNIFICANT_REDUCTION = 16
MAX_EPILOGUE_OPERANDS = 3
REDUCTIONS = (ROW, COLUMN)


class PriorityState(XlaState):
    """`State` with a kernel per instruction, made when asked for and dropped when it changes."""

    limits = LIMITS_2026

    def __init__(self, graph: Graph, gpu: Gpu, off: Off = NONE_OFF) -> None:
        super().__init__(graph, entry=True, off=off)
        self.gpu = gpu
        self.operand = _Operands(graph)
        self.points = count(RESULT + 1)
        self._kernels: dict[int, PricedKernel] = {}
        self._numbers = {n for n in range(len(graph.nodes)) if is_inline(graph, n)}
        self._last: Joined | None = None
        self._flops = {n: flops(graph, self.fact(n)) for n in self.live}

    def _find_facts(self) -> None:
        none_inlined = [False] * len(self.graph.nodes)
        for n in self.live:
            self.facts[n] = fact_2026(self.graph, n, none_inlined)

    # kernels

    def kernel(self, instr: Instr) -> PricedKernel:
        """What the cost model sees of `instr`."""
        found = self._kernels.get(instr.id)
        if found is None:
            found = self._kernels[instr.id] = self._analysed(instr)
        return found

    def joined(self, producer: Instr, consumer: Instr) -> Joined:
        """`producer` fused into `consumer`."""
        a, b = self.kernel(producer), self.kernel(consumer)
        last = self._last
        if last is None or last.producer is not a or last.consumer is not b:
            emitter = self.fused_emitter(producer, consumer)
            last = Joined(self.gpu, a, b, self.values(producer), self.operand, emitter)
            self._last = last
        return last

    def fuse(self, producer: Instr, consumer: Instr) -> None:
        """Put a copy of `producer` into `consumer`."""
        kernel = self.joined(producer, consumer).build(self.points)
        self.absorb(producer, consumer)
        if kernel.reads.keys() == self._arrays(consumer):
            self._kernels[consumer.id] = kernel
        self._set_kind(consumer)

    def absorb(self, producer: Instr, consumer: Instr) -> None:
        self._kernels.pop(consumer.id, None)
        super().absorb(producer, consumer)

    def take_over(self, producer: Instr, consumer: Instr) -> None:
        super().take_over(producer, consumer)
        self._kernels.pop(consumer.id, None)
        self._set_kind(consumer)

    def _set_kind(self, instr: Instr) -> None:
        instr.kind = LOOP if self.kernel(instr).emitter.kind == LOOP_EMITTER else INPUT

    def inline_constants(self) -> None:
        """Scalar constants become part of every kernel that reads them."""
        for value in [v for v in self.readers if v.node in self._numbers]:
            for reader in self.readers.pop(value):
                self.instrs[reader].operands.pop(value, None)

    def _arrays(self, instr: Instr) -> set[Value]:
        """What `instr` reads besides scalar constants, whose reading is not worth modelling."""
        return {v for v in instr.operands if v.node not in self._numbers}

    # what one kernel is, from its nodes

    def _analysed(self, instr: Instr) -> PricedKernel:
        at: dict[Value, set[int]] = {}
        points: dict[int, tuple[float, int]] = {RESULT: (1.0, 1)}
        total, emitted = 0.0, 0
        for value in self.values(instr):
            at.setdefault(value, set()).add(RESULT)
        for node in sorted(instr.nodes, reverse=True):
            here: set[int] = set()
            for k in range(len(self.graph[node].types)):
                here |= at.get(Value(node, k), set())
            share = share_of(points, here)
            copies = emitted_at(points, here)
            total += share * self._flops[node]
            emitted += copies
            self._pass_down(node, here, share, copies, at, points)
        reads = {v: frozenset(at[v]) for v in self._arrays(instr)}
        used = AT_RESULT.union(*reads.values())
        kept = {k: p for k, p in points.items() if k in used}
        written = sum(self.graph.type_of(v).nbytes for v in self.values(instr))
        return make_kernel(
            self.gpu, total, emitted, kept, reads, self.operand, self._emitter(instr),
            write_ticks(self.gpu, written),
        )  # fmt: skip

    def _pass_down(
        self, node: int, here: set[int], share: float, copies: int, at: dict[Value, set[int]],
        points: dict[int, tuple[float, int]],
    ) -> None:  # fmt: skip
        """Where an op needed at `here` needs its operands: an elementwise op at the same points,
        any other at a point of its own per operand."""
        fact = self.fact(node)
        if fact.elementwise:
            for value in fact.operands:
                at.setdefault(value, set()).update(here)
            return
        reads = shares(self.graph, fact)
        own: dict[Value, int] = {}
        for value, part in zip(self.graph[node].inputs, reads, strict=True):
            point = own.get(value)
            if point is None:
                point = own[value] = next(self.points)
                points[point] = (0.0, 0)
                at.setdefault(value, set()).add(point)
            before = points[point]
            points[point] = (before[0] + share * part, before[1] + copies)

    # emitters

    def _emitter(self, instr: Instr) -> KernelEmitter:
        hero = -1
        if instr.kind != LIBRARY:
            found = (self._hero(instr.nodes, root) for root in sorted(instr.roots))
            hero = next((h for h in found if h >= 0), -1)
        nodes = instr.nodes
        transposes = any(self._moves(n) for n in nodes)
        reduces = any(self._folds_many(n) for n in nodes)
        rolled = any(never_unrolled(self.graph, n) for n in nodes)
        kind = self._kind_of(hero)
        elements = self.fact(min(instr.roots)).size
        launch = self._launch(hero, elements, rolled)
        coalesced = kind == TRANSPOSE or not transposes
        return KernelEmitter(kind, hero, transposes, reduces, rolled, coalesced, launch)

    def fused_emitter(self, producer: Instr, consumer: Instr) -> KernelEmitter:
        """The emitter of `producer` fused into `consumer`."""
        a, b = self.kernel(producer).emitter, self.kernel(consumer).emitter
        kind, hero, launch = b.kind, b.hero, b.launch
        rolled = a.rolled or b.rolled
        if b.kind == LOOP_EMITTER:
            elements = self.fact(min(consumer.roots)).size
            if a.kind != LOOP_EMITTER and self._reads_at_the_end(consumer, producer):
                kind, hero = a.kind, a.hero
                launch = self._launch(hero, elements, rolled)
            elif rolled != b.rolled:
                launch = self._launch(-1, elements, rolled)
        transposes = a.transposes or b.transposes
        both = {kind, a.kind, b.kind} <= set(REDUCTIONS)
        coalesced = (kind == TRANSPOSE or not transposes) and not both
        return KernelEmitter(
            kind, hero, transposes, a.reduces or b.reduces, rolled, coalesced, launch
        )

    def _launch(self, hero: int, elements: int, rolled: bool) -> Launch:
        kind = self._kind_of(hero)
        if kind == LOOP_EMITTER:
            return loop_launch_2026(elements, self.gpu, not rolled)
        fact = self.fact(hero)
        if kind == TRANSPOSE:
            return transpose_launch(fact.size)
        shape = fact.loop_shape
        reduced = math.prod(shape[a] for a in fact.axes)
        kept = math.prod(shape) // max(1, reduced)
        if kind == ROW:
            return row_launch(kept, reduced)
        minor = math.prod(shape[max(fact.axes) + 1 :])
        return column_launch(max(1, kept // max(1, minor)), reduced, minor)

    def _kind_of(self, hero: int) -> str:
        if hero < 0:
            return LOOP_EMITTER
        fast = self.fact(hero).fast
        return {"row": ROW, "column": COLUMN}.get(fast, TRANSPOSE)

    def _moves(self, node: int) -> bool:
        """Whether an op transposes the innermost axis of something that is not a broadcast."""
        if self.fact(node).op != "transpose" or not moves_minor(self.graph, node):
            return False
        source = self.graph[self.graph[node].inputs[0].node].op
        return source not in ("broadcast", "iota")

    def _folds_many(self, node: int) -> bool:
        fact = self.fact(node)
        if not fact.axes:
            return False
        whole = self.graph.call(node).ins[0].size
        return whole >= SIGNIFICANT_REDUCTION * max(1, fact.size)

    def _ends(self, nodes: Collection[int], root: int) -> Iterator[int]:
        """`root` and what is below it through elementwise ops and bitcasts with one user each:
        the ops that another emitter's epilogue may hold."""
        stack = [root]
        while stack:
            node = stack.pop()
            inside = sum(u in nodes for u in self.graph.users[node])
            if node != root and inside > 1:
                continue
            yield node
            fact = self.fact(node)
            few = 1 <= len(fact.operands) <= MAX_EPILOGUE_OPERANDS
            if few and (fact.elementwise or fact.bitcast):
                stack += [v.node for v in reversed(fact.operands) if v.node in nodes]

    def _hero(self, nodes: Collection[int], root: int) -> int:
        """The one fast reduction or tiled transposition that reaches the root; -1 for none."""
        found = [n for n in self._ends(nodes, root) if self._is_hero(n)]
        return found[0] if len(found) == 1 else -1

    def _is_hero(self, node: int) -> bool:
        return bool(self.fact(node).fast) or is_tiled_transpose(self.graph, node)

    def _reads_at_the_end(self, consumer: Instr, producer: Instr) -> bool:
        wanted = set(self.values(producer))
        for root in consumer.roots:
            for node in self._ends(consumer.nodes, root):
                fact = self.fact(node)
                passes = fact.elementwise or fact.bitcast
                few = len(fact.operands) <= MAX_EPILOGUE_OPERANDS
                if passes and few and not wanted.isdisjoint(fact.operands):
                    return True
        return False


class _Operands(Mapping[Value, OperandTraffic]):
    """Sizes of a graph's values, looked up once each."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[Value, OperandTraffic] = {}

    def __getitem__(self, value: Value) -> OperandTraffic:
        found = self._known.get(value)
        if found is None:
            kind = self._graph.type_of(value)
            found = self._known[value] = OperandTraffic(kind.nbytes, kind.dtype.itemsize)
        return found

    def __iter__(self) -> Iterator[Value]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
