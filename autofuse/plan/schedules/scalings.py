"""Rows that are only scaled, each by one number, before they are multiplied again are scaled
afterwards: sum of (e[k] / s) * v[k] is sum of e[k] * v[k], over s. So softmax and product need no
pass for the quotient, and a norm is multiplied before its statistics are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family, Motion
from autofuse.plan.schedules.forms import Form, Tags, local_shape


@dataclass(frozen=True, slots=True)
class Scaling:
    """A node that scales whole rows by one number each: which operand it scales, by what."""

    node: int
    operand: int
    scaled: Value
    factor: Value


def scalings(
    graph: Graph, form: Form, value: Value, tags: Tags, *, small: bool = False
) -> tuple[Scaling, ...]:
    """The scalings of whole rows that `value` ends with, the last one first, also through
    conversions: what is scaled afterwards is rounded as much. To f16 only where it is known to be
    `small` (`converts_to_f16`), because that has not the range of the others."""
    node, inside = graph[value.node], set(form.nodes)
    users = sum(u in inside for u in graph.users[value.node])
    if value.node not in inside or users != 1 or value in form.outputs:
        return ()
    if converts(graph, value) and (small or node.types[0].dtype is not DType.F16):
        return scalings(graph, form, node.inputs[0], tags, small=small)
    found: list[Scaling] = []
    for operand in node.spec.proportional:
        scaled, factor = node.inputs[operand], node.inputs[1 - operand]
        if is_per_row(graph, factor, tags):
            return (
                Scaling(value.node, operand, scaled, factor),
                *scalings(graph, form, scaled, tags, small=small),
            )
        found += scalings(graph, form, scaled, tags, small=small)
    return tuple(found)


def converts(graph: Graph, value: Value) -> bool:
    """Whether a value is another float, converted."""
    node = graph[value.node]
    if node.spec.family is not Family.ELEMENTWISE or len(node.inputs) != 1:
        return False
    own, before = node.types[0].dtype, graph.type_of(node.inputs[0]).dtype
    return own.is_float and before.is_float and own is not before


def converts_to_f16(graph: Graph, value: Value) -> bool:
    """Whether a value ends with a conversion to f16."""
    return converts(graph, value) and graph.type_of(value).dtype is DType.F16


def core_of(value: Value, due: tuple[Scaling, ...]) -> Value:
    """What is left of `value` where its scalings are put off: those that it ends with are passed
    through."""
    scaled = {Value(s.node): s.scaled for s in due}
    while value in scaled:
        value = scaled[value]
    return value


def unrounded(graph: Graph, value: Value, due: tuple[Scaling, ...]) -> Value:
    """The terms of a product before they were rounded to its factors' 16 bits: who multiplies such
    factors rounds what was computed, as wherever a narrow value stays in a kernel."""
    while converts(graph, value) and graph.type_of(value).dtype.itemsize < DType.F32.itemsize:
        value = core_of(graph[value.node].inputs[0], due)
    return value


def is_per_row(graph: Graph, value: Value, tags: Tags) -> bool:
    """Whether a value is one number a row, repeated along what is local to the row."""
    node = graph[value.node]
    if node.spec.motion is not Motion.REPEAT or node.spec.axes is None:
        return False
    (mapping,) = node.spec.axes(graph.call(value.node))
    local = [a for a, t in enumerate(tags) if not isinstance(t, int)]
    return all(mapping[a] is None or graph.type_of(value).shape[a] == 1 for a in local)


def is_of_an_item(graph: Graph, value: Value, tags: Tags) -> bool:
    """Whether there is one number an item: other axes than the parallel ones have one place."""
    return math.prod(local_shape(graph, value, tags)) == 1
