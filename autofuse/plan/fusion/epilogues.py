"""Products with what a matrix library does after them: a bias for each column, an array added, and
an activation, in this order.

What is added is found by how it is read, the activation by its values at some places: nothing is
looked for by the name that a front end gave it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family, Motion
from autofuse.ops.types import Literal, OpCall, TensorType
from autofuse.plan.fusion.groups import is_inline
from autofuse.plan.fusion.products import PRODUCT, Product, product_of
from autofuse.plan.types import FusionGroup

DTYPES = (DType.F32, DType.F16, DType.BF16)
RELU, GELU, GELU_GRADIENT = "relu", "gelu", "dgelu"
# Columns of an array that the library writes beside its result come in eights.
AUX_COLUMNS = 8
_PLACES = np.concatenate([np.linspace(-9.0, 9.0, 181), [-30.0, 30.0]])
_CLOSE = 2e-6


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What a group does after its product: adds the vector `bias` to each row and the array
    `residual`, and then `activation` ("" for none). `aux` is what that is taken of: written too by
    gelu, and read by dgelu, which multiplies by the derivative of gelu there."""

    product: Product
    output: Value
    bias: Value | None = None
    residual: Value | None = None
    activation: str = ""
    aux: Value | None = None

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing but the product."""
        return self.output == self.product.output


@lru_cache(maxsize=4096)
def epilogue_of(graph: Graph, group: FusionGroup) -> Epilogue | None:
    """The product and what follows it that a group is, or None where it is anything else."""
    own = [n for n in group.nodes if graph[n].op == PRODUCT]
    if len(own) != 1 or graph[own[0]].types[0].dtype not in DTYPES:
        return None
    after, before = _after(graph, group.nodes, own[0]), _before(graph, group.nodes, own[0])
    beside = frozenset(group.nodes) - after - frozenset(before)
    product = product_of(graph, before)
    if product is None or len(product.form.batch) > 1:
        return None
    found = _read(graph, group, product, after, beside)
    return found if found is not None and _writes(graph, group, found) else None


def _after(graph: Graph, nodes: tuple[int, ...], product: int) -> frozenset[int]:
    """The nodes that depend on the product."""
    found: set[int] = set()
    for n in nodes:
        if any(v.node == product or v.node in found for v in graph[n].inputs):
            found.add(n)
    return frozenset(found)


def _before(graph: Graph, nodes: tuple[int, ...], product: int) -> tuple[int, ...]:
    """The product and the nodes that it depends on."""
    found = {product}
    for n in reversed(nodes):
        if n in found:
            found.update(v.node for v in graph[n].inputs if v.node in nodes)
    return tuple(sorted(found))


def _read(
    graph: Graph, group: FusionGroup, product: Product, after: frozenset[int],
    beside: frozenset[int],
) -> Epilogue | None:  # fmt: skip
    """Sums right after the product, and then a function of what they come to."""
    reached, left = product.output, set(after)
    bias = residual = None
    while True:
        users = [n for n in sorted(left) if reached in graph[n].inputs]
        if len(users) != 1 or not _is_sum(graph, users[0]):
            break
        (other,) = [v for v in graph[users[0]].inputs if v != reached] or [reached]
        vector = _vector(graph, other, beside)
        if vector is not None and bias is None:
            bias = vector
        elif _in_memory(graph, other, group) and residual is None:
            residual = other
        else:
            break
        reached = Value(users[0])
        left.discard(users[0])
    output = Value(max(left)) if left else reached
    activation, aux = _function(graph, reached, output, frozenset(left), beside, group)
    if activation is None:
        return None
    if activation == GELU and reached in group.outputs:
        aux = reached
    return Epilogue(product, output, bias, residual, activation, aux)


def _vector(graph: Graph, value: Value, beside: frozenset[int]) -> Value | None:
    """What a broadcast along rows repeats."""
    node = graph[value.node]
    if value.node not in beside or not _repeats(graph, value.node) or node.spec.axes is None:
        return None
    source, rank = node.inputs[0], len(node.types[0].shape)
    inline = is_inline(graph, source.node) or source.node in beside
    along = node.spec.axes(graph.call(value.node))[0] == (*(None,) * (rank - 1), 0)
    return source if along and not inline else None


def _repeats(graph: Graph, node: int) -> bool:
    return graph[node].spec.motion is Motion.REPEAT


def _is_sum(graph: Graph, node: int) -> bool:
    """Of two numbers: of floats nothing else commutes and leaves what 0 is added to."""
    algebra, dtype = graph[node].spec.algebra, graph[node].types[0].dtype
    return algebra.commutes and algebra.neutral(dtype, 0) == 0


def _in_memory(graph: Graph, value: Value, group: FusionGroup) -> bool:
    return value.node not in group.nodes and not is_inline(graph, value.node)


def _writes(graph: Graph, group: FusionGroup, found: Epilogue) -> bool:
    """Whether a group writes what the library would, in the types that it has."""
    written = {found.output, found.aux} if found.activation == GELU else {found.output}
    if set(group.outputs) != written - {None}:
        return False
    types = [graph.type_of(v) for v in (found.output, found.residual, found.aux) if v is not None]
    wanted = graph.type_of(found.product.output)
    vector = TensorType((found.product.form.n,), wanted.dtype)
    if found.bias is not None and graph.type_of(found.bias) != vector:
        return False
    even = found.aux is None or found.product.form.n % AUX_COLUMNS == 0
    return even and all(t == wanted for t in types)


# --- which function follows -----------------------------------------------------------------------


def _function(
    graph: Graph, reached: Value, output: Value, nodes: frozenset[int], beside: frozenset[int],
    group: FusionGroup,
) -> tuple[str | None, Value | None]:  # fmt: skip
    """The activation that these nodes are, and the other array that it reads; None for another."""
    if not nodes:
        return "", None
    moves = {n for n in beside if _repeats(graph, n)}
    nodes |= beside - moves
    others = {v for n in nodes for v in graph[n].inputs if _in_memory(graph, v, group)}
    if len(others) > 1:
        return None, None
    other = next(iter(others), None)
    x, y = (a.reshape(-1) for a in np.meshgrid(_PLACES, _PLACES if other else _PLACES[:1]))
    known = {reached: x} | ({other: y} if other is not None else {})
    found = _tried(graph, output, nodes, moves, known)
    if found is None:
        return None, None
    if other is not None:
        return (GELU_GRADIENT if _same(found, x * _gelu_slope(y)) else None), other
    names = {RELU: np.maximum(x, 0.0), GELU: _gelu(x)}
    return next((name for name, wanted in names.items() if _same(found, wanted)), None), None


def _tried(
    graph: Graph, output: Value, nodes: Iterable[int], moves: Collection[int],
    known: Mapping[Value, np.ndarray],
) -> np.ndarray | None:  # fmt: skip
    """The values of elementwise nodes at some places, in float64."""
    values = {**known}
    count = len(next(iter(known.values())))
    for n in sorted(nodes):
        node = graph[n]
        if node.spec.family is not Family.ELEMENTWISE:
            return None
        arrays = [
            values[v] if v in values else _repeated(graph, v, moves, count) for v in node.inputs
        ]
        given = [a for a in arrays if a is not None]
        if len(given) < len(arrays):
            return None
        types = tuple(TensorType((count,), graph.type_of(v).dtype) for v in node.inputs)
        with np.errstate(all="ignore"):
            call = OpCall(node.attrs, types, (TensorType((count,), node.types[0].dtype),))
            (values[Value(n)],) = node.spec.reference(tuple(given), call)
    return values[output]


def _repeated(
    graph: Graph, value: Value, moves: Collection[int], count: int
) -> np.ndarray | None:  # fmt: skip
    """A number that a broadcast repeats everywhere."""
    node = value.node
    if node in moves:
        node = graph[node].inputs[0].node
    literal = dict(graph[node].attrs).get("value") if graph[node].op == "constant" else None
    if not isinstance(literal, Literal) or literal.type.size != 1:
        return None
    return np.full(count, literal.array().reshape(())[()], literal.type.dtype.reference)


def _same(found: np.ndarray, wanted: np.ndarray) -> bool:
    return bool(np.all(np.abs(found - wanted) <= _CLOSE * (1.0 + np.abs(wanted))))


def _inner(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu(x: np.ndarray) -> np.ndarray:
    """The form with tanh, which is the library's."""
    return np.asarray(0.5 * x * (1.0 + _inner(x)))


def _gelu_slope(x: np.ndarray) -> np.ndarray:
    t = _inner(x)
    inside = math.sqrt(2 / math.pi) * (1.0 + 3 * 0.044715 * x**2)
    return np.asarray(0.5 * (1.0 + t) + 0.5 * x * (1.0 - t**2) * inside)


def activated(name: str, x: np.ndarray, aux: np.ndarray | None = None) -> np.ndarray:
    """What the library makes of `x` by an activation of this name."""
    if name == GELU_GRADIENT:
        assert aux is not None
        return np.asarray(x * _gelu_slope(aux))
    return np.maximum(x, 0) if name == RELU else _gelu(x) if name == GELU else x
