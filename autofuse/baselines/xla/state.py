"""The graph being fused: instructions that hold node sets, and who reads what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from autofuse.baselines.base import NONE_OFF, Decision, Off, node_label
from autofuse.baselines.xla.flow import Flow
from autofuse.baselines.xla.shapes import Fact, fact_of
from autofuse.graph.types import Graph, Value
from autofuse.order import post_order
from autofuse.patience import look
from autofuse.plan.fusion.clusters import live, reach
from autofuse.plan.fusion.groups import is_inline, is_source
from autofuse.plan.types import FusionGroup, FusionPlan

PRODUCER_IS_FUSION = "producer-is-fusion"
BITCASTS = "bitcasts"
OP, LOOP, INPUT, LIBRARY, HORIZONTAL = "op", "loop", "input", "library", "horizontal"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one kernel may hold: bytes of shared memory, fast reductions, operands + outputs."""

    shared_bytes: int
    fast_reductions: int
    operands_and_outputs: int


LIMITS_2022 = Limits(40_000, 8, 64)


@dataclass(eq=False)
class Instr:
    """One op or fusion. `id` is the node of the op it grew from; `roots` are the nodes whose
    values leave it; `operands` the values it reads, scalar constants excluded."""

    id: int
    kind: str
    nodes: set[int]
    roots: set[int]
    operands: dict[Value, None]
    shared: int
    fast: int
    flow: Flow | None = field(default=None, repr=False)

    @property
    def is_fusion(self) -> bool:
        return self.kind in (LOOP, INPUT, HORIZONTAL)

    @property
    def multi_output(self) -> bool:
        return len(self.roots) > 1


class XlaState:
    """Instructions by id, the owner of every value that leaves one, and its readers.

    Nodes of equal meaning inside one fusion are one from the start (XLA merges them by CSE). Rules
    that are `off` refuse nothing.
    """

    limits = LIMITS_2022

    def __init__(self, graph: Graph, entry: bool, off: Off = NONE_OFF) -> None:
        self.graph, self.entry, self.off = graph, entry, off
        self.live = live(graph)
        self.facts: list[Fact | None] = [None] * len(graph.nodes)
        self._find_facts()
        self.shapes = [n.types[0].shape if n.types else () for n in graph.nodes]
        self.outputs = {v for v in graph.outputs if not is_source(graph, v.node)}
        self.output_nodes = {v.node for v in self.outputs}
        self.instrs: dict[int, Instr] = {}
        self.owner: dict[int, int] = {}
        self.readers: dict[Value, dict[int, None]] = {}
        self.decisions: dict[tuple[str, int, int], Decision] = {}
        self._ancestors: dict[int, int] | None = None
        for n in self.live:
            self._add_op(n)

    def _find_facts(self) -> None:
        inlined = [is_inline(self.graph, n) for n in range(len(self.graph.nodes))]
        for n in self.live:
            self.facts[n] = fact_of(self.graph, n, inlined)

    def fact(self, node: int) -> Fact:
        found = self.facts[node]
        assert found is not None, "inputs and constants have no facts"
        return found

    def _add_op(self, node: int) -> None:
        fact = self.fact(node)
        kind = LIBRARY if fact.library else OP
        instr = Instr(
            node, kind, {node}, {node}, dict.fromkeys(fact.operands), fact.shared_bytes,
            1 if fact.fast else 0,
        )  # fmt: skip
        self.instrs[node] = instr
        self.owner[node] = node
        for value in fact.operands:
            self.readers.setdefault(value, {})[node] = None

    # who reads whom

    def values(self, instr: Instr) -> Iterator[Value]:
        """Values that leave `instr`."""
        for root in sorted(instr.roots):
            for k in range(len(self.graph[root].types)):
                yield Value(root, k)

    def users(self, instr: Instr) -> list[Instr]:
        """Instructions that read `instr`, by id."""
        found = {r for v in self.values(instr) for r in self.readers.get(v, ())}
        return [self.instrs[i] for i in sorted(found)]

    def is_output(self, instr: Instr) -> bool:
        return not self.output_nodes.isdisjoint(instr.roots)

    def user_count(self, instr: Instr) -> int:
        """Readers, the graph's result counting as one."""
        return len(self.users(instr)) + self.is_output(instr)

    def producer_of(self, value: Value) -> Instr | None:
        """The instruction that computes `value`; None for an input or a constant."""
        owner = self.owner.get(value.node)
        return None if owner is None else self.instrs[owner]

    def producers(self, instr: Instr) -> list[Instr]:
        """Instructions `instr` reads, each once, in operand order."""
        found = dict.fromkeys(self.owner[v.node] for v in instr.operands if v.node in self.owner)
        return [self.instrs[i] for i in found]

    def real_users(self, node: int) -> int:
        """Nodes that read `node`, counted inside every instruction that reads it."""
        readers = self.readers.get(Value(node), ())
        inside = sum(
            user in self.instrs[r].nodes for r in readers for user in self.graph.users[node]
        )
        return inside + (node in self.output_nodes)

    def flow(self, instr: Instr) -> Flow:
        if instr.flow is None:
            instr.flow = Flow(self.facts, self.shapes, instr.nodes, instr.roots)
        return instr.flow

    def post_order(self) -> list[int]:
        """Ids of inputs, array constants and instructions, each after all it reads, as a
        depth-first walk from the graph's outputs meets them."""

        def before(item: int) -> Iterable[int]:
            read = self.instrs[item].operands if item in self.instrs else ()
            return map(self._source, read)

        return list(post_order(map(self._source, self.graph.outputs), before))

    def _source(self, value: Value) -> int:
        return self.owner.get(value.node, value.node)

    def reaches(self, before: Instr, after: Instr) -> bool:
        """Whether `after` needs something `before` computes, directly or not."""
        look()
        if self._ancestors is None:
            # Of all instructions: one whose readers all compute it again is read by nobody.
            needs = {i: [p.id for p in self.producers(one)] for i, one in self.instrs.items()}
            order = post_order(self.instrs, needs.__getitem__)
            self._ancestors = reach((i, needs[i]) for i in order)
        return bool(self._ancestors[after.id] >> before.id & 1)

    # changes

    def _read_for(self, producer: Instr, consumer: Instr) -> None:
        """Give `consumer` the nodes of `producer`, and what they read."""
        consumer.nodes |= producer.nodes
        for value in [v for v in consumer.operands if v.node in producer.nodes]:
            del consumer.operands[value]
            self.readers[value].pop(consumer.id, None)
        for value in producer.operands:
            if value.node not in consumer.nodes:
                consumer.operands[value] = None
                self.readers.setdefault(value, {})[consumer.id] = None

    def absorb(self, producer: Instr, consumer: Instr) -> None:
        """Put a copy of `producer` into `consumer`, which takes none of its outputs."""
        self._ancestors = None
        only = next(iter(producer.nodes)) if len(producer.nodes) == 1 else None
        fresh = only is not None and self._may_extend(consumer, only)
        self._read_for(producer, consumer)
        consumer.shared += producer.shared
        consumer.fast += producer.fast
        if fresh and only is not None and consumer.flow is not None:
            consumer.flow.extend(only)
        else:
            consumer.flow = None
        if not consumer.is_fusion:
            consumer.kind = INPUT if consumer.fast else LOOP

    def _may_extend(self, consumer: Instr, node: int) -> bool:
        """Whether the flow stays right when `node` joins: nothing below it was there before."""
        below = (v.node in consumer.nodes for v in self.fact(node).operands)
        return node not in consumer.nodes and not any(below)

    def take_over(self, producer: Instr, consumer: Instr) -> None:
        """Move `producer` and its outputs into `consumer`, which becomes multi-output."""
        self.absorb(producer, consumer)
        for root in producer.roots:
            self.owner[root] = consumer.id
        consumer.roots |= producer.roots
        producer.roots = set()
        consumer.flow = None
        self.remove(producer)
        self._drop_unread_roots(consumer)

    def drop_if_unread(self, instr: Instr) -> bool:
        """Remove `instr` when nothing reads it any more."""
        if self.user_count(instr):
            return False
        self.remove(instr)
        return True

    def remove(self, instr: Instr) -> None:
        self._ancestors = None
        for root in instr.roots:
            del self.owner[root]
        del self.instrs[instr.id]
        for value in instr.operands:
            self.readers[value].pop(instr.id, None)

    def _drop_unread_roots(self, instr: Instr) -> None:
        for root in sorted(instr.roots):
            values = (Value(root, k) for k in range(len(self.graph[root].types)))
            read = root in self.output_nodes or any(self.readers.get(v) for v in values)
            if not read and len(instr.roots) > 1:
                instr.roots.discard(root)
                del self.owner[root]
                instr.flow = None

    def dissolve_bitcasts(self) -> None:
        """A bitcast left over launches nothing in XLA: its readers read through it."""
        for item in reversed(self.post_order()):
            instr = self.instrs.get(item)
            if instr is None or not all(self.fact(n).bitcast for n in instr.nodes):
                continue
            for user in self.users(instr):
                if user.kind != LIBRARY:
                    self.absorb(instr, user)
                    self.note(BITCASTS, instr, user, None, ("bitcast", "read through, no kernel"))
            self.drop_if_unread(instr)

    # results

    def note(
        self, pass_name: str, producer: Instr, consumer: Instr, refusal: tuple[str, str] | None,
        fused: tuple[str, str],
    ) -> None:  # fmt: skip
        """Record the verdict on one pair; the pass's last verdict on it stands, except that
        "the producer has become a fusion meanwhile" does not hide an earlier reason.

        A producer that is its own consumer is considered for the graph's result.
        """
        key = (pass_name, producer.id, consumer.id)
        rule, reason = fused if refusal is None else refusal
        if rule == PRODUCER_IS_FUSION and key in self.decisions:
            return
        into = "result" if producer is consumer else node_label(self.graph, consumer.id)
        self.decisions[key] = Decision(
            pass_name, node_label(self.graph, producer.id), into, refusal is None, rule, reason,
            producer.id, consumer.id,
        )  # fmt: skip

    def plan_groups(self, bodies: dict[int, FusionPlan]) -> Iterable[FusionGroup]:
        """The instructions as groups; an output is a value others read or the graph returns."""
        for instr in self.instrs.values():
            outputs = [v for v in self.values(instr) if v in self.outputs or self.readers.get(v)]
            if outputs:  # what every reader recomputes is stored by nobody
                yield FusionGroup(tuple(sorted(instr.nodes)), tuple(outputs), bodies.get(instr.id))
