"""Windows of pooling that reach over the ends of what they slide over.

Taps of convolutions are not cut: nothing by an infinite weight is no number.
"""

from __future__ import annotations

from autofuse.ops.sliding import trimmed
from autofuse.ops.window_reduction import sliding_axes
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, rule

_POOLING = {f"reduce_window_{fold}": f"reduce_{fold}" for fold in ("sum", "prod", "max", "min")}


@rule("window-trimmed", "XLA AlgebraicSimplifier", *_POOLING)
def window_trimmed(draft: Draft, at: int) -> Replacement:
    """Taps of a window that meet only what is beyond the ends are cut off."""
    node, axes = draft[at], sliding_axes(draft.call(at))
    found = tuple(map(trimmed, axes))
    if found == axes:
        return None
    attrs = dict(node.attrs)
    attrs |= {"window": tuple(axis.size for axis in found)}
    attrs |= {end: tuple(getattr(axis, end) for axis in found) for end in ("low", "high")}
    return draft.add(node.op, *node.inputs, **attrs)


@rule("window-of-all", "XLA AlgebraicSimplifier", *_POOLING)
def window_of_all(draft: Draft, at: int) -> Replacement:
    """Windows that each hold all of some axes, and one element of the others, fold these axes."""
    node, axes = draft[at], sliding_axes(draft.call(at))
    folded = tuple(k for k, axis in enumerate(axes) if not axis.passes)
    if not folded or not all(axes[k].is_whole for k in folded):
        return None
    return draft.reshape(draft.add(_POOLING[node.op], *node.inputs, axes=folded),
                         node.types[0].shape)  # fmt: skip
