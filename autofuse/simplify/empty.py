"""Arrays without elements: what has none is a constant, and what reads none is known."""

from __future__ import annotations

import numpy as np

from autofuse.ops.spec import Family, OpSpec
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, rule


def _computes(spec: OpSpec) -> bool:
    return spec.name not in ("input", "constant")


@rule("nothing-made", "XLA ZeroSizedHloElimination", _computes, first=True)
def nothing_made(draft: Draft, at: int) -> Replacement:
    """What has no elements -> a number repeated no times."""
    node = draft[at]
    if not node.types or any(type_.size for type_ in node.types):
        return None
    if node.op == "broadcast" and draft.uniform(node.inputs[0]) is not None:
        return None
    return tuple(draft.full(0, type_) for type_ in node.types)


def _folds(spec: OpSpec) -> bool:
    return spec.family in (Family.REDUCTION, Family.CONTRACTION)


@rule("nothing-folded", "XLA AlgebraicSimplifier reduce and dot of zero elements", _folds)
def nothing_folded(draft: Draft, at: int) -> Replacement:
    """A fold of no elements -> what the fold begins with."""
    node, call = draft[at], draft.call(at)
    if all(type_.size for type_ in call.ins) or not call.out.size:
        return None
    arrays = tuple(np.empty(t.shape, t.dtype.reference) for t in call.ins)
    if node.spec.family is Family.CONTRACTION:
        return draft.full(0, call.out)
    if call.ins[0].size or node.spec.fold is None or node.spec.fold.operator is None:
        return None
    (found,) = node.spec.reference(arrays, call)
    return draft.full(found.reshape(-1)[0], call.out)


def _updates(spec: OpSpec) -> bool:
    return spec.family is Family.SCATTER or spec.name == "dynamic_update_slice"


@rule("nothing-written", "XLA ZeroSizedHloElimination (scatter, dynamic-update-slice)", _updates)
def nothing_written(draft: Draft, at: int) -> Replacement:
    """An update of no elements -> what it was to change."""
    values = draft[at].inputs
    update = values[2] if draft[at].spec.family is Family.SCATTER else values[1]
    return values[0] if not draft.type_of(update).size else None
