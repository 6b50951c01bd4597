"""Products with the moves before them: a matrix library reads operands by strides, so a transpose,
slice, reshape or broadcast of what is multiplied needs no kernel where strides can say it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from autofuse.graph.types import Graph, Value
from autofuse.ops.contraction import GemmForm, gemm_form
from autofuse.ops.views import View, row_major
from autofuse.order import closure
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import is_inline, is_source, ordered_plan, reads
from autofuse.plan.types import FusionGroup, FusionPlan

PRODUCT = "dot_general"
# Moves before one operand that are looked at.
_LONGEST = 8


@dataclass(frozen=True, slots=True)
class Product:
    """A node set that is one product: `lhs` and `rhs` are the values in memory that `form` reads
    for `node`."""

    node: int
    lhs: Value
    rhs: Value
    form: GemmForm

    @property
    def output(self) -> Value:
        """What it writes."""
        return Value(self.node)


@lru_cache(maxsize=4096)
def product_of(graph: Graph, nodes: tuple[int, ...]) -> Product | None:
    """The product that these nodes are, or None: one dot_general and nothing but moves of its
    operands that a library can do by strides."""
    found = [n for n in nodes if graph[n].op == PRODUCT]
    if len(found) != 1:
        return None
    (node,) = found
    inside = frozenset(nodes) - {node}
    chains = [_chain(graph, value, inside) for value in graph[node].inputs]
    if inside != {n for chain in chains for n in chain}:
        return None
    views = [
        _viewed(graph, value, chain)
        for value, chain in zip(graph[node].inputs, chains, strict=True)
    ]
    if any(found is None for found in views):
        return None
    (lhs, left), (rhs, right) = (found for found in views if found is not None)
    form = gemm_form(graph.call(node), left, right)
    return None if form is None else Product(node, lhs, rhs, form)


def _chain(graph: Graph, value: Value, inside: frozenset[int]) -> tuple[int, ...]:
    """The nodes of a set before a value, the last first, as far as each reads one value alone."""
    found: list[int] = []
    while value.node in inside and len(graph[value.node].inputs) == 1:
        found.append(value.node)
        value = graph[value.node].inputs[0]
    return tuple(found)


def _viewed(graph: Graph, value: Value, chain: Sequence[int]) -> tuple[Value, View] | None:
    """The value in memory that the moves of a chain begin with, and where `value` lies in it."""
    source = graph[chain[-1]].inputs[0] if chain else value
    if is_inline(graph, source.node):
        return None
    view: View | None = row_major(graph.type_of(source).shape)
    for node in reversed(chain):
        moves = graph[node].spec.view
        view = None if moves is None or view is None else moves(graph.call(node), view)
    return None if view is None else (source, view)


@lru_cache(maxsize=1024)
def folded_moves(graph: Graph, node: int) -> tuple[int, ...]:
    """The moves right before a node that its library call can do, as many as can, ascending; none
    where it is no product of floats."""
    if graph[node].op != PRODUCT or not graph[node].types[0].dtype.is_float:
        return ()
    chains = [_moves(graph, value) for value in graph[node].inputs]
    counts = product(*(range(len(chain) + 1) for chain in chains))
    for left, right in sorted(counts, key=lambda found: (-sum(found), found)):
        moves = tuple(sorted({*chains[0][:left], *chains[1][:right]}))
        if product_of(graph, tuple(sorted((*moves, node)))) is not None:
            return moves
    return ()


def _moves(graph: Graph, value: Value) -> list[int]:
    """The moves before a value that have a view, the last first."""
    found: list[int] = []
    while graph[value.node].spec.view is not None and len(found) < _LONGEST:
        source = graph[value.node].inputs[0]
        if is_inline(graph, source.node):
            break
        found.append(value.node)
        value = source
    return found


@lru_cache(maxsize=64)
def moves_of_products(graph: Graph) -> frozenset[int]:
    """Every move that a product of a graph could do itself."""
    made = (n for n in live(graph) if graph[n].op == PRODUCT)
    return frozenset(move for n in made for move in folded_moves(graph, n))


def fold_moves(
    graph: Graph, sets: Iterable[frozenset[int]], products: Iterable[int]
) -> list[frozenset[int]]:
    """Disjoint node sets after each of these products, alone in its set, has taken in the moves
    before it; what then nobody needs is left out."""
    folded = {n: product_of(graph, (*folded_moves(graph, n), n)) for n in products}

    def near(n: int) -> Iterable[int]:
        own = folded.get(n)
        return (v.node for v in (graph[n].inputs if own is None else (own.lhs, own.rhs)))

    needed = closure((v.node for v in graph.outputs), near)
    kept = (nodes & needed for nodes in sets)
    return [
        nodes.union(*(folded_moves(graph, n) for n in nodes if n in folded))
        for nodes in kept
        if nodes
    ]


def with_moves(graph: Graph, plan: FusionPlan) -> FusionPlan:
    """`plan` with every lone product that can taking in the moves before it, where what they read
    is in memory; kernels that then write nothing that is read are left out."""
    written = {v for group in plan.groups for v in group.outputs}
    taken: list[FusionGroup] = []
    for group in plan.groups:
        moves = folded_moves(graph, group.nodes[0]) if len(group.nodes) == 1 else ()
        nodes = (*moves, *group.nodes)
        if all(v in written or is_source(graph, v.node) for v in reads(graph, nodes)):
            group = replace(group, nodes=nodes)
        taken.append(group)
    needed = set(graph.outputs)
    kept: list[FusionGroup] = []
    for group in reversed(taken):
        if not needed.isdisjoint(group.outputs):
            kept.append(group)
            needed.update(reads(graph, group.nodes))
    return ordered_plan(graph, kept)
