"""Updates in place: of which groups a kernel writes only the part of an array that changes.

The result of an update of a window (`OpSpec.overwrites`) may lie where its operand does. Then a
kernel that has nothing else to do with the operand writes the window and no more. Whether it can is
decided here, from the group alone, so that one group has one text wherever it stands; whether the
operand's memory may be taken, or has to be copied first, says the schedule, which knows who reads
it (XLA divides the work likewise: fusions in place, then copy insertion).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import lru_cache

from autofuse.graph.canonical import subgraph
from autofuse.graph.counting import counted
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.spec import Family
from autofuse.ops.types import make_attrs
from autofuse.ops.views import WindowAt
from autofuse.order import closure
from autofuse.plan.fusion.groups import is_inline, is_source
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.schedules.forms import Demand
from autofuse.plan.types import FusionGroup

# What a kernel does that writes a part of an array.
_PLAIN = (Family.SOURCE, Family.ELEMENTWISE, Family.MOVEMENT, Family.REDUCTION, Family.RANDOM)
OVERWRITTEN = "overwritten"


def updated_operand(graph: Graph, value: Value) -> Value | None:
    """The array that a value is with one window written anew."""
    node = graph[value.node]
    return node.inputs[0] if node.spec.overwrites else None


def stored(graph: Graph, nodes: Collection[int], value: Value) -> Value:
    """What a kernel of `nodes` stores at least to make `value`: where it may lie where an operand
    does, that window. Not where the kernel reads the result itself, or what it has overwritten by
    then, whatever loop it is in."""
    x = updated_operand(graph, value)
    if x is None or value.node not in nodes or not _is_alone(graph, nodes, value, x):
        return value
    group = FusionGroup(tuple(sorted(nodes)), (value,))
    return graph[value.node].inputs[1] if _reads_apart(graph, group, value, x, None) else value


@lru_cache(maxsize=4096)
def overwrites(graph: Graph, group: FusionGroup, trip: int = 0) -> tuple[tuple[Value, Value], ...]:
    """(result, operand) for each result of which the kernel of a group writes a window only, into
    memory that holds the operand. `trip`: `graph` is the body of a loop of so many iterations run
    by the host; in other graphs inputs, which are the caller's, are never written."""
    if group.body is not None or any(graph[n].spec.family not in _PLAIN for n in group.nodes):
        return ()
    found = [
        (value, x)
        for value in group.outputs
        if (x := updated_operand(graph, value)) is not None
        and (trip or not is_source(graph, x.node))
        and _is_alone(graph, group.nodes, value, x)
        and _reads_apart(graph, group, value, x, trip)
    ]
    operands = [x for _, x in found]
    found = [(v, x) for v, x in found if operands.count(x) == 1]
    return tuple(found) if found and _is_kernel(graph, group, found) else ()


def in_place(graph: Graph, group: FusionGroup, trip: int = 0) -> FusionGroup:
    """A group of a plan as its kernel is made: with the operands that it overwrites."""
    found = overwrites(graph, group, trip)
    return replace(group, overwrites=tuple(x for _, x in found)) if found else group


def _is_alone(graph: Graph, nodes: Collection[int], value: Value, x: Value) -> bool:
    """Whether the operand is in memory, and none of the kernel's nodes reads the result."""
    in_memory = x.node not in nodes and graph[x.node].op != "constant"
    return in_memory and not any(user in nodes for user in graph.users[value.node])


def _reads_apart(
    graph: Graph, group: FusionGroup, value: Value, x: Value, trip: int | None
) -> bool:
    """Whether each element of the operand that the group reads is none of those that it writes, or
    only read to compute what is written there; None: whether that may be in a loop of some
    length."""
    if x in graph[value.node].inputs[1:]:
        return False
    if graph.type_of(graph[value.node].inputs[1]).size == 1 and not _is_read_for_others(
        graph, group, value, x
    ):
        return True  # a single element is written once all that it depends on was read
    readers = [n for n in group.nodes if n != value.node and x in graph[n].inputs]
    return all(_reads_nothing_new(graph, group, n, value, x, trip) for n in readers)


def _is_read_for_others(graph: Graph, group: FusionGroup, value: Value, x: Value) -> bool:
    """Whether another output of the group is computed from the operand."""
    others = [output.node for output in group.outputs if output != value]

    def near(n: int) -> Iterator[int]:
        return (v.node for v in graph[n].inputs if v.node in group.nodes)

    return any(x in graph[n].inputs for n in closure(others, near))


def _reads_nothing_new(
    graph: Graph, group: FusionGroup, n: int, value: Value, x: Value, trip: int | None
) -> bool:
    """Whether what one node reads of the operand is as `_reads_apart` wants it."""
    if x in graph[n].inputs[1:] or not _is_window(graph, n):
        return False
    alike = len(group.outputs) == 1 and _same_place(graph, n, value.node)
    own_place = alike and _at_its_own_place(graph, group, n, value)
    return own_place or _disjoint(graph, n, value.node, trip)


def _window(graph: Graph, n: int) -> WindowAt:
    window_of = graph[n].spec.window
    found = window_of(graph.call(n)) if window_of else None
    assert found is not None
    return found


def _is_window(graph: Graph, n: int) -> bool:
    window_of = graph[n].spec.window
    return window_of is not None and window_of(graph.call(n)) is not None


def _starts(graph: Graph, n: int) -> tuple[Value, ...]:
    return graph[n].inputs[_window(graph, n).starts :]


def _same_place(graph: Graph, read: int, write: int) -> bool:
    mine, other = _window(graph, read), _window(graph, write)
    same = (mine.axes, mine.sizes) == (other.axes, other.sizes)
    return same and _starts(graph, read) == _starts(graph, write)


def _at_its_own_place(graph: Graph, group: FusionGroup, read: int, value: Value) -> bool:
    """Whether an element of the window that is read is needed for the one at the same place of
    what is written, and for no other."""
    update = graph[value.node].inputs[1]
    shape = graph.type_of(update).shape
    probe = Demand(graph, group.nodes, frozenset(range(len(shape))))
    probe.want(update, tuple(range(len(shape))))
    probe.run()
    wide = tuple(a for a, n in enumerate(shape) if n > 1)
    made = graph[read].types[0].shape
    wanted = probe.wanted.get(Value(read), set())
    kept = {tuple(t for t, n in zip(tags, made, strict=True) if n > 1) for tags in wanted}
    return not probe.mixed and kept == {wide}


def _disjoint(graph: Graph, read: int, write: int, trip: int | None) -> bool:
    """Whether windows of every iteration lie apart along some axis, and are moved nowhere; None:
    whether they may in a loop of some length."""
    mine, other = _window(graph, read), _window(graph, write)
    shape = graph.type_of(graph[write].inputs[0]).shape
    writes = dict(
        zip(other.axes, zip(_starts(graph, write), other.sizes, strict=True), strict=True)
    )
    for axis, start, size in zip(mine.axes, _starts(graph, read), mine.sizes, strict=True):
        if trip == 0 or axis not in writes:
            continue
        at, length = writes[axis]
        one, two = counted(graph, start), counted(graph, at)
        if one is None or two is None or one[1] != two[1]:
            continue
        fit = trip is None or (
            _fits(one, size, shape[axis], trip) and _fits(two, length, shape[axis], trip)
        )
        if fit and not -size < one[0] - two[0] < length:
            return True
    return False


def _fits(place: tuple[int, int], size: int, extent: int, trip: int) -> bool:
    first, last = place[0], place[0] + place[1] * (trip - 1)
    return min(first, last) >= 0 and max(first, last) + size <= extent


def _is_kernel(graph: Graph, group: FusionGroup, found: list[tuple[Value, Value]]) -> bool:
    """Whether what is left to compute is one kernel."""
    own, _ = extract(graph, replace(group, overwrites=tuple(x for _, x in found)))
    left, _ = windows_only(own)
    nodes = tuple(i for i, n in enumerate(left.nodes) if n.op != "input" and not is_inline(left, i))
    return not isinstance(check_group(left, nodes, tuple(dict.fromkeys(left.outputs))), Refusal)


@lru_cache(maxsize=4096)
def extract(graph: Graph, group: FusionGroup) -> tuple[Graph, tuple[Value, ...]]:
    """The group as a graph of its own, and the values of `graph` behind its inputs. Inputs that lie
    where a result does say so."""
    own, values = subgraph(graph, group.nodes, group.outputs)
    if not group.overwrites:
        return own, values
    nodes = list(own.nodes)
    for position, value in enumerate(values):
        if value in group.overwrites:
            node = nodes[own.inputs[position]]
            attrs = make_attrs(dict(node.attrs) | {OVERWRITTEN: True})
            nodes[own.inputs[position]] = replace(node, attrs=attrs)
    return replace(own, nodes=tuple(nodes)), values


def is_overwritten(own: Graph, value: Value) -> bool:
    """Whether an input of a group's own graph lies where a result does."""
    return bool(dict(own[value.node].attrs).get(OVERWRITTEN, False))


def windows_only(own: Graph) -> tuple[Graph, dict[Value, int]]:
    """A group's own graph in which results that lie where an operand does are what is written there
    only; these results, each with the node of `own` that says where."""
    found = {value: value.node for value in _landing(own)}
    nodes = list(own.nodes)
    for value in found:
        update = own[value.node].inputs[1]
        kind = own.type_of(update)
        nodes[value.node] = Node("reshape", (update,), make_attrs({"shape": kind.shape}), (kind,))
    return replace(own, nodes=tuple(nodes)), found


def _landing(own: Graph) -> Iterator[Value]:
    for value in dict.fromkeys(own.outputs):
        x = updated_operand(own, value)
        if x is not None and is_overwritten(own, x):
            yield value
