"""Reshapes, transposes, broadcasts and reversals: one of each where there were several."""

from __future__ import annotations

from autofuse.graph.types import Value
from autofuse.ops.views import reshape_groups
from autofuse.simplify.draft import Draft
from autofuse.simplify.patterns import WHOLE, Bindings, Identity, holes, ops, rewrite
from autofuse.simplify.rules import Replacement, rule

Shape = tuple[int, ...]


@rule("nothing-moved", "XLA AlgebraicSimplifier; Inductor remove_no_ops, pointless_view",
      "reshape", "transpose", "broadcast", "reverse", "slice", "pad", "concat")  # fmt: skip
def nothing_moved(draft: Draft, at: int) -> Replacement:
    """A move that leaves every element where it was."""
    node = draft[at]
    source, attrs = node.inputs[0], dict(node.attrs)
    if draft.shape(source) != node.types[0].shape:
        return None
    perm = attrs.get("perm")
    turned = [a for a in attrs.get("axes", ()) if draft.shape(source)[a] > 1]
    others = node.inputs[1:] if node.op == "concat" else ()
    still = perm is None or tuple(perm) == tuple(range(len(perm)))
    return source if still and not turned and not others else None


def _in_shape(draft: Draft, bound: Bindings) -> bool:
    return draft.shape(bound["x"]) == draft.shape(bound[WHOLE])


(x,) = holes("x")
(reshape,) = ops("reshape")

rewrite(
    "moves", "reshape-of-reshape",
    "XLA AlgebraicSimplifier HandleReshape; Inductor pointless_view_pair",
    "reshape(reshape(x)) -> reshape(x).",
    Identity(reshape(reshape(x)), x, _in_shape),
    Identity(reshape(reshape(x)), reshape(x)),
)  # fmt: skip


@rule("reshape-of-broadcast", "XLA AlgebraicSimplifier reshape(broadcast(A))", "reshape")
def reshape_of_broadcast(draft: Draft, at: int) -> Replacement:
    """reshape(broadcast(x)) -> broadcast(reshape(x)) where no group of axes that becomes others
    has both axes of x and repeated ones."""
    inner, target = draft[at].inputs[0], draft[at].types[0].shape
    if not draft.is_op(inner, "broadcast") or 0 in target:
        return None
    x, own = draft.operand(inner), set(draft.attr(inner, "dims"))
    shape = draft.shape(inner)
    dims: list[int] = []
    kept: list[int] = []
    for theirs, ours in reshape_groups(shape, target):
        large = {a for a in theirs if shape[a] > 1}
        if not large & own:
            continue
        if not large <= own:
            return None
        dims += ours
        kept += [target[a] for a in ours]
    return draft.spread(draft.reshape(x, kept), target, dims)


@rule("transpose-of-transpose", "XLA AlgebraicSimplifier HandleTranspose; "
      "Inductor pointless_permute_pair", "transpose")  # fmt: skip
def transpose_of_transpose(draft: Draft, at: int) -> Replacement:
    """One permutation instead of two."""
    inner, perm = draft[at].inputs[0], dict(draft[at].attrs)["perm"]
    if not draft.is_op(inner, "transpose"):
        return None
    before = draft.attr(inner, "perm")
    return draft.transpose(draft.operand(inner), [before[p] for p in perm])


@rule("unit-axes-transposed", "XLA AlgebraicSimplifier transpose => reshape (degenerate dims)",
      "transpose")  # fmt: skip
def unit_axes_transposed(draft: Draft, at: int) -> Replacement:
    """A transpose of which only axes of extent 1 change places is a reshape."""
    node = draft[at]
    shape = draft.shape(node.inputs[0])
    kept = [p for p in dict(node.attrs)["perm"] if shape[p] != 1]
    return draft.reshape(node.inputs[0], node.types[0].shape) if kept == sorted(kept) else None


@rule("transpose-of-broadcast", "XLA AlgebraicSimplifier transpose(broadcast(A))", "transpose")
def transpose_of_broadcast(draft: Draft, at: int) -> Replacement:
    """transpose(broadcast(x)) -> broadcast(transpose(x)): fewer elements change places."""
    node = draft[at]
    inner, perm = node.inputs[0], dict(node.attrs)["perm"]
    if not draft.is_op(inner, "broadcast"):
        return None
    dims = draft.attr(inner, "dims")
    new = [(perm.index(d), i) for i, d in enumerate(dims)]
    x = draft.transpose(draft.operand(inner), [i for _, i in sorted(new)])
    return draft.spread(x, node.types[0].shape, sorted(p for p, _ in new))


def squeezed(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def _large(shape: Shape) -> list[int]:
    """Axes whose extent is not 1."""
    return [a for a, n in enumerate(shape) if n != 1]


@rule(
    "transpose-of-unit-axes", "XLA AlgebraicSimplifier (degenerate dims); ReshapeMover", "transpose"
)
def transpose_of_unit_axes(draft: Draft, at: int) -> Replacement:
    """transpose(reshape(x)) -> reshape(transpose(x)) where the reshape only adds or drops axes of
    extent 1."""
    node = draft[at]
    inner, perm = node.inputs[0], dict(node.attrs)["perm"]
    if not draft.is_op(inner, "reshape"):
        return None
    x, shape = draft.operand(inner), draft.shape(inner)
    own = draft.shape(x)
    if squeezed(own) != squeezed(shape):
        return None
    where = dict(zip(_large(shape), _large(own), strict=True))
    order = iter([where[p] for p in perm if p in where])
    moved = [next(order) if n != 1 else a for a, n in enumerate(own)]
    return draft.reshape(draft.transpose(x, moved), node.types[0].shape)


@rule("broadcast-of-broadcast", "XLA AlgebraicSimplifier HandleBroadcast", "broadcast")
def broadcast_of_broadcast(draft: Draft, at: int) -> Replacement:
    """One broadcast instead of two."""
    node = draft[at]
    inner, dims = node.inputs[0], dict(node.attrs)["dims"]
    if not draft.is_op(inner, "broadcast"):
        return None
    own = [dims[d] for d in draft.attr(inner, "dims")]
    return draft.spread(draft.operand(inner), node.types[0].shape, own)


@rule("broadcast-of-unit-axes", "XLA AlgebraicSimplifier broadcast(reshape(A))", "broadcast")
def broadcast_of_unit_axes(draft: Draft, at: int) -> Replacement:
    """A broadcast reads no axes of extent 1; and one that only adds such axes is a reshape."""
    node = draft[at]
    inner, shape, dims = node.inputs[0], node.types[0].shape, dict(node.attrs)["dims"]
    own = draft.shape(inner)
    if squeezed(own) == squeezed(shape):
        return draft.reshape(inner, shape)
    if 1 not in own:
        return None
    kept = [d for d, n in zip(dims, own, strict=True) if n != 1]
    return draft.spread(draft.reshape(inner, squeezed(own)), shape, kept)


@rule("reverse-of-reverse", "XLA AlgebraicSimplifier HandleReverse", "reverse")
def reverse_of_reverse(draft: Draft, at: int) -> Replacement:
    """Axes turned twice stay; axes of extent 1, or that repeat, need no turning."""
    node = draft[at]
    inner, axes = node.inputs[0], set(dict(node.attrs)["axes"])
    source = inner
    wanted = {a for a in axes if draft.shape(inner)[a] > 1}
    if draft.is_op(inner, "reverse"):
        source, wanted = draft.operand(inner), wanted ^ set(draft.attr(inner, "axes"))
    elif draft.is_op(inner, "broadcast"):
        wanted &= set(draft.attr(inner, "dims"))
    if source == inner and wanted == axes:
        return None
    return turned(draft, source, wanted)


def turned(draft: Draft, value: Value, axes: set[int]) -> Value:
    """`value` reversed along `axes`."""
    return draft.add("reverse", value, axes=tuple(sorted(axes))) if axes else value
