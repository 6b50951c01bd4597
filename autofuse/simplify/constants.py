"""What constants are: the elements of values that depend on literals and iotas alone.

Arrays are compressed: axes along which nothing changes have extent 1, so that a mask over a large
array that depends on one axis is as long as that axis.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autofuse.graph.known import computed, is_affordable
from autofuse.graph.types import Node, Value
from autofuse.ops.spec import Family, OpSpec
from autofuse.ops.types import OpCall, TensorType
from autofuse.ops.views import reshape_groups

Shape = tuple[int, ...]
Arrays = tuple[np.ndarray, ...]
# Most elements of what is known when it changes along one axis, and along several.
LINE, PLANE = 1 << 20, 1 << 14
# Values that are made of more constants in a row than this are not followed.
_DEPTH = 100


class Constants:
    """The compressed arrays of a graph's constant values, computed when they are asked for.

    Nodes and their calls are given by number, and whether a node depends on constants alone."""

    def __init__(
        self,
        node: Callable[[int], Node],
        call: Callable[[int], OpCall],
        is_constant: Callable[[int], bool],
    ) -> None:
        self._node, self._call, self._is_constant = node, call, is_constant
        self._found: dict[int, Arrays] = {}
        self._unknown: set[int] = set()

    def forget(self, number: int) -> None:
        """A node that is gone, or reads something else."""
        self._found.pop(number, None)
        self._unknown.discard(number)

    def look_again(self) -> None:
        """What was too large may be known by now, because what it reads has been rewritten."""
        self._unknown.clear()

    def array(self, value: Value) -> np.ndarray | None:
        """As `Draft.known`."""
        found = self._of(value.node, _DEPTH)
        return None if found is None else found[value.index]

    def _of(self, number: int, depth: int) -> Arrays | None:
        if number in self._found:
            return self._found[number]
        if not self._is_constant(number) or not depth or number in self._unknown:
            return None
        node = self._node(number)
        operands = [self._of(v.node, depth - 1) for v in node.inputs]
        arrays = tuple(
            found[v.index]
            for v, found in zip(node.inputs, operands, strict=True)
            if found is not None
        )
        found = self._compute(number, node, arrays) if len(arrays) == len(operands) else None
        if found is None:
            self._unknown.add(number)
        else:
            self._found[number] = found
        return found

    def _compute(self, number: int, node: Node, arrays: Arrays) -> Arrays | None:
        call, spec = self._call(number), node.spec
        if 0 in (t.size for t in node.types):
            return tuple(np.empty(t.shape, t.dtype.numpy) for t in node.types)
        if spec.family is Family.SOURCE:
            return _source(node)
        if spec.family is Family.ELEMENTWISE:
            return _elementwise(node, call, arrays)
        moved = _MOVES.get(node.op)
        if moved is not None:
            result = moved(call, arrays)
            return None if result is None else (compressed(result),)
        return _run(spec, call, arrays)


def compressed(array: np.ndarray) -> np.ndarray:
    """`array` with extent 1 along axes along which all elements are the same, bit for bit."""
    for axis in range(array.ndim):
        if array.shape[axis] > 1:
            first = array.take([0], axis=axis)
            bits = array.view(f"u{array.itemsize}") == first.view(f"u{array.itemsize}")
            array = first if bits.all() else array
    return array


def fits(shape: Shape) -> bool:
    """Whether a compressed array of this shape may be kept."""
    size = int(np.prod(shape))
    return size <= (LINE if max(shape, default=1) == size else PLANE)


def _run(spec: OpSpec, call: OpCall, arrays: Arrays) -> Arrays | None:
    """By the reference, where that is little work."""
    if max(t.size for t in (*call.ins, *call.outs)) > PLANE or not is_affordable(spec, call):
        return None
    full = tuple(np.broadcast_to(a, t.shape) for a, t in zip(arrays, call.ins, strict=True))
    return tuple(map(compressed, computed(spec, call, full)))


def _source(node: Node) -> Arrays | None:
    kind, attrs = node.types[0], dict(node.attrs)
    if "value" in attrs:
        small = kind.size <= PLANE * 4
        return (compressed(np.array(attrs["value"].array())),) if small else None
    axis = attrs["axis"]
    extent = kind.shape[axis]
    if extent > LINE:
        return None
    along = [extent if a == axis else 1 for a in range(kind.rank)]
    return (np.arange(extent).astype(kind.dtype.numpy).reshape(along),)


def _elementwise(node: Node, call: OpCall, arrays: Arrays) -> Arrays | None:
    shape = tuple(np.broadcast_shapes(*(a.shape for a in arrays)))
    if not fits(shape):
        return None
    ins = tuple(TensorType(shape, t.dtype) for t in call.ins)
    outs = tuple(TensorType(shape, t.dtype) for t in call.outs)
    full = tuple(np.broadcast_to(a, shape) for a in arrays)
    return tuple(map(compressed, computed(node.spec, OpCall(call.attrs, ins, outs), full)))


def _broadcast(call: OpCall, arrays: Arrays) -> np.ndarray:
    shape = [1] * call.out.rank
    for extent, dim in zip(arrays[0].shape, call["dims"], strict=True):
        shape[dim] = extent
    return arrays[0].reshape(shape)


def _transpose(call: OpCall, arrays: Arrays) -> np.ndarray:
    return arrays[0].transpose(call["perm"])


def _reverse(call: OpCall, arrays: Arrays) -> np.ndarray:
    return np.flip(arrays[0], call["axes"])


def _slice(call: OpCall, arrays: Arrays) -> np.ndarray:
    parts = zip(arrays[0].shape, call["start"], call["stop"], call["stride"], strict=True)
    return arrays[0][tuple(slice(None) if n == 1 else slice(*part) for n, *part in parts)]


def _reshape(call: OpCall, arrays: Arrays) -> np.ndarray | None:
    """Axes of which nothing changes are left out of the move."""
    (array,), source, target = arrays, call.ins[0].shape, call["shape"]
    full, made = list(array.shape), [1] * len(target)
    for theirs, ours in reshape_groups(source, target):
        if any(array.shape[a] > 1 for a in theirs):
            for a in theirs:
                full[a] = source[a]
            for a in ours:
                made[a] = target[a]
    return np.broadcast_to(array, full).reshape(made) if fits(tuple(full)) else None


def _concat(call: OpCall, arrays: Arrays) -> np.ndarray | None:
    axis = call["axis"]
    rest = np.broadcast_shapes(*(np.delete(a.shape, axis) for a in arrays))
    shapes = [(*rest[:axis], t.shape[axis], *rest[axis:]) for t in call.ins]
    total = sum(s[axis] for s in shapes)
    if not fits((*rest[:axis], total, *rest[axis:])):
        return None
    parts = zip(arrays, shapes, strict=True)
    return np.concatenate([np.broadcast_to(a, s) for a, s in parts], axis)


def _pad(call: OpCall, arrays: Arrays) -> np.ndarray | None:
    array, value = arrays
    widths = list(zip(call["low"], call["high"], strict=True))
    inner = tuple(
        own if any(width) else n
        for n, own, width in zip(array.shape, call.ins[0].shape, widths, strict=True)
    )
    outer = tuple(n + sum(width) for n, width in zip(inner, widths, strict=True))
    if not fits(outer):
        return None
    made = np.full(outer, value.reshape(()), array.dtype)
    made[tuple(slice(w[0], w[0] + n) for n, w in zip(inner, widths, strict=True))] = array
    return made


# How moves act on compressed arrays; other ops are computed on whole ones.
_MOVES: dict[str, Callable[[OpCall, Arrays], np.ndarray | None]] = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "reshape": _reshape,
    "concat": _concat,
    "pad": _pad,
}
