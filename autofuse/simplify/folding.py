"""Constants: what depends on literals and positions alone is computed now."""

from __future__ import annotations

from autofuse.graph.types import Value
from autofuse.ops.spec import Family, OpSpec
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, rule
from autofuse.simplify.written import SMALL, written


def _foldable(spec: OpSpec) -> bool:
    return spec.family not in (Family.CONTROL, Family.RANDOM) and spec.name != "input"


# A literal that is computed may be as large as those it is computed from.
_ROOM = 1 << 16


@rule("constant-folding", "XLA HloConstantFolding; Inductor UniformValueConstantFolder", _foldable,
      first=True)  # fmt: skip
def constant_folding(draft: Draft, at: int) -> Replacement:
    """A constant in its one form: see `written`."""
    node, value = draft[at], Value(at)
    if not draft.is_constant(value) or len(node.types) > 1:
        return None
    if _is_number(draft, value) or (node.op == "broadcast" and _is_number(draft, node.inputs[0])):
        return value
    array = draft.known(value)
    if array is None:
        return None
    literals = [draft.type_of(v).size for v in node.inputs if draft.is_op(v, "constant")]
    own = node.types[0].size if node.op == "constant" else 0
    room = min(_ROOM, max([SMALL, own, *literals]))
    return written(draft, array, node.types[0], room)


def _is_number(draft: Draft, value: Value) -> bool:
    return draft.is_op(value, "constant") and not draft.shape(value)
