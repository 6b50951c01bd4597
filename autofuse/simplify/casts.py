"""Conversions that nothing is lost by, and back."""

from __future__ import annotations

from autofuse.ops.dtypes import DType
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, rule

# Bits of the whole numbers that a float has all of.
MANTISSA = {DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8}
# Each has every number of those it maps to.
_WIDER = {
    DType.F64: (DType.F32, DType.F16, DType.BF16),
    DType.F32: (DType.F16, DType.BF16),
}


def keeps(narrow: DType, wide: DType) -> bool:
    """Whether every number of `narrow` is one of `wide`."""
    if narrow is wide or narrow is DType.BOOL:
        return True
    if wide is DType.BOOL:
        return False
    if narrow.is_float:
        return narrow in _WIDER.get(wide, ())
    bits = 8 * narrow.itemsize - narrow.is_signed
    if wide.is_float:
        return bits <= MANTISSA[wide]
    room = 8 * wide.itemsize - wide.is_signed
    return bits <= room and (wide.is_signed or not narrow.is_signed)


@rule("cast-of-cast", "XLA SimplifyFPConversions, convert(convert(A)); LLVM InstCombine; "
      "Inductor pointless_convert", "cast")  # fmt: skip
def cast_of_cast(draft: Draft, at: int) -> Replacement:
    """A conversion to the own dtype is none; one to a dtype that has all the numbers makes no
    difference to the next."""
    node = draft[at]
    inner, target = node.inputs[0], node.types[0].dtype
    if draft.dtype(inner) is target:
        return inner
    if not draft.is_op(inner, "cast"):
        return None
    x = draft.operand(inner)
    source, middle = draft.dtype(x), draft.dtype(inner)
    if not keeps(source, middle):
        return None
    # Whole numbers wrap on their way to others, but a float in between saturates.
    saturates = middle.is_float and not source.is_float and target.is_int
    if saturates and not keeps(source, target):
        return None
    return x if source is target else draft.add("cast", x, dtype=str(target))


@rule(
    "bitcast-of-bitcast", "XLA AlgebraicSimplifier bitcast-convert(bitcast-convert(A))", "bitcast"
)
def bitcast_of_bitcast(draft: Draft, at: int) -> Replacement:
    """The same bits, whatever they were called in between."""
    node = draft[at]
    inner, target = node.inputs[0], node.types[0].dtype
    source = draft.operand(inner) if draft.is_op(inner, "bitcast") else inner
    if draft.dtype(source) is target:
        return source
    return None if source == inner else draft.add("bitcast", source, dtype=str(target))
