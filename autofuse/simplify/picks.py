"""Gathers whose indices are known, or say nothing new."""

from __future__ import annotations

import numpy as np

from autofuse.graph.types import Value
from autofuse.simplify.cuts import parts_of, taken
from autofuse.simplify.draft import Draft
from autofuse.simplify.moves import squeezed
from autofuse.simplify.rules import Replacement, rule
from autofuse.simplify.written import progression

# Runs of indices that a gather may become a concat of.
_MOST_RUNS = 4


@rule("known-indices", "XLA GatherSimplifier, gather => slice; Inductor", "gather")
def known_indices(draft: Draft, at: int) -> Replacement:
    """A gather of evenly spaced places is a slice, reversed where they descend; of one place it is
    repeated; of a few runs they are concatenated."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    x, indices = node.inputs
    found, extent = draft.known(indices), draft.shape(x)[axis]
    if found is None or not node.types[0].size:
        return None
    varying = [a for a, n in enumerate(found.shape) if n > 1]
    if len(varying) > 1:
        return None
    places = np.clip(found.reshape(-1).astype(np.int64), 0, extent - 1)
    runs = _runs(places)
    if runs is None:
        return None
    rows = draft.concat([_taken(draft, x, axis, run) for run in runs], axis)
    picked = draft.shape(indices)
    shape, kept = draft.shape(x), [picked[a] for a in varying]
    line = draft.reshape(rows, (*shape[:axis], *kept, *shape[axis + 1 :]))
    dims = [*range(axis), *(axis + a for a in varying)]
    dims += range(axis + len(picked), len(node.types[0].shape))
    return draft.spread(line, node.types[0].shape, dims)


def _runs(places: np.ndarray) -> list[np.ndarray] | None:
    """Places cut into evenly spaced runs; None where there are many."""
    if places.size == 1:
        return [places]
    runs: list[np.ndarray] = []
    rest = places
    while rest.size:
        if len(runs) == _MOST_RUNS:
            return None
        steps = np.diff(rest)
        changes = np.flatnonzero(steps != steps[0]) if steps.size else steps
        length = int(changes[0]) + 1 if changes.size else rest.size
        if steps.size and steps[0] == 0:
            return None
        runs.append(rest[:length])
        rest = rest[length:]
    return runs


def _taken(draft: Draft, x: Value, axis: int, run: np.ndarray) -> Value:
    """The slice of evenly spaced places, in their order."""
    shape = draft.shape(x)
    even = progression(run) if run.size > 1 else (int(run[0]), 1)
    assert even is not None
    step = even[1]
    low, high = sorted((int(run[0]), int(run[-1])))
    parts = [(0, n, 1) for n in shape]
    parts[axis] = (low, high + 1, abs(step))
    names = ("start", "stop", "stride")
    found = draft.add("slice", x, **dict(zip(names, zip(*parts, strict=True), strict=True)))
    return found if step > 0 else draft.add("reverse", found, axes=(axis,))


@rule("gather-of-positions", "XLA AlgebraicSimplifier gather(iota)", "gather")
def gather_of_positions(draft: Draft, at: int) -> Replacement:
    """A gather along the axis that an iota counts gives the indices, kept within it."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    x, indices = node.inputs
    if not draft.is_op(x, "iota") or draft.attr(x, "axis") != axis:
        return None
    kind = draft.type_of(indices)
    holds = draft.shape(x)[axis] - 1 <= np.iinfo(kind.dtype.numpy).max
    if draft.dtype(x) is not kind.dtype or not holds:
        return None
    kept = draft.add(
        "clamp", indices, draft.full(0, kind), draft.full(draft.shape(x)[axis] - 1, kind)
    )
    rank = len(kind.shape)
    return draft.spread(kept, node.types[0].shape, range(axis, axis + rank))


@rule("gather-of-broadcast", "XLA GatherSimplifier", "gather")
def gather_of_broadcast(draft: Draft, at: int) -> Replacement:
    """A gather along an axis that repeats is a broadcast to the shape it has."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    x, indices = node.inputs
    if not draft.is_op(x, "broadcast") or axis in draft.attr(x, "dims"):
        return None
    more = len(draft.shape(indices)) - 1
    dims = [d if d < axis else d + more for d in draft.attr(x, "dims")]
    return draft.spread(draft.operand(x), node.types[0].shape, dims)


@rule("gather-clips-itself", "autofuse: a gather keeps indices within the axis", "gather")
def gather_clips_itself(draft: Draft, at: int) -> Replacement:
    """max(i, c <= 0), min(i, c >= last) and clamps to the axis make no difference to a gather."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    x, indices = node.inputs
    last = draft.shape(x)[axis] - 1
    if not draft.is_op(indices, "max", "min", "clamp"):
        return None
    inner, *limits = draft[indices.node].inputs
    numbers = [draft.uniform(v) for v in limits]
    if any(n is None for n in numbers):
        return None
    first, final = int(numbers[0] or 0), int(numbers[-1] or 0)
    idle = {
        "max": first <= 0,
        "min": first >= last,
        "clamp": first <= 0 and final >= last,
    }[draft.node(indices).op]
    return draft.add("gather", x, inner, axis=axis) if idle else None


@rule("gather-at-unit-axes", "XLA GatherSimplifier (degenerate dims)", "gather")
def gather_at_unit_axes(draft: Draft, at: int) -> Replacement:
    """gather(x, reshape(i)) -> reshape(gather(x, i)): axes of extent 1 are added afterwards."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    x, indices = node.inputs
    if not draft.is_op(indices, "reshape"):
        return None
    inner = draft.operand(indices)
    if 1 in draft.shape(inner) or draft.shape(inner) != squeezed(draft.shape(indices)):
        return None
    return draft.reshape(draft.add("gather", x, inner, axis=axis), node.types[0].shape)


@rule("slice-of-gather", "XLA AlgebraicSimplifier slice(gather); Inductor", "slice")
def slice_of_gather(draft: Draft, at: int) -> Replacement:
    """A slice of a gather that nothing else reads takes fewer indices, of less."""
    inner, parts = draft[at].inputs[0], parts_of(draft, Value(at))
    if not draft.is_op(inner, "gather") or not draft.alone(inner):
        return None
    x, indices = draft[inner.node].inputs
    axis = draft.attr(inner, "axis")
    end = axis + len(draft.shape(indices))
    whole = (0, draft.shape(x)[axis], 1)
    less = taken(draft, x, (*parts[:axis], whole, *parts[end:]))
    return draft.add("gather", less, taken(draft, indices, parts[axis:end]), axis=axis)
