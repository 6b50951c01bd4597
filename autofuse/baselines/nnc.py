"""The rules of TorchScript's TensorExpr fuser, NNC (`tensorexpr_fuser.cpp` of PyTorch 1.13 to 2.0).

A group grows backwards from its last op; then groups that follow each other are merged. Whatever
is in no group runs eagerly, one kernel an op.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.baselines.base import BaselineResult
from autofuse.baselines.merging import Fusing, Rules
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family
from autofuse.plan.fusion.groups import reads

PULL, ADJACENT = "pull-producers", "adjacent-groups"
MAX_ARGUMENTS = 128
# Elementwise in our table, but no op of the fuser's list.
UNSUPPORTED = frozenset(("threefry2x32", "bitcast", "isfinite", "atan2"))
FLOAT_ONLY, INT_ONLY = frozenset(("rem",)), frozenset(("shl", "shr", "shr_logical"))


def is_unsqueeze(graph: Graph, node: int) -> bool:
    """A reshape that only adds axes of one element: a view that may join a group."""
    n = graph[node]
    if n.op != "reshape":
        return False
    before, after = graph.call(node).ins[0].shape, n.types[0].shape
    return [e for e in before if e > 1] == [e for e in after if e > 1] and len(after) > len(before)


def is_expand(graph: Graph, node: int) -> bool:
    """A broadcast: implicit in elementwise ops, so it is as supported as they are."""
    return graph[node].op == "broadcast"


def supported(graph: Graph, node: int) -> str | None:
    """Why an op cannot be in a group, or None. Reductions are off by default."""
    n = graph[node]
    operands = [graph.type_of(v).dtype for v in n.inputs]
    if n.op == "concat" or is_unsqueeze(graph, node) or is_expand(graph, node):
        return None
    if n.spec.family is not Family.ELEMENTWISE or n.op in UNSUPPORTED:
        return f"%{node} {n.op} is not supported in a group"
    why = _wrong_dtype(n.op, operands)
    return None if why is None else f"%{node} {n.op} {why}"


def _wrong_dtype(op: str, operands: Sequence[DType]) -> str | None:
    if DType.U8 in operands:
        return "reads bytes"
    if op in FLOAT_ONLY and not operands[0].is_float:
        return "is supported for floats only"
    if op in INT_ONLY and operands[0].is_float:
        return "is supported for integers only"
    return None


def producer_unsupported(state: Fusing, producer: int, consumer: int) -> str | None:
    """Every op of the producer's group must be one of the list."""
    return supported(state.graph, producer)


def consumer_unsupported(state: Fusing, producer: int, consumer: int) -> str | None:
    """Every op of the consumer's group must be one of the list."""
    return supported(state.graph, consumer)


def starts_with_view(state: Fusing, producer: int, consumer: int) -> str | None:
    """A view does not start a group: it joins one that its user started."""
    alone = len(state.group(consumer)) == 1
    if alone and (is_unsqueeze(state.graph, consumer) or is_expand(state.graph, consumer)):
        return f"a group does not start from the view %{consumer}"
    return None


def view_elsewhere(state: Fusing, producer: int, consumer: int) -> str | None:
    """A view joins only when nobody else uses it."""
    graph = state.graph
    if not (is_unsqueeze(graph, producer) or is_expand(graph, producer)):
        return None
    inside = set(state.group(consumer))
    if producer not in state.outputs and inside.issuperset(state.users[producer]):
        return None
    return f"the view %{producer} has users outside the group"


def too_many_arguments(state: Fusing, producer: int, consumer: int) -> str | None:
    """Inputs and outputs of both, before what they share is counted once."""
    count = sum(_arguments(state, n) for n in (producer, consumer))
    return f"{count} inputs and outputs (limit {MAX_ARGUMENTS})" if count > MAX_ARGUMENTS else None


def _arguments(state: Fusing, node: int) -> int:
    group = state.group(node)
    inside = set(group)
    outputs = [n for n in group if n in state.outputs or not inside.issuperset(state.users[n])]
    return len(reads(state.graph, group)) + len(outputs)


RULES: Rules = (
    ("unsupported", producer_unsupported),
    ("unsupported", consumer_unsupported),
    ("view-start", starts_with_view),
    ("view-users", view_elsewhere),
    ("arguments", too_many_arguments),
)


def nnc(graph: Graph) -> BaselineResult:
    """The plan TorchScript would make of a canonical graph with the TensorExpr fuser on."""
    state = Fusing(graph)
    changed = True
    while changed:
        changed = False
        for node in reversed(state.items):
            if state.home.get(node) is not None and node == state.group(node)[-1]:
                changed |= _pull(state, node)
    _merge_adjacent(state)
    return state.result(nnc)


def _pull(state: Fusing, node: int) -> bool:
    """Merge producers into the group that ends in `node`, the latest first, until none fits."""
    changed, again = False, True
    how = "pulled", "a producer of the group"
    while again:
        again = False
        group = state.group(node)
        inside = set(group)
        found = {p: n for n in group for p in state.operands[n] if p not in inside}
        for producer in sorted(found, reverse=True):
            again = state.try_merge(PULL, RULES, producer, found[producer], how)
            if again:
                changed = True
                break
    return changed


def _merge_adjacent(state: Fusing) -> None:
    """Merge each group with the one before it, in order of their last ops."""
    groups = sorted((m for m in state.members.values() if len(m) > 1), key=lambda m: m[-1])
    previous: int | None = None
    for members in groups:
        node = members[-1]
        if previous is not None:
            state.try_merge(ADJACENT, RULES, previous, node, ("adjacent", "follows the group"))
        previous = node
