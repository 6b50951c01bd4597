"""What CuPy's `cupy.fuse` and numexpr give a careful user: elementwise chains, nothing else."""

from __future__ import annotations

from autofuse.baselines.base import BaselineResult
from autofuse.baselines.merging import Fusing, Rules
from autofuse.graph.types import Graph
from autofuse.ops.spec import Family

PASS = "chains"


def not_elementwise(state: Fusing, producer: int, consumer: int) -> str | None:
    """A chain starts and goes on with elementwise ops."""
    n = state.graph[producer]
    if n.spec.family is Family.ELEMENTWISE:
        return None
    return f"%{producer} {n.op} is not elementwise"


def not_a_chain(state: Fusing, producer: int, consumer: int) -> str | None:
    """A chain goes on with an elementwise op or ends in a reduction."""
    n = state.graph[consumer]
    if n.spec.family in (Family.ELEMENTWISE, Family.REDUCTION):
        return None
    return f"%{consumer} {n.op} is neither elementwise nor a reduction"


def several_users(state: Fusing, producer: int, consumer: int) -> str | None:
    """A value with other users is an array of its own."""
    count = state.user_count(producer)
    return f"%{producer} has {count} users" if count > 1 else None


def other_shape(state: Fusing, producer: int, consumer: int) -> str | None:
    """All arrays of an elementwise kernel have one shape."""
    first, second = state.graph[producer].types[0], state.graph.call(consumer).ins
    shapes = {t.shape for t in second if t.rank}
    if not shapes or shapes <= {first.shape}:
        return None
    return "operands of other shapes are broadcast by a call of their own"


RULES: Rules = (
    ("not-elementwise", not_elementwise),
    ("not-a-chain", not_a_chain),
    ("several-users", several_users),
    ("shape", other_shape),
)


def greedy_chains(graph: Graph) -> BaselineResult:
    """Every maximal chain of elementwise ops, each the only user of the one before, with the
    reduction that ends it. All other ops are calls of their own."""
    state = Fusing(graph)
    for producer, consumer in state.edges():
        state.try_merge(PASS, RULES, producer, consumer, ("chain", "the only user"))
    return state.result(greedy_chains)
