"""Cuts a graph of PyTorch into islands that become plans, and what is left to PyTorch.

The level of a node is the most nodes that are left to PyTorch on any path to it. What can be in a
graph, has one level and is on one device is one island: a path out of it and back would pass a node
that is left, and so raise the level, or go to another device, and only numbers on the CPU do that
without a node that moves them. That is linear in the graph; PyTorch's own partitioner asks for
every pair of nodes whether merging them makes a circle (pytorch#175242).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from autofuse.frontends.torch.fx import op_name
from autofuse.order import closure

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node
else:
    Graph = GraphModule = Node = Any

# What a node is to its level and device, in the order in which they are computed: left to PyTorch,
# of the island, or a view of what is there by then.
_LEFT, _ISLAND, _VIEW = range(3)
_FIRST = -1


@dataclass(frozen=True, slots=True)
class Island:
    """Nodes of one level and device that are computed together, in order, with what they read and
    what others read of them. `rank` is that of the device: the CPU's is 0."""

    level: int
    rank: int
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """A node that PyTorch computes, and why."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A graph in islands; `levels` has every node, `ranks` those that are not left, by device, and
    `views` those of islands that PyTorch computes, whether or not the island does too."""

    islands: tuple[Island, ...]
    left: tuple[Left, ...]
    levels: Mapping[Node, int]
    ranks: Mapping[Node, int]
    apart: frozenset[Node]
    views: frozenset[Node]


def _together(_: Node) -> int:
    return 0


def cut(
    graph: Graph, refusal: Callable[[Node], str | None], rank: Callable[[Node], int] = _together
) -> Cut:
    """The islands of a functional graph; `refusal` says why a node cannot be in one, and `rank`
    gives a number for the device of one that can. Nodes of equal level read no results of those of
    a greater rank."""
    levels: dict[Node, int] = {}
    left: dict[Node, str] = {}
    for node in graph.nodes:
        levels[node] = max((levels[n] for n in node.all_input_nodes), default=0)
        reason = _refused(node, left, refusal) if node.op == "call_function" else None
        if reason is not None:
            left[node] = reason
            # What picks a result of a node is of its level.
            levels[node] += 1 if reason else 0
    inside = [n for n in graph.nodes if n.op == "call_function" and n not in left]
    islands: list[Island] = []
    views: set[Node] = set()
    ranks = {n: rank(n) for n in inside}
    keys = {n: (levels[n], ranks[n]) for n in inside}
    for key, nodes in groupby(sorted(inside, key=keys.__getitem__), keys.__getitem__):
        island, outside = _island(*key, tuple(nodes))
        islands += [island] if island.outputs else []
        views |= outside
    told = tuple(Left(n.name, op_name(n), why) for n, why in left.items() if why)
    return Cut(tuple(islands), told, levels, ranks, frozenset(left), frozenset(views))


def _refused(
    node: Node, left: Mapping[Node, str], refusal: Callable[[Node], str | None]
) -> str | None:
    """Why a node is left; empty where it only picks a result of one that is."""
    if node.target is operator.getitem and node.args[0] in left:
        return ""
    return refusal(node)


def _island(level: int, rank: int, nodes: tuple[Node, ...]) -> tuple[Island, set[Node]]:
    """The island of these nodes, and views among them that are read outside: PyTorch makes a view
    of what is there anyway for nothing, where the island would copy it."""
    members = set(nodes)
    read = [n for n in nodes if any(user not in members for user in n.users)]
    bases = {n: _base(n, members) for n in read}
    views = [
        n for n, base in bases.items() if base is not n and (base in bases or base not in members)
    ]
    outside = _chains(views, members)
    outputs = tuple(n for n in read if n not in outside)
    needed = _needed(outputs, members)
    kept = tuple(n for n in nodes if n in needed)
    inputs = dict.fromkeys(i for n in kept for i in n.all_input_nodes if i not in needed)
    return Island(level, rank, kept, tuple(inputs), outputs), outside


def _base(node: Node, members: set[Node]) -> Node:
    """What a node is a view of, through views of the island."""
    while node in members and getattr(node.target, "is_view", False):
        node = node.all_input_nodes[0]
    return node


def _chains(views: Sequence[Node], members: set[Node]) -> set[Node]:
    """The views, and the views that they are views of."""
    found: set[Node] = set()
    for view in views:
        base = _base(view, members)
        while view is not base:
            found.add(view)
            view = view.all_input_nodes[0]
    return found


def _needed(outputs: Sequence[Node], members: set[Node]) -> set[Node]:
    wanted = (node for node in outputs if node in members)
    return closure(wanted, lambda node: members.intersection(node.all_input_nodes))


def joined(
    gm: GraphModule, found: Cut, calls: Mapping[Island, Callable[..., Any]],
    bound: Collection[str] = (),
) -> GraphModule:  # fmt: skip
    """The module with islands computed by calls, which give a tuple each; nodes of other islands
    stay as they are. Calls do not take the inputs of an island whose names are in `bound`."""
    import torch

    new = torch.fx.Graph()
    made: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            made[node] = new.node_copy(node)
    for step in _steps(gm.graph, found, calls):
        if isinstance(step, Island):
            given = [made[n] for n in step.inputs if n.name not in bound]
            made |= _called(new, step, new.call_function(calls[step], tuple(given)))
        else:
            made[step] = new.node_copy(step, made.__getitem__)
    (output,) = (n for n in gm.graph.nodes if n.op == "output")
    new.node_copy(output, made.__getitem__)
    return torch.fx.GraphModule(gm, new)


def _steps(graph: Graph, found: Cut, calls: Mapping[Island, Any]) -> list[Node | Island]:
    """What is computed, in order."""
    called = {(island.level, island.rank) for island in calls}
    steps: list[tuple[tuple[int, int, int, int], Node | Island]] = []
    for number, node in enumerate(graph.nodes):
        level = found.levels[node]
        if node.op != "call_function":
            continue
        if node in found.apart:
            steps.append(((level, _FIRST, _LEFT, number), node))
            continue
        rank = found.ranks[node]
        if (level, rank) not in called:
            steps.append(((level, rank, _ISLAND, number), node))
        elif node in found.views:
            steps.append(((level, rank, _VIEW, number), node))
    steps += [((island.level, island.rank, _ISLAND, 0), island) for island in calls]
    return [step for _, step in sorted(steps, key=lambda pair: pair[0])]


def _called(new: Graph, island: Island, results: Node) -> dict[Node, Node]:
    """The results of a call in the new graph, under the nodes that they stand for."""
    picked = enumerate(island.outputs)
    return {n: new.call_function(operator.getitem, (results, k)) for k, n in picked}
