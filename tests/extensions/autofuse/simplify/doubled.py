"""x + x is x * 2."""

from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, rule


@rule("doubled", "LLVM InstCombine (the other way round)", "add")
def doubled(draft: Draft, at: int) -> Replacement:
    """x + x -> x * 2, which rounds as little, for every number."""
    x, y = draft[at].inputs
    return draft.add("mul", x, draft.full(2, draft.type_of(x))) if x == y else None
