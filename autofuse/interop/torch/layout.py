"""How the tensors at the border of a graph lie in memory: graphs know row-major arrays alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from autofuse.graph.surgery.embed import embedded
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.types import TensorType

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """A tensor of `shape` whose memory is a row-major array: axes in the order `order` (the
    outermost first), of which those in `repeated` have one element that stands for all."""

    shape: Ints
    order: Ints
    repeated: Ints = ()

    @property
    def is_dense(self) -> bool:
        """Whether the array is the tensor as it is."""
        return not self.repeated and self.order == tuple(range(len(self.shape)))

    @property
    def stored(self) -> Ints:
        """The shape of the array in memory."""
        return tuple(1 if a in self.repeated else self.shape[a] for a in self.order)

    @property
    def strides(self) -> Ints:
        """In elements, by axis of the tensor; 0 along what is repeated."""
        found = dict(zip(self.order, row_major(self.stored), strict=True))
        return tuple(0 if a in self.repeated else found[a] for a in range(len(self.shape)))

    def read(self, w: GraphWriter, array: Value) -> Value:
        """The tensor, from the array that it is stored as."""
        inverse = tuple(self.order.index(a) for a in range(len(self.order)))
        return w.spread(w.transpose(array, inverse), self.shape)

    def write(self, w: GraphWriter, tensor: Value) -> Value:
        """The array that is to be stored for a tensor."""
        for axis in self.repeated:
            tensor = w.part(tensor, axis, 0, 1)
        return w.transpose(tensor, self.order)


def row_major(shape: Sequence[int]) -> Ints:
    """Strides in elements of a dense array, as torch counts them."""
    return tuple(prod(max(n, 1) for n in shape[axis + 1 :]) for axis in range(len(shape)))


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> TensorLayout | None:
    """The layout of a tensor; None where its memory has gaps or overlaps in other ways than by
    repeating whole axes. Strides of axes with one element say nothing."""
    rank = len(shape)
    repeated = tuple(a for a in range(rank) if strides[a] == 0 and shape[a] > 1)
    weights = [strides[a] if shape[a] > 1 else None for a in range(rank)]
    order = _ordered(weights)
    layout = TensorLayout(tuple(shape), order, repeated)
    return layout if agrees(shape, layout.strides, strides) else None


def dense(shape: Sequence[int]) -> TensorLayout:
    """The row-major layout."""
    return TensorLayout(tuple(shape), tuple(range(len(shape))))


def agrees(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two tuples of strides say the same of a tensor."""
    return all(n <= 1 or x == y for n, x, y in zip(shape, one, other, strict=True))


def _ordered(weights: Sequence[int | None]) -> Ints:
    """Axes by falling stride; those without one stay beside the axis before them."""
    keys: list[tuple[int, int]] = []
    last = max((w for w in weights if w is not None), default=0)
    for axis, weight in enumerate(weights):
        last = last if weight is None else weight
        keys.append((-last, axis))
    return tuple(axis for _, axis in sorted(keys))


def bordered(
    graph: Graph,
    inputs: Sequence[TensorLayout],
    outputs: Sequence[TensorLayout],
    constants: frozenset[int],
) -> Graph:
    """`graph` with its inputs and outputs as the arrays that layouts store; the inputs at
    `constants` (positions) are declared constant."""
    if not constants and all(layout.is_dense for layout in (*inputs, *outputs)):
        return graph
    w = GraphWriter()
    tensors: list[Value] = []
    for position, (node, layout) in enumerate(zip(graph.inputs, inputs, strict=True)):
        told: Mapping[str, object] = dict(graph[node].attrs)
        ranges = {k: float(v) for k in ("low", "high") if isinstance(v := told.get(k), int | float)}
        kind: TensorType = graph.input_types[position]
        array = w.input(
            graph[node].name, layout.stored, kind.dtype, constant=position in constants, **ranges
        )
        tensors.append(layout.read(w, array))
    results = embedded(w, graph, tensors)
    stored = [layout.write(w, value) for layout, value in zip(outputs, results, strict=True)]
    return w.build(stored, graph.output_names)
