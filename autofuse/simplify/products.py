"""Products: transposes into their dimension numbers, and those that are no products at all."""

from __future__ import annotations

from autofuse.graph.types import Value
from autofuse.ops.contraction import dot_axes
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, rule

SIDES = ("lhs", "rhs")


def _roles(draft: Draft, at: int) -> dict[str, tuple[int, ...]]:
    return {k: tuple(v) for k, v in draft[at].attrs}


@rule("product-of-transpose", "XLA TransposeFolding, AlgebraicSimplifier dot(transpose(A), B)",
      "dot_general")  # fmt: skip
def product_of_transpose(draft: Draft, at: int) -> Replacement:
    """A transpose of an operand goes into the dimension numbers, where the order of the free axes,
    and so of the result's, stays."""
    attrs, operands = _roles(draft, at), list(draft[at].inputs)
    changed = False
    for k, side in enumerate(SIDES):
        value = operands[k]
        if not draft.is_op(value, "transpose"):
            continue
        perm = draft.attr(value, "perm")
        used = {*attrs[f"{side}_contract"], *attrs[f"{side}_batch"]}
        free = [perm[a] for a in range(len(perm)) if a not in used]
        if free != sorted(free):
            continue
        changed, operands[k] = True, draft.operand(value)
        for role in ("contract", "batch"):
            attrs[f"{side}_{role}"] = tuple(perm[a] for a in attrs[f"{side}_{role}"])
    return draft.add("dot_general", *operands, **attrs) if changed else None


@rule(
    "transpose-of-product", "XLA AlgebraicSimplifier transpose(dot(A, B)) => dot(B, A)", "transpose"
)
def transpose_of_product(draft: Draft, at: int) -> Replacement:
    """Rows and columns change places with the operands."""
    node = draft[at]
    inner, perm = node.inputs[0], dict(node.attrs)["perm"]
    if not draft.is_op(inner, "dot_general") or not draft.alone(inner):
        return None
    roles = dot_axes(draft.call(inner.node))
    batch, rows = len(roles.lhs_batch), len(roles.lhs_free)
    end = batch + rows + len(roles.rhs_free)
    swapped = (*range(batch), *range(batch + rows, end), *range(batch, batch + rows))
    if tuple(perm) != swapped:
        return None
    attrs = _roles(draft, inner.node)
    turned = {f"{s}_{r}": attrs[f"{t}_{r}"] for s, t in (SIDES, SIDES[::-1]) for r in
              ("contract", "batch")}  # fmt: skip
    return draft.add("dot_general", *draft[inner.node].inputs[::-1], **turned)


@rule("product-without-sum", "XLA AlgebraicSimplifier dot strength reduction (degenerate)",
      "dot_general")  # fmt: skip
def product_without_sum(draft: Draft, at: int) -> Replacement:
    """Where one term is summed, the product is elementwise. (The sign of a sum that is zero depends
    on where a kernel begins to add, and is nobody's to rely on.)"""
    node, attrs = draft[at], _roles(draft, at)
    lhs, rhs = node.inputs
    if any(draft.shape(lhs)[a] != 1 for a in attrs["lhs_contract"]):
        return None
    roles, out = dot_axes(draft.call(at)), node.types[0].shape
    batch, rows = len(roles.lhs_batch), len(roles.lhs_free)
    left = _lined_up(draft, lhs, roles.lhs_batch, roles.lhs_free, roles.lhs_contract)
    right = _lined_up(draft, rhs, roles.rhs_batch, roles.rhs_free, roles.rhs_contract)
    return draft.add(
        "mul",
        draft.spread(left, out, range(batch + rows)),
        draft.spread(right, out, [*range(batch), *range(batch + rows, len(out))]),
    )


def _lined_up(
    draft: Draft, value: Value, batch: tuple[int, ...], free: tuple[int, ...], gone: tuple[int, ...]
) -> Value:
    """An operand with its batch axes first, then the free ones, the last without extent."""
    shape = draft.shape(value)
    moved = draft.transpose(value, (*batch, *free, *gone))
    return draft.reshape(moved, [shape[a] for a in (*batch, *free)])


@rule("unit-contraction", "XLA DotDimensionMerger / degenerate dims of dot", "dot_general")
def unit_contraction(draft: Draft, at: int) -> Replacement:
    """Contracted axes of extent 1 beside others are dropped."""
    attrs, operands = _roles(draft, at), list(draft[at].inputs)
    lhs_shape = draft.shape(operands[0])
    pairs = list(zip(attrs["lhs_contract"], attrs["rhs_contract"], strict=True))
    unit = [p for p in pairs if lhs_shape[p[0]] == 1]
    if not unit or len(unit) == len(pairs):
        return None
    for k, side in enumerate(SIDES):
        operands[k], places = _without(draft, operands[k], {p[k] for p in unit})
        for role in ("contract", "batch"):
            key = f"{side}_{role}"
            attrs[key] = tuple(places[a] for a in attrs[key] if a in places)
    return draft.add("dot_general", *operands, **attrs)


def _without(draft: Draft, value: Value, unit: set[int]) -> tuple[Value, dict[int, int]]:
    """A value without axes of extent 1, and where the others are then."""
    shape = draft.shape(value)
    kept = [a for a in range(len(shape)) if a not in unit]
    return draft.reshape(value, [shape[a] for a in kept]), {a: k for k, a in enumerate(kept)}


@rule("product-with-ones", "XLA AlgebraicSimplifier dot(A, broadcast(1)) => reduce", "dot_general")
def product_with_ones(draft: Draft, at: int) -> Replacement:
    """A product with ones is a sum, repeated along the axes of the ones."""
    node, roles = draft[at], dot_axes(draft.call(at))
    for k in (0, 1):
        if draft.uniform(node.inputs[1 - k]) != 1:
            continue
        batch, free, gone = (
            (roles.lhs_batch, roles.lhs_free, roles.lhs_contract),
            (roles.rhs_batch, roles.rhs_free, roles.rhs_contract),
        )[k]
        value = node.inputs[k]
        kept = [a for a in range(len(draft.shape(value))) if a not in gone]
        if gone:
            value = draft.add("reduce_sum", value, axes=tuple(sorted(gone)))
        value = draft.transpose(value, [kept.index(a) for a in (*batch, *free)])
        first = len(batch) + (len(roles.lhs_free) if k else 0)
        dims = [*range(len(batch)), *range(first, first + len(free))]
        return draft.spread(value, node.types[0].shape, dims)
    return None
