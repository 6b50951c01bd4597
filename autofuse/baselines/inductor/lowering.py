"""TorchInductor's first place of fusion: what is inlined into its users, and what is a buffer.

Nodes are lowered in order, as `GraphLowering.run_node` does. A value that is no buffer is
recomputed by every user lowered while it is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autofuse.baselines.base import NONE_OFF, Off
from autofuse.baselines.merging import Notes
from autofuse.graph.types import Graph
from autofuse.ops.spec import Family
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import is_inline, is_source
from autofuse.plan.fusion.partition import is_rematerialisable

PASS = "lowering"
READS = 4  # realize_reads_threshold
OPS = 30  # realize_opcount_threshold
ACCUMULATED_READS = 8  # realize_acc_reads_threshold
LARGE_BODY = 100  # the inner function that recursion would not survive
UNROLL = 8  # unroll_reductions_threshold
CAT_INPUTS = 8  # max_pointwise_cat_inputs
WINDOW = 25  # max_pool2d and avg_pool2d fall back to a call of ATen beyond it

POINTWISE, REDUCTION, SCAN, EXTERN, NOP = "pointwise", "reduction", "scan", "extern", "nop"
# Sorting is one, too, but for short rows on a GPU.
CALLS = (Family.CONTRACTION, Family.CONTROL, Family.SORT, Family.SOLVER)
# A read of a buffer: its node and output, and the movements between it and the reader.
Read = tuple[int, int, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class LoopBodyText:
    """What computing one value takes: the nodes inlined, the reads, operations counted."""

    nodes: frozenset[int] = frozenset()
    reads: frozenset[Read] = frozenset()
    ops: int = 0


@dataclass(eq=False)
class Lowering:
    """The graph being lowered: bodies of all values seen, and the kind of every buffer. Rules that
    are `off` make none."""

    graph: Graph
    notes: Notes
    off: Off = NONE_OFF
    body: dict[int, LoopBodyText] = field(default_factory=dict)
    buffers: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.live = live(self.graph)
        self.outputs = {v.node for v in self.graph.outputs}
        inside = set(self.live)
        self.users = {n: [u for u in self.graph.users[n] if u in inside] for n in self.live}

    def user_count(self, node: int) -> int:
        return len(self.users[node]) + (node in self.outputs)

    def realise(self, node: int) -> None:
        """Make a buffer of a value unless it is one; a rematerialisable one is stored by
        nobody."""
        if is_source(self.graph, node) or is_rematerialisable(self.graph, node):
            return
        self.buffers.setdefault(node, POINTWISE)

    def is_buffer(self, node: int) -> bool:
        return node in self.buffers or is_source(self.graph, node)

    def base(self, node: int) -> int:
        """The value behind a chain of views."""
        while not self.is_buffer(node) and is_view(self.graph, node):
            node = self.graph[node].inputs[0].node
        return node


def is_view(graph: Graph, node: int) -> bool:
    """Whether the op only names other elements: no loop of its own, and no storage."""
    return graph[node].op in ("broadcast", "reshape", "slice", "transpose")


def is_call(graph: Graph, node: int) -> bool:
    """Whether the op is a call of a library, as pooling over large windows is, too."""
    family = graph[node].spec.family
    return family in CALLS or (family is Family.WINDOW and not unrolls(graph, node))


def lower(graph: Graph, notes: Notes, off: Off = NONE_OFF) -> Lowering:
    """Every live node lowered; `buffers` are the nodes of the scheduler, by kind."""
    low = Lowering(graph, notes, off)
    for node in low.live:
        if is_call(graph, node):
            low.buffers[node] = EXTERN
        elif graph[node].op == "concat" and not _is_pointwise_cat(low, node):
            low.buffers[node] = NOP
        if node in low.buffers:
            for value in graph[node].inputs:
                low.realise(value.node)
        low.body[node] = _body(low, node)
        _decide(low, node)
    for node in sorted(low.outputs):
        low.realise(node)
    return low


def _body(low: Lowering, node: int) -> LoopBodyText:
    graph, n = low.graph, low.graph[node]
    nodes, reads, ops = {node}, set[Read](), 0
    for position, value in enumerate(n.inputs):
        if is_inline(graph, value.node):
            ops += 1
            continue
        if low.is_buffer(value.node):
            inner = LoopBodyText(reads=frozenset({(value.node, value.index, ())}))
        else:
            inner = low.body[value.node]
        nodes |= inner.nodes
        reads |= _seen_through(low, node, position, inner.reads)
    copies = _copies(low, node)
    counted = sum(1 for m in nodes if not is_view(graph, m) and not is_rematerialisable(graph, m))
    return LoopBodyText(frozenset(nodes), frozenset(reads), (counted + len(reads)) * copies + ops)


def _copies(low: Lowering, node: int) -> int:
    """An unrolled reduction evaluates its operand once per element."""
    if not unrolls(low.graph, node):
        return 1
    return max(1, low.graph[node].spec.terms(low.graph.call(node)))


def _seen_through(low: Lowering, node: int, position: int, reads: frozenset[Read]) -> set[Read]:
    n = low.graph[node]
    if n.spec.family is Family.MOVEMENT and n.op != "reshape":
        step: object = (n.op, n.attrs, position)
        return {(v, k, (step, *path)) for v, k, path in reads}
    if unrolls(low.graph, node):
        return {(v, k, (i, *path)) for v, k, path in reads for i in range(_copies(low, node))}
    return set(reads)


def unrolls(graph: Graph, node: int) -> bool:
    """Whether a reduction or a window is so short that it is written out as pointwise."""
    spec, call = graph[node].spec, graph.call(node)
    if spec.family is Family.WINDOW:
        return spec.transforms is None and spec.terms(call) <= WINDOW
    return spec.family is Family.REDUCTION and spec.terms(call) < UNROLL


# when a value becomes a buffer


def library_call(low: Lowering, node: int) -> str | None:
    if not is_call(low.graph, node):
        return None
    return "a library call writes a buffer"


def nop_concat(low: Lowering, node: int) -> str | None:
    if low.buffers.get(node) != NOP:
        return None
    return "a concatenation into whose parts its operands write"


def reduction(low: Lowering, node: int) -> str | None:
    family = low.graph[node].spec.family
    if family is Family.SCAN:
        return "a scan writes a buffer"
    if family is not Family.REDUCTION or unrolls(low.graph, node):
        return None
    return f"a reduction of {UNROLL} elements or more writes a buffer"


def random(low: Lowering, node: int) -> str | None:
    if low.graph[node].spec.family is not Family.RANDOM:
        return None
    return "random numbers are drawn once, into a buffer"


def output_reused(low: Lowering, node: int) -> str | None:
    if node not in low.outputs or low.user_count(node) < 2:
        return None
    return "a result of the graph that has other users"


def library_operand(low: Lowering, node: int) -> str | None:
    if low.user_count(node) < 2 or len(low.body[node].reads) < 2:
        return None
    user = next((u for u in low.users[node] if _wants_memory(low.graph, u)), None)
    return None if user is None else f"the library call or window %{user} needs it in memory"


def _wants_memory(graph: Graph, node: int) -> bool:
    return is_call(graph, node) or graph[node].spec.family is Family.WINDOW


def reused_reads(low: Lowering, node: int) -> str | None:
    reads = len(low.body[node].reads)
    if low.user_count(node) < 2 or reads <= READS:
        return None
    return f"several users, and {reads} reads (limit {READS})"


def reused_ops(low: Lowering, node: int) -> str | None:
    ops = low.body[node].ops
    if low.user_count(node) < 2 or ops <= OPS:
        return None
    return f"several users, and {ops} operations (limit {OPS})"


def accumulated_reads(low: Lowering, node: int) -> str | None:
    reads = len(low.body[node].reads)
    return f"{reads} reads (limit {ACCUMULATED_READS})" if reads > ACCUMULATED_READS else None


def accumulated_ops(low: Lowering, node: int) -> str | None:
    body = low.body[node]
    if body.ops <= OPS or len(body.reads) < 2:
        return None
    return f"{body.ops} operations on {len(body.reads)} reads (limit {OPS})"


def large_body(low: Lowering, node: int) -> str | None:
    ops = low.body[node].ops
    return f"{ops} operations (limit {LARGE_BODY})" if ops > LARGE_BODY else None


LoweringRule = Callable[[Lowering, int], str | None]
# Rules that hold for a value of any kind, then those about the storage behind it.
OWN_RULES: Sequence[tuple[str, LoweringRule]] = (
    ("library-call", library_call),
    ("concat", nop_concat),
    ("reduction", reduction),
    ("random", random),
    ("output", output_reused),
)
REALISE_RULES: Sequence[tuple[str, LoweringRule]] = (
    ("library-operand", library_operand),
    ("reused-reads", reused_reads),
    ("reused-ops", reused_ops),
    ("accumulated-reads", accumulated_reads),
    ("accumulated-ops", accumulated_ops),
    ("large-body", large_body),
)


def _decide(low: Lowering, node: int) -> None:
    """Make a buffer of a value that a rule wants in memory, and note why or why not."""
    if is_rematerialisable(low.graph, node):
        return
    view = is_view(low.graph, node)
    refusal = None
    for name, rule in (*OWN_RULES, *REALISE_RULES):
        reason = None if name in low.off else rule(low, node)
        if reason is None:
            continue
        refusal = name, reason
        # A view has no storage: it is the value behind it that is stored.
        low.realise(low.base(node) if view and name != "output" else node)
        break
    if refusal is not None and refusal[0] == "reduction":
        scan = low.graph[node].spec.family is Family.SCAN
        low.buffers[node] = SCAN if scan else REDUCTION
    for user in low.users[node]:
        low.notes.add(PASS, node, user, refusal, ("inlined", "recomputed in its user's loops"))


# concatenation


def _is_pointwise_cat(low: Lowering, node: int) -> bool:
    """Whether a concatenation is masked reads inside its users, not copies into its parts."""
    operands = [v.node for v in low.graph[node].inputs]
    if len(operands) > CAT_INPUTS or any(_has_other_use(low, o, node) for o in operands):
        return False
    lazy = [not _writes_in_place(low, o) for o in operands]
    if any(lazy) and _is_pointwise_only(low, node):
        return True
    return all(lazy) and not any(_reads_reduction(low, o) for o in operands)


def _is_pointwise_only(low: Lowering, node: int) -> bool:
    return node not in low.outputs and all(_is_pointwise_use(low, u) for u in low.users[node])


def _writes_in_place(low: Lowering, node: int) -> bool:
    """A buffer that a generated kernel computes can be computed straight into its part."""
    at = low.base(node)
    return low.buffers.get(at, EXTERN) in (POINTWISE, REDUCTION, SCAN) and at in low.buffers


def _has_other_use(low: Lowering, node: int, concat: int) -> bool:
    """A value with other users is stored anyway, so copying it into the part reads it once."""
    others = [u for u in low.graph.users[node] if u != concat]
    if not others and node not in low.outputs:
        return False
    lazy = not low.is_buffer(low.base(node))
    return lazy or any(_is_pointwise_use(low, u) for u in others)


def _is_pointwise_use(low: Lowering, user: int) -> bool:
    graph = low.graph
    if is_view(graph, user):
        users = low.users[user]
        return bool(users) and all(_is_pointwise_use(low, u) for u in users)
    family, op = graph[user].spec.family, graph[user].op
    return family is Family.ELEMENTWISE or op in ("concat", "pad", "reverse", "gather")


def _reads_reduction(low: Lowering, node: int) -> bool:
    kinds = (low.buffers.get(v) for v, _, _ in low.body[node].reads) if node in low.body else ()
    return low.buffers.get(node) == REDUCTION or REDUCTION in kinds
